"""Virtual time: events and their order."""

from __future__ import annotations

import pytest

from timebound.sim.kernel.kernel import Event, Kernel


class Note(Event):
    """Writes down its name and when it happened."""

    def __init__(self, name: str, notes: list[tuple[int, str]]) -> None:
        self.name = name
        self.notes = notes

    def happen(self, now_ns: int) -> None:
        self.notes.append((now_ns, self.name))


def test_events_happen_by_time_then_priority_then_order() -> None:
    kernel = Kernel()
    notes: list[tuple[int, str]] = []
    kernel.schedule(5, Note("later", notes))
    kernel.schedule(3, Note("second", notes))
    kernel.schedule(3, Note("third", notes))
    kernel.schedule(3, Note("first", notes), -1)

    assert not kernel.run(10)

    assert [name for _, name in notes] == ["first", "second", "third", "later"]
    assert kernel.events == 4


def test_run_stops_at_its_time_and_goes_on_later() -> None:
    kernel = Kernel()
    notes: list[tuple[int, str]] = []
    kernel.schedule(20, Note("late", notes))

    assert kernel.run(10)
    assert (kernel.now_ns, notes) == (10, [])

    assert not kernel.run(20)
    assert notes == [(20, "late")]


def test_the_past_cannot_be_scheduled() -> None:
    kernel = Kernel()
    kernel.schedule(5, Note("now", []))
    kernel.run(5)

    with pytest.raises(AssertionError, match="in the past"):
        kernel.schedule(4, Note("before", []))
