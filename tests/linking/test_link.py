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
from timebound.linking.link import (
    HELLO_NS,
    LATENCY_WINDOW_NS,
    PINGRESP_FRAME,
    PUBACK,
    NeighbourLink,
)
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
