"""One open link to a neighbour broker, whichever side opened the connection.

A link encodes copies and writes them while its transport has room, and knows its delay: from a configured
rate, which it then keeps, or measured from what the kernel saw acknowledged. What is in flight is known to
the core's `MeshLink`. What the link receives goes to the mesh. The broker confirms a copy through the link's
session, perhaps after storage. A hello is answered at once, so that it measures the way alone: it gives the
latency, and on a link with time limits, sent behind some copies, what lies between the socket and the
neighbour.

Long, since all of it works on the state of one connection, and calls inside one compiled class are jumps.
"""

from __future__ import annotations

from typing import Final, Protocol

from timebound.core.link.transit import MARGIN_MOVE, MARGIN_MOVE_NS, Transit
from timebound.core.mesh.link import MeshLink
from timebound.core.mesh.message import Copy, CopyPack
from timebound.core.sessions.session import Session
from timebound.core.values.delay import LinkDelay
from timebound.errors import ProtocolError
from timebound.linking import codec as mesh_codec
from timebound.linking.greeting import PACK_VERSION
from timebound.linking.packs import PACK_TOPIC, decode_pack, encode_pack
from timebound.records import Reason
from timebound.units import MILLISECOND, MINUTE, SECOND
from timebound.wire.codec import encode_ack, encode_publish
from timebound.wire.packets import Ack, Disconnect, Packet, Pingreq, Pingresp, Publish
from timebound.wire.reasons import ReasonCode

PUBACK: Final = 4
PINGREQ_FRAME: Final = b"\xc0\x00"
PINGRESP_FRAME: Final = b"\xd0\x00"
# The latency is the shortest of this window and the one before: routes change.
LATENCY_WINDOW_NS: Final = 5 * MINUTE
# A hello is sent this often: some thirty in a window, so that one of them finds the way free.
HELLO_NS: Final = 10 * SECOND
# On a link with time limits one follows copies, after so many bytes and so much time: below 1 % of the link,
# and several in the time by which its buffer may grow.
ASK_BYTES: Final = 2_896  # two full segments
ASK_NS: Final = 20 * MILLISECOND
NO_LATENCY_NS: Final = 1 << 62  # nothing was measured; 0 is a measured latency
# What a link asks its meter to allow: more than it can write at once.
FULL_BYTES: Final = 1 << 20
ERROR_MIN: Final = 0x80  # reason codes from here on refuse
UNKNOWN_CODE: Final = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
REASON_LENGTH_MAX: Final = 200  # of what is quoted from a neighbour
# A pack holds at most what the link sends in this time, and so many bytes: the receiver cannot use the first
# copy before it has the last.
PACK_NS: Final = 10 * MILLISECOND
PACK_BYTES_MAX: Final = 32 * 1_024
# Text counts by characters, of up to four bytes: this part of the neighbour's limit always suffices.
PACK_PART: Final = 4
# A link that sends this much in PACK_NS is fast: waiting in the socket of a publisher costs little then.
FAST_BYTES: Final = 128 * 1_024
_KILOBYTE: Final = 1_024.0


class LinkCarrier(Protocol):
    """The connection under a link."""

    def write(self, data: bytes) -> None: ...

    def close(self, reason_code: int, reason: str) -> None: ...


class ConnectionMeter(Protocol):
    """What a link needs of the meter of its connection."""

    @property
    def wake_ns(self) -> int: ...

    def ahead_ns(self) -> int: ...

    def allow(self, wanted: int, now_ns: int) -> int: ...

    def changed_delay(self) -> LinkDelay | None: ...

    def written(self, count: int, wanted: int, now_ns: int) -> bool: ...


class Receiver(Protocol):
    """What a link needs of the mesh."""

    def on_ready(self, link: NeighbourLink, now_ns: int) -> None: ...

    def on_copy(self, link: NeighbourLink, copy: Copy, packet_id: int, now_ns: int) -> None:
        """Take a copy, and confirm it in the link's session; packet id 0: no answer is wanted."""

    def on_fault(self, link: NeighbourLink, error: Exception) -> None:
        """Take note of an internal error with a copy that was received."""

    def on_advertisements(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None: ...

    def on_delay_report(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None: ...

    def on_levels(self, link: NeighbourLink, payload: bytes, now_ns: int) -> None: ...

    def on_unknown(self, link: NeighbourLink, what: str) -> None:
        """Take note of something that this version of the protocol does not know."""

    def on_room(self, link: NeighbourLink, now_ns: int) -> None: ...

    def on_later(self, link: NeighbourLink) -> None:
        """Ask for room again at `next_room_ns`."""

    def on_measured(self, link: NeighbourLink, delay: LinkDelay, now_ns: int) -> None: ...

    def on_margin(self, link: NeighbourLink, margin_ns: int, now_ns: int) -> None:
        """Take note of the time that copies take behind the socket of a link."""


class CopyInlet(Protocol):
    """Where copies wait until the broker takes them, beside the messages of clients."""

    def take_copy(self, copy: Copy, packet_id: int) -> None:
        """Keep a copy, and hand it to `Receiver.on_copy` when its turn comes."""

    def take_copies(self, copies: list[Copy]) -> None:
        """Keep the copies of a pack, which are confirmed by their receipt."""


class NeighbourLink:
    """A link from the end of the handshake to the end of its connection.

    Without a `meter` only the configured rate counts.
    """

    def __init__(
        self,
        name: str,
        carrier: LinkCarrier,
        receiver: Receiver,
        delay: LinkDelay,
        session: Session,
        outlet: MeshLink,
        *,
        is_paced: bool,
        meter: ConnectionMeter | None = None,
        receive_maximum: int = 1_024,
        packet_size_max: int = 0,
        is_dialled: bool = False,
        version: int = 0,
    ) -> None:
        self.name = name
        self.version = version  # of the mesh protocol, as the neighbour speaks it
        self.is_dialled = is_dialled  # this broker opened the connection
        self.delay = delay
        self.session = session  # of `Broker.open_link`
        self.inlet: CopyInlet | None = None  # without one, the mesh gets copies at once
        self._outlet = outlet  # shared with later connections to the same neighbour
        self._is_over = False
        self.is_paced = is_paced
        self.is_ready = False  # the neighbour has answered
        self.busy_until_ns = 0  # no copy is sent before; 0 = now
        self.latency_ns = 0  # one way, beside the time of sending
        self.sent = 0
        self._carrier = carrier
        self._receiver = receiver
        self._receive_maximum = receive_maximum
        self.packet_size_max = packet_size_max  # accepted by the neighbour; 0 = no limit
        self._pack_bytes_max = PACK_BYTES_MAX
        if packet_size_max:
            self._pack_bytes_max = min(PACK_BYTES_MAX, max(packet_size_max // PACK_PART, 1))
        self._is_paused = False
        self._answers: list[bytes] = []  # to what does not wait for storage
        self._greeted_ns = 0  # when the last hello was sent
        self._hello_id = 0  # its packet id, until it is confirmed
        self._frames: list[bytes] = []
        self._frame_bytes = 0
        self._unasked_bytes = 0  # written since the last hello
        self._margin_ns = 0  # behind the socket, as last reported
        self._path_delay: LinkDelay | None = None  # as confirmations show it
        self._allowed = 0  # bytes that may be written, as the meter last said
        self._asked_ns = 0
        self._asked_way_ns = 0  # when a hello was last sent behind copies
        self._ahead_ns = 0  # time of what the transport held before these frames
        self._base_ns = 0  # when a paced link is due to send the next copy; 0 = now
        self._meter = None if is_paced else meter
        self._windows_ns = (NO_LATENCY_NS, NO_LATENCY_NS)  # the shortest of the last window, and of this one
        self._window_end_ns = 0

    # --- sending ------------------------------------------------------------------------

    def open(self, now_ns: int) -> None:
        """Begin with a hello, after the handshake; the link is ready when the neighbour has confirmed it."""
        # With a configured rate one copy at a time is chosen, as late as possible.
        packs = self.version >= PACK_VERSION and not self.is_paced
        self._outlet.open(self._receive_maximum, self._pack_bytes_max if packs else 0)
        self.send_hello(now_ns)

    def end(self) -> None:
        """Note that the connection has ended: what it still receives confirms nothing."""
        self._is_over = True

    def send_hello(self, now_ns: int) -> None:
        """Send a hello, which measures the latency."""
        self._greeted_ns = now_ns
        packet_id = self._hello_id = self._outlet.start(None)
        self._carrier.write(_hello_frame(packet_id))

    def patrol(self, now_ns: int) -> None:
        """Measure the latency from time to time, if the link can send now; called about once a second."""
        transit = self._outlet.transit
        if transit is not None and not self.has_room(now_ns):
            transit.watch(now_ns)  # a neighbour that no longer confirms holds nothing back
            self._report_room(now_ns)
        is_due = self.is_ready and now_ns - self._greeted_ns >= HELLO_NS
        has_room = not self._is_paused and self._outlet.send_quota > 0
        if is_due and has_room and not self._hello_id:
            self.send_hello(now_ns)

    def put(self, copy: Copy, packet_id: int, now_ns: int) -> bool:
        """Send a copy; return False if it is larger than the neighbour accepts.

        The caller checks `has_room` before the next copy, and calls `flush` at the end.
        """
        what = copy.what
        duration_ns = int(float(what.size_bytes) * self.delay.mean_s_per_kb * SECOND / _KILOBYTE)
        if self.is_paced:
            start_ns = self._base_ns or now_ns
            self.busy_until_ns = start_ns + duration_ns
            self._base_ns = self.busy_until_ns
        elif not self._frames and self._meter is not None:
            self._ahead_ns = self._meter.ahead_ns()
        ahead_ns = self._ahead_ns + duration_ns + self.latency_ns
        transit = self._outlet.transit
        if transit is not None:
            ahead_ns += transit.queued_ns()
        age_ns = now_ns - what.message.published_ns + ahead_ns
        frame = mesh_codec.encode_copy(copy, age_ns, packet_id)
        if not self._takes(frame):
            return False
        self._frames.append(frame)
        self._frame_bytes += len(frame)
        self.sent += 1
        if self._meter is not None and self._frame_bytes >= self._allowed:
            self.flush(now_ns)
        return True

    def send_packs(self, now_ns: int) -> list[tuple[Copy, Reason]]:
        """Write the packs that the core has ordered; return copies that cannot be sent, and why."""
        refused: list[tuple[Copy, Reason]] = []
        outlet = self._outlet
        ahead_ns = self.latency_ns
        if self._meter is not None:
            ahead_ns += self._meter.ahead_ns()
        if outlet.transit is not None:
            ahead_ns += outlet.transit.queued_ns()
        for pack in outlet.take_packs():
            # No copy can be used before the whole pack has arrived.
            ahead_ns += int(float(pack.size_bytes) * self.delay.mean_s_per_kb * SECOND / _KILOBYTE)
            frame = self._safe_frame(pack, ahead_ns, now_ns, refused)
            if not self._takes(frame):
                refused += [(copy, Reason.TOO_LARGE) for copy in pack.copies]
                pack.copies = []
            if pack.copies:
                self._frames.append(frame)
                self._frame_bytes += len(frame)
                self.sent += len(pack.copies)
            else:
                outlet.confirm(pack.packet_id)
        self._ahead_ns = ahead_ns
        self.flush(now_ns)
        return refused

    def _safe_frame(
        self, pack: CopyPack, ahead_ns: int, now_ns: int, refused: list[tuple[Copy, Reason]]
    ) -> bytes:
        """Encode a pack, without copies that cause an internal error: others have to be sent."""
        try:
            return self._pack_frame(pack, ahead_ns, now_ns)
        except Exception:
            copies = pack.copies
            pack.copies = []
            for copy in copies:
                try:
                    encode_pack([copy], now_ns, ahead_ns)
                    pack.copies.append(copy)
                except Exception as error:
                    self._receiver.on_fault(self, error)
                    refused.append((copy, Reason.FAULT))
            return self._pack_frame(pack, ahead_ns, now_ns) if pack.copies else b""

    def _pack_frame(self, pack: CopyPack, ahead_ns: int, now_ns: int) -> bytes:
        """Encode a pack; what is too large for one is a copy alone, in a packet of its own kind."""
        if pack.size_bytes > self._pack_bytes_max:
            age_ns = now_ns - pack.copies[0].what.message.published_ns + ahead_ns
            return mesh_codec.encode_copy(pack.copies[0], age_ns, pack.packet_id)
        payload = encode_pack(pack.copies, now_ns, ahead_ns)
        return encode_publish(PACK_TOPIC, payload, 1, False, False, pack.packet_id, b"", 5)

    def grant(self) -> None:
        """Let the core order as much as may be written now, but no more than the link sends in PACK_NS.

        The caller has checked `has_room`.
        """
        outlet = self._outlet
        if not outlet.pack_bytes_max:
            return
        window = self._pack_bytes_max
        if self.delay.mean_s_per_kb > 0.0:
            window = max(int(PACK_NS / SECOND * _KILOBYTE / self.delay.mean_s_per_kb), 1)
        outlet.pack_bytes_max = min(window, self._pack_bytes_max)
        outlet.is_fast = window >= FAST_BYTES
        outlet.credit = window if self._meter is None else max(min(window, self._allowed), 1)

    def has_room(self, now_ns: int) -> bool:
        """Whether the link can send another copy now."""
        if self._is_paused or self._outlet.send_quota <= 0 or self._outlet.is_held_back(now_ns):
            return False
        if self._meter is not None:
            if self._asked_ns != now_ns:
                self._ask_meter(self._meter, now_ns)
            return self._allowed > 0
        return not self.is_paced or self.busy_until_ns <= now_ns

    def next_room_ns(self) -> int:
        """Return when to check for room again; 0 if that does not depend on the time."""
        return self.busy_until_ns

    def _report_room(self, now_ns: int) -> None:
        """Report room to the mesh, now or for a later time."""
        if self.has_room(now_ns):
            self._receiver.on_room(self, now_ns)
        elif self.busy_until_ns > now_ns:
            self._receiver.on_later(self)

    def _ask_meter(self, meter: ConnectionMeter, now_ns: int) -> None:
        """Ask the meter how much may be written, unless it is too early."""
        if self.busy_until_ns > now_ns:
            return
        self._asked_ns = now_ns
        self._allowed = meter.allow(self._wanted(now_ns), now_ns)
        self.busy_until_ns = 0 if self._allowed else meter.wake_ns
        transit = self._outlet.transit
        if transit is not None and self._allowed and self._outlet.is_timed(now_ns):
            self._allowed = transit.room_bytes(self._allowed) or self._allowed
        delay = meter.changed_delay()
        if delay is not None:
            self.delay = delay
            self._report_delay(now_ns)

    def _wanted(self, now_ns: int) -> int:
        """Return what to ask the meter for.

        It waits until so much may be written at once. A pack or two are worth a write, and waiting for more
        would leave a fast link idle.
        """
        is_packing = self._outlet.pack_bytes_max > 0 and not self._outlet.is_timed(now_ns)
        return 2 * PACK_BYTES_MAX if is_packing else FULL_BYTES

    def _report_delay(self, now_ns: int) -> None:
        """Report the delay of the link: the slower of what socket and confirmations show."""
        delay = self.delay
        path = self._path_delay
        if path is not None and path.mean_s_per_kb > delay.mean_s_per_kb:
            delay = LinkDelay(path.mean_s_per_kb, path.variance, delay.jitter_s)
        self._receiver.on_measured(self, delay, now_ns)

    def _learn_path(self, transit: Transit, now_ns: int) -> None:
        """Use what confirmations show of the path behind the socket, if it has changed."""
        delay = transit.changed_delay()
        if delay is not None:
            self._path_delay = delay
            self._report_delay(now_ns)
        # A copy needs no way back; the latency is half of the shortest.
        margin_ns = max(transit.delay_ns() - self.latency_ns, 0)
        moved_ns = abs(margin_ns - self._margin_ns)
        if moved_ns > MARGIN_MOVE_NS and moved_ns > MARGIN_MOVE * self._margin_ns:
            self._margin_ns = margin_ns
            self._receiver.on_margin(self, margin_ns, now_ns)

    def rest(self) -> None:
        """Note that nothing is left to send: the next copy starts when it comes."""
        self._base_ns = 0
        transit = self._outlet.transit
        if transit is not None:
            transit.run_dry()

    def flush(self, now_ns: int) -> None:
        """Write the copies that were put."""
        if self._frames:
            transit = self._outlet.transit
            if transit is not None and self._outlet.is_timed(now_ns):
                self._ask(transit, now_ns)
            data = b"".join(self._frames)
            self._frames = []
            self._frame_bytes = 0
            self._carrier.write(data)
            if self._meter is not None:
                # Ask the meter again before the next copy.
                self._allowed = 0
                self._asked_ns = 0
                is_free = self._meter.written(len(data), self._wanted(now_ns), now_ns)
                self.busy_until_ns = 0 if is_free else self._meter.wake_ns

    def _ask(self, transit: Transit, now_ns: int) -> None:
        """Add a hello to the copies to write if it is due: its answer shows that they have arrived."""
        self._unasked_bytes += self._frame_bytes
        transit.record_sent(0, self._frame_bytes, now_ns, now_ns)
        is_due = self._unasked_bytes >= ASK_BYTES and now_ns - self._asked_way_ns >= ASK_NS
        if is_due and self._outlet.send_quota > 1:
            packet_id = self._outlet.start(None)
            hello = _hello_frame(packet_id)
            self._frames.append(hello)
            self._unasked_bytes = 0
            self._asked_way_ns = now_ns
            sending_ns = int(self._frame_bytes * self.delay.mean_s_per_kb * SECOND / _KILOBYTE)
            transit.record_sent(packet_id, len(hello), now_ns, now_ns + self._ahead_ns + sending_ns)

    def send_control(self, topic: str, payload: bytes) -> bool:
        """Send a control packet, without confirmation: the connection keeps the order, or ends.

        Return False if it is larger than the neighbour accepts.
        """
        frame = encode_publish(topic, payload, 0, False, False, 0, b"", 5)
        if not self._takes(frame):
            return False
        self._carrier.write(frame)
        return True

    def _takes(self, frame: bytes) -> bool:
        return not self.packet_size_max or len(frame) <= self.packet_size_max

    def ping(self) -> None:
        self._carrier.write(PINGREQ_FRAME)

    def close(self, reason_code: int, reason: str) -> None:
        self._carrier.close(reason_code, reason)

    def paused(self) -> None:
        """Stop sending: the transport is full."""
        self._is_paused = True
        self._outlet.credit = 0
        if self._outlet.pack_bytes_max:
            self._outlet.is_busy = True

    def resumed(self, now_ns: int) -> None:
        """Go on sending: the transport has room again."""
        self._is_paused = False
        self._report_room(now_ns)

    # --- receiving ----------------------------------------------------------------------

    def receive(self, packets: list[Packet], now_ns: int) -> None:
        """Handle packets of the neighbour, and confirm those that need not wait for storage.

        Raises:
            ProtocolError: a packet is not allowed between brokers.
        """
        had_room = self.has_room(now_ns)
        try:
            for packet in packets:
                if isinstance(packet, Publish):
                    self._on_publish(packet, now_ns)
                elif isinstance(packet, Ack):
                    self._on_confirmed(packet, now_ns)
                elif isinstance(packet, Pingreq):
                    self._answers.append(PINGRESP_FRAME)
                elif isinstance(packet, Disconnect):
                    self._carrier.close(ReasonCode.SUCCESS, f"broker {self.name!r} ended the link")
                    return
                elif not isinstance(packet, Pingresp):
                    name = type(packet).__name__.upper()
                    raise ProtocolError(ReasonCode.PROTOCOL_ERROR, f"unexpected {name} between brokers")
        finally:
            self.write_answers()
        if not had_room:
            self._report_room(now_ns)

    def write_answers(self) -> None:
        """Write the confirmations that are ready; call it again when storage has released more."""
        replies = self.session.replies
        if replies:
            self._answers += [encode_ack(reply.kind, reply.packet_id, 0, 5) for reply in replies]
            replies.clear()
        if self._answers:
            answers = self._answers
            self._answers = []
            self._carrier.write(b"".join(answers))

    def _on_publish(self, packet: Publish, now_ns: int) -> None:
        if not packet.topic.startswith(mesh_codec.PREFIX):
            self._on_copy(packet, now_ns)
            return
        if packet.topic == PACK_TOPIC:
            self._on_pack(packet, now_ns)
            return
        if packet.topic == mesh_codec.ADVERTISEMENTS_TOPIC:
            self._receiver.on_advertisements(self, packet.payload, now_ns)
        elif packet.topic == mesh_codec.DELAY_REPORT_TOPIC:
            self._receiver.on_delay_report(self, packet.payload, now_ns)
        elif packet.topic == mesh_codec.LEVELS_TOPIC:
            self._receiver.on_levels(self, packet.payload, now_ns)
        elif packet.topic != mesh_codec.HELLO_TOPIC:
            self._on_unknown_topic(packet)
            return
        for name, _ in packet.user_properties:
            self._receiver.on_unknown(self, f"property {name!r} on topic {packet.topic!r}")
        if packet.qos:
            self._answers.append(encode_ack(PUBACK, packet.packet_id, 0, 5))

    def _on_pack(self, packet: Publish, now_ns: int) -> None:
        try:
            copies = decode_pack(packet.payload, packet.packet_id, now_ns)
            if self.inlet is not None:
                self.inlet.take_copies(copies)
            else:
                for copy in copies:
                    self._receiver.on_copy(self, copy, 0, now_ns)
        except ProtocolError:
            raise
        except Exception as error:
            self._on_fault(error, packet.packet_id)

    def _on_copy(self, packet: Publish, now_ns: int) -> None:
        packet_id = packet.packet_id if packet.qos else 0  # decoding sets the QoS of the message
        try:
            copy = mesh_codec.decode_copy(packet, now_ns)
            if self.inlet is not None:
                self.inlet.take_copy(copy, packet_id)
            else:
                self._receiver.on_copy(self, copy, packet_id, now_ns)
        except ProtocolError:
            raise
        except Exception as error:
            self._on_fault(error, packet_id)

    def _on_fault(self, error: Exception, packet_id: int) -> None:
        """Note an internal error with what was received; confirm it, or it would be sent again for ever."""
        self._receiver.on_fault(self, error)
        if packet_id:
            self._answers.append(encode_ack(PUBACK, packet_id, 0, 5))

    def _on_unknown_topic(self, packet: Publish) -> None:
        """Refuse a control packet of a later version; QoS 0 has no answer."""
        what = f"control topic {packet.topic!r}"
        self._receiver.on_unknown(self, what)
        if packet.qos:
            reason = f"unknown {what}"[:REASON_LENGTH_MAX]
            self._answers.append(encode_ack(PUBACK, packet.packet_id, UNKNOWN_CODE, 5, reason))

    def _on_confirmed(self, packet: Ack, now_ns: int) -> None:
        if packet.reason_code >= ERROR_MIN:
            why = f"{packet.reason_string[:REASON_LENGTH_MAX]!r} (0x{packet.reason_code:02x})"
            self._receiver.on_unknown(self, f"refusal of a packet: {why}")
        packet_id = packet.packet_id
        if self._is_over or packet_id not in self._outlet.inflight:
            return
        self._outlet.confirm(packet_id)
        transit = self._outlet.transit
        if transit is not None and transit.answer(packet_id, now_ns):
            self._learn_path(transit, now_ns)
        if packet_id != self._hello_id:
            return  # a copy may have waited for the neighbour's storage, so it does not show the latency
        self._hello_id = 0
        self._note_latency((now_ns - self._greeted_ns) // 2, now_ns)
        if not self.is_ready:
            self.is_ready = True
            self._receiver.on_ready(self, now_ns)

    def _note_latency(self, latency_ns: int, now_ns: int) -> None:
        """Keep the shortest latency of the last minutes: longer ones include waiting."""
        latency_ns = max(latency_ns, 0)
        before_ns, current_ns = self._windows_ns
        if now_ns >= self._window_end_ns:
            before_ns, current_ns = current_ns, latency_ns
            self._window_end_ns = now_ns + LATENCY_WINDOW_NS
        current_ns = min(current_ns, latency_ns)
        self._windows_ns = (before_ns, current_ns)
        self.latency_ns = min(before_ns, current_ns)


def _hello_frame(packet_id: int) -> bytes:
    return encode_publish(mesh_codec.HELLO_TOPIC, b"", 1, False, False, packet_id, b"", 5)
