"""Requests about the input, from packet to answer or refusal."""

from __future__ import annotations

import pytest

from timebound.core.broker import Broker
from timebound.core.input.publisher import Publisher
from timebound.core.sessions.session import Session
from timebound.core.values.access import ALL, ANYONE, AccessList, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.errors import ProtocolError
from timebound.records import Reason
from timebound.serving.inquiry import Inquiry, check_request, reason_of
from timebound.units import SECOND
from timebound.wire.packets import Publish

WEIGHT = "$timebound/control/weight"


def connected(*rules: AccessRule) -> tuple[Broker, Session]:
    broker = Broker(BrokerLimits(), AccessList(list(rules)), False)
    session, _ = broker.connect("c", "", True, 0, 10, None, 1, SECOND)
    return broker, session


def ask(broker: Broker, session: Session, payload: bytes) -> Inquiry:
    inquiry = Inquiry(broker, Publisher(), session, Publish(WEIGHT, payload, 1, packet_id=7), WEIGHT)
    assert not inquiry.continue_request(0), "nothing is done outside the broker's turn"
    while len(broker.entrance.jobs) > 0:
        broker.continue_jobs(SECOND)
    assert inquiry.continue_request(0)
    return inquiry


def test_request_that_is_done_is_acknowledged_with_its_answer() -> None:
    broker, session = connected()

    inquiry = ask(broker, session, b"alarm/# 3")

    assert (inquiry.error(), inquiry.note()) == (None, "weight of 'alarm/#' is 3")
    assert [(reply.packet_id, reply.reason) for reply in session.replies] == [(7, "done")]


def test_refused_request_is_left_to_the_caller_to_answer() -> None:
    broker, session = connected()

    error = ask(broker, session, b"alarm/# many").error()

    assert isinstance(error, ProtocolError)
    assert reason_of(error) is Reason.MALFORMED
    assert not session.replies


def test_request_of_a_client_that_left_is_never_carried_out() -> None:
    broker, session = connected()
    inquiry = Inquiry(broker, Publisher(), session, Publish(WEIGHT, b"a 3", 1, packet_id=7), WEIGHT)

    inquiry.cancel()

    assert len(broker.entrance.jobs) == 0
    assert broker.entrance.flows.weights() == {"#": 1}


def test_request_needs_a_right_and_a_plain_topic() -> None:
    _, session = connected(AccessRule(ANYONE, ALL, "a/#", True))

    with pytest.raises(ProtocolError, match="not_authorized") as refusal:
        check_request(session, WEIGHT)
    assert reason_of(refusal.value) is Reason.NOT_AUTHORIZED

    with pytest.raises(ProtocolError):
        check_request(session, "$SYS/broker/bounds")
