from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.scripted_server import (
    LIMIT_S,
    ScriptedServer,
    bare_connection,
    durable,
    limits,
    published,
)
from timebound import Client
from timebound.client import PublishRefused
from timebound.client.limits import ServerLimits
from timebound.client.outbox import PACKET_ID_MAX, Outbox, OutgoingMessage, PacketIds
from timebound.errors import ClientError, NotConnected, ProtocolError, PublishError
from timebound.wire import packet_types as types
from timebound.wire.packets import (
    Ack,
    Connack,
    Pingreq,
)


@given(st.integers(0, PACKET_ID_MAX), st.lists(st.booleans(), max_size=60))
def test_packet_ids_are_never_zero_nor_in_use(first: int, takes: list[bool]) -> None:
    ids = PacketIds(first)
    used: list[int] = []

    for is_take in takes:
        if is_take:
            packet_id = ids.take()
            assert 1 <= packet_id <= PACKET_ID_MAX
            assert packet_id not in used
            used.append(packet_id)
        elif used:
            ids.free(used.pop(0))


def test_freed_packet_id_is_not_reused_before_all_others() -> None:
    ids = PacketIds(7)
    ids.free(ids.take())

    others = [ids.take() for _ in range(PACKET_ID_MAX - 1)]

    assert 7 not in others
    assert ids.take() == 7


def test_take_gives_zero_when_all_are_in_use() -> None:
    ids = PacketIds(1)
    taken = [ids.take() for _ in range(PACKET_ID_MAX)]

    assert ids.take() == 0
    assert sorted(taken) == list(range(1, PACKET_ID_MAX + 1))


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


def waiting(payload: bytes, qos: int = 1) -> OutgoingMessage:
    """Return a message whose caller waits for its acknowledgement."""
    outgoing = OutgoingMessage("a", payload, qos, False, b"")
    outgoing.future = asyncio.get_running_loop().create_future()
    return outgoing


async def test_message_without_a_connection_waits_for_the_next() -> None:
    outbox = Outbox(PacketIds(1))
    outgoing = waiting(b"x")
    outbox.submit(outgoing)
    assert (len(outbox), outgoing.packet_id) == (1, 0)

    async with ScriptedServer() as server, bare_connection(server) as (connection, peer, _):
        outbox.attach(connection, ServerLimits(), session_present=False)
        packet = await published(peer)
        outbox.handle(Ack(types.PUBACK, packet.packet_id, 0x10, "nobody is there"))

        assert outgoing.future is not None
        assert (packet.payload, await outgoing.future, outgoing.answer) == (b"x", 0x10, "nobody is there")
        assert len(outbox) == 0


async def test_abandoned_message_that_was_not_sent_never_is() -> None:
    outbox = Outbox(PacketIds(1))
    gone, kept = waiting(b"gone"), waiting(b"kept")
    outbox.submit(gone)
    outbox.submit(kept)

    outbox.abandon(gone)

    async with ScriptedServer() as server, bare_connection(server) as (connection, peer, _):
        outbox.attach(connection, ServerLimits(), session_present=False)
        assert (await published(peer)).payload == b"kept"
        connection.ping()
        await peer.expect(Pingreq)


@pytest.mark.parametrize(("qos", "kind"), [(1, types.PUBREC), (1, types.PUBCOMP), (2, types.PUBACK)])
async def test_acknowledgement_of_the_wrong_kind_is_a_protocol_error(qos: int, kind: int) -> None:
    outbox = Outbox(PacketIds(1))
    async with ScriptedServer() as server, bare_connection(server) as (connection, peer, _):
        outbox.attach(connection, ServerLimits(), session_present=False)
        outbox.submit(waiting(b"x", qos))
        packet = await published(peer)

        with pytest.raises(ProtocolError, match=f"for a message with QoS {qos}"):
            outbox.handle(Ack(kind, packet.packet_id))


async def test_every_waiting_caller_gets_an_error_of_its_own_at_the_end() -> None:
    outbox = Outbox(PacketIds(1))
    both = [waiting(b"1"), waiting(b"2")]
    for outgoing in both:
        outbox.submit(outgoing)

    outbox.fail_all(NotConnected("server is gone", reason_code=0x8B))

    errors: list[ClientError] = []
    for outgoing in both:
        assert outgoing.future is not None
        with pytest.raises(NotConnected, match="server is gone") as caught:
            async with asyncio.timeout(LIMIT_S):
                await outgoing.future
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert {error.reason_code for error in errors} == {0x8B}
    assert len(outbox) == 0


def test_message_is_late_once_its_timeout_has_passed() -> None:
    outgoing = OutgoingMessage("a", b"", 0, False, b"", timeout_ns=1_000)
    timeless = OutgoingMessage("a", b"", 0, False, b"")

    assert not outgoing.is_late(outgoing.created_ns + 999)
    assert outgoing.is_late(outgoing.created_ns + 1_000)
    assert not timeless.is_late(1 << 62)
