"""Runs a load against any MQTT broker, from one thread of one process.

All clients live in one epoll loop that leaves the other processors to the broker: sending is
copying prepared bytes, receiving is counting (`clients.py`, `counting.py`), and no message is
touched on its own. The run has four parts: set-up, warm-up, the measured time, and a drain
in which publishers are silent and what is still under way may arrive.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import secrets
import select
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
    Publisher,
    Ring,
)
from timebound.bench.counting import Samples
from timebound.bench.handshake import Connection, open_connections, subscribe
from timebound.bench.latency import summarize
from timebound.bench.options import LoadOptions, LoadResult
from timebound.errors import MalformedPacket
from timebound.wire.codec import encode, encode_publish
from timebound.wire.packets import Disconnect

__all__ = ["LoadOptions", "LoadResult", "run_load"]

SLEEP_S_MAX: Final = 0.05  # how late the end of a part may be noticed
SAMPLES_PER_S_MAX: Final = 10_000  # at fixed rates: enough for the 99.9th percentile of any second
SELECT_FD_MAX: Final = 1024
DRAIN_IDLE_S: Final = 1.0  # with nothing coming for so long, the rest is lost
_IN: Final = select.EPOLLIN
_IN_OUT: Final = select.EPOLLIN | select.EPOLLOUT


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counters at one moment."""

    time_ns: int
    cpu_ns: int
    sent: int
    received: int


def run_load(options: LoadOptions, progress: Callable[[float], None] | None = None) -> LoadResult:
    """Run the load and return what was found; `progress` is told the share done, about 20 times a second.

    Raises:
        ConnectError: the broker could not be reached or refused a client.
        SubscribeError: the broker refused a subscription.
    """
    run = LoadRun(options, progress)
    # The loop makes no cycles; a collection in the measured time would only add a pause.
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
    """The clients of one run and the loop that drives them."""

    def __init__(self, options: LoadOptions, progress: Callable[[float], None] | None = None) -> None:
        self.options = options
        self.samples = Samples()
        self.lost: list[str] = []
        self._progress = progress
        self._epoll = select.epoll()  # first of all descriptors: `select` needs a small number
        self._clients: dict[int, LoadClient] = {}
        self._interest: dict[int, int] = {}
        self._timers: list[tuple[int, int, Publisher]] = []  # next message due, publisher number
        self._pings: list[tuple[int, int, LoadClient]] = []
        width = len(str(options.topics - 1))
        run_id = secrets.token_hex(3)
        self._prefix = f"{options.topic_prefix}/{run_id}"
        self._topics = [f"{self._prefix}/{number:0{width}d}" for number in range(options.topics)]
        self._name = f"bench-{run_id}"
        self._inbox = Inbox(len(self._encode(self._topics[0])))
        self.subscribers: list[LoadClient] = []
        self.publishers: list[Publisher] = []

    def _encode(self, topic: str) -> bytes:
        options = self.options
        return encode_publish(
            topic, bytes(options.size), options.qos, False, False, 1, b"", options.mqtt_version
        )

    def run(self) -> LoadResult:
        options = self.options
        self._connect_subscribers()
        self._connect_publishers()
        start_ns = self._start_publishers()
        planned_ns = int((options.warmup_s + options.duration_s) * SECOND)
        self._run_until(start_ns + int(options.warmup_s * SECOND), start_ns, planned_ns)
        before = self._snapshot()
        self.samples.is_open = True
        self._run_until(before.time_ns + int(options.duration_s * SECOND), start_ns, planned_ns)
        after = self._snapshot()
        self.samples.is_open = False
        self._drain()
        return self._result(before, after)

    # --- set-up

    def _connect_subscribers(self) -> None:
        options = self.options
        names = [f"{self._name}-s{number}" for number in range(options.subscribers)]
        connections = open_connections(options, names)
        for connection in connections:
            self._add(LoadClient(connection, options.size, self.samples, self._inbox))
            connection.sock.settimeout(options.timeout_s)
        self.subscribers = list(self._clients.values())
        filters = [self._filters_of(number) for number in range(options.subscribers)]
        subscribe(connections, filters, qos=options.delivery_qos, version=options.mqtt_version)
        for connection in connections:
            connection.sock.setblocking(False)

    def _filters_of(self, subscriber: int) -> list[str]:
        if self.options.all_topics:
            return [f"{self._prefix}/#"]
        numbers = self.options.topics_of(subscriber, self.options.subscribers)
        return [self._topics[number] for number in numbers]

    def _connect_publishers(self) -> None:
        options = self.options
        names = [f"{self._name}-p{number}" for number in range(options.publishers)]
        rate = options.total_rate
        for number, connection in enumerate(open_connections(options, names)):
            topics = [self._topics[topic] for topic in options.topics_of(number, options.publishers)]
            window, ring = self._make_ring(connection, topics)
            publisher = Publisher(
                connection,
                ring,
                self.samples,
                self._inbox,
                window=window,
                rate=rate / options.publishers,
            )
            self.publishers.append(publisher)
            self._add(publisher)

    def _make_ring(self, connection: Connection, topics: list[str]) -> tuple[int, Ring]:
        """Return the window that broker and memory allow, and a ring with room for it."""
        options = self.options
        packet_size = len(self._encode(topics[0]))
        ring_bytes = min(RING_BYTES, RING_BYTES_MAX * 4 // options.publishers)
        slots = max(2, ring_bytes // packet_size)
        window = 0
        if options.qos:
            window = min(options.window, connection.receive_maximum, max(1, RING_BYTES_MAX // packet_size))
            slots = -(-window // len(topics)) * len(topics)
        rate = options.total_rate
        stamp_every = STAMP_EVERY if not rate else -(-int(rate) // SAMPLES_PER_S_MAX) or 1
        ring = Ring(
            topics,
            size=options.size,
            qos=options.qos,
            version=options.mqtt_version,
            slots=slots,
            stamp_every=stamp_every,
        )
        return window, ring

    def _add(self, client: LoadClient) -> None:
        fd = client.sock.fileno()
        self._clients[fd] = client
        self._interest[fd] = _IN
        self._epoll.register(fd, _IN)
        if client.ping_interval_s:
            due_ns = time.monotonic_ns() + int(client.ping_interval_s * SECOND)
            heapq.heappush(self._pings, (due_ns, fd, client))

    def _start_publishers(self) -> int:
        """Let them all send; at a fixed rate they take turns evenly within one interval."""
        start_ns = time.monotonic_ns()
        rate = self.options.total_rate
        for number, publisher in enumerate(self.publishers):
            if rate:
                publisher.start(start_ns + int(number * SECOND / rate))
                heapq.heappush(self._timers, (publisher.next_due_ns(), number, publisher))
            else:
                self._serve(publisher, start_ns)
        return start_ns

    # --- the loop

    def _run_until(self, stop_ns: int, start_ns: int, planned_ns: int) -> None:
        report_ns = 0
        while (now_ns := time.monotonic_ns()) < stop_ns and len(self.lost) < self._client_count():
            self._turn(now_ns, stop_ns)
            if self._progress is not None and now_ns >= report_ns:
                self._progress(min(1.0, (now_ns - start_ns) / planned_ns))
                report_ns = now_ns + SECOND // 20

    def _client_count(self) -> int:
        return self.options.publishers + self.options.subscribers

    def _turn(self, now_ns: int, stop_ns: int) -> None:
        """Wait for something to do, at most until `stop_ns`, and do it."""
        wake_ns = stop_ns
        if self._timers:
            wake_ns = min(wake_ns, self._fire_timers(now_ns))
        if self._pings and self._pings[0][0] <= now_ns:
            self._send_pings(now_ns)
        timeout_s = min(max(0, wake_ns - time.monotonic_ns()) / SECOND, SLEEP_S_MAX)
        for fd, events in self._wait(timeout_s):
            client = self._clients.get(fd)
            if client is not None:
                self._handle(client, events)

    def _wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """Wait for events. epoll counts in whole milliseconds, too coarse to pace by: select does not."""
        if self._timers and self._epoll.fileno() < SELECT_FD_MAX:
            select.select([self._epoll], [], [], timeout_s)
            timeout_s = 0
        return self._epoll.poll(timeout_s)

    def _fire_timers(self, now_ns: int) -> int:
        """Let every publisher send whose time has come; return when the next one is due."""
        timers = self._timers
        while timers[0][0] <= now_ns:
            _, number, publisher = timers[0]
            publisher.advance(now_ns)
            self._serve(publisher, now_ns)
            # Nothing became due although it was time: the ring is full, look again a little later.
            next_ns = max(publisher.next_due_ns(), now_ns + SECOND // 100_000)
            heapq.heapreplace(timers, (next_ns, number, publisher))
        return timers[0][0]

    def _send_pings(self, now_ns: int) -> None:
        while self._pings[0][0] <= now_ns:
            _, fd, client = self._pings[0]
            if client.is_open:
                client.ping()
                self._serve(client, now_ns)
            next_ns = now_ns + int(client.ping_interval_s * SECOND)
            heapq.heapreplace(self._pings, (next_ns, fd, client))

    def _handle(self, client: LoadClient, events: int) -> None:
        now_ns = time.monotonic_ns()
        if events & ~select.EPOLLOUT:
            try:
                is_open = client.receive(now_ns)
                while is_open and client.has_buffered():
                    is_open = client.receive(now_ns)
            except MalformedPacket as error:
                self._lose(client, str(error))
                return
            if not is_open:
                self._lose(client, "closed by the server")
                return
        self._serve(client, now_ns)

    def _serve(self, client: LoadClient, now_ns: int) -> None:
        """Send what is due and watch for room where the kernel had none."""
        if not client.is_open:
            return
        if not client.send(now_ns):
            self._lose(client, "closed by the server")
            return
        fd = client.sock.fileno()
        interest = _IN_OUT if client.is_blocked else _IN
        if self._interest[fd] != interest:
            self._interest[fd] = interest
            self._epoll.modify(fd, interest)

    def _lose(self, client: LoadClient, reason: str) -> None:
        if client.scanner.disconnect_reason >= 0:
            reason += f" with reason 0x{client.scanner.disconnect_reason:02x}"
        self.lost.append(f"{client.name}: {reason}")
        client.is_open = False
        fd = client.sock.fileno()
        self._epoll.unregister(fd)
        del self._clients[fd]
        client.sock.close()

    # --- the end

    def _snapshot(self) -> Snapshot:
        return Snapshot(time.monotonic_ns(), time.process_time_ns(), self._sent(), self._received())

    def _sent(self) -> int:
        return sum(publisher.sent for publisher in self.publishers)

    def _received(self) -> int:
        return sum(subscriber.scanner.publishes for subscriber in self.subscribers)

    def _expected(self) -> int:
        """Return how many deliveries the messages sent so far are to cause."""
        options = self.options
        per_topic = [options.subscribers if options.all_topics else 0] * options.topics
        for subscriber in range(0 if options.all_topics else options.subscribers):
            for topic in options.topics_of(subscriber, options.subscribers):
                per_topic[topic] += 1
        expected = 0
        for number, publisher in enumerate(self.publishers):
            topics = options.topics_of(number, options.publishers)
            rounds, rest = divmod(publisher.sent, len(topics))
            fan_outs = [per_topic[topic] for topic in topics]
            expected += rounds * sum(fan_outs) + sum(fan_outs[:rest])
        return expected

    def _drain(self) -> None:
        """Send nothing new and take in what still comes, within limits."""
        self._timers.clear()
        now_ns = last_ns = time.monotonic_ns()
        end_ns = now_ns + int(self.options.drain_s * SECOND)
        for publisher in self.publishers:
            publisher.stop()
            self._serve(publisher, now_ns)
        received = -1
        while now_ns < end_ns and now_ns - last_ns < DRAIN_IDLE_S * SECOND and not self._is_complete():
            self._turn(now_ns, min(end_ns, now_ns + SECOND // 100))
            now_ns = time.monotonic_ns()
            if received != (received := self._received()):
                last_ns = now_ns

    def _is_complete(self) -> bool:
        are_idle = all(publisher.is_idle or not publisher.is_open for publisher in self.publishers)
        return are_idle and self._received() >= self._expected()

    def _result(self, before: Snapshot, after: Snapshot) -> LoadResult:
        measured_s = (after.time_ns - before.time_ns) / SECOND
        return LoadResult(
            options=self.options,
            sent=self._sent(),
            expected=self._expected(),
            received=self._received(),
            refused=sum(publisher.scanner.refused for publisher in self.publishers),
            measured_s=measured_s,
            sent_per_s=(after.sent - before.sent) / measured_s,
            received_per_s=(after.received - before.received) / measured_s,
            latency=summarize(self.samples.latencies_ns),
            generator_cpu=(after.cpu_ns - before.cpu_ns) / (after.time_ns - before.time_ns),
            lost_connections=len(self.lost),
            lost_reason=self.lost[0] if self.lost else "",
        )

    def close(self) -> None:
        """Say goodbye on every connection that is still open."""
        goodbye = encode(Disconnect(), self.options.mqtt_version)
        for client in self._clients.values():
            with contextlib.suppress(OSError):  # the broker may have gone first
                client.sock.send(goodbye)
            client.sock.close()
        self._epoll.close()
