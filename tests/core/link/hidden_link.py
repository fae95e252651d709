"""A slow link behind a buffer that nobody sees, in virtual time, with the real broker before it.

    publishers -> Broker -> socket (10 ms) -> hidden buffer (first in, first out) -> link -> receiver

The socket takes what the hidden buffer has room for, as a relay, a radio or a home router does; the
broker is told of what lies in its own socket, never of what lies behind it. The receiver's clock
decides. Acknowledgements come back over a way that is not busy.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from timebound.core.account.account import Account
from timebound.core.broker import Broker
from timebound.core.link.outlet import START_DELAY
from timebound.core.link.scheduling import Scheduling
from timebound.core.sessions.session import PUBACK, Session
from timebound.core.values.access import AccessList
from timebound.core.values.delay import link_of_rate
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.demo.best import Best, best_possible
from timebound.demo.traffic import Traffic, TrafficClass, plan
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND

RATE_BYTES_PER_S = 125_000.0
SOCKET_NS = 10 * MILLISECOND
RETURN_NS = 5 * MILLISECOND
START_NS = 1_000 * SECOND
CLASSES = (
    TrafficClass("alerts", 200, 500 * MILLISECOND, 10.0, 0.03),
    TrafficClass("telemetry", 400, 2 * SECOND, 1.0, 0.57),
    TrafficClass("bulk", 1_200, 8 * SECOND, 1.0, 0.40),
)


@dataclass
class Outcome:
    """What came of one run, by the receiver's clock, and what the broker says of it."""

    traffics: list[Traffic]
    best: list[Best]
    account: Account

    def share_of_possible(self, name: str) -> float:
        for traffic, best in zip(self.traffics, self.best, strict=True):
            if traffic.kind.name == name:
                return traffic.in_time() / best.messages if best.messages >= 1.0 else 1.0
        raise KeyError(name)

    def of(self, name: str) -> Traffic:
        return next(traffic for traffic in self.traffics if traffic.kind.name == name)

    def share_in_time(self, name: str) -> float:
        traffic = self.of(name)
        return traffic.in_time() / len(traffic.fates)

    def in_time(self) -> int:
        return sum(traffic.in_time() for traffic in self.traffics)

    def counted_in_time(self) -> int:
        return self.account.in_time

    def late_share(self) -> float:
        """The part that came too late of all that crossed the link."""
        late = sum(traffic.late() for traffic in self.traffics)
        return late / max(late + self.in_time(), 1)


class HiddenLink:
    """One subscriber behind a buffer of `hidden_bytes` and a link of a fixed rate."""

    def __init__(
        self,
        hidden_bytes: int,
        qos: int,
        *,
        classes: Sequence[TrafficClass] = CLASSES,
        scheduling: Scheduling | None = None,
        rate_bytes_per_s: float = RATE_BYTES_PER_S,
        topics: int = 1,
    ) -> None:
        self.rate = rate_bytes_per_s
        self.hidden_bytes = hidden_bytes
        self.qos = qos
        self.topics = topics
        self.now_ns = START_NS
        self.traffics = [Traffic(kind) for kind in classes]
        self.broker = Broker(BrokerLimits(), AccessList([]))
        self.session = self._connect("receiver", 1)
        chosen = scheduling if scheduling is not None else Scheduling()
        # A socket that is never full says nothing of the speed: only answers do.
        known = START_DELAY if qos and hidden_bytes else link_of_rate(self.rate)
        self.broker.bind(self.session, "field", chosen, known, self.now_ns)
        self.publisher = self._connect("publisher", 2)
        for kind in classes:
            wanted = Subscription(
                client_id="receiver",
                topic_filter=f"{kind.topic}/#",
                qos=qos,
                terms=Terms(deadline_ns=kind.deadline_ns, price=kind.price),
            )
            self.broker.subscribe(self.session, wanted, self.now_ns)
        self._events: list[tuple[int, int, str, int]] = []
        self._count = 0
        self._fifo: deque[tuple[Delivery, int]] = deque()
        self._fifo_bytes = 0
        self._is_sending = False

    def run(self, load: float, seconds: float, seed: int = 1) -> Outcome:
        """Offer `load` times what the link carries for so long, and wait until all is over."""
        for index, traffic in enumerate(self.traffics):
            for number, at_s in enumerate(plan(traffic.kind, load * self.rate, seconds, seed)):
                self._at(START_NS + int(at_s * SECOND), f"publish {number}", index)
        for second in range(int(seconds) + 12):
            self._at(START_NS + second * SECOND, "expire", 0)
        while self._events:
            self.now_ns, _, what, value = heapq.heappop(self._events)
            if what == "expire":
                self.broker.expire(self.now_ns)
            elif what == "arrive":
                self._arrive()
            elif what == "ack":
                self.broker.acknowledge(self.session, PUBACK, value, 0, self.now_ns)
            else:
                self._publish(self.traffics[value], int(what.split()[1]))
            self._flush()
        best = best_possible(self.traffics, self.rate, self.now_ns)
        return Outcome(self.traffics, best, self.broker.account)

    def _connect(self, name: str, number: int) -> Session:
        session, _ = self.broker.connect(name, "", True, 0, 65_535, None, number, self.now_ns)
        return session

    def _at(self, at_ns: int, what: str, value: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_ns, self._count, what, value))

    def _publish(self, traffic: Traffic, number: int) -> None:
        topic = f"{traffic.kind.topic}/{number % self.topics}"
        message = Message(topic, traffic.publish(self.now_ns), self.qos, False, self.now_ns, "publisher")
        self.broker.publish(self.publisher, message, 1, self.now_ns)

    def _flush(self) -> None:
        """What the node does when the socket has room: little at once, and again as long as there is."""
        while self.broker.take_ready():
            pass
        self.publisher.replies.clear()
        socket_bytes = int(self.rate * SOCKET_NS / SECOND)
        while self._fifo_bytes < self.hidden_bytes + socket_bytes and self.session.has_work():
            unsent = max(self._fifo_bytes - self.hidden_bytes, 0)
            ahead_ns = int(unsent / self.rate * SECOND)
            taken = self.broker.take_deliveries(self.session, socket_bytes, self.now_ns, ahead_ns)
            if not taken and not self.session.has_work():
                break
            for delivery in taken:
                size = delivery.message.size() + (2 if delivery.qos else 0)
                self._fifo.append((delivery, size))
                self._fifo_bytes += size
            self._send_next()

    def _send_next(self) -> None:
        if self._fifo and not self._is_sending:
            self._is_sending = True
            _, size = self._fifo[0]
            self._at(self.now_ns + int(size / self.rate * SECOND), "arrive", 0)

    def _arrive(self) -> None:
        delivery, size = self._fifo.popleft()
        self._fifo_bytes -= size
        self._is_sending = False
        self._send_next()
        name = delivery.message.topic.split("/")[1]
        for traffic in self.traffics:
            if traffic.kind.name == name:
                traffic.arrive(delivery.message.payload, self.now_ns)
        if delivery.qos:
            self._at(self.now_ns + RETURN_NS, "ack", delivery.packet_id)
