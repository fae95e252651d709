"""Counters of the broker, and the lines it leaves for the log."""

from __future__ import annotations

from timebound.core.account.counters import ALERTS_MAX, Counters
from timebound.core.broker import Broker
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.records import Reason


def test_counters_start_with_every_reason_at_zero() -> None:
    assert Counters().refused == {reason.value: 0 for reason in Reason}


def test_alerts_are_bounded() -> None:
    counters = Counters()

    for number in range(ALERTS_MAX + 5):
        counters.alert(str(number))

    assert len(counters.alerts) == ALERTS_MAX


def test_a_full_queue_is_told_once_until_it_was_served() -> None:
    broker = Broker(BrokerLimits(queue_messages_per_client_max=2), AccessList([]))
    session, _ = broker.connect("slow", "", True, 0, 10, None, 1, 0)
    broker.subscribe(session, Subscription(client_id="slow", topic_filter="t"), 0)

    for _ in range(5):
        broker.route(Message("t", b"x", 0, False, 0), 0)
    assert [alert[:30] for alert in broker.counters.alerts] == ["queue of client 'slow' is full"]
    broker.take_deliveries(session, 1_000_000, 0)
    for _ in range(5):
        broker.route(Message("t", b"x", 0, False, 0), 0)

    assert len(broker.counters.alerts) == 2
    assert broker.statistics().dropped["queue_full"] == 6


def test_a_message_that_cannot_be_retained_is_told_by_its_topic() -> None:
    broker = Broker(BrokerLimits(retained_messages_max=1), AccessList([]))

    broker.route(Message("one", b"x", 0, True, 0), 0)
    broker.route(Message("two", b"x", 0, True, 0), 0)

    assert [alert[:32] for alert in broker.counters.alerts] == ["message on 'two' is not retained"]


def test_new_rules_end_the_subscriptions_they_forbid() -> None:
    broker = Broker(BrokerLimits(), AccessList([]))
    session, _ = broker.connect("c", "anna", True, 0, 10, None, 1, 0)
    broker.subscribe(session, Subscription(client_id="c", topic_filter="public/#"), 0)
    broker.subscribe(session, Subscription(client_id="c", topic_filter="secret/#"), 0)

    broker.set_access(AccessList([AccessRule("anna", "all", "public/#", True)]), 0)

    assert list(session.subscriptions) == ["public/#"]
    assert broker.route(Message("secret/1", b"x", 0, False, 0), 0) == 0
    assert broker.route(Message("public/1", b"x", 0, False, 0), 0) == 1
    broker._check()
