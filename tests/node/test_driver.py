"""The driver: turns, storage in between, and timers."""

from __future__ import annotations

import asyncio

import pytest
from tests.node.doubles import Build
from tests.peer import props

from timebound.node.driver import STORAGE_ORDERS_MAX
from timebound.units import MILLISECOND
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


async def test_stopping_takes_in_what_waits_in_the_input_queues(build: Build) -> None:
    house = build()
    messages = [Publish("a", b"", 1, packet_id=number) for number in range(1, 501)]
    peers = [house.open(Connect(name)) for name in ("one", "two")]
    house.driver.turn()
    house.driver.input.turn_ns = 1  # a turn ends at once, so that nearly all is left
    for connection, _ in peers:
        house.send(connection, *messages)
    house.driver.turn()
    assert house.driver.input.has_more()
    waiting = sum(connection.client_input.waiting for connection, _ in peers)
    received = house.broker.counters.messages_received
    assert waiting > 0

    for connection, _ in peers:
        connection.close(0x8B, "the broker is stopping")
    house.driver.stop()

    assert not house.driver.input.has_more()
    assert house.broker.counters.messages_received == received + waiting
    for connection, _ in peers:
        connection.connection_lost(None)


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


async def test_the_timer_is_set_for_a_copy_that_a_slow_client_will_not_get_in_time(build: Build) -> None:
    house = build()
    deadline = props(user_properties=[("deadline", "40ms")])
    reader, transport = house.open(Connect("slow"), Subscribe(1, [SubscribeEntry("a")], deadline))
    house.driver.turn()
    reader.pause_writing()
    publisher, _ = house.open(Connect("says"), Publish("a", b"1"))
    published_ns = house.driver.now_ns()
    house.driver.turn()

    assert house.driver._timer is not None
    assert house.driver._timer_ns <= published_ns + 20 * MILLISECOND
    house.driver._timer.cancel()
    house.broker.wake(published_ns + 40 * MILLISECOND)

    assert sum(house.broker.account.dropped.values()) == 1
    assert Publish not in [type(packet) for packet in transport.packets()]
    reader.connection_lost(None)
    publisher.connection_lost(None)


async def test_the_patrol_sees_a_flood_that_is_over_before_it_comes(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = build()
    reader, _ = house.open(lasting("reads"), Subscribe(1, [SubscribeEntry("a", 1)]))
    house.driver.turn()
    reader.connection_lost(None)
    publisher, _ = house.open(Connect("says"), Publish("a", b"1" * 1_000, 1, packet_id=1))
    house.driver.turn()
    house.open(Connect("reads", clean_start=True))  # discards what the session was owed
    house.driver.turn()
    assert house.broker.queued_bytes() == 0
    seen: list[int] = []
    monkeypatch.setattr(
        house.driver.memory, "patrol", lambda queued_bytes, sessions, now_ns: seen.append(queued_bytes)
    )

    house.driver.patrol()
    house.driver.patrol()

    assert seen[0] > 1_000
    assert seen[1] == 0
    publisher.connection_lost(None)


async def test_returning_memory_keeps_the_timer(build: Build) -> None:
    house = build()
    reader, transport = house.open(
        Connect("reads"),
        Subscribe(1, [SubscribeEntry("a", 0)], props(user_properties=[("every", "20ms")])),
    )
    house.driver.turn()

    house.driver._renew()
    await asyncio.sleep(0.05)

    assert any(isinstance(packet, Publish) for packet in transport.packets())
    reader.connection_lost(None)
