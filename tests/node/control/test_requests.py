"""Requests under `$timebound/`: what is done, what is refused and with which words."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.conftest import BrokerProcess, StartBroker
from tests.node.doubles import Build, House
from tests.peer import Peer, join

from timebound.core.values.access import ALL, ANYONE, AccessList, AccessRule
from timebound.errors import ProtocolError
from timebound.node.control.requests import STRATEGIES_TOPIC, STRATEGY_TOPIC, handle
from timebound.records import Reason
from timebound.serving.inquiry import DONE, reason_of
from timebound.wire.packets import Ack, Connect, Publish

TOPIC = STRATEGY_TOPIC
CONFIG = """
[[listeners]]
name = "field"
host = "127.0.0.1"
port = 0
[[listeners]]
name = "office"
host = "127.0.0.1"
port = 0
[[neighbours]]
name = "hill"
"""
RULES = """
[[acl]]
user = "*"
filter = "data/#"
"""


@pytest.fixture(scope="module")
def field_and_office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("control"), CONFIG)
    yield process
    process.check()
    assert process.stop() == 0


@pytest.fixture
def peer(field_and_office: BrokerProcess) -> Iterator[Peer]:
    with join(field_and_office.port, "operator") as peer:
        yield peer


def ask(peer: Peer, topic: str, payload: bytes, qos: int = 1) -> Ack:
    peer.publish(topic, payload, qos)
    return peer.expect(Ack)


def test_a_strategy_is_set_for_one_listener(field_and_office: BrokerProcess, peer: Peer) -> None:
    answer = ask(peer, f"{TOPIC}/office", b"ebpc 70")

    assert answer.reason_code == 0
    field_and_office.wait_logged("listener office: strategy ebpc for 0 sessions")


@pytest.mark.parametrize("payload", [b"ebpc 35", b"ebpc mix=35", b"ebpc weight=35"])
def test_a_mix_may_be_named_also_by_its_old_name(peer: Peer, payload: bytes) -> None:
    assert ask(peer, f"{TOPIC}/office", payload).reason_code == 0

    answer = ask(peer, "$timebound/control/strategies", b"")

    assert json.loads(answer.reason_string)["office"] == "ebpc 35"


def test_a_strategy_is_set_for_the_link_to_a_broker(field_and_office: BrokerProcess, peer: Peer) -> None:
    answer = ask(peer, f"{TOPIC}/hill", b"mtep 15")

    assert answer.reason_code == 0
    field_and_office.wait_logged("link to hill: strategy mtep")
    assert ask(peer, f"{TOPIC}/hill", b"best").reason_code == 0x83


def test_a_strategy_is_set_for_all_listeners(field_and_office: BrokerProcess, peer: Peer) -> None:
    assert ask(peer, TOPIC, b"mtep").reason_code == 0

    field_and_office.wait_logged("listener field: strategy mtep for 1 sessions")
    field_and_office.wait_logged("listener office: strategy mtep for 0 sessions")
    field_and_office.wait_logged("link to hill: strategy mtep")


def test_a_request_with_qos_two_is_completed(peer: Peer) -> None:
    packet_id = peer.publish(TOPIC, b"fifo", 2)
    received = peer.expect(Ack)
    peer.send(Ack(6, packet_id))
    completed = peer.expect(Ack)

    assert (received.kind, received.reason_code) == (5, 0)
    assert completed.kind == 7


@pytest.mark.parametrize(
    ("topic", "payload", "reason_code", "words"),
    [
        (f"{TOPIC}/attic", b"fifo", 0x90, "no listener 'attic'; listeners are 'field', 'office'"),
        (TOPIC, b"best", 0x83, "strategy 'best' is unknown; choose one of fifo"),
        (TOPIC, b"", 0x83, "0 words"),
        (TOPIC, b"ebpc 7 7", 0x83, "3 words"),
        (TOPIC, b"ebpc 101", 0x83, "mix '101' is not a whole number of percent"),
        (TOPIC, b"ebpc share=7", 0x83, "mix 'share=7' is not a whole number of percent"),
        (TOPIC, b"ebpc =7", 0x83, "mix '=7'"),
        (TOPIC, b"ebpc half", 0x83, "mix 'half'"),
        (TOPIC, "ebpc ٣".encode(), 0x83, "mix '٣' is not a whole number of percent"),
        (TOPIC, b"\xff\xfe", 0x83, "unknown"),
        (
            "$timebound/control/colour",
            b"red",
            0x90,
            "unknown control topic '$timebound/control/colour'; expected $timebound/control/strategy, "
            "strategies, mesh, weight or bounds, $timebound/advertise/<topic> or $timebound/link/<client>",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_would_be_right(
    peer: Peer, topic: str, payload: bytes, reason_code: int, words: str
) -> None:
    answer = ask(peer, topic, payload)

    assert answer.reason_code == reason_code
    assert words in answer.reason_string
    peer.expect_silence()


def test_a_wrong_request_without_an_answer_closes_the_connection(field_and_office: BrokerProcess) -> None:
    with join(field_and_office.port) as peer:
        peer.publish(TOPIC, b"best", 0)

        assert "unknown" in peer.expect_disconnect(0x83)


def test_requests_do_not_reach_subscribers(peer: Peer) -> None:
    peer.subscribe("$timebound/#")

    assert ask(peer, TOPIC, b"worth").reason_code == 0

    peer.expect_silence()


def test_a_request_needs_the_right_to_publish(start_broker: StartBroker) -> None:
    rules = RULES + '[[acl]]\nuser = "*"\nfilter = "$timebound/control/#"\nallow = false\n'
    with join(start_broker(rules).port) as peer:
        answer = ask(peer, TOPIC, b"fifo")

    assert answer.reason_code == 0x87


def test_the_strategies_in_use_are_told(field_and_office: BrokerProcess, peer: Peer) -> None:
    for where, payload in (("field", b"ebpc 60"), ("office", b"worth"), ("hill", b"mtep")):
        assert ask(peer, f"{TOPIC}/{where}", payload).reason_code == 0

    answer = ask(peer, STRATEGIES_TOPIC, b"")

    assert answer.reason_code == 0
    assert json.loads(answer.reason_string) == {"field": "ebpc 60", "office": "worth", "hill": "mtep"}


def ask_directly(house: House, topic: str, payload: bytes = b"", qos: int = 1) -> list[str]:
    """Handle a request of a client in process; the reason strings of its acknowledgements."""
    house.driver.doors = [house.door]
    connection, transport = house.open(Connect("operator"))
    session = connection.session
    assert session is not None
    packet = Publish(topic, payload, qos, packet_id=5 if qos else 0)
    handle(house.driver, connection, session, packet, topic, house.driver.now_ns())
    house.driver.turn()
    connection.connection_lost(None)
    return [packet.reason_string for packet in transport.packets() if isinstance(packet, Ack)]


async def test_a_request_that_has_nothing_to_tell_is_answered_with_a_word(build: Build) -> None:
    house = build()

    assert ask_directly(house, STRATEGY_TOPIC, b"ebpc 70") == [DONE]

    assert (house.door.scheduling.name, house.door.scheduling.mix) == ("ebpc", 0.7)


async def test_a_new_strategy_keeps_what_else_the_listener_has(build: Build) -> None:
    house = build()
    before = house.door.scheduling

    ask_directly(house, STRATEGY_TOPIC, b"mtep")

    after = house.door.scheduling
    assert after is not before
    kept = ("untimed_share", "epsilon", "shares", "margin_ns")
    assert all(getattr(after, name) == getattr(before, name) for name in kept)


async def test_a_request_with_qos_0_is_done_without_an_answer(build: Build) -> None:
    house = build()

    assert ask_directly(house, STRATEGY_TOPIC, b"fifo", qos=0) == []

    assert house.door.scheduling.name == "fifo"


async def test_a_request_without_the_right_to_it_changes_nothing(build: Build) -> None:
    house = build()
    connection, _ = house.open(Connect("stranger"))
    session = connection.session
    assert session is not None
    session.access = AccessList([AccessRule(ANYONE, ALL, "data/#", True)]).for_client("", "stranger")
    name = house.door.scheduling.name

    packet = Publish(STRATEGY_TOPIC, b"fifo", 1, packet_id=5)

    with pytest.raises(ProtocolError) as caught:
        handle(house.driver, connection, session, packet, STRATEGY_TOPIC, house.driver.now_ns())

    assert caught.value.reason_code == 0x87
    assert house.door.scheduling.name == name
    connection.connection_lost(None)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0x87, Reason.NOT_AUTHORIZED),
        (0x97, Reason.NOT_ADMITTED),
        (0x83, Reason.MALFORMED),
        (0x90, Reason.MALFORMED),
    ],
)
def test_a_refused_request_is_counted_under_the_reason_of_its_code(code: int, reason: Reason) -> None:
    assert reason_of(ProtocolError(code, "a test")) is reason
