"""One connection, driven in process: what needs an order of events that a socket cannot promise."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.node.doubles import Build, House, RecordingTransport
from tests.peer import props

from timebound.config.limits import Limits
from timebound.core.values.message import Message
from timebound.node.clients.connection import NAMES_SEEN_MAX, SHARED_READ_BYTES, Connection
from timebound.node.clients.output import CLOSED, OPEN, UNREAD_REPLIES_MAX
from timebound.node.input.buffer import READ_BYTES_MAX
from timebound.node.login.passwords import PasswordFile
from timebound.wire.codec import encode
from timebound.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
)
from timebound.wire.properties import Properties


def lasting(client_id: str) -> Connect:
    properties = Properties()
    properties.session_expiry_interval = 60
    return Connect(client_id, clean_start=False, properties=properties)


async def test_packets_of_a_connection_that_was_taken_over_are_ignored(build: Build) -> None:
    house = build()
    old, old_transport = house.open(Connect("twin"))
    house.driver.turn()
    new, new_transport = house.open(Connect("twin"))
    # Both were readable in the same turn: the old one has not been closed yet.
    house.send(old, Subscribe(1, [SubscribeEntry("twin/#")]), Publish("twin/a", b"old", 1, packet_id=2))
    house.driver.turn()
    house.send(new, Subscribe(1, [SubscribeEntry("twin/#")]))
    house.driver.turn()

    assert [type(packet) for packet in old_transport.packets()] == [Connack, Disconnect]
    assert [type(packet) for packet in new_transport.packets()] == [Connack, Suback]
    new.connection_lost(None)
    old.connection_lost(None)
    assert house.broker.statistics().subscriptions == 0
    house.broker._check()


async def test_answers_of_a_new_connection_never_go_to_the_one_it_took_over(build: Build) -> None:
    house = build()
    old, old_transport = house.open(lasting("twin"))
    house.driver.turn()
    _, new_transport = house.open(lasting("twin"), Pingreq(), Pingreq())
    house.driver.turn()

    assert [type(packet) for packet in old_transport.packets()] == [Connack, Disconnect]
    assert [type(packet) for packet in new_transport.packets()] == [Connack, Pingresp, Pingresp]
    old.connection_lost(None)


async def test_two_connects_with_one_client_id_in_one_turn_leave_the_later(build: Build) -> None:
    house = build()
    house.driver.schedule()  # a turn is coming, and both are read before it
    first, first_transport = house.open(Connect("twin"))
    _, second_transport = house.open(Connect("twin"))
    house.driver.turn()

    refused, *rest = first_transport.packets()
    assert isinstance(refused, Connack)
    assert (refused.reason_code, rest) == (0x88, [])
    assert [type(packet) for packet in second_transport.packets()] == [Connack]
    first.connection_lost(None)
    assert house.driver.authenticated == 1


async def test_nothing_overtakes_a_connack_that_waits_for_storage(build: Build) -> None:
    house = build(is_durable=True)
    connection, transport = house.open(lasting("patient"), Pingreq(), Subscribe(1, [SubscribeEntry("a")]))
    house.broker.route(Message("a", b"1", 0, False, 0), house.driver.now_ns())
    house.driver.turn()

    assert transport.packets() == []
    house.storage.finish()
    await asyncio.sleep(0)
    first, *rest = [type(packet) for packet in transport.packets()]
    assert first is Connack
    assert len(rest) == 3
    connection.connection_lost(None)


async def test_mistake_before_connack_is_written_is_answered_with_a_connack(build: Build) -> None:
    house = build(is_durable=True)
    connection, transport = house.open(lasting("hasty"))
    house.driver.turn()
    connection.data_received(b"\x00\x00")
    house.driver.turn()

    connack, *rest = transport.packets()
    assert isinstance(connack, Connack)
    assert (connack.reason_code, rest) == (0x81, [])
    assert transport.is_closed


async def test_client_is_not_read_while_its_password_is_checked(build: Build, tmp_path: Path) -> None:
    passwords = PasswordFile(tmp_path / "users")
    passwords.set("ann", "secret")
    passwords.save()
    house = build(passwords=passwords)
    connect = Connect("a", username="ann", password=b"secret")
    connection, transport = house.open(connect, Pingreq())

    assert not transport.is_reading
    house.driver.turn()
    assert not transport.is_reading
    await asyncio.wait_for(transport.settled.wait(), 10)
    house.driver.turn()
    assert [type(packet) for packet in transport.packets()] == [Connack, Pingresp]
    connection.connection_lost(None)


async def test_connections_max_counts_those_whose_password_was_being_checked(
    build: Build, tmp_path: Path
) -> None:
    passwords = PasswordFile(tmp_path / "users")
    passwords.set("ann", "secret")
    passwords.save()
    house = build(Limits(connections_max=1), passwords=passwords)
    opened = [house.open(Connect(name, username="ann", password=b"secret")) for name in ("a", "b")]
    for _, transport in opened:
        await asyncio.wait_for(transport.settled.wait(), 10)
    house.driver.turn()

    codes = [transport.packets()[0].fields()["reason_code"] for _, transport in opened]
    assert codes == [0, 0x97]


async def test_client_that_does_not_read_its_answers_is_no_longer_read(build: Build) -> None:
    house = build()
    connection, transport = house.open(Connect("deaf"))
    house.driver.turn()
    connection.pause_writing()
    house.send(connection, *[Pingreq()] * (UNREAD_REPLIES_MAX + 1))
    while connection.has_packets():  # a turn is short, and the machine may be slow
        house.driver.turn()
    house.driver.turn()

    assert not transport.is_reading
    assert len(transport.packets()) == 1
    connection.resume_writing()
    house.driver.turn()
    assert transport.is_reading
    assert len(transport.packets()) == UNREAD_REPLIES_MAX + 2


async def test_flood_is_read_again_only_after_the_turn(build: Build) -> None:
    house = build()
    connection, transport = house.open(Connect("flood"))
    connection.data_received(encode(Publish("a", b"x" * 65_536), 5))

    assert not transport.is_reading
    house.driver.turn()
    assert transport.is_reading


async def test_closed_connection_that_does_not_go_away_is_aborted(build: Build) -> None:
    house = build()
    connection, transport = house.open(Connect("stuck"))
    house.driver.turn()
    connection.close(0x8B, "the broker is stopping")
    connection.patrol(house.driver.now_ns() + 4_000_000_000)
    assert not transport.is_aborted

    connection.patrol(house.driver.now_ns() + 6_000_000_000)

    assert transport.is_aborted


@pytest.mark.parametrize(
    ("limits", "topic", "is_allowed"),
    [
        (Limits(topic_length_max=10), "abcdefghij", True),
        (Limits(topic_length_max=10), "abcdefghijk", False),
        (Limits(topic_length_max=10), "ééééé", True),
        (Limits(topic_length_max=10), "éééééé", False),
        (Limits(topic_levels_max=3), "a/b/c", True),
        (Limits(topic_levels_max=3), "///", False),
        (Limits(topic_levels_max=1), "a", True),
        (Limits(topic_levels_max=1), "/", False),
    ],
)
async def test_topics_beyond_their_limits_are_refused(
    build: Build, limits: Limits, topic: str, is_allowed: bool
) -> None:
    house = build(limits)
    _, transport = house.open(Connect("a"), Publish(topic, b"", 1, packet_id=1))
    house.driver.turn()

    ack = transport.packets()[1]
    assert isinstance(ack, Ack)
    assert ack.reason_code == (0x10 if is_allowed else 0x90)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(
    ("topic", "properties", "counted"),
    [
        ("a", [("timeout", "soon")], "malformed"),
        ("a", [("k", "v")] * 65, "quota"),
        ("a/" * 400, [], "quota"),
        ("$timebound/nothing", [], "malformed"),
        ("$timebound/advertise/a", [("period", "1us"), ("size", "1000000")], "not_admitted"),
    ],
)
async def test_refused_message_is_counted_under_its_reason(
    build: Build, topic: str, properties: list[tuple[str, str]], counted: str, qos: int
) -> None:
    house = build()
    passed_on = props(user_properties=properties).encode_passed_on()
    packet = Publish(topic, b"1", qos, packet_id=qos, passed_on=passed_on)

    connection, _ = house.open(Connect("c"), packet)
    house.driver.turn()

    dropped = house.broker.statistics().dropped
    assert {reason: count for reason, count in dropped.items() if count} == {counted: 1}
    assert house.broker.statistics().refused == 1
    connection.connection_lost(None)


async def test_client_names_cannot_forge_log_lines(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "timebound.node")
    house = build()
    connection, _ = house.open(Connect("evil\nINFO admin connected\x1b[2J"))
    house.send(connection, Subscribe(1, [SubscribeEntry("a/#/b")]))
    connection.close(0x82, "a test")

    assert len(caplog.messages) == 3
    assert not any("\n" in message or "\x1b" in message for message in caplog.messages)


async def test_what_the_event_loop_puts_into_the_shared_buffer_is_taken_in(build: Build) -> None:
    house = build()
    connection, transport = Connection(house.driver, house.door), RecordingTransport()
    connection.connection_made(transport)
    data = encode(Connect("buffered"), 5)

    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))

    assert connection.state == OPEN
    assert [type(packet) for packet in transport.packets()] == [Connack]
    connection.connection_lost(None)


async def test_less_is_read_at_once_where_several_publish(build: Build) -> None:
    house = build()
    connection, _ = house.open(Connect("reader"))
    alone = len(connection.get_buffer(-1))

    house.driver.input.is_contended = True

    assert (alone, len(connection.get_buffer(-1))) == (READ_BYTES_MAX, SHARED_READ_BYTES)
    connection.connection_lost(None)


@pytest.mark.parametrize(
    ("pings", "is_closed"), [(4, False), (6, True)]
)  # beside CONNECT, perhaps in one second
async def test_more_packets_than_allowed_in_a_second_close_the_connection(
    build: Build, pings: int, is_closed: bool
) -> None:
    house = build(Limits(packets_per_second_max=5))
    connection, transport = house.open(Connect("busy"))

    house.send(connection, *[Pingreq()] * pings)
    house.driver.turn()

    assert (connection.state == CLOSED) == is_closed
    assert [packet.fields().get("reason_code") for packet in transport.packets()[1:]][-1:] == (
        [0x96] if is_closed else [None]
    )
    connection.connection_lost(None)


async def test_an_alias_stands_for_the_topic_it_was_set_with(build: Build) -> None:
    house = build(Limits(topic_alias_max=2))
    reader, received = house.open(Connect("reader"), Subscribe(1, [SubscribeEntry("#")]))
    writer, _ = house.open(Connect("writer"))

    house.send(writer, Publish("a/b", b"1", topic_alias=2), Publish("", b"2", topic_alias=2))
    house.driver.turn()

    published = [packet for packet in received.packets() if isinstance(packet, Publish)]
    assert [(packet.topic, packet.payload) for packet in published] == [("a/b", b"1"), ("a/b", b"2")]
    for connection in (reader, writer):
        connection.connection_lost(None)


async def test_an_alias_is_set_by_a_message_whose_topic_is_that_of_the_message_before(build: Build) -> None:
    house = build(Limits(topic_alias_max=2))
    reader, received = house.open(Connect("reader"), Subscribe(1, [SubscribeEntry("#")]))
    writer, transport = house.open(Connect("writer"))

    house.send(
        writer, Publish("a", b"1"), Publish("a", b"2", topic_alias=1), Publish("", b"3", topic_alias=1)
    )
    house.driver.turn()
    house.send(writer, Publish("a", b"4"), Publish("a", b"5", topic_alias=3))
    house.driver.turn()

    published = [packet for packet in received.packets() if isinstance(packet, Publish)]
    assert [(packet.topic, packet.payload) for packet in published] == [
        ("a", b"%d" % n) for n in (1, 2, 3, 4)
    ]
    last = transport.packets()[-1]
    assert isinstance(last, Disconnect)
    assert last.reason_code == 0x94
    for connection in (reader, writer):
        connection.connection_lost(None)


@pytest.mark.parametrize("writers", [1, 2])
async def test_requests_between_messages_on_one_topic_stay_requests(build: Build, writers: int) -> None:
    house = build()
    reader, received = house.open(Connect("reader"), Subscribe(1, [SubscribeEntry("#")]))
    opened = [house.open(Connect(f"writer-{number}")) for number in range(writers)]
    request = Publish("$timebound/advertise/a", b"", 1, packet_id=1, passed_on=advertisement())

    for connection, _ in opened:
        house.send(connection, Publish("a", b"1"), request, Publish("a", b"2"))
    while house.driver.input.has_more():
        house.driver.turn()

    published = [packet for packet in received.packets() if isinstance(packet, Publish)]
    assert [packet.topic for packet in published] == ["a"] * 2 * writers
    for _, transport in opened:
        assert [packet.reason_code for packet in transport.packets() if isinstance(packet, Ack)] == [0]
    for connection, _ in [(reader, received), *opened]:
        connection.connection_lost(None)


def advertisement() -> bytes:
    return props(user_properties=[("period", "1s"), ("size", "10")]).encode_passed_on()


@pytest.mark.parametrize(
    ("topic", "alias", "code"), [("", 1, 0x82), ("a", 3, 0x94)], ids=["never set", "above the maximum"]
)
async def test_a_wrong_alias_closes_the_connection(build: Build, topic: str, alias: int, code: int) -> None:
    house = build(Limits(topic_alias_max=2))
    connection, transport = house.open(Connect("writer"), Publish(topic, b"1", topic_alias=alias))
    house.driver.turn()

    last = transport.packets()[-1]
    assert isinstance(last, Disconnect)
    assert last.reason_code == code
    connection.connection_lost(None)


async def test_a_misspelt_property_is_logged_once_and_names_are_no_longer_looked_at_after_many(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "timebound.node")
    house = build()
    connection, _ = house.open(Connect("writer"))

    def send(name: str) -> None:
        passed_on = props(user_properties=[(name, "1")]).encode_passed_on()
        house.send(connection, Publish("a", b"", passed_on=passed_on))
        house.driver.turn()

    send("timeoutt")
    send("timeoutt")
    hints = [message for message in caplog.messages if "timeoutt" in message]
    assert len(hints) == 1

    for number in range(NAMES_SEEN_MAX):
        send(f"own-{number}")
    send("timeou")
    assert not any("'timeou'" in message for message in caplog.messages)
    connection.connection_lost(None)


async def store(house: House) -> None:
    """Have all orders written that there are, and those that follow from them."""
    house.driver.turn()
    while house.storage.waiting:
        house.storage.finish()
        await asyncio.sleep(0)
        house.driver.turn()


async def test_qos_2_messages_beyond_the_limit_can_be_released_after_a_new_connection(build: Build) -> None:
    house = build(Limits(inflight_max=3), is_durable=True)
    sent = [Publish("t", b"%d" % number, 2, packet_id=number) for number in range(1, 5)]
    again = [Publish("t", b"%d" % number, 2, packet_id=number, dup=True) for number in range(1, 5)]
    first, first_transport = house.open(lasting("c"))
    await store(house)

    house.send(first, *sent)  # their PUBRECs wait for the disk
    house.driver.turn()
    first.connection_lost(None)
    second, second_transport = house.open(lasting("c"))
    await store(house)
    house.send(second, *again)
    house.driver.turn()

    assert isinstance(first_transport.packets()[-1], Disconnect)
    answers = second_transport.packets()[1:]
    assert {packet.packet_id for packet in answers if isinstance(packet, Ack)} == {1, 2, 3, 4}
    house.send(second, *[Ack(6, number) for number in range(1, 5)])
    house.driver.turn()
    session = house.broker.session("c")
    assert session is not None
    assert not session.inbound
    assert second.state == OPEN
