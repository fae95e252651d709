"""SUBSCRIBE and UNSUBSCRIBE that take longer than a turn: order, answers, and what may happen meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.node.doubles import Build, House, RecordingTransport
from tests.peer import props

from timebound.core.values.message import Message
from timebound.node.clients.connection import Connection
from timebound.units import SECOND
from timebound.wire.codec import encode
from timebound.wire.packets import (
    Ack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
    make_publish,
)
from timebound.wire.properties import Properties

TURNS_MAX = 10_000


def retained(house: House, count: int) -> None:
    publisher, _ = house.open(Connect("publisher"))
    for number in range(count):
        house.send(publisher, make_publish(f"t/{number}", b"old", retain=True))
    house.driver.turn()


def begin(house: House, *packets: Packet) -> tuple[Connection, RecordingTransport]:
    """Open a connection whose packets each take a step a turn."""
    house.driver.input.turn_ns = 1
    connection, transport = house.open(Connect("c"))
    connection.data_received(b"".join(encode(packet, 5) for packet in packets))
    house.driver.turn()
    return connection, transport


def finish(house: House) -> int:
    """Take turns until nothing waits at the input; the count of them."""
    for count in range(TURNS_MAX):
        if not house.driver.input.has_more():
            house.broker._check()
            assert not house.broker._distribution._replays
            return count
        house.driver.turn()
    raise AssertionError("the input never comes to its end")


async def store(house: House) -> None:
    """Write all that was ordered, and what that leads to."""
    for _ in range(5):
        house.storage.finish()
        await asyncio.sleep(0)  # the storage reports from another thread, through the loop


def kinds(transport: RecordingTransport) -> list[type]:
    return [type(packet) for packet in transport.packets()][1:]  # without CONNACK


async def test_a_long_subscribe_takes_turns_and_later_packets_wait(build: Build) -> None:
    house = build()
    retained(house, 300)

    _, transport = begin(house, Subscribe(1, [SubscribeEntry("t/+"), SubscribeEntry("t/1")]), Pingreq())

    assert Suback not in kinds(transport)
    assert finish(house) > 4
    assert [kind for kind in kinds(transport) if kind is not Publish] == [Suback, Pingresp]
    assert kinds(transport).count(Publish) == 301


async def test_what_takes_a_few_turns_is_answered_before_what_it_brings(build: Build) -> None:
    house = build()
    retained(house, 3)

    _, transport = begin(house, Subscribe(1, [SubscribeEntry("t/+")]))
    finish(house)

    assert kinds(transport) == [Suback, Publish, Publish, Publish]


async def test_other_clients_get_their_turn_meanwhile(build: Build) -> None:
    house = build()
    retained(house, 300)
    other, seen = house.open(Connect("other"), Subscribe(1, [SubscribeEntry("mine")]))
    begin(house, Subscribe(1, [SubscribeEntry(f"t/{number}/#") for number in range(300)]))
    assert house.driver.input.has_more()

    other.data_received(encode(make_publish("mine", b"now"), 5))
    house.driver.turn()

    assert kinds(seen) == [Suback, Publish]
    assert house.driver.input.has_more()
    finish(house)


async def test_unsubscribing_takes_turns_too(build: Build) -> None:
    house = build()
    filters = [f"f/{number}" for number in range(50)]

    _, transport = begin(
        house, Subscribe(1, [SubscribeEntry(name) for name in filters]), Unsubscribe(2, filters), Pingreq()
    )

    assert finish(house) > 10
    [suback, unsuback, _] = transport.packets()[1:]
    assert isinstance(suback, Suback)
    assert isinstance(unsuback, Unsuback)
    assert suback.reason_codes == unsuback.reason_codes == [0] * 50
    assert house.broker.statistics().subscriptions == 0


async def test_a_client_that_is_lost_meanwhile_leaves_nothing_behind(build: Build) -> None:
    house = build()
    retained(house, 300)
    connection, _ = begin(
        house, Subscribe(1, [SubscribeEntry("t/+")]), make_publish("last", b"word", retain=True)
    )

    connection.connection_lost(None)
    finish(house)

    assert house.broker.session("c") is None
    assert house.broker.retained_payload("last") == b"word"  # what it said before it went counts
    assert connection.number not in house.driver.connections


async def test_a_session_that_is_taken_over_meanwhile_keeps_what_was_subscribed(build: Build) -> None:
    house = build()
    retained(house, 300)
    stays = Properties()
    stays.session_expiry_interval = 100
    connection, _ = house.open(Connect("c", clean_start=False, properties=stays))
    house.driver.input.turn_ns = 1
    connection.data_received(encode(Subscribe(1, [SubscribeEntry("t/+"), SubscribeEntry("u")]), 5))
    house.driver.turn()

    _, second = house.open(Connect("c", clean_start=False, properties=stays))
    finish(house)

    session = house.broker.session("c")
    assert session is not None
    assert list(session.subscriptions) == ["t/+"]  # "u" was not done, and the old connection not answered
    assert Suback not in kinds(second)


async def test_closing_meanwhile_ends_it(build: Build) -> None:
    house = build()
    retained(house, 300)
    connection, transport = begin(house, Subscribe(1, [SubscribeEntry("t/+"), SubscribeEntry("u")]))

    connection.close(0x8B, "stopping")
    finish(house)

    assert Suback not in kinds(transport)
    assert house.broker.session("c") is None


async def test_the_answer_of_a_stored_session_waits_for_all_that_was_ordered(build: Build) -> None:
    house = build(is_durable=True)
    stays = Properties()
    stays.session_expiry_interval = 100
    connection, transport = house.open(Connect("c", properties=stays))
    await store(house)
    house.driver.input.turn_ns = 1
    connection.data_received(encode(Subscribe(1, [SubscribeEntry(f"t/{n}") for n in range(50)]), 5))
    finish(house)

    assert kinds(transport) == []  # nothing retained of these, and no SUBACK
    await store(house)
    assert kinds(transport) == [Suback]


@pytest.mark.parametrize("turn_ns", [1, SECOND])
async def test_a_filter_that_fails_ends_its_client_and_leaves_nothing_under_way(
    build: Build, turn_ns: int
) -> None:
    house = build()
    retained(house, 10)
    broken: Any = (("a",),)  # nobody can publish that: a content filter that asks for it raises
    now_ns = house.driver.now_ns()
    house.broker.route(Message("u", b"u", 0, True, now_ns, user_properties=broken), now_ns)
    house.driver.input.turn_ns = turn_ns
    other, answers = house.open(Connect("other"))
    picky, transport = house.open(Connect("picky", properties=props(session_expiry_interval=60)))

    wanted = props(user_properties=[("where", "b > 1")])
    house.send(picky, Subscribe(1, [SubscribeEntry("#")], wanted))
    house.send(other, Subscribe(1, [SubscribeEntry("#")]), make_publish("t/0", b"new", 1, False, 7))
    finish(house)

    assert house.broker.counters.faults == 1
    assert transport.is_closed
    assert not any(isinstance(packet, Suback) for packet in transport.packets())
    assert [packet.packet_id for packet in answers.packets() if isinstance(packet, Ack)] == [7]
    payloads = [packet.payload for packet in answers.packets() if isinstance(packet, Publish)]
    assert sorted(payloads) == [b"new", *[b"old"] * 10, b"u"]
