"""Errors that struck single clients, until the shell takes them."""

from __future__ import annotations

from timebound.core.sessions.faults import FAULTS_MAX, Faults


def test_faults_are_taken_once_and_in_order() -> None:
    faults = Faults()
    errors = [ValueError("first"), KeyError("second")]
    faults.note("a", 3, errors[0])
    faults.note("b", 0, errors[1])

    taken = faults.take()

    assert [(fault.client_id, fault.connection) for fault in taken] == [("a", 3), ("b", 0)]
    assert [fault.error for fault in taken] == errors
    assert faults.take() == []


def test_what_comes_later_does_not_change_what_was_taken() -> None:
    faults = Faults()
    faults.note("a", 1, ValueError())
    taken = faults.take()

    faults.note("b", 2, ValueError())

    assert [fault.client_id for fault in taken] == ["a"]
    assert [fault.client_id for fault in faults.take()] == ["b"]


def test_only_the_first_hundred_of_a_turn_are_kept() -> None:
    faults = Faults()
    for number in range(FAULTS_MAX + 5):
        faults.note("c", number, ValueError())

    assert [fault.connection for fault in faults.take()] == list(range(100))
    faults.note("c", 7, ValueError())
    assert [fault.connection for fault in faults.take()] == [7]
