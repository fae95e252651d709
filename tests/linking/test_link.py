"""One open link: hello, copies and their confirmation, room, latency, and what a neighbour may say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.broker import Broker
from timebound.core.link.outlet import PACKET_ID_MAX
from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.link import MeshLink
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.sessions.session import Reply
from timebound.core.values.access import AccessList
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.errors import ProtocolError
from timebound.linking import codec
from timebound.linking.greeting import PACK_VERSION
from timebound.linking.link import (
    HELLO_NS,
    LATENCY_WINDOW_NS,
    PINGRESP_FRAME,
    PUBACK,
    NeighbourLink,
)
from timebound.linking.packs import PACK_TOPIC, decode_pack, encode_pack
from timebound.records import Reason
from timebound.wire.codec import Decoder
from timebound.wire.packets import Ack, Disconnect, Packet, Pingreq, Pingresp, Publish, Suback
from timebound.wire.properties import Properties

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
KB_IN_100_MS = LinkDelay(0.1, 0.0001)


class Ends:
    """The connection under a link and the mesh above it: both record what they are given."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed: list[str] = []
        self.events: list[str] = []
        self.copies: list[Copy] = []
        self._decoder = Decoder(5, is_server=True)
        self.is_storing = False  # copies are not confirmed yet
        self.outlet = MeshLink("b", LinkQueue(strategy_named("fifo"), KB_IN_100_MS), KB_IN_100_MS, 0.5)

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self, reason_code: int, reason: str) -> None:
        self.closed.append(reason)

    def packets(self) -> list[Packet]:
        """What was written since the last call."""
        data = bytes(self.written)
        self.written.clear()
        return self._decoder.feed(data)

    def on_ready(self, link: NeighbourLink, now_ns: int) -> None:
        self.events.append("ready")

    def on_copy(self, link: NeighbourLink, copy: Copy, packet_id: int, now_ns: int) -> None:
        self.copies.append(copy)
        if packet_id and not self.is_storing:
            link.session.replies.append(Reply(PUBACK, packet_id))

    def on_advertisements(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None:
        self.events.append(f"advertisements {payload.decode()}")

    def on_delay_report(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None:
        self.events.append(f"delays {payload.decode()}")

    def on_levels(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None:
        self.events.append(f"levels {payload.decode()}")

    def on_unknown(self, link: NeighbourLink, what: str) -> None:
        self.events.append(f"unknown {what}")

    def on_room(self, link: NeighbourLink, now_ns: int) -> None:
        self.events.append("room")

    def on_later(self, link: NeighbourLink) -> None:
        self.events.append("later")

    def on_fault(self, link: NeighbourLink, error: Exception) -> None:
        self.events.append(f"fault {error}")

    def on_measured(self, link: NeighbourLink, delay: LinkDelay, now_ns: int) -> None:
        self.events.append(f"measured {delay.mean_s_per_kb}")


class SetMeter:
    """A meter that says what the test sets."""

    def __init__(self) -> None:
        self.wake_ns = 0
        self.allowed = 1 << 20
        self.delay: LinkDelay | None = None
        self.held_ns = 0

    def ahead_ns(self) -> int:
        return self.held_ns

    def allow(self, wanted: int, now_ns: int) -> int:
        return min(wanted, self.allowed)

    def changed_delay(self) -> LinkDelay | None:
        delay, self.delay = self.delay, None
        return delay

    def written(self, count: int, wanted: int, now_ns: int) -> bool:
        self.allowed = max(0, self.allowed - count)
        return self.allowed > 0


def link_of(
    ends: Ends, *, is_paced: bool = False, meter: SetMeter | None = None, receive_maximum: int = 1_024
) -> NeighbourLink:
    session = Broker(BrokerLimits(), AccessList([])).open_link("b", 1)
    ends.outlet.open(receive_maximum)
    return NeighbourLink(
        "b",
        ends,
        ends,
        KB_IN_100_MS,
        session,
        ends.outlet,
        is_paced=is_paced,
        meter=meter,
        receive_maximum=receive_maximum,
    )


def copy_of(number: int = 1, size: int = 1_024, published_ns: int = 0, payload: bytes = b"x") -> Copy:
    message = Message("t", payload, 1, False, published_ns, "p", sequence=number)
    return Copy(MeshMessage(message, "a", size, 5), ("a",), 1, {"b"})


def put(link: NeighbourLink, copy: Copy, now_ns: int) -> bool:
    """Send a copy as the core orders it."""
    outlet = link._outlet
    packet_id = outlet.start(copy)
    is_sent = link.put(copy, packet_id, now_ns)
    if not is_sent:
        outlet.confirm(packet_id)
    return is_sent


def ack(packet_id: int) -> Ack:
    return Ack(PUBACK, packet_id)


def sent(ends: Ends) -> list[Publish]:
    return [packet for packet in ends.packets() if isinstance(packet, Publish)]


def test_a_link_is_ready_when_its_hello_is_confirmed_and_knows_half_of_the_round_trip() -> None:
    ends = Ends()
    link = link_of(ends)
    link.send_hello(0)
    [hello] = sent(ends)
    assert (hello.topic, hello.qos, link.is_ready) == (codec.HELLO_TOPIC, 1, False)
    assert ends.outlet.unconfirmed() == []  # a hello is not sent another way

    link.receive([ack(hello.packet_id)], 10 * MILLISECOND)

    assert link.is_ready
    assert ends.events == ["ready"]
    assert link.latency_ns == 5 * MILLISECOND


def test_a_copy_is_kept_until_it_is_confirmed_and_dated_for_its_arrival() -> None:
    ends = Ends()
    link = link_of(ends)
    link.latency_ns = 3 * MILLISECOND
    copies = [copy_of(number, published_ns=SECOND) for number in (1, 2)]
    for copy in copies:
        assert put(link, copy, 2 * SECOND)
    assert not ends.written  # until it is flushed

    link.flush(2 * SECOND)

    packets = sent(ends)
    assert ends.outlet.unconfirmed() == copies
    arrived = codec.decode_copy(packets[0], 10 * SECOND).what.message
    assert 10 * SECOND - arrived.published_ns == SECOND + 100 * MILLISECOND + 3 * MILLISECOND
    link.receive([ack(packets[0].packet_id), ack(999)], 3 * SECOND)
    assert ends.outlet.unconfirmed() == copies[1:]
    assert link.sent == 2


def test_what_is_larger_than_the_neighbour_accepts_is_not_sent() -> None:
    ends = Ends()
    link = link_of(ends)
    link.packet_size_max = 200

    assert not put(link, copy_of(payload=b"x" * 200), 0)
    assert not link.send_control(codec.LEVELS_TOPIC, b"x" * 200)
    assert put(link, copy_of(), 0)
    assert link.send_control(codec.LEVELS_TOPIC, b"{}")
    link.flush(0)

    assert [packet.topic for packet in sent(ends)] == [codec.LEVELS_TOPIC, "t"]
    assert len(ends.outlet.unconfirmed()) == 1


def test_no_more_copies_are_under_way_than_the_neighbour_receives() -> None:
    ends = Ends()
    link = link_of(ends, receive_maximum=2)
    for number in (1, 2):
        assert link.has_room(0)
        put(link, copy_of(number), 0)
    assert not link.has_room(0)
    link.flush(0)

    link.receive([ack(sent(ends)[0].packet_id)], 0)

    assert link.has_room(0)
    assert ends.events == ["room"]


def test_a_paced_link_is_busy_for_the_time_of_each_copy_and_rests_between() -> None:
    link = link_of(Ends(), is_paced=True)

    put(link, copy_of(size=2_048), SECOND)
    assert not link.has_room(SECOND + 200 * MILLISECOND - 1)
    assert link.has_room(SECOND + 200 * MILLISECOND)
    put(link, copy_of(), SECOND + 250 * MILLISECOND)
    # A timer that fired late does not slow the link down.
    assert link.next_room_ns() == SECOND + 300 * MILLISECOND
    link.rest()
    put(link, copy_of(), 5 * SECOND)

    assert link.next_room_ns() == 5 * SECOND + 100 * MILLISECOND


def test_a_full_transport_stops_a_link_until_it_has_room_again() -> None:
    ends = Ends()
    link = link_of(ends)

    link.paused()
    assert not link.has_room(0)
    link.resumed(0)

    assert link.has_room(0)
    assert ends.events == ["room"]


def test_a_meter_decides_how_much_is_written_and_measures_the_delay() -> None:
    ends, meter = Ends(), SetMeter()
    link = link_of(ends, meter=meter)
    meter.allowed, meter.delay = 150, LinkDelay(0.2, 0.0)
    assert link.has_room(SECOND)
    assert ends.events == ["measured 0.2"]
    assert link.delay.mean_s_per_kb == 0.2
    meter.wake_ns = 3 * SECOND

    put(link, copy_of(payload=b"x" * 150), SECOND)  # all that is allowed: written at once

    assert len(sent(ends)) == 1
    assert (link.has_room(2 * SECOND), link.next_room_ns()) == (False, 3 * SECOND)
    link.paused()
    link.resumed(2 * SECOND)
    assert ends.events[1:] == ["later"]
    meter.allowed = 10
    assert link.has_room(3 * SECOND)


def test_what_the_transport_still_holds_makes_a_metered_copy_older() -> None:
    ends, meter = Ends(), SetMeter()
    link = link_of(ends, meter=meter)
    meter.held_ns = 70 * MILLISECOND

    put(link, copy_of(), 0)
    link.flush(0)

    message = codec.decode_copy(sent(ends)[0], SECOND).what.message
    assert SECOND - message.published_ns == 170 * MILLISECOND


def test_packets_of_a_neighbour_reach_the_mesh_and_are_confirmed() -> None:
    far, ends = Ends(), Ends()
    sender, link = link_of(far), link_of(ends)
    put(sender, copy_of(7), 0)
    sender.flush(0)
    for topic, payload in (
        (codec.ADVERTISEMENTS_TOPIC, b"[]"),
        (codec.DELAY_REPORT_TOPIC, b"{}"),
        (codec.LEVELS_TOPIC, b"{}"),
        ("$timebound/mesh/later", b"of a later version"),
    ):
        sender.send_control(topic, payload)
    sender.send_hello(0)
    sender.ping()

    link.receive(far.packets(), SECOND)

    assert [copy.what.number for copy in ends.copies] == [7]
    unknown = "unknown control topic '$timebound/mesh/later'"
    assert ends.events == ["advertisements []", "delays {}", "levels {}", unknown]
    assert PINGRESP_FRAME in ends.written
    kinds = [packet.fields().get("kind") for packet in Decoder(5, is_server=False).feed(bytes(ends.written))]
    assert kinds == [PUBACK, None, PUBACK]
    link.receive([Pingresp()], SECOND)


def test_a_copy_is_confirmed_when_its_session_says_so_and_a_hello_at_once() -> None:
    far, ends = Ends(), Ends()
    sender, link = link_of(far), link_of(ends)
    ends.is_storing = True
    put(sender, copy_of(7), 0)
    sender.flush(0)
    sender.send_hello(0)
    [copy, hello] = sent(far)

    link.receive([copy, hello], SECOND)
    assert [packet.fields()["packet_id"] for packet in ends.packets()] == [hello.packet_id]

    link.session.replies.append(Reply(PUBACK, copy.packet_id))
    link.write_answers()
    link.write_answers()
    assert [packet.fields()["packet_id"] for packet in ends.packets()] == [copy.packet_id]


def test_the_latency_is_measured_again_by_a_hello_at_a_time() -> None:
    ends = Ends()
    link = link_of(ends, receive_maximum=1)
    link.send_hello(0)
    [hello] = sent(ends)
    link.patrol(HELLO_NS)
    assert sent(ends) == []  # the first is not confirmed yet
    link.receive([ack(hello.packet_id)], MILLISECOND)

    link.patrol(HELLO_NS - 1)
    assert sent(ends) == []
    link.paused()
    link.patrol(HELLO_NS)
    link.resumed(HELLO_NS)
    put(link, copy_of(1), HELLO_NS)
    link.flush(HELLO_NS)
    [copy] = sent(ends)
    link.patrol(HELLO_NS)
    assert sent(ends) == []  # the neighbour takes one packet at a time
    link.receive([ack(copy.packet_id)], HELLO_NS + SECOND)
    assert link.latency_ns == MILLISECOND // 2
    link.patrol(HELLO_NS + SECOND)
    [hello] = sent(ends)
    link.receive([ack(hello.packet_id)], HELLO_NS + SECOND)

    assert link.latency_ns == 0
    assert ends.events.count("ready") == 1


def test_an_answer_is_written_even_if_a_later_packet_is_wrong() -> None:
    ends = Ends()
    link = link_of(ends)

    with pytest.raises(ProtocolError, match="unexpected SUBACK between brokers"):
        link.receive([Pingreq(), Suback(1, [0])], 0)

    assert ends.written == PINGRESP_FRAME


def test_a_disconnect_closes_the_link_and_ends_what_comes_after() -> None:
    ends = Ends()

    link_of(ends).receive([Disconnect(0, Properties()), Pingreq()], 0)

    assert ends.closed == ["broker 'b' ended the link"]
    assert not ends.written


def test_packet_ids_start_over_and_leave_out_those_under_way() -> None:
    ends = Ends()
    link = link_of(ends)
    put(link, copy_of(1), 0)
    ends.outlet.last_packet_id = PACKET_ID_MAX - 1

    for number in (2, 3):
        put(link, copy_of(number), 0)
    link.flush(0)

    assert [packet.packet_id for packet in sent(ends)] == [1, PACKET_ID_MAX, 2]


def test_a_latency_of_zero_counts_in_the_next_window() -> None:
    ends = Ends()
    link = link_of(ends)
    for now_ns, took_ns in ((0, 0), (LATENCY_WINDOW_NS, 10)):
        link.send_hello(now_ns)
        [hello] = sent(ends)
        link.receive([ack(hello.packet_id)], now_ns + took_ns)

    assert link.latency_ns == 0


@given(
    st.lists(
        st.tuples(st.integers(0, LATENCY_WINDOW_NS), st.integers(0, 400 * MILLISECOND)),
        min_size=1,
        max_size=8,
    )
)
def test_the_latency_is_the_shortest_of_this_window_and_the_one_before(
    trips: list[tuple[int, int]],
) -> None:
    """Each trip starts after a gap and takes some time; a window begins with the first one after the last."""
    ends = Ends()
    link = link_of(ends)
    windows: list[list[int]] = []
    end_ns = now_ns = 0
    for gap_ns, took_ns in trips:
        now_ns += gap_ns
        link.send_hello(now_ns)
        [hello] = sent(ends)
        now_ns += took_ns
        link.receive([ack(hello.packet_id)], now_ns)
        if now_ns >= end_ns:
            windows.append([])
            end_ns = now_ns + LATENCY_WINDOW_NS
        windows[-1].append(took_ns // 2)
        assert link.latency_ns == min(min(window) for window in windows[-2:])


def test_an_ended_connection_confirms_nothing_of_the_one_that_replaced_it() -> None:
    ends = Ends()
    old = link_of(ends)
    put(old, copy_of(1), 0)
    old.end()
    replacing = link_of(ends)
    copy = copy_of(2)
    put(replacing, copy, 0)  # with the packet id of the first

    old.receive([ack(1)], 0)

    assert ends.outlet.unconfirmed() == [copy]


# --- packs --------------------------------------------------------------------------


def packing(
    ends: Ends, *, version: int = PACK_VERSION, is_paced: bool = False, packet_size_max: int = 0
) -> NeighbourLink:
    """An open link to a neighbour of a version, whose hello is confirmed."""
    session = Broker(BrokerLimits(), AccessList([])).open_link("b", 1)
    link = NeighbourLink(
        "b",
        ends,
        ends,
        KB_IN_100_MS,
        session,
        ends.outlet,
        is_paced=is_paced,
        packet_size_max=packet_size_max,
        version=version,
    )
    link.open(0)
    [hello] = sent(ends)
    link.receive([ack(hello.packet_id)], 0)
    return link


def order(ends: Ends, *copies: Copy) -> None:
    for copy in copies:
        ends.outlet.pack(copy)


def small(number: int, qos: int = 0) -> Copy:
    message = Message("t", b"%d" % number, qos, False, 0, "p", sequence=number)
    return Copy(MeshMessage(message, "a", 20, 5), ("a",), 1, {"b"})


@pytest.mark.parametrize(
    ("version", "is_paced", "is_packing"), [(2, False, False), (3, False, True), (3, True, False)]
)
def test_a_link_packs_for_a_neighbour_that_knows_packs_unless_its_rate_is_configured(
    version: int, is_paced: bool, is_packing: bool
) -> None:
    ends = Ends()
    link = packing(ends, version=version, is_paced=is_paced)

    assert bool(ends.outlet.pack_bytes_max) == is_packing
    link.grant()
    assert bool(ends.outlet.credit) == is_packing


def test_a_pack_is_one_packet_with_one_confirmation_and_dated_for_its_last_byte() -> None:
    ends = Ends()
    link = packing(ends)
    link.latency_ns = 3 * MILLISECOND
    copies = [small(number) for number in (1, 2, 3)]
    order(ends, *copies)

    assert link.send_packs(SECOND) == []

    [packet] = sent(ends)
    assert (packet.topic, packet.qos) == (PACK_TOPIC, 1)
    found = decode_pack(packet.payload, packet.packet_id, 10 * SECOND)
    assert [copy.what.number for copy in found] == [1, 2, 3]
    sending_ns = int(3 * (20 + len("p")) * 100 * MILLISECOND / 1_024)
    assert {10 * SECOND - copy.what.message.published_ns for copy in found} == {
        SECOND + 3 * MILLISECOND + sending_ns
    }
    assert ends.outlet.unconfirmed() == copies
    assert link.sent == 3
    link.receive([ack(packet.packet_id)], 2 * SECOND)
    assert ends.outlet.unconfirmed() == []


def test_a_pack_holds_no_more_than_the_link_sends_in_ten_milliseconds() -> None:
    ends = Ends()
    link = packing(ends)
    link.grant()  # 1,024 bytes take 100 ms
    assert ends.outlet.credit == 102

    order(ends, *[small(number) for number in range(1, 11)])
    link.send_packs(0)

    counts = [len(decode_pack(packet.payload, 1, 0)) for packet in sent(ends)]
    assert counts == [4, 4, 2]


def test_a_copy_that_is_too_large_for_a_pack_travels_alone() -> None:
    ends = Ends()
    link = packing(ends)
    order(ends, small(1), copy_of(2, size=40_000), small(3))

    link.send_packs(0)

    packets = sent(ends)
    assert [packet.topic for packet in packets] == [PACK_TOPIC, "t", PACK_TOPIC]
    assert codec.decode_copy(packets[1], 0).what.number == 2


def test_a_pack_larger_than_the_neighbour_accepts_is_not_sent_and_frees_its_place() -> None:
    ends = Ends()
    link = packing(ends, packet_size_max=4_000)
    copies = [copy_of(1, size=40_000, payload=b"x" * 5_000), small(2)]
    order(ends, *copies)

    refused = link.send_packs(0)

    assert refused == [(copies[0], Reason.TOO_LARGE)]
    assert len(sent(ends)) == 1
    assert ends.outlet.unconfirmed() == copies[1:]


def test_the_text_of_a_full_pack_fits_the_neighbours_limit_whatever_its_letters() -> None:
    ends = Ends()
    link = packing(ends, packet_size_max=66_000)
    for number in range(1, 400):
        message = Message("\U0001f300" * (number % 60 + 1), b"", 0, False, 0, "\U0001f300" * (number % 70))
        order(ends, Copy(MeshMessage(message, "a", message.size() + 100, 5, number), ("a",), 1, {"b"}))

    assert link.send_packs(0) == []

    found = [copy for packet in sent(ends) for copy in decode_pack(packet.payload, 1, 0)]
    assert [copy.what.number for copy in found] == list(range(1, 400))


def test_a_copy_that_cannot_be_encoded_is_left_out_of_its_pack() -> None:
    ends = Ends()
    link = packing(ends)
    broken = small(2)
    broken.what.message.publisher = "\ud800"
    order(ends, small(1), broken, small(3))

    refused = link.send_packs(0)

    assert refused == [(broken, Reason.FAULT)]
    assert [event[:5] for event in ends.events if event != "ready"] == ["fault"]
    [packet] = sent(ends)
    assert [copy.what.number for copy in decode_pack(packet.payload, 1, 0)] == [1, 3]


def test_a_transport_that_is_full_takes_the_credit_back() -> None:
    ends = Ends()
    link = packing(ends)
    link.grant()

    link.paused()

    assert (ends.outlet.credit, ends.outlet.is_idle()) == (0, False)
    link.resumed(0)
    assert ends.events[-1] == "room"


def test_a_pack_reaches_the_mesh_and_its_copies_share_a_receipt() -> None:
    ends = Ends()
    link = packing(ends)

    link.receive([Publish(PACK_TOPIC, encode_pack([small(1), small(2)], 0, 0), 1, packet_id=7)], 0)

    assert [copy.what.number for copy in ends.copies] == [1, 2]
    receipt = ends.copies[0].receipt
    assert receipt is not None
    assert receipt is ends.copies[1].receipt
    assert (receipt.packet_id, receipt.left) == (7, 2)
    assert not ends.packets()  # the broker confirms it
