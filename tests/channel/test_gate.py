"""Gates: opened before or while somebody waits, once or often, and shut again by who passes."""

from __future__ import annotations

import os
from threading import Thread

from timebound.channel.gate import Gate

LIMIT_S = 10.0


def test_a_gate_is_shut_at_first() -> None:
    assert not Gate().wait(0.0)


def test_an_open_gate_lets_one_pass() -> None:
    gate = Gate()

    gate.open()

    assert gate.wait(0.0)
    assert not gate.wait(0.0)


def test_opening_again_and_again_opens_once() -> None:
    gate = Gate()

    for _ in range(3):
        gate.open()

    assert gate.wait(0.0)
    assert not gate.wait(0.0)


def test_an_open_gate_can_be_opened_without_end() -> None:
    gate = Gate()

    for _ in range(100_000):  # more than a pipe holds
        gate.open()

    assert gate.wait(0.0)


def test_who_waits_is_let_through() -> None:
    gate = Gate()
    passed: list[bool] = []
    thread = Thread(target=lambda: passed.append(gate.wait(LIMIT_S)))
    thread.start()

    gate.open()

    thread.join(LIMIT_S)
    assert passed == [True]


def test_a_gate_nobody_has_any_more_keeps_no_files_open() -> None:
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(50):
        Gate().open()

    assert len(os.listdir("/proc/self/fd")) <= before
