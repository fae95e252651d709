"""Gates: opened before or while somebody waits, once or often, and shut again by who passes."""

from __future__ import annotations

import os
import time
from threading import Thread

from tests.channel.doubles import LIMIT_S

from timebound.channel.dispatch.gate import Alarm, Gate
from timebound.units import MILLISECOND, SECOND


def test_a_gate_is_shut_at_first() -> None:
    assert not Gate().wait(0.0)


def test_an_open_gate_lets_one_pass() -> None:
    gate = Gate()

    gate.open()

    assert gate.wait(0.0)
    assert not gate.wait(0.0)


def test_passing_by_leaves_a_gate_as_it_is() -> None:
    gate = Gate()
    gate.pass_by()
    gate.open()

    gate.pass_by()

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


def test_an_alarm_opens_at_the_last_moment_that_was_set() -> None:
    alarm = Alarm()
    begin_ns = time.monotonic_ns()
    alarm.set(begin_ns + 3600 * SECOND)
    alarm.set(begin_ns + 5 * MILLISECOND)

    alarm.wait(LIMIT_S)

    assert 5 * MILLISECOND <= time.monotonic_ns() - begin_ns < LIMIT_S * SECOND


def test_an_alarm_can_be_opened_and_is_shut_again_by_who_waited() -> None:
    alarm = Alarm()
    alarm.open()

    alarm.wait(LIMIT_S)

    begin_ns = time.monotonic_ns()
    alarm.wait(0.002)
    assert time.monotonic_ns() - begin_ns >= 2 * MILLISECOND


def test_an_alarm_of_the_past_opens_at_once() -> None:
    alarm = Alarm()
    alarm.set(0)
    begin_ns = time.monotonic_ns()

    alarm.wait(LIMIT_S)

    assert time.monotonic_ns() - begin_ns < LIMIT_S * SECOND


def test_an_alarm_nobody_has_any_more_keeps_no_files_open() -> None:
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(50):
        Alarm().set(1)

    assert len(os.listdir("/proc/self/fd")) <= before
