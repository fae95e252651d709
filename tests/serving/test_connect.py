"""CONNECT decided without a clock, files or sockets."""

from __future__ import annotations

import pytest
from tests.peer import props

from timebound.config.limits import Limits
from timebound.core.broker import Broker
from timebound.core.sessions.session import PUBACK, Reply
from timebound.core.values.access import ANYONE, PUBLISH, AccessList, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.serving.connect import (
    CLIENT_ID_LENGTH_MAX,
    Accepted,
    Refused,
    accept,
    check_form,
    put_first,
)
from timebound.wire.packets import Connect, Will
from timebound.wire.reasons import ReasonCode


def broker(*clients: str) -> Broker:
    made = Broker(BrokerLimits(), AccessList([]))
    for number, name in enumerate(clients, 1):
        made.connect(name, "anna", True, 60, 10, None, number, 0)
    return made


@pytest.mark.parametrize(
    ("packet", "reason_code"),
    [
        (Connect("new"), ReasonCode.QUOTA_EXCEEDED),
        (Connect("known", properties=props(authentication_method="x")), ReasonCode.BAD_AUTHENTICATION_METHOD),
        (Connect("known", properties=props(user_properties=[("a", "b")] * 2)), ReasonCode.QUOTA_EXCEEDED),
    ],
)
def test_form_and_limits_are_checked_first(packet: Connect, reason_code: int) -> None:
    limits = Limits(connections_max=1, user_properties_max=1)

    refused = check_form(packet, broker("known"), limits, 1)

    assert refused is not None
    assert refused.reason_code == reason_code


def test_take_over_is_no_further_connection() -> None:
    assert check_form(Connect("known"), broker("known"), Limits(connections_max=1, sessions_max=1), 1) is None


def test_client_ids_are_limited() -> None:
    long = Connect("x" * (CLIENT_ID_LENGTH_MAX + 1))
    unnamed = Connect("", 4, clean_start=False)

    for packet in (long, unnamed):
        refused = check_form(packet, broker(), Limits(), 0)
        assert refused is not None
        assert refused.reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


def decide(packet: Connect, user: str = "anna", *, takes_over: bool = False) -> Accepted | Refused:
    rules = AccessList([AccessRule(ANYONE, PUBLISH, "allowed/#", True)])
    return accept(
        packet,
        packet.client_id,
        user,
        broker=broker("known"),
        access=rules,
        limits=Limits(),
        takes_over_from_others=takes_over,
        now_ns=5,
    )


def test_session_of_another_user_is_taken_over_only_where_configured() -> None:
    refused = decide(Connect("known"), "berta")
    assert isinstance(refused, Refused)
    assert refused.reason_code == ReasonCode.NOT_AUTHORIZED

    assert isinstance(decide(Connect("known"), "berta", takes_over=True), Accepted)
    assert isinstance(decide(Connect("known")), Accepted)


@pytest.mark.parametrize(
    ("topic", "reason_code"),
    [
        ("$timebound/advertise/x", ReasonCode.NOT_AUTHORIZED),
        ("x" * 2_000, ReasonCode.TOPIC_NAME_INVALID),
        ("other", ReasonCode.NOT_AUTHORIZED),
    ],
)
def test_will_must_be_allowed(topic: str, reason_code: int) -> None:
    refused = decide(Connect("c", will=Will(topic, b"")))

    assert isinstance(refused, Refused)
    assert refused.reason_code == reason_code


def test_accepted_client_keeps_its_will() -> None:
    accepted = decide(Connect("c", will=Will("allowed/x", b"gone", 1)))

    assert isinstance(accepted, Accepted)
    assert accepted.will is not None
    assert accepted.will.message.payload == b"gone"


def test_client_that_could_not_read_connack_is_refused() -> None:
    refused = decide(Connect("c", properties=props(maximum_packet_size=5)))

    assert isinstance(refused, Refused)
    assert refused.reason_code == ReasonCode.PACKET_TOO_LARGE


def test_connack_goes_before_other_answers_once_it_is_ready() -> None:
    connack = b"connack"
    ready = [Reply(PUBACK, 1), Reply(PUBACK, 2, frame=connack), Reply(PUBACK, 3)]
    waiting = [Reply(PUBACK, 1)]

    assert put_first(ready, connack)
    assert not put_first(waiting, connack)

    assert [reply.packet_id for reply in ready] == [2, 1, 3]
    assert len(waiting) == 1
