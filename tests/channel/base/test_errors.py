"""What the channel's errors say and carry."""

from __future__ import annotations

import pytest

from timebound.channel.base.errors import (
    ChannelError,
    ChannelFileError,
    NotSchedulable,
    QueueFull,
    UndeclaredEvent,
)
from timebound.core.input.schedulability import Available, Operation, Verdict, judge
from timebound.errors import ConfigError, TimeboundError
from timebound.units import MILLISECOND


def test_file_error_has_a_line_for_each_mistake_and_the_place_of_the_first() -> None:
    mistakes = [
        ConfigError("is wrong", path="c.toml", line=2, key="name"),
        ConfigError("is odd", path="c.toml", line=5, key="timers"),
    ]

    error = ChannelFileError(mistakes)

    assert str(error) == "c.toml:2: name: is wrong\nc.toml:5: timers: is odd"
    assert (error.path, error.line, error.key, error.mistakes) == ("c.toml", 2, "name", mistakes)
    assert isinstance(error, ChannelError)


def verdict_on(operation: Operation) -> Verdict:
    return judge([Operation("base", period_ns=10 * MILLISECOND, cost_ns=6 * MILLISECOND), operation])


@pytest.mark.parametrize(
    ("available", "offer"),
    [
        (Available(4 * MILLISECOND, 30 * MILLISECOND), "cost up to 4ms or period from 30ms"),
        (Available(4 * MILLISECOND, 0), "cost up to 4ms"),
        (Available(0, 30 * MILLISECOND), "period from 30ms"),
        (Available(0, 0), "nothing"),
    ],
)
def test_operation_that_does_not_fit_is_told_what_would(available: Available, offer: str) -> None:
    operation = Operation("more", period_ns=10 * MILLISECOND, cost_ns=5 * MILLISECOND)
    verdict = verdict_on(operation)

    error = NotSchedulable(operation, verdict, available)

    assert str(error).startswith("operation 'more' is not schedulable (period=10ms, cost=5ms): ")
    assert str(error).endswith(f", but its period is 10ms (utilisation 110.0%); available: {offer}")
    assert (error.operation, error.verdict, error.available) == (operation, verdict, available)


def test_operation_that_would_never_finish_is_told_so() -> None:
    operation = Operation("more", period_ns=10 * MILLISECOND, cost_ns=5 * MILLISECOND)
    verdict = Verdict(False, "response", 1.1, operation, 0)

    error = NotSchedulable(operation, verdict, Available(0, 0))

    assert str(error).endswith(": 'more' would never finish (utilisation 110.0%); available: nothing")


def test_undeclared_event_names_what_was_declared() -> None:
    error = UndeclaredEvent("gps", "speed", ["position", "time"])

    assert str(error) == "supplier 'gps' has not declared event type 'speed' (declared: position, time)"
    assert (error.supplier, error.event_type) == ("gps", "speed")


def test_full_queue_carries_its_limit() -> None:
    error = QueueFull(3)

    assert (str(error), error.limit) == ("queue is full (queue_max=3)", 3)
    assert isinstance(error, TimeboundError)
