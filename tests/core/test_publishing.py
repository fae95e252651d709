"""Messages in: what `publish` returns, and which acknowledgement a publisher gets when."""

from __future__ import annotations

from timebound.core.broker import Broker
from timebound.core.publishing import DENIED, TAKEN
from timebound.core.sessions.session import PUBREC, PUBREL, Session
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.reason_codes import (
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    SUCCESS,
)
from timebound.core.values.subscription import Subscription
from timebound.records import Reason

from .broker_doubles import START_NS


def broker_of(*rules: AccessRule, **limits: int) -> Broker:
    return Broker(BrokerLimits(**limits), AccessList(list(rules)))


def connected(broker: Broker, client_id: str) -> Session:
    session, _ = broker.connect(client_id, "", True, 0, 10, None, 1, START_NS)
    return session


def message(topic: str, qos: int, payload: bytes = b"", *, retain: bool = False) -> Message:
    return Message(topic, payload, qos, retain, START_NS, "c")


def test_what_became_of_a_message_is_told() -> None:
    broker = broker_of(AccessRule("*", "publish", "open", True))
    session = connected(broker, "c")

    found = [
        broker.publish(session, message(topic, qos), packet_id, START_NS)
        for topic, qos, packet_id in (
            ("open", 0, 0),
            ("open", 1, 1),
            ("open", 2, 2),
            ("closed", 0, 0),
            ("closed", 1, 3),
            ("closed", 2, 4),
        )
    ]

    assert found == [TAKEN] * 3 + [DENIED] * 3
    codes = [(reply.packet_id, reply.reason_code) for reply in session.replies]
    assert codes == [
        (1, NO_MATCHING_SUBSCRIBERS),
        (2, NO_MATCHING_SUBSCRIBERS),
        (3, NOT_AUTHORIZED),
        (4, NOT_AUTHORIZED),
    ]
    assert broker.counters.refused[Reason.NOT_AUTHORIZED.value] == 3


def test_a_message_of_qos_2_that_is_sent_again_is_delivered_once() -> None:
    broker = broker_of()
    session = connected(broker, "c")
    broker.subscribe(session, Subscription(client_id="c", topic_filter="t", qos=0), START_NS)

    for _ in range(2):
        assert broker.publish(session, message("t", 2), 7, START_NS) == TAKEN

    assert [(one.kind, one.packet_id, one.reason_code) for one in session.replies] == [
        (PUBREC, 7, SUCCESS),
        (PUBREC, 7, SUCCESS),
    ]
    assert len(broker.take_deliveries(session, 1 << 20, START_NS)) == 1
    assert broker.acknowledge(session, PUBREL, 7, 0, START_NS)
    broker.publish(session, message("t", 2), 7, START_NS)
    assert len(broker.take_deliveries(session, 1 << 20, START_NS)) == 1, "after PUBREL the id is free again"


def test_who_cannot_retain_is_told_so_and_subscribers_get_the_message() -> None:
    broker = broker_of(retained_messages_max=1)
    session = connected(broker, "c")
    broker.subscribe(session, Subscription(client_id="c", topic_filter="#", qos=0), START_NS)

    for packet_id, topic in ((1, "a"), (2, "b")):
        broker.publish(session, message(topic, 1, b"x", retain=True), packet_id, START_NS)

    assert [one.reason_code for one in session.replies] == [SUCCESS, SUCCESS]
    assert [bool(one.reason) for one in session.replies] == [False, True]
    assert "retained" in session.replies[1].reason
    assert len(broker.take_deliveries(session, 1 << 20, START_NS)) == 2


def test_requests_are_accepted_with_a_text_and_refused_with_a_code() -> None:
    broker = broker_of()
    session = connected(broker, "c")

    broker.accept_request(session, 1, 1, "done")
    broker.refuse_publish(session, 2, 2, QUOTA_EXCEEDED, "too many")

    found = [(one.packet_id, one.reason_code, one.reason) for one in session.replies]
    assert found == [(1, SUCCESS, "done"), (2, QUOTA_EXCEEDED, "too many")]


def test_nothing_is_full_without_a_mesh() -> None:
    broker = broker_of()

    assert broker.has_room(["b2"])
    assert broker.pressed() == []
    assert not broker.is_matching()
