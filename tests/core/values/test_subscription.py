"""Subscriptions: their terms in millionths, what is free, and what they wait for."""

from __future__ import annotations

import pytest

from timebound.core.values.subscription import Subscription
from timebound.terms import Terms
from timebound.units import SECOND


@pytest.mark.parametrize(
    ("price", "micro"),
    [(1.0, 1_000_000), (0.1, 100_000), (0.29, 290_000), (4e-7, 0), (6e-7, 1), (123_456.789, 123_456_789_000)],
)
def test_money_counts_in_millionths(price: float, micro: int) -> None:
    subscription = Subscription(client_id="c", topic_filter="t", terms=Terms(price=price, penalty=2 * price))

    assert subscription.price_micro == micro
    assert Subscription(client_id="c", topic_filter="t", terms=Terms(penalty=price)).penalty_micro == micro
    assert (subscription.price, subscription.penalty) == (price, 2 * price)


@pytest.mark.parametrize("topic_filter", ["$SYS/#", "$timebound/missed", "$share/group/$SYS/broker"])
def test_what_the_broker_itself_publishes_is_free(topic_filter: str) -> None:
    subscription = Subscription(client_id="c", topic_filter=topic_filter, terms=Terms(price=3.0, penalty=2.0))

    assert subscription.is_free
    assert (subscription.price, subscription.penalty) == (0.0, 0.0)
    assert (subscription.price_micro, subscription.penalty_micro) == (0, 0)
    assert subscription.free() is subscription


@pytest.mark.parametrize("topic_filter", ["#", "SYS/#", "$other/a", "$SYSTEM/a", "$share/$SYS/a"])
def test_other_topics_are_not_free(topic_filter: str) -> None:
    assert not Subscription(client_id="c", topic_filter=topic_filter).is_free


def test_free_terms_earn_nothing_and_are_the_same_otherwise() -> None:
    paying = Subscription(
        client_id="c",
        topic_filter="t",
        qos=1,
        identifier=7,
        terms=Terms(
            deadline_ns=5, price=3.0, penalty=2.0, keep_last=True, is_ordered=True, notify_missed=True
        ),
    )

    free = paying.free()

    assert free is paying.free()
    assert free.is_free
    assert (free.price, free.penalty, free.price_micro, free.penalty_micro) == (0.0, 0.0, 0, 0)
    assert (free.client_id, free.topic_filter, free.qos, free.identifier) == ("c", "t", 1, 7)
    assert (free.deadline_ns, free.keep_last, free.is_ordered, free.terms.notify_missed) == (
        5,
        True,
        True,
        True,
    )
    assert (paying.is_free, paying.price) == (False, 3.0)


@pytest.mark.parametrize(
    ("deadline_ns", "keep_last", "is_timed"), [(0, False, False), (1, False, True), (0, True, True)]
)
def test_a_deadline_or_keeping_the_last_needs_a_queue_by_worth(
    deadline_ns: int, keep_last: bool, is_timed: bool
) -> None:
    assert (
        Subscription(
            client_id="c", topic_filter="t", terms=Terms(deadline_ns=deadline_ns, keep_last=keep_last)
        ).is_timed()
        is is_timed
    )


def test_without_a_dependency_there_are_no_parts_and_no_timers() -> None:
    subscription = Subscription(client_id="c", topic_filter="t", terms=Terms(where="a = 1"))

    assert (subscription.parts, subscription.parts_cost, subscription.ticks_per_hour) == ([], 0, 0)
    assert subscription.correlator is None


def test_parts_are_the_other_filters_it_waits_for_and_cost_their_levels() -> None:
    terms = Terms(correlate="all(a/b, any(c, d/+/e))", within_ns=SECOND)

    subscription = Subscription(client_id="c", topic_filter="a/b", terms=terms)

    assert subscription.parts == ["c", "d/+/e"]
    assert subscription.parts_cost == 1 + 3


def test_timers_count_by_the_hour_and_are_rounded_up() -> None:
    every = Subscription(client_id="c", topic_filter="t", terms=Terms(every_ns=7 * SECOND))
    watched = Subscription(
        client_id="c",
        topic_filter="t",
        terms=Terms(watchdog_ns=60 * SECOND),
    )

    assert every.ticks_per_hour == 515  # 514.3
    assert watched.ticks_per_hour == 60
