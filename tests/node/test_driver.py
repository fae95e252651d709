"""The driver: turns, storage in between, and timers."""

from __future__ import annotations

import asyncio

from tests.node.doubles import Build
from tests.peer import props

from timebound.node.driver import STORAGE_ORDERS_MAX
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


def lasting(client_id: str, **more: object) -> Connect:
    return Connect(client_id, clean_start=False, properties=props(session_expiry_interval=60, **more))


async def test_nothing_is_acknowledged_before_storage_has_it(build: Build) -> None:
    house = build(is_durable=True)
    subscriber, _ = house.open(lasting("keeps"), Subscribe(1, [SubscribeEntry("a", 1)]))
    house.driver.turn()
    house.storage.finish()
    await asyncio.sleep(0)
    publisher, transport = house.open(Connect("says"), Publish("a", b"1", 1, packet_id=7), Pingreq())
    house.driver.turn()
    assert Ack not in [type(packet) for packet in transport.packets()]

    house.storage.finish()
    await asyncio.sleep(0)

    kinds = [type(packet) for packet in transport.packets()]
    assert kinds[0] is Connack
    assert sorted(kind.__name__ for kind in kinds[1:]) == ["Ack", "Pingresp"]
    subscriber.connection_lost(None)
    publisher.connection_lost(None)


async def test_answers_of_one_client_never_overtake_each_other(build: Build) -> None:
    house = build(is_durable=True)
    connection, transport = house.open(
        lasting("keeps"), Subscribe(1, [SubscribeEntry("a", 1)]), Publish("b", b"", 1, packet_id=2)
    )
    house.driver.turn()
    house.storage.finish()
    await asyncio.sleep(0)

    assert [type(packet) for packet in transport.packets()] == [Connack, Suback, Ack]
    connection.connection_lost(None)


async def test_publishers_wait_while_storage_is_far_behind(build: Build) -> None:
    house = build()
    connection, transport = house.open(Connect("says"))
    house.storage.pending_orders = STORAGE_ORDERS_MAX + 1
    house.send(connection, Publish("a", b"1"))
    house.driver.turn()
    assert not transport.is_reading

    house.storage.pending_orders = 0
    house.driver.turn()

    assert transport.is_reading


async def test_two_connections_served_in_one_turn(build: Build) -> None:
    house = build()
    _, first = house.open(Connect("one"), Subscribe(1, [SubscribeEntry("a")]))
    second_connection, second = house.open(Connect("two"), Publish("a", b"1"), Pingreq())
    house.driver.turn()

    assert [type(packet) for packet in first.packets()] == [Connack, Suback, Publish]
    assert [type(packet) for packet in second.packets()] == [Connack, Pingresp]
    assert house.driver.authenticated == 2
    second_connection.connection_lost(None)
    assert house.driver.authenticated == 1


async def test_emptied_is_set_when_the_last_connection_has_gone(build: Build) -> None:
    house = build()
    connection, transport = house.open(Connect("last"))
    house.driver.turn()
    connection.close(0x8B, "the broker is stopping")

    assert isinstance(transport.packets()[-1], Disconnect)
    assert not house.driver.emptied.is_set()
    connection.connection_lost(None)
    assert house.driver.emptied.is_set()
