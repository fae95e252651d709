"""A path of bytes in virtual time: a link behind a socket, and perhaps a buffer that nobody sees.

    socket -> hidden buffer (first in, first out) -> link -> receiver

The meter and the pacing before it are the node's own. They read of the path what the kernel would show: what
was acknowledged, what is in flight, and the round trip. What lies in a hidden buffer is acknowledged already,
as by a relay or a radio.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from timebound.core.values.delay import LinkDelay
from timebound.node.links.meter import LinkMeter
from timebound.node.links.pacing import SEGMENT_BYTES
from timebound.node.links.tcp_info import TcpReading
from timebound.sim.deployment.timers import Call
from timebound.sim.kernel.kernel import Kernel
from timebound.units import MILLISECOND, SECOND
from timebound.wire.codec import Decoder
from timebound.wire.packets import Packet

RATE_BYTES_PER_S = 125_000.0
LATENCY_NS = 2 * MILLISECOND


class HiddenPath:
    """One direction of a connection: a rate, a latency, and perhaps a buffer that acknowledges too early."""

    def __init__(
        self,
        kernel: Kernel,
        rate_bytes_per_s: float,
        hidden_bytes: int,
        receive: Callable[[list[Packet]], None],
        *,
        to_server: bool,
    ) -> None:
        self.rate = rate_bytes_per_s  # 0 = no limit
        self.written_bytes = 0
        self.sent_bytes = 0  # that have left the link
        self._receive = receive
        self._kernel = kernel
        self._hidden_bytes = hidden_bytes
        self._segments: deque[bytes] = deque()  # what has not left the link
        self._is_sending = False
        self._acked = 0
        self._hidden: deque[tuple[int, int]] = deque()
        self._pending: deque[tuple[int, int]] = deque()  # not acknowledged: bytes, and when they were written
        self._held_bytes = 0  # by the hidden buffer
        self._rtt_ns = 2 * LATENCY_NS
        self._decoder = Decoder(5, is_server=to_server)

    def set_rate(self, rate_bytes_per_s: float) -> None:
        """Carry what has not begun to be sent at another rate."""
        self.rate = rate_bytes_per_s

    def write(self, data: bytes) -> None:
        now_ns = self._kernel.now_ns
        self.written_bytes += len(data)
        for start in range(0, len(data), SEGMENT_BYTES):
            segment = data[start : start + SEGMENT_BYTES]
            self._segments.append(segment)
            self._pending.append((len(segment), now_ns))
        self._fill_hidden()
        self._send_next()

    def _send_next(self) -> None:
        if self._segments and not self._is_sending:
            self._is_sending = True
            size = len(self._segments[0])
            duration_ns = int(size * SECOND / self.rate) if self.rate else 0
            self._kernel.schedule(self._kernel.now_ns + duration_ns, Call(self._sent))

    def _sent(self) -> None:
        segment = self._segments.popleft()
        self.sent_bytes += len(segment)
        self._is_sending = False
        self._kernel.schedule(self._kernel.now_ns + LATENCY_NS, Call(lambda: self._arrive(segment)))
        if self._hidden_bytes:
            self._held_bytes -= len(segment)
            self._fill_hidden()
        else:
            self._kernel.schedule(self._kernel.now_ns + 2 * LATENCY_NS, Call(self._acknowledge))
        self._send_next()

    def _fill_hidden(self) -> None:
        """The hidden buffer takes and acknowledges what it has room for."""
        while self._hidden_bytes and self._pending:
            size, _ = self._pending[0]
            if self._held_bytes + size > self._hidden_bytes and self._held_bytes:
                return
            self._held_bytes += size
            self._hidden.append(self._pending.popleft())
            self._kernel.schedule(self._kernel.now_ns + 2 * LATENCY_NS, Call(self._acknowledge))

    def _acknowledge(self) -> None:
        size, written_ns = (self._hidden if self._hidden_bytes else self._pending).popleft()
        self._acked += size
        took_ns = self._kernel.now_ns - written_ns
        self._rtt_ns += (took_ns - self._rtt_ns) // 8

    def _arrive(self, segment: bytes) -> None:
        packets = self._decoder.feed(segment)
        assert self._decoder.error is None, self._decoder.error
        if packets:
            self._receive(packets)

    def reading(self) -> TcpReading:
        return TcpReading(
            bytes_acked=self._acked,
            in_flight=self.written_bytes - self._acked,
            rtt_ns=self._rtt_ns,
            rtt_min_ns=2 * LATENCY_NS,
        )


class NoTransport:
    """What a meter asks its transport for."""

    def get_extra_info(self, name: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is ever buffered."""


class PathMeter:
    """The node's meter, with the readings of a simulated path."""

    def __init__(self, path: HiddenPath, start: LinkDelay, ceiling: float = 0.0) -> None:
        self._path = path
        self._meter = LinkMeter(NoTransport(), start, ceiling)

    @property
    def wake_ns(self) -> int:
        return self._meter.wake_ns

    def ahead_ns(self) -> int:
        return self._meter.ahead_ns()

    def allow(self, wanted: int, now_ns: int) -> int:
        return self._meter.judge(self._path.reading(), 0, wanted, now_ns)

    def changed_delay(self) -> LinkDelay | None:
        return self._meter.changed_delay()

    def written(self, count: int, wanted: int, now_ns: int) -> bool:
        return self._meter.written(count, wanted, now_ns)

    def limit_pace(self, pace_max: float, now_ns: int) -> None:
        self._meter.limit_pace(pace_max, now_ns)
