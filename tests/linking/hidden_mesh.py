"""A slow link between two brokers, in virtual time: everything is the node's own but clock and wires.

    publishers -> Broker near -> meter and pacing -> socket -> hidden buffer -> link -> Broker far -> receiver

The sending side is what runs in a node: mesh, link, meter and pacing. It reads of the path what the kernel
would show of it: what was acknowledged, what is in flight, and the round trip. What lies in a hidden buffer
is acknowledged already, as by a relay or a radio. The receiver's clock decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.core.link.hidden_path import RATE_BYTES_PER_S, HiddenPath, PathMeter

from timebound.core.broker import Broker
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.sessions.session import PUBACK
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.demo.best import Best, best_possible
from timebound.demo.interface_run import CLASSES, COPY_BYTES
from timebound.demo.traffic import Traffic, TrafficClass, plan
from timebound.linking.join import join_mesh
from timebound.linking.mesh import Mesh
from timebound.node.config import parse_config
from timebound.sim.deployment.timers import Call, VirtualClock
from timebound.sim.kernel.kernel import Kernel
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND
from timebound.wire.packets import Packet

PATROL_NS = SECOND
START_NS = 3 * SECOND  # the brokers know each other, and the subscriptions, by then
AFTER_S = 0.5  # after the last message, for those in transit
BYTES_MAX = 1 << 30
EPOCH_NS = 1_000_000 * SECOND


class Carrier:
    """The connection under a link."""

    def __init__(self, path: HiddenPath) -> None:
        self._path = path

    def write(self, data: bytes) -> None:
        self._path.write(data)

    def close(self, reason_code: int, reason: str) -> None:
        raise AssertionError(f"the link was closed: {reason} ({reason_code})")


class Node:
    """One broker with its mesh."""

    def __init__(
        self, kernel: Kernel, name: str, other: str, arrive: Callable[[Message], None], commit_ns: int = 0
    ) -> None:
        text = f'node_name = "{name}"\n[[neighbours]]\nname = "{other}"\n'
        self.clock = VirtualClock(kernel, self.turn, EPOCH_NS)
        self._arrive = arrive
        self._commit_ns = commit_ns  # of one batch; 0 = nothing is stored
        self._is_storing = False
        index = WatchedIndex()
        self.broker = Broker(BrokerLimits(), AccessList([]), commit_ns > 0, index)
        self.mesh: Mesh = join_mesh(parse_config(text, Path("here.toml")), self.broker, index, self.clock)
        self._patrol()

    def _patrol(self) -> None:
        now_ns = self.clock.now_ns()
        self.mesh.patrol(now_ns)
        self.broker.expire(now_ns)
        self.clock.call_at_ns(now_ns + PATROL_NS, self._patrol)

    def turn(self) -> None:
        now_ns = self.clock.now_ns()
        self.mesh.turn()
        links = {id(link.session): link for link in self.mesh.links.values()}
        while ready := self.broker.take_ready():
            for session in ready:
                link = links.get(id(session))
                if link is not None:
                    link.write_answers()
                    continue
                for delivery in self.broker.take_deliveries(session, BYTES_MAX, now_ns):
                    self._arrive(delivery.message)
                    if delivery.qos:
                        self.broker.acknowledge(session, PUBACK, delivery.packet_id, 0, now_ns)
        self._store()
        # Drops at their time; what else is due waits for the next turn.
        self.broker.wake(now_ns)
        wakeup_ns = self.broker.next_wakeup_ns()
        if wakeup_ns is not None and wakeup_ns < now_ns + PATROL_NS:
            self.clock.call_at_ns(max(wakeup_ns, now_ns + MILLISECOND), self.clock.schedule)

    def _store(self) -> None:
        """Hand the next batch to storage once the one before is on disk."""
        batch = None if self._is_storing else self.broker.take_batch()
        if batch is not None:
            self._is_storing = True

            def stored() -> None:
                self._is_storing = False
                self.broker.committed(batch)
                self.clock.schedule()

            self.clock.call_at_ns(self.clock.now_ns() + self._commit_ns, stored)


@dataclass
class Outcome:
    """What came of one run, by the receiver's clock."""

    traffics: list[Traffic]
    best: list[Best]
    link_used: float  # while messages were offered

    def of(self, name: str) -> Traffic:
        return next(traffic for traffic in self.traffics if traffic.kind.name == name)

    def share_in_time(self, name: str) -> float:
        traffic = self.of(name)
        return traffic.in_time() / len(traffic.fates)

    def share_of_best(self) -> float:
        value = sum(traffic.in_time() * traffic.kind.price for traffic in self.traffics)
        return value / sum(best.value for best in self.best)

    def late_share(self) -> float:
        late = sum(traffic.late() for traffic in self.traffics)
        return late / max(late + sum(traffic.in_time() for traffic in self.traffics), 1)


class HiddenMesh:
    """Two brokers, and a link from `near` to `far` of a fixed rate with a hidden buffer."""

    def __init__(
        self,
        hidden_bytes: int = 0,
        *,
        classes: Sequence[TrafficClass] = CLASSES,
        rate_bytes_per_s: float = RATE_BYTES_PER_S,
        topics: int = 1,
        commit_ns: int = 0,
    ) -> None:
        """With `commit_ns` the receiver's session is durable, and a commit at `far` takes so long."""
        self.rate = rate_bytes_per_s
        self.topics = topics
        self.kernel = Kernel()
        self.traffics = [Traffic(kind) for kind in classes]
        self.near = Node(self.kernel, "near", "far", lambda message: None)
        self.far = Node(self.kernel, "far", "near", self._arrived, commit_ns)
        self.path = HiddenPath(self.kernel, rate_bytes_per_s, hidden_bytes, self._reach_far, to_server=True)
        back = HiddenPath(self.kernel, 0.0, 0, self._reach_near, to_server=False)
        self.to_far = self.near.mesh.make_link(
            "far", Carrier(self.path), 1_000_001, lambda delay: PathMeter(self.path, delay), is_dialled=True
        )
        self.to_near = self.far.mesh.make_link("near", Carrier(back), 1_000_002)
        self.near.mesh.open(self.to_far)
        self.far.mesh.open(self.to_near)
        session, _ = self.far.broker.connect(
            "receiver", "", not commit_ns, 3_600, 65_535, None, 1, self.far.clock.now_ns()
        )
        for kind in classes:
            wanted = Subscription(
                client_id="receiver",
                topic_filter=f"{kind.topic}/#",
                qos=1,
                terms=Terms(deadline_ns=kind.deadline_ns, price=kind.price),
            )
            self.far.broker.subscribe(session, wanted, self.far.clock.now_ns())
        self.far.clock.schedule()

    def time_ns(self, at_s: float) -> int:
        """Return the time of the kernel so long after the first message may be published."""
        return START_NS + int(at_s * SECOND)

    def at(self, at_s: float, callback: Callable[[], None]) -> None:
        """Call something during the run."""
        self.kernel.schedule(self.time_ns(at_s), Call(callback))

    def run(self, load: float, seconds: float, seed: int = 1, qos: int = 0) -> Outcome:
        """Offer `load` times what the link carries for so long, and wait until all is over."""
        self.kernel.run(START_NS)
        assert self.near.mesh.figures()["subscriptions"] == len(self.traffics)
        before = self.path.written_bytes
        for traffic in self.traffics:
            for number, at_s in enumerate(plan(traffic.kind, load * self.rate, seconds, seed)):
                self.at(at_s, self._publishing(traffic, number, qos))
        self.kernel.run(self.time_ns(seconds))
        used = (self.path.written_bytes - before) / (self.rate * seconds)
        self.kernel.run(self.time_ns(seconds + AFTER_S))
        until_ns = self.kernel.now_ns
        best = best_possible(self.traffics, self.rate, until_ns, added_bytes=COPY_BYTES)
        return Outcome(self.traffics, best, used)

    def _reach_far(self, packets: list[Packet]) -> None:
        self.to_near.receive(packets, self.far.clock.now_ns())
        self.far.clock.schedule()

    def _reach_near(self, packets: list[Packet]) -> None:
        self.to_far.receive(packets, self.near.clock.now_ns())
        self.near.clock.schedule()

    def _publishing(self, traffic: Traffic, number: int, qos: int) -> Callable[[], None]:
        def publish() -> None:
            topic = f"{traffic.kind.topic}/{number % self.topics}"
            payload = traffic.publish(self.kernel.now_ns)
            now_ns = self.near.clock.now_ns()
            self.near.broker.route(Message(topic, payload, qos, False, now_ns, "publisher"), now_ns)
            self.near.clock.schedule()

        return publish

    def _arrived(self, message: Message) -> None:
        name = message.topic.split("/")[1]
        for traffic in self.traffics:
            if traffic.kind.name == name:
                traffic.arrive(message.payload, self.kernel.now_ns)
