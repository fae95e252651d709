"""The publishers and subscribers of a load run, on non-blocking sockets.

A publisher encodes its messages once, into a ring of slots, and then only hands pieces of the
ring to the kernel: a send covers hundreds of messages, and the only thing written into a slot
again is the clock of a sampled message. With QoS 1 and 2, slot n holds packet id n + 1 and is
sent again only when its exchange is over; servers acknowledge in order (MQTT 5, 4.6), so
counting the acknowledgements is enough to know which slots are free.
"""

from __future__ import annotations

import math
import ssl
import time
from typing import Final

from timebound.bench.counting import STAMP, STAMP_MARK, STAMP_SIZE, Samples, Scanner
from timebound.bench.handshake import LoadConnection
from timebound.bench.options import PACKET_ID_MAX
from timebound.wire.codec import encode_publish

SECOND: Final = 1_000_000_000
SEND_BYTES: Final = 64 << 10  # one send: large enough to cost nothing per message
TURN_BYTES: Final = 256 << 10  # one turn of a publisher: small enough not to keep subscribers waiting
RECEIVE_BYTES: Final = 256 << 10  # stays in the processor's cache
RING_BYTES: Final = 64 << 10  # slots of one publisher, QoS 0
RING_BYTES_MAX: Final = 16 << 20  # slots of one publisher, QoS 1 and 2; limits the window
STAMP_EVERY: Final = 256  # at full speed, one message in so many is sampled
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_PINGREQ: Final = b"\xc0\x00"


class Inbox:
    """The buffer all connections receive into; only the start of a split packet is kept apart."""

    __slots__ = ("data", "view")

    def __init__(self, packet_size: int) -> None:
        self.data = bytearray(max(RECEIVE_BYTES, 4 * packet_size))
        self.view = memoryview(self.data)


class LoadClient:
    """One connection under load: receives in bulk, and sends what the protocol wants answered.

    The owner makes the socket non-blocking once the set-up is over.
    """

    __slots__ = ("_inbox", "_rest", "is_blocked", "is_open", "name", "ping_interval_s", "scanner", "sock")

    def __init__(self, connection: LoadConnection, payload_size: int, samples: Samples, inbox: Inbox) -> None:
        self.name = connection.name
        self.sock = connection.sock
        self.ping_interval_s = connection.ping_interval_s
        self.scanner = Scanner(payload_size, samples)
        self.is_open = True
        self.is_blocked = False  # the kernel took no more; wait until the socket is writable
        self._inbox = inbox
        self._rest = b""  # the beginning of a packet

    def receive(self) -> bool:
        """Take in what has come; return False when the connection is over.

        Raises:
            MalformedPacket: what came is no MQTT.
        """
        inbox = self._inbox
        kept = len(self._rest)
        inbox.data[:kept] = self._rest
        try:
            got = self.sock.recv_into(inbox.view[kept:])
        except _WOULD_BLOCK:
            return True
        except OSError:
            return False
        if not got:
            return False
        # The clock is read after the read: a message's latency ends when the client has it.
        now_ns = time.monotonic_ns()
        taken = self.scanner.scan(inbox.data, kept + got, now_ns)
        self._rest = bytes(inbox.view[taken : kept + got])
        return True

    def has_buffered(self) -> bool:
        """Say whether TLS has decrypted more than was read, of which the kernel knows nothing."""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def send(self, now_ns: int) -> bool:
        """Send what is due; return False when the connection is over."""
        return self._send_replies()

    def ping(self) -> None:
        """Queue a PINGREQ; it leaves with the next `send`."""
        self.scanner.replies += _PINGREQ

    def _send_replies(self) -> bool:
        replies = self.scanner.replies
        while replies:
            sent = self._send_some(replies)
            if sent <= 0:
                return sent == 0
            del replies[:sent]
        self.is_blocked = False
        return True

    def _send_some(self, data: bytearray | memoryview) -> int:
        """Return how many bytes the kernel took: 0 when it would block, -1 when the connection is over."""
        try:
            return self.sock.send(data)
        except _WOULD_BLOCK:
            self.is_blocked = True
            return 0
        except OSError:
            return -1


class Ring:
    """Encoded messages of one publisher, in slots of equal size."""

    __slots__ = ("data", "packet_size", "payload_offset", "slots", "stamp_every", "topics", "view")

    def __init__(
        self, topics: list[str], *, size: int, qos: int, version: int, slots: int, stamp_every: int
    ) -> None:
        # A multiple of the topics, so that all get the same share.
        self.slots = max(1, slots // len(topics)) * len(topics)
        if qos and self.slots > PACKET_ID_MAX:
            raise ValueError(
                f"{len(topics)} topics of one publisher are too many for packet ids; add publishers"
            )
        payload = bytes(size)
        packets = [
            encode_publish(topics[slot % len(topics)], payload, qos, False, False, slot + 1, b"", version)
            for slot in range(self.slots)
        ]
        self.topics = topics
        self.data = bytearray(b"".join(packets))
        self.view = memoryview(self.data)
        self.packet_size = len(packets[0])
        if len(self.data) != self.packet_size * self.slots:
            raise ValueError(
                "topics of one publisher differ in length; give them the same number of characters"
            )
        self.payload_offset = self.packet_size - size
        self.stamp_every = stamp_every if size >= STAMP_SIZE else 0

    def stamp(self, first: int, last: int, now_ns: int) -> None:
        """Write the clock into the sampled messages of first..last - 1, counted over all laps.

        The caller's messages lie within one lap.
        """
        every = self.stamp_every
        if not every:
            return
        start = first % self.slots
        for slot in range(-(-start // every) * every, start + last - first, every):
            STAMP.pack_into(self.data, slot * self.packet_size + self.payload_offset, STAMP_MARK, now_ns)


class LoadPublisher(LoadClient):
    """Sends the ring round and round, as fast as the kernel takes it or at a fixed rate."""

    __slots__ = ("_interval_ns", "_retry_bytes", "_start_ns", "due", "limit", "ring", "sent_bytes", "window")

    def __init__(
        self,
        connection: LoadConnection,
        ring: Ring,
        samples: Samples,
        inbox: Inbox,
        *,
        window: int,
        rate: float,
    ) -> None:
        super().__init__(connection, 0, samples, inbox)
        self.ring = ring
        self.window = window  # messages without acknowledgement; 0 = QoS 0
        self.sent_bytes = 0
        self.due = 0  # messages whose time has come; counts at fixed rates only
        self.limit = -1  # no message after this one; -1 = no limit
        self._interval_ns = SECOND / rate if rate else 0.0
        self._retry_bytes = 0  # TLS: what would block has to be offered again, and not less of it
        self._start_ns = 0

    @property
    def sent(self) -> int:
        return self.sent_bytes // self.ring.packet_size

    @property
    def is_idle(self) -> bool:
        """Say whether everything begun is sent and acknowledged."""
        is_whole = self.sent_bytes % self.ring.packet_size == 0
        return is_whole and (not self.window or self.scanner.acknowledged >= self.sent)

    def start(self, start_ns: int) -> None:
        self._start_ns = start_ns

    def stop(self) -> None:
        """Send no more than what is begun."""
        self.limit = math.ceil(self.sent_bytes / self.ring.packet_size)

    def next_due_ns(self) -> int:
        return self._start_ns + round(self.due * self._interval_ns)

    def advance(self, now_ns: int) -> None:
        """Let the messages become due whose time has come; computed from the start, so no drift."""
        ring = self.ring
        due = int((now_ns - self._start_ns) / self._interval_ns) + 1
        # What waits in the ring may not be overwritten; the rest comes due when there is room.
        due = min(due, self.sent_bytes // ring.packet_size + ring.slots)
        # Behind a message that still waits, waiting counts: the broker is not taking them.
        was_waiting = self.sent_bytes < self.due * ring.packet_size
        for message in range(self.due, due):
            due_ns = self._start_ns + round(message * self._interval_ns)
            ring.stamp(message, message + 1, due_ns if was_waiting else now_ns)
        self.due = max(self.due, due)

    def send(self, now_ns: int) -> bool:
        """Send what is allowed: by rate, window and the kernel's buffer."""
        packet_size = self.ring.packet_size
        stop_bytes = self.sent_bytes + TURN_BYTES
        while True:
            begun = -(-self.sent_bytes // packet_size)
            unfinished = begun * packet_size - self.sent_bytes
            if self.scanner.replies and not unfinished and not self._retry_bytes:
                if not self._send_replies():
                    return False
                if self.is_blocked:
                    return True
            allowed = max(begun, self._allowed())
            wanted = min(allowed * packet_size, stop_bytes) - self.sent_bytes
            if self.scanner.replies:
                wanted = unfinished
            wanted = max(wanted, self._retry_bytes)
            if wanted <= 0:
                self.is_blocked = self.sent_bytes < allowed * packet_size
                return True
            sent = self._send_piece(min(wanted, SEND_BYTES), begun, now_ns)
            if sent <= 0:
                return sent == 0
            self.sent_bytes += sent

    def _allowed(self) -> int:
        """Return how many messages, counted from the start, may be sent by now."""
        if self.limit >= 0:
            return self.limit
        if self.window:
            allowed = self.scanner.acknowledged + self.window
            return min(allowed, self.due) if self._interval_ns else allowed
        if self._interval_ns:
            return self.due
        return (self.sent_bytes + TURN_BYTES) // self.ring.packet_size + 1

    def _send_piece(self, wanted: int, begun: int, now_ns: int) -> int:
        """Send up to `wanted` bytes, not past the end of the ring."""
        ring = self.ring
        offset = self.sent_bytes % len(ring.data)
        wanted = min(wanted, len(ring.data) - offset)
        if not self._interval_ns:
            ring.stamp(begun, -(-(self.sent_bytes + wanted) // ring.packet_size), now_ns)
        sent = self._send_some(ring.view[offset : offset + wanted])
        self._retry_bytes = wanted if sent == 0 else 0
        return sent
