"""One link between brokers: room, pacing, what is confirmed, and what is made of what comes in."""

from __future__ import annotations

import pytest

from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.values.delay import LinkDelay, link_of_rate
from timebound.core.values.message import Message
from timebound.errors import ProtocolError
from timebound.linking import codec
from timebound.linking.link import LATENCY_WINDOW_NS, PINGRESP_FRAME, NeighbourLink
from timebound.units import MILLISECOND, SECOND
from timebound.wire.codec import Decoder
from timebound.wire.packets import Ack, Connect, Disconnect, Packet, Pingreq, Publish


class Neighbourhood:
    """Both sides of a link: the connection under it, and the mesh above it; remembers what it was told."""

    def __init__(self) -> None:
        self.written = b""
        self.told: list[str] = []
        self.copies: list[Copy] = []

    def packets(self) -> list[Packet]:
        decoder = Decoder(5, is_server=True)
        found = decoder.feed(self.written)
        assert decoder.error is None, decoder.error
        return found

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self, reason_code: int, reason: str) -> None:
        self.told.append(f"close {reason_code}: {reason}")

    def on_ready(self, link: NeighbourLink, now_ns: int) -> None:
        self.told.append("ready")

    def on_copy(self, link: NeighbourLink, copy: Copy, now_ns: int) -> None:
        self.copies.append(copy)

    def on_advertisements(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None:
        self.told.append("advertisements")

    def on_delay_report(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None:
        self.told.append("delay report")

    def on_levels(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None:
        self.told.append("levels")

    def on_room(self, link: NeighbourLink, now_ns: int) -> None:
        self.told.append("room")

    def on_later(self, link: NeighbourLink) -> None:
        self.told.append("later")

    def on_measured(self, link: NeighbourLink, delay: LinkDelay, now_ns: int) -> None:
        self.told.append("measured")


def make(
    rate: int = 0, receive_maximum: int = 1_024, packet_size_max: int = 0
) -> tuple[NeighbourLink, Neighbourhood]:
    around = Neighbourhood()
    link = NeighbourLink(
        "b",
        around,
        around,
        link_of_rate(rate or 1_000_000.0),
        is_paced=rate > 0,
        receive_maximum=receive_maximum,
        packet_size_max=packet_size_max,
    )
    return link, around


def copy_of(size: int = 1_000, number: int = 1, published_ns: int = 0) -> Copy:
    message = Message("t", b"x" * 10, 0, False, published_ns)
    return Copy(MeshMessage(message, "a", size, 1, number), (), 0, {"b"})


def frame_of(copy: Copy) -> Publish:
    [packet] = Decoder(5, is_server=True).feed(codec.encode_copy(copy, 0, 9))
    assert isinstance(packet, Publish)
    return packet


def test_a_link_is_ready_when_its_hello_was_answered_and_knows_half_the_way() -> None:
    link, around = make()
    link.send_hello(SECOND)
    assert not link.is_ready

    link.receive([Ack(4, 1)], SECOND + 6 * MILLISECOND)

    assert link.is_ready
    assert link.latency_ns == 3 * MILLISECOND
    assert around.told == ["ready"]


def test_copies_wait_until_they_are_flushed_and_are_unconfirmed_until_the_puback() -> None:
    link, around = make()
    first, second = copy_of(number=1), copy_of(number=2)
    assert link.put(first, 0)
    assert link.put(second, 0)
    assert around.written == b""

    link.flush(0)
    sent = around.packets()
    assert [type(one) for one in sent] == [Publish, Publish]
    assert link.unconfirmed() == [first, second]

    link.receive([Ack(4, 1)], MILLISECOND)
    assert link.unconfirmed() == [second]


def test_a_paced_link_has_room_again_when_its_rate_says_so() -> None:
    link, _ = make(rate=10_000)

    link.put(copy_of(1_000), 0)

    assert not link.has_room(99 * MILLISECOND)
    assert link.next_room_ns() == 100 * MILLISECOND
    assert link.has_room(100 * MILLISECOND)


def test_a_paced_link_that_is_asked_late_loses_no_time_unless_it_rested() -> None:
    busy, rested = make(rate=10_000)[0], make(rate=10_000)[0]
    for link in (busy, rested):
        link.put(copy_of(1_000), 0)
    rested.rest()

    for link in (busy, rested):
        link.put(copy_of(1_000), 130 * MILLISECOND)

    assert busy.next_room_ns() == 200 * MILLISECOND
    assert rested.next_room_ns() == 230 * MILLISECOND


def test_no_more_is_unconfirmed_than_the_neighbour_takes() -> None:
    link, around = make(receive_maximum=2)
    for number in (1, 2):
        assert link.has_room(0)
        link.put(copy_of(number=number), 0)
    assert not link.has_room(0)

    link.receive([Ack(4, 2)], 0)

    assert link.has_room(0)
    assert around.told == ["room"]


def test_a_transport_that_is_full_takes_no_copies_until_it_resumes() -> None:
    link, around = make()
    link.paused()
    assert not link.has_room(0)

    link.resumed(0)

    assert link.has_room(0)
    assert around.told == ["room"]


def test_what_is_larger_than_the_neighbour_takes_is_not_sent() -> None:
    link, around = make(packet_size_max=50)

    assert not link.put(copy_of(), 0)
    assert not link.send_control(codec.LEVELS_TOPIC, b"x" * 50)
    link.flush(0)

    assert around.written == b""
    assert link.unconfirmed() == []


def test_a_copy_is_handed_on_and_confirmed() -> None:
    link, around = make()

    link.receive([frame_of(copy_of()), Pingreq()], SECOND)

    assert [copy.what.key() for copy in around.copies] == [("a", 1, 1)]
    assert around.written.endswith(PINGRESP_FRAME)
    decoder = Decoder(5, is_server=True)
    answer = decoder.feed(around.written[: -len(PINGRESP_FRAME)])[0]
    assert isinstance(answer, Ack)
    assert answer.packet_id == 9


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        (codec.ADVERTISEMENTS_TOPIC, ["advertisements"]),
        (codec.DELAY_REPORT_TOPIC, ["delay report"]),
        (codec.LEVELS_TOPIC, ["levels"]),
        (codec.PREFIX + "of-a-later-version", []),
    ],
)
def test_control_messages_reach_the_mesh_and_unknown_ones_are_passed_over(
    topic: str, told: list[str]
) -> None:
    link, around = make()

    link.receive([Publish(topic, b"{}", 0)], 0)

    assert around.told == told


def test_a_neighbour_that_ends_the_link_is_not_heard_further() -> None:
    link, around = make()

    link.receive([Disconnect(0), frame_of(copy_of())], 0)

    assert around.told == ["close 0: broker 'b' ended the link"]
    assert around.copies == []


def test_a_packet_that_no_broker_sends_is_an_error_after_the_answers() -> None:
    link, around = make()

    with pytest.raises(ProtocolError, match="unexpected CONNECT between brokers"):
        link.receive([Pingreq(), Connect("x")], 0)

    assert around.written == PINGRESP_FRAME


def test_the_way_is_the_shortest_of_two_windows() -> None:
    link, _ = make()

    def confirm(took_ns: int, now_ns: int) -> int:
        link.send_hello(now_ns - took_ns)
        link.receive([Ack(4, link._last_packet_id)], now_ns)
        return link.latency_ns

    assert confirm(20 * MILLISECOND, SECOND) == 10 * MILLISECOND
    assert confirm(8 * MILLISECOND, 2 * SECOND) == 4 * MILLISECOND
    assert confirm(40 * MILLISECOND, 3 * SECOND) == 4 * MILLISECOND
    # A window later the shortest still counts, two windows later it is forgotten.
    assert confirm(40 * MILLISECOND, 2 * SECOND + LATENCY_WINDOW_NS) == 4 * MILLISECOND
    assert confirm(40 * MILLISECOND, 4 * SECOND + 2 * LATENCY_WINDOW_NS) == 20 * MILLISECOND
