"""The broker as a shell calls it: what every call answers, and what there is to do after it."""

from __future__ import annotations

from timebound.core.broker import Broker
from timebound.core.link.scheduling import Scheduling
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message, MessageName
from timebound.core.values.reason_codes import (
    NO_MATCHING_SUBSCRIBERS,
    NO_SUBSCRIPTION_EXISTED,
    NOT_AUTHORIZED,
    PACKET_IDENTIFIER_NOT_FOUND,
    QUOTA_EXCEEDED,
    SESSION_TAKEN_OVER,
    SUCCESS,
)
from timebound.core.values.store_orders import Snapshot
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms
from timebound.units import SECOND

from .broker_doubles import START_NS, make_will


def broker_of(*rules: AccessRule, **limits: int) -> Broker:
    return Broker(BrokerLimits(**limits), AccessList(list(rules)))


def connected(broker: Broker, client_id: str, connection: int = 1) -> Session:
    session, _ = broker.connect(client_id, "", True, 0, 10, None, connection, START_NS)
    return session


def test_reason_codes_are_those_of_the_standard() -> None:
    # MQTT 5, 2.4
    assert (SUCCESS, NO_MATCHING_SUBSCRIBERS, NO_SUBSCRIPTION_EXISTED) == (0x00, 0x10, 0x11)
    assert (NOT_AUTHORIZED, SESSION_TAKEN_OVER, PACKET_IDENTIFIER_NOT_FOUND, QUOTA_EXCEEDED) == (
        0x87,
        0x8E,
        0x92,
        0x97,
    )


def test_connecting_again_closes_the_old_connection_once() -> None:
    broker = broker_of()
    first = connected(broker, "c", 1)

    second = connected(broker, "c", 2)

    [close] = broker.take_closes()
    assert (close.connection, close.reason_code) == (1, SESSION_TAKEN_OVER)
    assert "'c'" in close.reason
    assert broker.take_closes() == []
    assert (second.connection, broker.session("c"), broker.session_count()) == (2, second, 1)
    assert first is not second
    assert broker.counters.connections_total == 2


def test_the_end_of_an_old_connection_changes_nothing() -> None:
    broker = broker_of()
    session = connected(broker, "c", 1)
    broker.disconnect(session, 99, False, START_NS)
    assert broker.session("c") is session

    broker.disconnect(session, 1, False, START_NS)

    assert broker.session("c") is None


def test_a_limit_that_is_reached_is_named() -> None:
    broker = broker_of(
        subscriptions_per_client_max=2,
        filter_cost_per_client_max=3,
        filter_cost_total_max=4,
        ticks_per_second_max=1,
    )
    session, other = connected(broker, "c", 1), connected(broker, "d", 2)
    four = "a = 1 AND b = 2 AND c = 3 AND d = 4"
    two, three = "a = 1 AND b = 2", "a = 1 AND b = 2 AND c = 3"
    often = Subscription(client_id="c", topic_filter="t", terms=Terms(every_ns=SECOND // 2))
    assert (
        broker.subscribe(
            other, Subscription(client_id="d", topic_filter="t", terms=Terms(where=two)), START_NS
        )
        == SUCCESS
    )

    assert broker.limit_reached(session, often) == "ticks_per_second_max"
    assert (
        broker.limit_reached(session, Subscription(client_id="c", topic_filter="t", terms=Terms(where=four)))
        == "filter_cost_per_client_max"
    )
    assert (
        broker.limit_reached(session, Subscription(client_id="c", topic_filter="t", terms=Terms(where=three)))
        == "filter_cost_total_max"
    )
    assert (
        broker.limit_reached(session, Subscription(client_id="c", topic_filter="t", terms=Terms(where=two)))
        == ""
    )
    for topic_filter in ("t", "u"):
        assert (
            broker.subscribe(session, Subscription(client_id="c", topic_filter=topic_filter), START_NS)
            == SUCCESS
        )
    assert (
        broker.limit_reached(session, Subscription(client_id="c", topic_filter="v"))
        == "subscriptions_per_client_max"
    )
    assert broker.limit_reached(session, Subscription(client_id="c", topic_filter="u")) == ""
    assert (
        broker.subscribe(session, Subscription(client_id="c", topic_filter="v"), START_NS) == QUOTA_EXCEEDED
    )
    broker._check()


def test_a_session_is_ready_until_it_was_taken_and_again_when_its_socket_has_room() -> None:
    broker = broker_of()
    session = connected(broker, "c")
    assert not broker.has_ready()
    broker.subscribe(session, Subscription(client_id="c", topic_filter="t"), START_NS)
    for payload in (b"1", b"2"):
        broker.publish(session, Message("t", payload, 0, False, START_NS, "c"), 0, START_NS)

    assert broker.has_ready()
    assert broker.take_ready() == [session]
    assert not broker.has_ready()
    [first] = broker.take_deliveries(session, 1, START_NS)
    broker.put_ready(session)
    assert broker.take_ready() == [session]
    [second] = broker.take_deliveries(session, 1, START_NS)
    broker.put_ready(session)

    assert (first.message.payload, second.message.payload) == (b"1", b"2")
    assert not broker.has_ready()


def test_the_broker_asks_to_be_woken_for_the_earliest_of_its_timers() -> None:
    broker = broker_of()
    assert broker.next_wakeup_ns() is None
    session = connected(broker, "c")
    every = Subscription(client_id="c", topic_filter="tick", terms=Terms(every_ns=5 * SECOND))
    broker.subscribe(session, every, START_NS)
    assert broker.next_wakeup_ns() == START_NS + 5 * SECOND

    will = make_will("w", "gone", delay_s=2)
    dying, _ = broker.connect("w", "", True, 60, 10, will, 2, START_NS)
    broker.disconnect(dying, 2, True, START_NS)

    assert broker.next_wakeup_ns() == START_NS + 2 * SECOND
    broker.wake(START_NS + 2 * SECOND)
    assert broker.next_wakeup_ns() == START_NS + 5 * SECOND


def test_only_messages_of_the_topics_asked_for_are_kept_for_journals() -> None:
    broker = broker_of()
    assert broker.take_kept() == []
    broker.keep_topics(["kept/#"])

    for topic in ("kept/a", "other", "kept/b"):
        broker.route(Message(topic, b"", 0, False, START_NS), START_NS)

    assert [message.topic for message in broker.take_kept()] == ["kept/a", "kept/b"]
    assert broker.take_kept() == []


def test_settings_of_a_listener_reach_its_sessions_alone() -> None:
    broker = broker_of()
    delay = LinkDelay(0.5, 0.0)
    for number, listener in enumerate(("in", "in", "out"), 1):
        session = connected(broker, f"c{number}", number)
        broker.bind(session, listener, Scheduling("fifo"), delay, START_NS)
        assert session.delay is delay
    eb = Scheduling("eb")

    assert broker.set_scheduling("in", eb, START_NS) == 2

    sessions = [broker.session(f"c{number}") for number in (1, 2, 3)]
    assert [session is not None and session.scheduling is eb for session in sessions] == [True, True, False]
    assert broker.set_scheduling("nowhere", eb, START_NS) == 0


def test_what_is_retained_can_be_asked_for_and_forgotten_without_a_word() -> None:
    broker = broker_of()
    session = connected(broker, "c")
    broker.subscribe(session, Subscription(client_id="c", topic_filter="#"), START_NS)
    broker.route(Message("$SYS/x", b"5", 0, True, START_NS), START_NS)
    assert broker.retained_payload("$SYS/x") == b"5"

    broker.forget_own_retained("$SYS/x")

    assert broker.retained_payload("$SYS/x") == b""
    assert broker.take_deliveries(session, 1 << 20, START_NS) == []


def test_an_answer_leaves_at_once_and_a_reply_after_what_was_ordered() -> None:
    broker = Broker(BrokerLimits(), AccessList([]), True)
    session, _ = broker.connect("c", "", False, 60, 10, None, 1, START_NS)
    opened = broker.take_batch()
    assert opened is not None
    broker.committed(opened)
    mark = broker.mark()
    broker.subscribe(session, Subscription(client_id="c", topic_filter="t"), START_NS)

    broker.reply(session, b"SUBACK", mark)
    broker.answer(session, b"PINGRESP")

    assert [reply.frame for reply in session.replies] == [b"PINGRESP"]
    batch = broker.take_batch()
    assert batch is not None
    broker.committed(batch)
    assert [reply.frame for reply in session.replies] == [b"PINGRESP", b"SUBACK"]


def test_restored_messages_keep_their_names() -> None:
    broker = Broker(BrokerLimits(), AccessList([]))
    broker.identify("valley", 5)
    snapshot = Snapshot()
    names = (None, MessageName("", 3, 2), MessageName("hill", 9, 42))
    for sequence, name in enumerate(names, 1):
        message = Message(f"t/{sequence}", b"", 0, True, 0, sequence=sequence)
        message.name = name
        snapshot.retained.append(message)

    broker.restore(snapshot, 10)

    told = [broker.account.trace.name_of(message) for message in snapshot.retained]
    assert told == ["valley:0.1", "valley:3.2", "hill:9.42"]
