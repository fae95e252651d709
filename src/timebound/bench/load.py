"""Runs a load against any MQTT broker, from one thread of one process.

All clients live in one epoll loop, which leaves the other processors to the broker: sending copies
prepared bytes, receiving counts (`clients.py`, `counting.py`), and no message is handled
individually. A run has four parts: set-up, warm-up, the measured time, and a drain in which
publishers are silent and messages in transit may arrive.
"""

from __future__ import annotations

import gc
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from timebound.bench.clients import (
    RING_BYTES,
    RING_BYTES_MAX,
    SECOND,
    STAMP_EVERY,
    Inbox,
    LoadClient,
    LoadPublisher,
    Ring,
)
from timebound.bench.counting import Samples
from timebound.bench.handshake import LoadConnection, open_connections, subscribe
from timebound.bench.latency import summarize
from timebound.bench.loop import ClientLoop
from timebound.bench.options import PACKET_ID_MAX, LoadOptions, LoadResult
from timebound.bench.plan import TopicPlan
from timebound.wire.codec import encode, encode_publish
from timebound.wire.packets import Disconnect

__all__ = ["LoadOptions", "LoadResult", "run_load"]

Progress = Callable[[float], None]  # called with the elapsed share of the planned time

SAMPLES_PER_S_MAX: Final = 10_000  # at fixed rates: enough for the 99.9th percentile of any second
DRAIN_IDLE_S: Final = 1.0  # after this long without a delivery, the rest is lost
DRAIN_TURN_NS: Final = SECOND // 100
REPORTS_PER_S: Final = 20


@dataclass(frozen=True, slots=True)
class LoadCounters:
    """The counters at one moment."""

    time_ns: int
    cpu_ns: int
    sent: int
    received: int


def run_load(options: LoadOptions, progress: Progress | None = None) -> LoadResult:
    """Run the load and return the result.

    Raises:
        ConnectError: the broker could not be reached or refused a client.
        SubscribeError: the broker refused a subscription.
    """
    run = LoadRun(options, progress)
    # The loop creates no reference cycles; a collection in the measured time would only add a pause.
    gc_was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        return run.run()
    finally:
        run.close()
        if gc_was_enabled:
            gc.enable()


class LoadRun:
    """The clients of one run, from set-up to result."""

    def __init__(self, options: LoadOptions, progress: Progress | None = None) -> None:
        self.options = options
        self._progress = progress
        self._loop = ClientLoop()
        self._samples = Samples()
        self._plan = TopicPlan(options, secrets.token_hex(3))
        self._inbox = Inbox(self._packet_size(self._plan.topics_of_publisher(0)[0]))
        self._subscribers: list[LoadClient] = []
        self._publishers: list[LoadPublisher] = []

    def run(self) -> LoadResult:
        options = self.options
        self._connect_subscribers()
        self._connect_publishers()
        start_ns = self._start_publishers()
        self._run_until(start_ns + int(options.warmup_s * SECOND), start_ns)
        before = self._snapshot()
        self._samples.is_open = True
        self._run_until(before.time_ns + int(options.duration_s * SECOND), start_ns)
        after = self._snapshot()
        self._samples.is_open = False
        self._drain()
        return self._result(before, after)

    def close(self) -> None:
        self._loop.close(encode(Disconnect(), self.options.mqtt_version))

    def _client_id(self, role: str, number: int) -> str:
        return f"bench-{self._plan.run_id}-{role}{number}"

    def _packet_size(self, topic: str) -> int:
        options = self.options
        payload = bytes(options.size)
        return len(encode_publish(topic, payload, options.qos, False, False, 1, b"", options.mqtt_version))

    def _connect_subscribers(self) -> None:
        options = self.options
        numbers = range(options.subscribers)
        connections = open_connections(options, [self._client_id("s", number) for number in numbers])
        for connection in connections:
            self._subscribers.append(LoadClient(connection, options.size, self._samples, self._inbox))
            self._loop.add(self._subscribers[-1])
        filters = [self._plan.filters_of_subscriber(number) for number in numbers]
        subscribe(connections, filters, qos=options.delivery_qos, version=options.mqtt_version)
        for subscriber in self._subscribers:
            subscriber.sock.setblocking(False)

    def _connect_publishers(self) -> None:
        options = self.options
        rate = options.total_rate / options.publishers
        names = [self._client_id("p", number) for number in range(options.publishers)]
        for number, connection in enumerate(open_connections(options, names)):
            window, slots = self._window_and_slots(connection, self._plan.topics_of_publisher(number))
            ring = Ring(
                self._plan.topics_of_publisher(number),
                size=options.size,
                qos=options.qos,
                version=options.mqtt_version,
                slots=slots,
                stamp_every=self._stamp_every(),
            )
            publisher = LoadPublisher(connection, ring, self._samples, self._inbox, window=window, rate=rate)
            publisher.sock.setblocking(False)
            self._publishers.append(publisher)
            self._loop.add(publisher)

    def _window_and_slots(self, connection: LoadConnection, topics: list[str]) -> tuple[int, int]:
        """Return the window that broker and memory allow, and the number of slots for it."""
        options = self.options
        packet_size = self._packet_size(topics[0])
        if not options.qos:
            ring_bytes = min(RING_BYTES, 4 * RING_BYTES_MAX // options.publishers)
            return 0, max(2, ring_bytes // packet_size)
        window = min(options.window, connection.receive_maximum, max(1, RING_BYTES_MAX // packet_size))
        # The same number of slots for each topic, and no more slots than packet ids.
        slots = min(-(-window // len(topics)), PACKET_ID_MAX // len(topics)) * len(topics)
        return min(window, slots), slots

    def _stamp_every(self) -> int:
        rate = self.options.total_rate
        return max(1, -(-int(rate) // SAMPLES_PER_S_MAX)) if rate else STAMP_EVERY

    def _start_publishers(self) -> int:
        """Start all publishers; at a fixed rate they are spread evenly over one interval."""
        start_ns = time.monotonic_ns()
        rate = self.options.total_rate
        for number, publisher in enumerate(self._publishers):
            if rate:
                publisher.start(start_ns + int(number * SECOND / rate))
                self._loop.add_timer(publisher)
            else:
                self._loop.serve(publisher, start_ns)
        return start_ns

    def _run_until(self, stop_ns: int, start_ns: int) -> None:
        planned_ns = int((self.options.warmup_s + self.options.duration_s) * SECOND)
        report_ns = 0
        while (now_ns := time.monotonic_ns()) < stop_ns and self._loop.has_clients():
            self._loop.turn(now_ns, stop_ns)
            if self._progress is not None and now_ns >= report_ns:
                self._progress(min(1.0, (now_ns - start_ns) / planned_ns))
                report_ns = now_ns + SECOND // REPORTS_PER_S

    def _drain(self) -> None:
        """Send nothing new and receive what still arrives, within limits."""
        self._loop.stop_timers()
        now_ns = last_ns = time.monotonic_ns()
        end_ns = now_ns + int(self.options.drain_s * SECOND)
        for publisher in self._publishers:
            publisher.stop()
            self._loop.serve(publisher, now_ns)
        received = -1
        while now_ns < end_ns and now_ns - last_ns < DRAIN_IDLE_S * SECOND and not self._is_complete():
            self._loop.turn(now_ns, min(end_ns, now_ns + DRAIN_TURN_NS))
            now_ns = time.monotonic_ns()
            if received != (received := self._received()):
                last_ns = now_ns

    def _is_complete(self) -> bool:
        are_idle = all(publisher.is_idle or not publisher.is_open for publisher in self._publishers)
        return are_idle and self._received() >= self._expected()

    def _sent(self) -> int:
        return sum(publisher.sent for publisher in self._publishers)

    def _received(self) -> int:
        return sum(subscriber.scanner.publishes for subscriber in self._subscribers)

    def _expected(self) -> int:
        return self._plan.expected([publisher.sent for publisher in self._publishers])

    def _snapshot(self) -> LoadCounters:
        return LoadCounters(time.monotonic_ns(), time.process_time_ns(), self._sent(), self._received())

    def _result(self, before: LoadCounters, after: LoadCounters) -> LoadResult:
        measured_s = (after.time_ns - before.time_ns) / SECOND
        lost = self._loop.lost
        return LoadResult(
            options=self.options,
            sent=self._sent(),
            expected=self._expected(),
            received=self._received(),
            refused=sum(publisher.scanner.refused for publisher in self._publishers),
            measured_s=measured_s,
            sent_per_s=(after.sent - before.sent) / measured_s,
            received_per_s=(after.received - before.received) / measured_s,
            latency=summarize(self._samples.latencies_ns),
            generator_cpu=(after.cpu_ns - before.cpu_ns) / (after.time_ns - before.time_ns),
            lost_connections=len(lost),
            lost_reason=lost[0] if lost else "",
        )
