"""The publishers and subscribers of a load run, on non-blocking sockets.

A publisher encodes its messages once, into a ring of slots, and then only hands pieces of the
ring to the kernel: one send covers hundreds of messages, and only the time of a sampled message
is written into its slot again. With QoS 1 and 2, slot n holds packet id n + 1 and is sent again
only after its exchange is complete; servers acknowledge in order (MQTT 5, 4.6), so the number of
acknowledgements tells which slots are free.
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
STAMP_EVERY: Final = 256  # messages per sample at full speed
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_PINGREQ: Final = b"\xc0\x00"


class Inbox:
    """The receive buffer of all connections; only the start of a split packet is kept per connection."""

    __slots__ = ("data", "view")

    def __init__(self, packet_size: int) -> None:
        self.data = bytearray(max(RECEIVE_BYTES, 4 * packet_size))
        self.view = memoryview(self.data)


class LoadClient:
    """One connection under load: receives in bulk, and sends the answers that MQTT requires.

    The owner makes the socket non-blocking after the set-up.
    """

    __slots__ = ("_inbox", "_rest", "is_blocked", "is_open", "name", "ping_interval_s", "scanner", "sock")

    def __init__(self, connection: LoadConnection, payload_size: int, samples: Samples, inbox: Inbox) -> None:
        self.name = connection.name
        self.sock = connection.sock
        self.ping_interval_s = connection.ping_interval_s
        self.scanner = Scanner(payload_size, samples)
        self.is_open = True
        self.is_blocked = False  # the send buffer is full; wait until the socket is writable
        self._inbox = inbox
        self._rest = b""  # the beginning of a packet

    def receive(self) -> bool:
        """Receive and count; return False when the connection has ended.

        Raises:
            MalformedPacket: the bytes are not MQTT.
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
        # Read after recv: a message's latency ends when the client has it.
        now_ns = time.monotonic_ns()
        taken = self.scanner.scan(inbox.data, kept + got, now_ns)
        self._rest = bytes(inbox.view[taken : kept + got])
        return True

    def has_buffered(self) -> bool:
        """Whether TLS holds decrypted bytes that were not read; epoll does not report these."""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def send(self, now_ns: int) -> bool:
        """Send what is due; return False when the connection has ended."""
        return self._send_replies()

    def ping(self) -> None:
        """Queue a PINGREQ for the next `send`."""
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
        """Return the number of bytes sent: 0 if it would block, -1 if the connection has ended."""
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
        # A multiple of the topics, so that each has the same number of slots.
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
            raise ValueError("topics of one publisher differ in length; use the same number of characters")
        self.payload_offset = self.packet_size - size
        self.stamp_every = stamp_every if size >= STAMP_SIZE else 0

    def stamp(self, first: int, last: int, now_ns: int) -> None:
        """Write the time into the sampled messages of first..last - 1, counted over all laps.

        The caller's messages lie within one lap.
        """
        every = self.stamp_every
        if not every:
            return
        start = first % self.slots
        for slot in range(-(-start // every) * every, start + last - first, every):
            STAMP.pack_into(self.data, slot * self.packet_size + self.payload_offset, STAMP_MARK, now_ns)


class LoadPublisher(LoadClient):
    """Sends the ring over and over, at full speed or at a fixed rate."""

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
        self.window = window  # unacknowledged messages; 0 = QoS 0
        self.sent_bytes = 0
        self.due = 0  # messages that are due; for fixed rates only
        self.limit = -1  # no message after this one; -1 = no limit
        self._interval_ns = SECOND / rate if rate else 0.0
        self._retry_bytes = 0  # TLS: a send that would block must be repeated with at least as many bytes
        self._start_ns = 0

    @property
    def sent(self) -> int:
        return self.sent_bytes // self.ring.packet_size

    @property
    def is_idle(self) -> bool:
        """Whether every message that was begun is sent and acknowledged."""
        is_whole = self.sent_bytes % self.ring.packet_size == 0
        return is_whole and (not self.window or self.scanner.acknowledged >= self.sent)

    def start(self, start_ns: int) -> None:
        self._start_ns = start_ns

    def stop(self) -> None:
        """Stop after the message that was begun."""
        self.limit = math.ceil(self.sent_bytes / self.ring.packet_size)

    def next_due_ns(self) -> int:
        return self._start_ns + round(self.due * self._interval_ns)

    def advance(self, now_ns: int) -> None:
        """Update the messages that are due; computed from the start, so there is no drift."""
        ring = self.ring
        due = int((now_ns - self._start_ns) / self._interval_ns) + 1
        # Unsent slots may not be overwritten; the rest becomes due when there is room.
        due = min(due, self.sent_bytes // ring.packet_size + ring.slots)
        # Behind an unsent message, waiting counts as latency: the broker does not keep up.
        was_waiting = self.sent_bytes < self.due * ring.packet_size
        for message in range(self.due, due):
            due_ns = self._start_ns + round(message * self._interval_ns)
            ring.stamp(message, message + 1, due_ns if was_waiting else now_ns)
        self.due = max(self.due, due)

    def send(self, now_ns: int) -> bool:
        """Send what rate, window and the kernel's buffer allow."""
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
        """Return the number of messages, counted from the start, that may be sent by now."""
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
