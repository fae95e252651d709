"""A receiver behind a hidden buffer and a slow link, in virtual time, with pacing as in a node.

`tests/core/link/hidden_link.py` has the broker's core alone, where a socket takes what there is room for.
Here the output is that of a connection (`node/clients/output.py`): meter, pacing, and the pace that answers
show. So QoS can differ between classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.core.link.hidden_link import CLASSES, Outcome
from tests.core.link.hidden_path import LATENCY_NS, RATE_BYTES_PER_S, HiddenPath, PathMeter

from timebound.core.broker import Broker
from timebound.core.link.scheduling import Scheduling
from timebound.core.sessions.session import PUBACK, Session
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.demo.best import best_possible
from timebound.demo.traffic import Traffic, TrafficClass, plan
from timebound.outgoing import OutgoingEncoder
from timebound.sim.deployment.timers import Call
from timebound.sim.kernel.kernel import Kernel
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND
from timebound.wire.packets import Packet, Publish

START_NS = 1_000 * SECOND
# After the last message, as in the demo.
AFTER_NS = 2 * SECOND
# Loops count in milliseconds.
TICK_NS = MILLISECOND


class HiddenReceiver:
    """One subscriber; each class has at least its own QoS, and `qos`."""

    def __init__(
        self,
        hidden_bytes: int,
        qos: int = 0,
        *,
        classes: Sequence[TrafficClass] = CLASSES,
        scheduling: Scheduling | None = None,
        rate_bytes_per_s: float = RATE_BYTES_PER_S,
        ceiling: float = 0.0,
    ) -> None:
        self.rate = rate_bytes_per_s
        self.qos = qos
        self.kernel = Kernel()
        self.kernel.now_ns = START_NS
        self.traffics = [Traffic(kind) for kind in classes]
        self.broker = Broker(BrokerLimits(), AccessList([]))
        self.session = self._connect("receiver", 1)
        self.publisher = self._connect("publisher", 2)
        self.path = HiddenPath(self.kernel, rate_bytes_per_s, hidden_bytes, self._arrive, to_server=False)
        now_ns = self.kernel.now_ns
        chosen = scheduling if scheduling is not None else Scheduling()
        self.broker.bind(self.session, "field", chosen, self.session.delay, now_ns)
        for kind in classes:
            wanted = Subscription(
                client_id="receiver",
                topic_filter=kind.topic,
                qos=self.qos_of(kind),
                terms=Terms(deadline_ns=kind.deadline_ns, price=kind.price),
            )
            self.broker.subscribe(self.session, wanted, now_ns)
        self.meter = PathMeter(self.path, self.session.delay, ceiling)
        self.link_used = 0.0
        self._outgoing = OutgoingEncoder(5, 0, 0, True)
        self._is_pacing = False

    def qos_of(self, kind: TrafficClass) -> int:
        return max(self.qos, kind.qos_min)

    def run(self, load: float, seconds: float, seed: int = 1) -> Outcome:
        """Offer `load` times what the link carries for so long, and wait until most is over."""
        for traffic in self.traffics:
            for at_s in plan(traffic.kind, load * self.rate, seconds, seed):
                self.kernel.schedule(START_NS + int(at_s * SECOND), Call(self._publishing(traffic)))
        for second in range(int(seconds) + 3):
            self.kernel.schedule(START_NS + second * SECOND, Call(self._patrol))
        self.kernel.run(START_NS + int(seconds * SECOND) + AFTER_NS)
        elapsed_s = seconds + AFTER_NS / SECOND
        self.link_used = self.path.sent_bytes / (self.rate * elapsed_s)
        best = best_possible(self.traffics, self.rate, self.kernel.now_ns)
        return Outcome(self.traffics, best, self.broker.account)

    def _connect(self, name: str, number: int) -> Session:
        session, _ = self.broker.connect(name, "", True, 0, 65_535, None, number, self.kernel.now_ns)
        return session

    def _publishing(self, traffic: Traffic) -> Callable[[], None]:
        def publish() -> None:
            now_ns = self.kernel.now_ns
            qos = self.qos_of(traffic.kind)
            message = Message(traffic.kind.topic, traffic.publish(now_ns), qos, False, now_ns, "publisher")
            self.broker.publish(self.publisher, message, 1, now_ns)
            self._turn()

        return publish

    def _patrol(self) -> None:
        self.broker.expire(self.kernel.now_ns)
        self._turn()

    def _turn(self) -> None:
        self.broker.wake(self.kernel.now_ns)
        while self.broker.take_ready():
            pass
        self.publisher.replies.clear()
        self.session.replies.clear()
        while self._flush():
            pass

    def _flush(self) -> bool:
        """Write as `ConnectionOutput._flush_paced` does; return whether more may follow at once."""
        session, meter = self.session, self.meter
        if not session.has_work() or self._is_pacing:
            return False
        now_ns = self.kernel.now_ns
        assert session.transit is not None
        meter.limit_pace(session.transit.pace(), now_ns)
        allowed = meter.allow(session.queue_bytes, now_ns)
        delay = meter.changed_delay()
        if delay is not None:
            self.broker.set_delay(session, delay, now_ns)
        if allowed:
            taken = self.broker.take_deliveries(session, allowed, now_ns, meter.ahead_ns())
            data = b"".join([self._outgoing.encode(delivery, now_ns) for delivery in taken])
            if data:
                self.path.write(data)
            if meter.written(len(data), session.queue_bytes, now_ns):
                return session.has_work()
        if session.has_work():
            self._is_pacing = True
            wake_ns = -(-max(meter.wake_ns, now_ns + 1) // TICK_NS) * TICK_NS
            self.kernel.schedule(wake_ns, Call(self._on_pace))
        return False

    def _on_pace(self) -> None:
        self._is_pacing = False
        self._turn()

    def _arrive(self, packets: list[Packet]) -> None:
        for packet in packets:
            assert isinstance(packet, Publish)
            for traffic in self.traffics:
                if traffic.kind.topic == packet.topic:
                    traffic.arrive(packet.payload, self.kernel.now_ns)
            if packet.qos:
                at_ns = self.kernel.now_ns + LATENCY_NS
                self.kernel.schedule(at_ns, Call(self._answering(packet.packet_id)))

    def _answering(self, packet_id: int) -> Callable[[], None]:
        def answer() -> None:
            self.broker.acknowledge(self.session, PUBACK, packet_id, 0, self.kernel.now_ns)
            self._turn()

        return answer
