"""Requests that take longer than a turn: order, answers, and what may happen meanwhile.

SUBSCRIBE and UNSUBSCRIBE, and what concerns all flows: advertisements, weights, the loss of a client.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from typing import Any

import pytest
from tests.node.doubles import Build, House, RecordingTransport
from tests.peer import props

from timebound.core.input.contract import Contract
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


async def test_long_filters_of_many_clients_are_read_one_a_turn(build: Build) -> None:
    house = build()
    connected = [house.open(Connect(f"c{number}")) for number in range(9)]
    house.driver.input.turn_ns = 1
    for number, (connection, _) in enumerate(connected):
        where = " OR ".join(f"a{one} = {number}" for one in range(60))
        packet = Subscribe(1, [SubscribeEntry("t")], props(user_properties=[("where", where)]))
        connection.data_received(encode(packet, 5))

    answered = []
    while house.driver.input.has_more():
        house.driver.turn()
        answered.append(sum([Suback in kinds(transport) for _, transport in connected]))

    assert answered[-1] == 9
    assert max([after - before for before, after in itertools.pairwise([0, *answered])]) == 1
    house.broker._check()


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


FLOWS = 50
PERIODS = props(user_properties=[("period", "never")])


def advertisement(topic: str, packet_id: int = 1) -> Publish:
    terms = Properties()
    terms.user_properties = [("period", "1s"), ("delay", "5s")]
    return make_publish(f"$timebound/advertise/{topic}", b"", 1, packet_id=packet_id, properties=terms)


def with_flows(house: House) -> Connection:
    """Return a client that has FLOWS flows."""
    press, _ = house.open(Connect("press"))
    for number in range(FLOWS):
        contract = Contract("press", f"p/{number}", interval_ns=SECOND, delay_ns=5 * SECOND)
        assert house.broker.entrance.flows.advertise(press, contract, house.driver.now_ns()).accepted
    return press


async def test_an_advertisement_takes_turns_in_which_others_are_served(build: Build) -> None:
    house = build()
    with_flows(house)
    other, seen = house.open(Connect("other"), Subscribe(1, [SubscribeEntry("mine")]))

    _, transport = begin(house, advertisement("a"), Pingreq())
    assert kinds(transport) == []
    other.data_received(encode(make_publish("mine", b"now"), 5))
    house.driver.turn()

    assert kinds(seen) == [Suback, Publish]
    assert kinds(transport) == []
    assert finish(house) > FLOWS // 2
    assert kinds(transport) == [Ack, Pingresp]
    assert house.broker.entrance.flows.admission.flow_count() == FLOWS + 1


@pytest.mark.parametrize("is_contended", [False, True])
async def test_messages_behind_an_advertisement_wait_for_its_answer_and_are_policed(
    build: Build, is_contended: bool
) -> None:
    house = build()
    with_flows(house)
    house.driver.input.turn_ns = 1
    connection, transport = house.open(Connect("c"))
    if is_contended:
        house.driver.schedule()  # both are read before the turn
        other, _ = house.open(Connect("other"))
        other.data_received(encode(make_publish("x", b"x"), 5))
    wanted = [advertisement("a"), *[make_publish("a", b"x", 1, packet_id=2 + n) for n in range(9)]]
    connection.data_received(b"".join(encode(packet, 5) for packet in wanted))
    house.driver.turn()
    assert kinds(transport) == []
    finish(house)

    ids = [packet.packet_id for packet in transport.packets() if isinstance(packet, Ack)]
    assert ids == list(range(1, 11))
    assert house.broker.entrance.excess_lowered > 0


async def test_advertisements_of_several_clients_wait_for_each_other(build: Build) -> None:
    house = build()
    with_flows(house)
    house.driver.input.turn_ns = 1
    answered: list[str] = []
    askers = [house.open(Connect(f"c{number}")) for number in range(5)]
    for number, (connection, _) in enumerate(askers):
        connection.data_received(encode(advertisement(f"a/{number}"), 5))
    while house.driver.input.has_more():
        house.driver.turn()
        for number, (_, transport) in enumerate(askers):
            if Ack in kinds(transport) and f"a/{number}" not in answered:
                answered.append(f"a/{number}")

    assert answered == [f"a/{number}" for number in range(5)]


@pytest.mark.parametrize("end", ["lost", "taken over", "closed"])
@pytest.mark.parametrize("turns", [0, 5, FLOWS])
async def test_a_client_that_goes_while_its_flow_is_analysed_leaves_nothing_behind(
    build: Build, end: str, turns: int
) -> None:
    house = build()
    with_flows(house)
    connection, _ = begin(house, advertisement("a"))
    for _ in range(turns):
        house.driver.turn()

    if end == "lost":
        connection.connection_lost(None)
    elif end == "closed":
        connection.close(0x8B, "stopping")
    else:
        house.open(Connect("c"))
    finish(house)

    entrance = house.broker.entrance
    assert entrance.flows.admission.flow_count() == FLOWS
    assert "a" not in entrance.scheduler.topics
    assert [topic for topic, _, _ in entrance.flows.admission.topics()] == list(entrance.scheduler.topics)
    assert house.broker.counters.faults == 0


async def test_refusals_leave_nothing_for_the_garbage_collector(build: Build) -> None:
    """A flood of them would be visited by collections of tens of milliseconds."""
    house = build()
    connection, transport = house.open(Connect("c"))
    wrong = encode(make_publish("$timebound/advertise/a", b"", 1, packet_id=1, properties=PERIODS), 5)

    def ask(count: int) -> None:
        for _ in range(count):
            connection.data_received(wrong)
            finish(house)

    ask(10)
    gc.collect()
    gc.disable()
    try:
        ask(200)
        assert gc.collect() < 200
    finally:
        gc.enable()
    codes = [packet.reason_code for packet in transport.packets() if isinstance(packet, Ack)]
    assert codes == [0x83] * 210 or set(codes) == {0x83, 0x97}


async def test_the_flows_of_a_lost_client_are_released_over_turns(build: Build) -> None:
    house = build()
    press = with_flows(house)
    other, seen = house.open(Connect("other"), Subscribe(1, [SubscribeEntry("mine")]))
    house.driver.input.turn_ns = 1

    press.connection_lost(None)
    house.driver.turn()
    other.data_received(encode(make_publish("mine", b"now"), 5))
    house.driver.turn()

    assert kinds(seen) == [Suback, Publish]
    assert house.broker.entrance.flows.admission.flow_count() > FLOWS // 2
    finish(house)
    assert house.broker.entrance.flows.admission.flow_count() == 0


async def test_a_weight_is_removed_over_turns_and_messages_keep_their_order(build: Build) -> None:
    house = build()
    house.broker.entrance.flows.set_weight("w/#", 5, 0)
    askers = [house.open(Connect(f"c{number}"))[0] for number in range(40)]
    _, seen = house.open(Connect("seen"), Subscribe(1, [SubscribeEntry("w/+")]))
    house.driver.schedule()
    for asker in askers:
        asker.data_received(b"".join(encode(make_publish("w/1", b"%d" % n), 5) for n in range(20)))
    house.driver.input.turn_ns = 1
    house.driver.turn()

    boss, transport = house.open(Connect("boss"))
    boss.data_received(encode(make_publish("$timebound/control/weight", b"w/# -", 1, packet_id=1), 5))
    assert finish(house) > 20

    assert [packet.reason_code for packet in transport.packets() if isinstance(packet, Ack)] == [0]
    assert house.broker.entrance.flows.weights() == {"#": 1}
    assert kinds(seen).count(Publish) == 800
    assert list(house.broker.entrance.scheduler.topics) == ["\0#"]
