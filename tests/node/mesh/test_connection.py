"""A connection to a neighbour after the handshake: the same protocol on either side of it."""

from __future__ import annotations

import logging

import pytest
from tests.linking.test_link import copy_of
from tests.linking.test_mesh import start
from tests.node.mesh.doubles import NEEDS_PLAIN, SECOND
from tests.node.mesh.wires import StillDriver, Wire

from timebound.linking.codec import HELLO_TOPIC, encode_copy
from timebound.linking.greeting import Greeting
from timebound.node.mesh.connection import CLOSE_TIMEOUT_NS, FULL_READ_BYTES, Handshake, LinkConnection
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Ack, Disconnect, Pingreq, Publish, make_publish
from timebound.wire.reasons import ReasonCode

SIDES = pytest.mark.parametrize("is_dialled", [True, False], ids=["dialled", "accepted"])


class Open:
    """A link from broker a to b, on a transport of its own."""

    def __init__(self, *, is_dialled: bool, keep_alive_s: int = 4) -> None:
        nodes = start({("a", "b"): 10_000})
        nodes.cut("a", "b")
        node = nodes.nodes["a"]
        self.mesh = node.mesh
        self.broker = node.broker
        self.driver = StillDriver(node.broker)
        self.wire = Wire(is_server=is_dialled)
        self.ends: list[str] = []
        self.handshake = Handshake(
            Greeting("b"),
            7,
            self.wire,
            Decoder(5, is_server=not is_dialled),
            keep_alive_ns=keep_alive_s * SECOND,
            receive_maximum=10,
            packet_size_max=0,
            is_dialled=is_dialled,
        )
        self.connection = LinkConnection(self.driver, self.mesh, self.handshake, self.ends.append)
        self.connection.start(self.handshake, [])


@SIDES
def test_the_transport_is_handed_over_and_the_link_says_hello(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)

    [hello] = link.wire.packets()

    assert link.wire.protocol is link.connection
    assert link.driver.connections == {7: link.connection}
    assert isinstance(hello, Publish)
    assert hello.topic == HELLO_TOPIC
    assert link.mesh.links["b"].is_dialled == is_dialled


@SIDES
def test_bytes_are_counted_both_ways(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)
    counters = link.broker.counters
    before = counters.bytes_received, counters.bytes_sent
    packet = encode(make_publish(HELLO_TOPIC, b"", 1, packet_id=3), 5)

    link.connection.data_received(packet)

    assert counters.bytes_received - before[0] == len(packet)
    assert counters.bytes_sent - before[1] == 4  # PUBACK


@SIDES
def test_a_read_goes_through_the_shared_buffer(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)
    link.wire.packets()
    packet = encode(make_publish(HELLO_TOPIC, b"", 1, packet_id=3), 5)

    link.connection.get_buffer(-1)[: len(packet)] = packet
    link.connection.buffer_updated(len(packet))

    [answer] = link.wire.packets()
    assert isinstance(answer, Ack)


@SIDES
def test_the_link_ends_with_its_connection(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)

    link.connection.connection_lost(ConnectionResetError("reset by peer"))

    assert "b" not in link.mesh.links
    assert link.driver.connections == {}
    assert link.ends == ["reset by peer"]


def test_the_side_that_dialled_pings_and_gives_up_a_silent_neighbour() -> None:
    link = Open(is_dialled=True)
    link.wire.packets()

    link.connection.patrol(2 * SECOND)
    assert link.wire.packets() == []
    link.connection.patrol(3 * SECOND)
    link.connection.patrol(3 * SECOND + 1)
    assert [type(packet) for packet in link.wire.packets()] == [Pingreq]
    link.connection.patrol(7 * SECOND)
    assert not link.wire.is_aborted
    link.connection.patrol(7 * SECOND + 1)

    assert link.wire.is_aborted
    assert link.connection.failure == "silent for longer than the keep-alive allows"


def test_the_side_that_accepted_does_not_ping_and_closes_with_the_code_for_silence() -> None:
    link = Open(is_dialled=False)
    link.wire.packets()

    link.connection.patrol(7 * SECOND)
    assert link.wire.packets() == []
    link.connection.patrol(7 * SECOND + 1)

    [packet] = link.wire.packets()
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT
    assert "b" not in link.mesh.links


@SIDES
def test_without_keep_alive_silence_is_allowed(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled, keep_alive_s=0)

    link.connection.patrol(1_000 * SECOND)

    assert not link.wire.is_closing()


@SIDES
def test_a_neighbour_that_does_not_read_disconnect_is_cut_off(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)
    link.connection.close(0, "done")

    link.connection.patrol(SECOND + CLOSE_TIMEOUT_NS)
    assert not link.wire.is_aborted
    link.connection.patrol(SECOND + CLOSE_TIMEOUT_NS + 1)

    assert link.wire.is_aborted


@SIDES
def test_nothing_is_read_while_storage_is_behind_and_nobody_takes_that_for_silence(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)
    link.driver.is_behind = True

    link.connection.data_received(b"\xd0\x00" if is_dialled else b"\xc0\x00")
    link.connection.patrol(100 * SECOND)

    assert link.driver.throttled == [link.connection]
    assert not link.wire.is_reading
    assert not link.wire.is_closing()
    link.connection.read_again()
    assert link.wire.is_reading


@SIDES
def test_after_a_full_read_others_get_their_turn(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)
    ping = b"\xd0\x00" if is_dialled else b"\xc0\x00"

    link.connection.data_received(ping * (FULL_READ_BYTES // 2 - 1))
    assert link.wire.is_reading
    link.connection.data_received(ping * (FULL_READ_BYTES // 2))

    assert not link.wire.is_reading
    assert link.driver.throttled == [link.connection]


@SIDES
def test_a_full_transport_pauses_the_link(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)
    opened = link.mesh.links["b"]

    link.connection.pause_writing()
    assert not opened.has_room(SECOND)
    link.connection.resume_writing()

    assert opened.has_room(SECOND)


@SIDES
def test_a_mistake_of_the_neighbour_ends_the_link_with_its_code(
    is_dialled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    link = Open(is_dialled=is_dialled)
    link.wire.packets()

    with caplog.at_level(logging.WARNING):
        link.connection.data_received(b"\x00\x00")

    [packet] = link.wire.packets()
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == ReasonCode.MALFORMED_PACKET
    assert link.wire.is_closing()
    assert "b" not in link.mesh.links
    assert "closing broker 'b' after 0.0 s" in caplog.text


@pytest.mark.parametrize(
    ("is_dialled", "code"),
    [(True, ReasonCode.NORMAL_DISCONNECTION), (False, ReasonCode.SERVER_SHUTTING_DOWN)],
)
def test_a_side_that_is_the_client_does_not_say_that_a_server_shuts_down(is_dialled: bool, code: int) -> None:
    link = Open(is_dialled=is_dialled)
    link.wire.packets()

    link.connection.close(ReasonCode.SERVER_SHUTTING_DOWN, "the broker stops")
    link.connection.close(0, "again")

    [packet] = link.wire.packets()
    assert isinstance(packet, Disconnect)
    assert packet.reason_code == code
    assert packet.properties.reason_string == "the broker stops"


@NEEDS_PLAIN
@SIDES
def test_an_error_of_this_brokers_own_goes_to_the_driver(
    is_dialled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Open(is_dialled=is_dialled)

    def fail(*arguments: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(link.mesh.links["b"], "receive", fail)
    link.connection.data_received(b"")

    assert [str(error) for error in link.driver.failures] == ["a bug"]


@NEEDS_PLAIN
@SIDES
def test_an_error_before_the_link_is_open_goes_to_the_driver_and_the_connection_can_be_closed(
    is_dialled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Open(is_dialled=is_dialled)
    link.connection.close(0, "done")
    again = LinkConnection(link.driver, link.mesh, link.handshake, link.ends.append)

    def fail(*arguments: object, **more: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(link.mesh, "make_link", fail)
    again.start(link.handshake, [])
    again.connection_lost(None)

    assert [str(error) for error in link.driver.failures] == ["a bug"]
    assert link.driver.connections == {}


@SIDES
def test_a_connection_that_cannot_be_closed_in_order_is_cut(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)

    link.connection.cut()

    assert link.wire.is_aborted
    assert "b" not in link.mesh.links


@SIDES
def test_after_the_broker_has_stopped_nothing_is_decided(is_dialled: bool) -> None:
    link = Open(is_dialled=is_dialled)
    link.driver.is_stopped = True

    link.connection.connection_lost(None)

    assert "b" in link.mesh.links


def test_copies_wait_for_the_input_while_control_packets_are_answered_at_once() -> None:
    link = Open(is_dialled=False)
    link.wire.packets()
    hello = encode(make_publish(HELLO_TOPIC, b"", 1, packet_id=3), 5)
    copies = b"".join(encode_copy(copy_of(number), 0, 3 + number) for number in (1, 2))

    link.connection.data_received(copies + hello)

    assert [one.packet_id for one in link.wire.packets() if isinstance(one, Ack)] == [3]
    link.driver.input.serve()
    link.connection.flush()
    assert [one.packet_id for one in link.wire.packets() if isinstance(one, Ack)] == [4, 5]
    assert not link.driver.failures


def test_a_link_whose_queues_are_full_is_not_read_until_its_copies_are_taken_in() -> None:
    link = Open(is_dialled=False)
    link.driver.input.turn_ns = 1
    copies = b"".join(encode_copy(copy_of(number), 0, number) for number in range(1, 101))

    link.connection.data_received(copies)
    link.driver.time_ns = link.driver.input.now_ns() + SECOND  # as if each message took longer than a turn
    link.driver.input.serve()
    assert not link.wire.is_reading
    link.connection.patrol(7 * SECOND)
    assert not link.wire.is_closing(), "what waits here unread is no silence"
    while link.driver.input.has_more():
        link.driver.input.serve()

    assert link.wire.is_reading
    link.connection.flush()
    acks = [one.packet_id for one in link.wire.packets() if isinstance(one, Ack)]
    assert acks == list(range(1, 101))
