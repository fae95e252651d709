"""Publishing and reconnecting, against a server that loses and resumes sessions as it is told."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.scripted_server import (
    ScriptedServer,
    durable,
    limits,
    published,
)
from timebound import Client, Subscription
from timebound.client import PublishRefused
from timebound.errors import NotConnected, PublishError
from timebound.wire import packet_types as types
from timebound.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Publish,
)


async def test_unacknowledged_message_is_sent_again_as_duplicate_when_the_session_is_present() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        publishing = asyncio.create_task(client.publish("a", b"x", qos=1))
        first = await published(peer)
        peer.cut()

        peer = await server.accept(Connack(session_present=True))
        again = await published(peer)
        peer.send(Ack(types.PUBACK, again.packet_id))

        assert await publishing == 0
        assert (first.dup, again.dup) == (False, True)
        assert again.packet_id == first.packet_id
        assert client.reconnects == 1
        await client.disconnect()


async def test_unacknowledged_message_is_sent_as_new_when_the_session_is_lost() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        publishing = asyncio.create_task(client.publish("a", b"x", qos=2))
        await published(peer)
        peer.cut()

        peer = await server.accept(Connack(session_present=False))
        again = await published(peer)
        peer.send(Ack(types.PUBREC, again.packet_id))
        release = await peer.expect(Ack)
        peer.send(Ack(types.PUBCOMP, again.packet_id))

        assert await publishing == 0
        assert not again.dup
        assert release.kind == types.PUBREL
        await client.disconnect()


async def test_released_message_is_released_again_and_not_published_again() -> None:
    """MQTT 5, 4.3.3: after PUBREC the sender must not send the PUBLISH again."""
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        publishing = asyncio.create_task(client.publish("a", b"x", qos=2))
        first = await published(peer)
        peer.send(Ack(types.PUBREC, first.packet_id))
        await peer.expect(Ack)
        peer.cut()

        peer = await server.accept(Connack(session_present=True))
        release = await peer.expect(Ack)
        peer.send(Ack(types.PUBCOMP, release.packet_id, 0x92))

        assert (release.kind, release.packet_id) == (types.PUBREL, first.packet_id)
        assert await publishing == 0
        await client.disconnect()


async def test_session_lost_after_pubrec_is_reported_as_a_message_that_may_be_lost() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        publishing = asyncio.create_task(client.publish("a", b"x", qos=2))
        first = await published(peer)
        peer.send(Ack(types.PUBREC, first.packet_id))
        await peer.expect(Ack)
        peer.cut()
        await server.accept(Connack(session_present=False))

        with pytest.raises(PublishError, match="may be lost: the server forgot the session"):
            await publishing
        await client.disconnect()


async def test_messages_are_sent_again_in_their_order() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        publishing = [asyncio.create_task(client.publish("a", str(n), qos=1)) for n in range(10)]
        for _ in range(10):
            await published(peer)
        peer.cut()

        peer = await server.accept(Connack(session_present=True))
        again = [await published(peer) for _ in range(10)]
        peer.send(*(Ack(types.PUBACK, one.packet_id) for one in again))

        await asyncio.gather(*publishing)
        assert [one.payload for one in again] == [str(n).encode() for n in range(10)]
        await client.disconnect()


async def test_no_more_messages_are_sent_than_the_receive_maximum_of_the_server() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client, limits(receive_maximum=2))
        publishing = [asyncio.create_task(client.publish("a", str(n), qos=1)) for n in range(5)]
        first = [await published(peer), await published(peer)]
        # An answer shows that nothing was sent between: it would have come before.
        pinging = client.subscribe("ping")
        await asyncio.gather(peer.grant(), pinging)

        peer.send(Ack(types.PUBACK, first[1].packet_id))
        third = await published(peer)
        peer.send(Ack(types.PUBACK, first[0].packet_id), Ack(types.PUBACK, third.packet_id))
        last = [await published(peer), await published(peer)]
        peer.send(*(Ack(types.PUBACK, one.packet_id) for one in last))

        await asyncio.gather(*publishing)
        assert [one.payload for one in (*first, third, *last)] == [b"0", b"1", b"2", b"3", b"4"]
        await client.disconnect()


async def test_smaller_receive_maximum_after_a_reconnect_holds_for_what_is_sent_again() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        publishing = [asyncio.create_task(client.publish("a", str(n), qos=1)) for n in range(3)]
        for _ in range(3):
            await published(peer)
        peer.cut()

        peer = await server.accept(Connack(True, 0, limits(receive_maximum=1).properties))
        for number in range(3):
            one = await published(peer)
            assert one.payload == str(number).encode()
            peer.send(Ack(types.PUBACK, one.packet_id))

        await asyncio.gather(*publishing)
        await client.disconnect()


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_message_above_the_maximum_packet_size_of_the_server_is_refused_before_sending(
    qos: int,
) -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client, limits(maximum_packet_size=100))

        with pytest.raises(PublishError, match=r"too large for the server \(\d+ bytes .* 100\)"):
            await client.publish("a", b"x" * 100, qos=qos)
        await client.publish("a", b"small")

        assert (await published(peer)).payload == b"small"
        await client.disconnect()


async def test_qos_and_retain_that_the_server_does_not_have_are_refused_before_sending() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        await server.connect(client, limits(maximum_qos=1, retain_available=False))

        with pytest.raises(PublishError, match="QoS 2 and the server takes at most 1") as by_qos:
            await client.publish("a", qos=2)
        with pytest.raises(PublishError, match="the server retains none") as by_retain:
            await client.publish("a", retain=True)

        assert (by_qos.value.reason_code, by_retain.value.reason_code) == (0x9B, 0x9A)
        await client.disconnect()


@pytest.mark.parametrize(("qos", "kind"), [(1, types.PUBACK), (2, types.PUBREC)])
async def test_refusal_carries_reason_code_and_string(qos: int, kind: int) -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        publishing = asyncio.create_task(client.publish("a", qos=qos))
        packet = await published(peer)
        peer.send(Ack(kind, packet.packet_id, 0x97, "quota: no more today"))

        with pytest.raises(PublishRefused, match="0x97 quota exceeded: quota: no more today") as caught:
            await publishing

        assert (caught.value.reason_code, caught.value.reason_string) == (0x97, "quota: no more today")
        await client.disconnect()


async def test_message_without_acknowledgement_is_given_up_after_the_operation_timeout() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, operation_timeout="50ms")
        await server.connect(client)

        with pytest.raises(PublishError, match=r"was not acknowledged within 0\.05s"):
            await client.publish("a", qos=1)
        await client.disconnect()


async def test_message_given_up_is_not_sent_again() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        publishing = asyncio.create_task(client.publish("a", b"gone", qos=1))
        await published(peer)
        publishing.cancel()
        await asyncio.wait([publishing])
        peer.cut()

        peer = await server.accept(Connack(session_present=True))
        await client.publish("a", b"next")

        assert (await published(peer)).payload == b"next"
        await client.disconnect()


async def test_what_is_left_of_a_timeout_travels_with_a_late_message() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        peer.cut()
        next_peer = await server.next_peer()  # the client is between connections now
        publishing = asyncio.create_task(
            client.publish("a", timeout="10s", expiry="20s", user_properties={"k": 1})
        )
        await asyncio.sleep(0.01)
        await next_peer.accept()
        await publishing

        packet = await published(next_peer)

        assert packet.user_properties[0] == ("k", "1")
        name, left = packet.user_properties[1]
        assert name == "timeout"
        assert 9_000 < int(left.removesuffix("ms")) <= 9_990
        assert packet.message_expiry_interval == 20
        await client.disconnect()


@pytest.mark.parametrize("qos", [0, 1])
async def test_message_that_times_out_before_it_can_be_sent_is_refused_at_once(qos: int) -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        peer.cut()
        await server.next_peer()  # and its CONNECT is never answered

        with pytest.raises((PublishError, NotConnected), match=r"timed out before|within 0\.02s"):
            await client.publish("a", qos=qos, timeout="20ms")
        await client.disconnect()


async def test_publish_fails_after_disconnect_and_before_connect() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        with pytest.raises(NotConnected, match="call connect"):
            await client.publish("a", qos=1)
        await server.connect(client)
        await client.disconnect()

        for qos in (0, 1, 2):
            with pytest.raises(NotConnected, match="disconnect was called"):
                await client.publish("a", qos=qos)


async def test_disconnect_fails_what_waits_and_ends_iteration() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(), subscription)
        publishing = asyncio.create_task(client.publish("a", qos=1))
        iterating = asyncio.create_task(_collect(subscription))
        await published(peer)

        await client.disconnect()

        with pytest.raises(NotConnected, match="disconnect was called"):
            await publishing
        assert await iterating == []


async def _collect(subscription: Subscription) -> list[bytes]:
    return [message.payload async for message in subscription]


async def test_lost_connection_without_reconnect_fails_iteration_and_publishing() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, reconnect=False)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(), subscription)
        publishing = asyncio.create_task(client.publish("a", qos=1))
        await published(peer)
        peer.send(Publish("a", b"last"))
        await asyncio.sleep(0)
        assert (await anext(subscription)).payload == b"last"

        peer.cut()

        with pytest.raises(NotConnected, match="closed by the server"):
            await publishing
        with pytest.raises(NotConnected, match="closed by the server"):
            await anext(subscription)
        await client.disconnect()


@pytest.mark.parametrize("reason_code", [0x86, 0x87, 0x8A])
async def test_reconnecting_ends_when_the_server_says_that_it_is_no_use(reason_code: int) -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        publishing = asyncio.create_task(client.publish("a", qos=1))
        await published(peer)
        peer.cut()
        await server.accept(Connack(False, reason_code))

        with pytest.raises(NotConnected, match="refused") as caught:
            await publishing

        assert caught.value.reason_code == reason_code
        await client.disconnect()


async def test_session_taken_over_is_not_taken_back() -> None:
    async with ScriptedServer() as server:
        client = durable(server)
        peer = await server.connect(client)
        subscription = client.subscribe("a")
        await asyncio.gather(peer.grant(), subscription)

        peer.send(Disconnect(0x8E))

        with pytest.raises(NotConnected, match="session taken over"):
            await anext(subscription)
        await client.disconnect()


async def test_reconnect_resumes_the_session_under_the_assigned_client_id() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, session_expiry="1h", reconnect_delay_max="10ms")
        peer = await server.connect(client, limits(assigned_client_identifier="auto-1"))
        peer.cut()

        again = await (await server.next_peer()).expect(Connect)

        assert client.client_id == "auto-1"
        assert (again.client_id, again.clean_start) == ("auto-1", False)
        await client.disconnect()


async def test_qos_0_publisher_is_held_back_while_the_server_does_not_read() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port, operation_timeout="100ms")
        peer = await server.connect(client)
        published = 0

        async def flood() -> None:
            nonlocal published
            while published < 100:
                await client.publish("a", b"x" * 1_000_000)
                published += 1

        with pytest.raises(PublishError, match=r"server read nothing for 0\.1s"):
            await flood()

        assert published < 20
        peer.cut()
        await client.disconnect()
