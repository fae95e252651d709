"""A model of a link that was told is where its measurement starts."""

from __future__ import annotations

import json

import pytest
from tests.node.doubles import Build

from timebound.core.broker import Broker
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.node.control.link_models import LINK_PREFIX, announced_delay, read_model
from timebound.wire.packets import Ack, Connect, Publish


def new_session(client_id: str) -> Session:
    return Session(client_id, "", AccessList([]).for_client("", client_id))


def model(mean: object = 0.5, variance: object = 0.01) -> bytes:
    return json.dumps({"mean_s_per_kb": mean, "variance": variance, "samples": 12}).encode()


def test_a_model_is_read() -> None:
    found = read_model(model())

    assert found is not None
    assert (found.mean_s_per_kb, found.variance) == (0.5, 0.01)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"fast",
        b"[1, 2]",
        b'{"mean_s_per_kb": 1}',
        model(mean="slow"),
        model(mean=None),
        model(mean=0),
        model(mean=-1),
        model(mean=1e9),
        model(variance=-0.1),
        model(variance=0.26),
        model(mean=float("nan")),
        b"\xff\xfe",
    ],
)
def test_what_is_no_model_is_none(payload: bytes) -> None:
    assert read_model(payload) is None


def test_only_a_link_that_nobody_measured_starts_from_what_was_told() -> None:
    broker = Broker(BrokerLimits(), AccessList([]), False)
    session = new_session("slow")
    assert announced_delay(broker, session) is None

    broker.route(Message(LINK_PREFIX + "slow", model(), 0, True, 1), 1)
    found = announced_delay(broker, session)
    assert found is not None
    assert found.mean_s_per_kb == 0.5
    assert announced_delay(broker, new_session("other")) is None

    session.delay = LinkDelay(0.1, 0.0)
    assert announced_delay(broker, session) is None


def test_a_wrong_model_is_logged_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(BrokerLimits(), AccessList([]), False)
    broker.route(Message(LINK_PREFIX + "slow", b"fast", 0, True, 1), 1)

    assert announced_delay(broker, new_session("slow")) is None
    assert "link model of client 'slow' cannot be used" in caplog.text


async def test_a_client_tells_what_a_link_is_like_and_takes_it_back(build: Build) -> None:
    house = build()
    connection, transport = house.open(
        Connect("meter"), Publish(LINK_PREFIX + "slow", model(), 1, packet_id=1)
    )
    house.driver.turn()
    told = announced_delay(house.broker, new_session("slow"))

    house.send(connection, Publish(LINK_PREFIX + "slow", b"", 1, packet_id=2))
    house.driver.turn()

    assert told is not None
    assert told.mean_s_per_kb == 0.5
    assert announced_delay(house.broker, new_session("slow")) is None
    answers = [packet for packet in transport.packets() if isinstance(packet, Ack)]
    assert [(answer.packet_id, answer.reason_code) for answer in answers] == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        (LINK_PREFIX + "slow", b"fast", "link model: b'fast' is not JSON with mean_s_per_kb up to 3600"),
        (LINK_PREFIX, model(), "'$timebound/link/' names no client"),
    ],
)
async def test_what_is_no_model_is_refused_with_the_reason(
    build: Build, topic: str, payload: bytes, reason: str
) -> None:
    house = build()
    _, transport = house.open(Connect("meter"), Publish(topic, payload, 1, packet_id=1))
    house.driver.turn()

    [answer] = [packet for packet in transport.packets() if isinstance(packet, Ack)]
    assert answer.reason_code >= 0x80
    assert reason in answer.reason_string
    assert house.broker.retained_payload(topic) == b""


def test_with_any_rules_only_who_is_allowed_tells_about_links() -> None:
    topic = LINK_PREFIX + "slow"
    rules = AccessList([AccessRule("pipeline", "publish", LINK_PREFIX + "#", True)])

    assert AccessList([]).for_client("", "c").may_publish(topic)
    assert rules.for_client("pipeline", "flight").may_publish(topic)
    assert not rules.for_client("anna", "c").may_publish(topic)
