"""Filtering: what an event of a type and source means to a consumer."""

from __future__ import annotations

import pytest
from tests.channel.doubles import Clock, Recorder, reactive

from timebound.channel.base.consumer import PLAIN, Consumer
from timebound.channel.base.dependency import Part, all_of, any_of, event, every, source
from timebound.channel.base.event import TIMEOUT
from timebound.channel.base.filtering import Broadcast, Filtering, Subscriptions
from timebound.core.correlation.expression import SIGNALS_MAX, Correlator


@pytest.fixture
def consumers() -> list[Consumer]:
    """Consumers of a carrier that never runs."""
    carrier = reactive()
    return [
        carrier.connect(print, "a"),
        carrier.connect(print, all_of("a", "b", "a")),
        carrier.connect(print, "a", where=bool),
        carrier.connect(print, every("1s")),
        carrier.connect_gateway(print, "gateway"),
    ]


def masks(filtering: Filtering, consumers: list[Consumer], event_type: str) -> list[int]:
    return [filtering.mask(consumer, event_type, "s") for consumer in consumers]


def test_subscriptions_name_the_leaves_that_an_event_fits(consumers: list[Consumer]) -> None:
    assert masks(Subscriptions(), consumers, "a") == [PLAIN, 0b101, 0b1, 0, 0]
    assert masks(Subscriptions(), consumers, "b") == [0, 0b010, 0, 0, 0]


def test_mask_carries_the_generation_of_a_replaced_dependency(consumers: list[Consumer]) -> None:
    changed = consumers[1]
    changed.correlator = Correlator(all_of("b", "a"))
    changed.generation = 3

    assert Subscriptions().mask(changed, "a", "s") == 0b10 | 3 << SIGNALS_MAX
    assert Subscriptions().mask(changed, "c", "s") == 0


def test_broadcast_leaves_out_timers_and_what_gateways_do_not_want(consumers: list[Consumer]) -> None:
    gateway = consumers[4]
    assert masks(Broadcast(), consumers, "a") == [PLAIN, PLAIN, PLAIN, 0, 0]

    gateway.correlator = Correlator(any_of("a", "b"))

    assert [Broadcast().mask(gateway, event_type, "s") for event_type in "abc"] == [PLAIN, PLAIN, 0]


def test_route_keeps_the_order_of_the_consumers_it_has(consumers: list[Consumer]) -> None:
    route = Subscriptions().route(list(reversed(consumers)), "a", "s")

    assert [(link.consumer, link.mask) for link in route] == [
        (consumers[2], 0b1),
        (consumers[1], 0b101),
        (consumers[0], PLAIN),
    ]


@pytest.mark.parametrize(
    ("dependency", "expected"),
    [
        (event("a"), [1, 3]),
        (source("left"), [1, 2]),
        (event("a", source="right"), [3]),
        (event(), [1, 2, 3]),
        (None, [1, 2, 3]),
        ("b", [2]),
    ],
)
def test_dependencies_select_by_type_source_or_both(dependency: Part | None, expected: list[int]) -> None:
    got = Recorder()
    with reactive() as carrier:
        carrier.connect(got, dependency)
        left = carrier.supplier("l", "a", "b", source="left")
        right = carrier.supplier("r", "a", source="right")
        left.push("a", 1)
        left.push("b", 2)
        right.push("a", 3)

    assert got.payloads == expected


def test_timer_only_consumer_of_a_broadcast_channel_gets_no_events() -> None:
    got, clock = Recorder(), Clock()
    with reactive(clock=clock, filtering=Broadcast()) as carrier:
        carrier.connect(got, every(5))
        carrier.supplier("s", "a").push("a")
        carrier.wake(5)

    assert [e.type for e in got.events] == [TIMEOUT]


def test_modules_are_of_their_own_kind_and_of_no_other() -> None:
    broadcast = Broadcast()

    assert isinstance(broadcast, Filtering)
    assert not isinstance(broadcast, Subscriptions)
    assert issubclass(Subscriptions, Filtering)
