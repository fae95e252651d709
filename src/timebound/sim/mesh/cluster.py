"""A mesh of the broker's own core under virtual time.

The cluster drives its brokers as the node does on a network: it tells each one what arrived and
which link is free, and carries out their orders. It decides nothing.
"""

from __future__ import annotations

from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.options import MeshOptions
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.table import SubscriptionTable
from timebound.core.values.delay import DelayEstimator, LinkDelay
from timebound.core.values.message import MessageName
from timebound.sim.kernel.kernel import Event, Kernel
from timebound.sim.mesh.network import SimLink
from timebound.sim.mesh.workload import Source
from timebound.sim.papers.brokers.reading import MakeForwarder


class Cluster:
    """Brokers, links and publishers of one run."""

    __slots__ = (
        "_cut",
        "_down",
        "_make_forwarder",
        "_sequence",
        "account",
        "brokers",
        "estimators",
        "kernel",
        "links",
        "measures",
        "options",
        "processing_ns",
        "publish_until_ns",
        "sim_links",
        "table",
    )

    def __init__(
        self,
        options: MeshOptions,
        account: MeshAccount,
        publish_until_ns: int,
        measures: bool = False,
        make_forwarder: MakeForwarder = Forwarder,
    ) -> None:
        self.kernel = Kernel()
        self.options = options
        self.account = account
        self.links = LinkState()
        self.table = SubscriptionTable()
        self.processing_ns = options.processing_ns
        self.publish_until_ns = publish_until_ns
        self.measures = measures
        self._make_forwarder = make_forwarder
        self.brokers: dict[str, Forwarder] = {}
        self.sim_links: dict[tuple[str, str], SimLink] = {}
        self.estimators: dict[tuple[str, str], DelayEstimator] = {}
        self._sequence = 0
        self._down: dict[str, None] = {}  # brokers that have crashed
        self._cut: dict[tuple[str, str], None] = {}

    def add_broker(self, name: str) -> None:
        self.brokers[name] = self._make_forwarder(name, self.links, self.table, self.options, self.account)

    def add_link(self, link: SimLink) -> None:
        """Join two brokers; both must have been added."""
        delay = link.delay()
        self.sim_links[(link.source, link.target)] = link
        self.links.set_link(link.source, link.target, delay)
        self.brokers[link.source].add_neighbour(link.target, delay)
        if self.measures:
            self.estimators[(link.source, link.target)] = DelayEstimator(delay)

    def add_source(self, source: Source, delay_ns: int, access: SimLink | None, queues: bool) -> None:
        """Start a publisher; `delay_ns` and `access` describe its own connection to its broker.

        `queues` tells whether its messages wait for each other there.
        """
        event = PublishEvent(self, source, delay_ns, access, queues)
        first_ns = source.first_ns()
        if first_ns < self.publish_until_ns:
            self.kernel.schedule(first_ns, event)

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def enter(self, what: MeshMessage, now_ns: int) -> None:
        """Hand a published message to its broker, which has read it."""
        broker = self.brokers[what.origin]
        if self.account.is_tracing:
            what.message.name = MessageName(what.origin, what.started_ns, what.number)
        if what.origin in self._down:
            broker.refuse(what, now_ns)
            return
        broker.publish(what, now_ns)
        self.act(broker, now_ns)

    def act(self, broker: Forwarder, now_ns: int) -> None:
        """Carry out what a broker has decided."""
        for delivery in broker.take_deliveries():
            copy = delivery.copy
            what = copy.what
            self.account.delivered(what.message, delivery.group, what.size_bytes, copy.hops, now_ns)
        for send in broker.take_sends():
            link = self.sim_links[(broker.name, send.neighbour)]
            duration_ns = link.duration_ns(send.copy.what.size_bytes)
            self.kernel.schedule(now_ns + duration_ns, SentEvent(self, link, send.copy, duration_ns))

    def measured(self, link: SimLink, size_bytes: int, duration_ns: int, now_ns: int) -> None:
        """Update the sender's estimate of a link; announce it once it differs from the known one."""
        estimator = self.estimators[(link.source, link.target)]
        estimator.add(size_bytes, duration_ns)
        known = self.links.delay(link.source, link.target)
        if known is not None and estimator.has_moved(known):
            self.announce(link.source, link.target, estimator.link_delay(), now_ns)

    def exchange_delay_reports(self) -> None:
        """Pass the delay report of every broker to its neighbours."""
        reports = {name: broker.delay_report() for name, broker in self.brokers.items()}
        for source, target in self.sim_links:
            self.brokers[source].receive_delay_report(target, reports[target])

    def announce(self, source: str, target: str, delay: LinkDelay, now_ns: int) -> None:
        """Announce a link's delay to every broker."""
        self.links.set_link(source, target, delay)
        self.brokers[source].set_link(target, delay, now_ns)

    # Faults.

    def crash(self, name: str, now_ns: int) -> None:
        """Crash a broker: what waits there is lost, and its links are down."""
        self._down[name] = None
        for source, target in list(self.sim_links):
            if name in (source, target) and (source, target) not in self._cut:
                self._stop(source, target, now_ns)
        self.brokers[name].crash(now_ns)

    def restart(self, name: str, now_ns: int) -> None:
        """Restart a crashed broker with empty queues."""
        self._down.pop(name, None)
        for source, target in list(self.sim_links):
            if name in (source, target):
                self._resume(source, target, now_ns)

    def cut(self, source: str, target: str, now_ns: int) -> None:
        """Cut a link; what was on it is lost."""
        self._cut[(source, target)] = None
        if source not in self._down and target not in self._down:
            self._stop(source, target, now_ns)

    def mend(self, source: str, target: str, now_ns: int) -> None:
        """Put a cut link back into service."""
        self._cut.pop((source, target), None)
        self._resume(source, target, now_ns)

    def slow(self, source: str, target: str, factor: float, now_ns: int) -> None:
        """Slow a link down by `factor`; where delays are measured, its sender has to find out."""
        link = self.sim_links[(source, target)]
        link.factor = factor
        if not self.measures and self.links.delay(source, target) is not None:
            self.announce(source, target, link.delay(), now_ns)

    def _stop(self, source: str, target: str, now_ns: int) -> None:
        self.sim_links[(source, target)].term += 1
        self.links.remove_link(source, target)
        if source not in self._down:
            broker = self.brokers[source]
            broker.link_down(target, now_ns)
            self.act(broker, now_ns)

    def _resume(self, source: str, target: str, now_ns: int) -> None:
        if source in self._down or target in self._down or (source, target) in self._cut:
            return
        link = self.sim_links[(source, target)]
        self.announce(source, target, link.delay(), now_ns)
        self.brokers[source].link_up(target)


class ReportDelays(Event):
    """Brokers send delay reports to their neighbours, periodically while messages are published."""

    __slots__ = ("cluster", "interval_ns")

    def __init__(self, cluster: Cluster, interval_ns: int) -> None:
        self.cluster = cluster
        self.interval_ns = interval_ns

    def happen(self, now_ns: int) -> None:
        self.cluster.exchange_delay_reports()
        if now_ns < self.cluster.publish_until_ns:
            self.cluster.kernel.schedule(now_ns + self.interval_ns, self)


class PublishEvent(Event):
    """A publisher's next message."""

    __slots__ = ("access", "cluster", "delay_ns", "free_ns", "queues", "source")

    def __init__(
        self, cluster: Cluster, source: Source, delay_ns: int, access: SimLink | None, queues: bool
    ) -> None:
        self.cluster = cluster
        self.source = source
        self.delay_ns = delay_ns
        self.access = access
        self.queues = queues
        self.free_ns = 0  # when its own connection is free again

    def happen(self, now_ns: int) -> None:
        cluster = self.cluster
        what = self.source.message(cluster.next_sequence(), now_ns)
        arrives_ns = now_ns + self.delay_ns
        if self.access is not None:
            start_ns = self.free_ns if self.queues and self.free_ns > now_ns else now_ns
            self.free_ns = start_ns + self.access.duration_ns(what.size_bytes)
            arrives_ns = self.free_ns + self.delay_ns
        cluster.kernel.schedule(arrives_ns + cluster.processing_ns, EnterEvent(cluster, what))
        next_ns = self.source.next_ns(now_ns)
        if next_ns < cluster.publish_until_ns:
            cluster.kernel.schedule(next_ns, self)


class EnterEvent(Event):
    """A published message has been processed by the broker it enters the mesh at."""

    __slots__ = ("cluster", "what")

    def __init__(self, cluster: Cluster, what: MeshMessage) -> None:
        self.cluster = cluster
        self.what = what

    def happen(self, now_ns: int) -> None:
        self.cluster.enter(self.what, now_ns)


class SentEvent(Event):
    """A link has finished sending a copy: the link is free, the copy arrives after the latency."""

    __slots__ = ("cluster", "copy", "duration_ns", "link", "term")

    def __init__(self, cluster: Cluster, link: SimLink, copy: Copy, duration_ns: int) -> None:
        self.cluster = cluster
        self.link = link
        self.copy = copy
        self.duration_ns = duration_ns
        self.term = link.term

    def happen(self, now_ns: int) -> None:
        cluster = self.cluster
        link = self.link
        if link.term != self.term:
            cluster.brokers[link.source].lose(self.copy, link.target, now_ns)
            return
        arrival = ArriveEvent(cluster, link, self.copy)
        cluster.kernel.schedule(now_ns + link.latency_ns + cluster.processing_ns, arrival)
        if cluster.measures:
            cluster.measured(link, self.copy.what.size_bytes, self.duration_ns, now_ns)
        sender = cluster.brokers[link.source]
        sender.link_free(link.target, now_ns)
        cluster.act(sender, now_ns)


class ArriveEvent(Event):
    """A copy has been read and processed by the broker it was sent to."""

    __slots__ = ("cluster", "copy", "link", "term")

    def __init__(self, cluster: Cluster, link: SimLink, copy: Copy) -> None:
        self.cluster = cluster
        self.link = link
        self.copy = copy
        self.term = link.term

    def happen(self, now_ns: int) -> None:
        cluster = self.cluster
        link = self.link
        if link.term != self.term:
            cluster.brokers[link.source].lose(self.copy, link.target, now_ns)
            return
        receiver = cluster.brokers[link.target]
        receiver.receive(self.copy, now_ns)
        cluster.act(receiver, now_ns)
