"""One run: a setting and a seed in, totals and perhaps a trace out."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from timebound.core.mesh.account import MeshAccount, TraceRow
from timebound.core.mesh.options import MeshOptions
from timebound.core.values.subscription import MICRO
from timebound.records import Reason
from timebound.sim.kernel.streams import Streams
from timebound.sim.mesh import topology as shapes
from timebound.sim.mesh.cluster import Cluster, ReportDelays
from timebound.sim.mesh.faults import schedule_faults
from timebound.sim.mesh.network import SimLink
from timebound.sim.mesh.setting import LinkSetting, MeshSetting, TopologySetting
from timebound.sim.mesh.topology import Topology
from timebound.sim.mesh.workload import make_sources, make_subscriptions
from timebound.sim.papers.brokers.reading import ReadBroker, read_broker
from timebound.units import MINUTE, SECOND

# After the last message everything limited in time is settled; what has no limit gets this long.
_DRAIN_NS: Final = 60 * MINUTE
_STEPS: Final = 100
# How often brokers report waiting times to their neighbours; every 10 s brings no more.
REPORT_NS: Final = 30 * SECOND


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came out of one run."""

    seed: int
    published: int
    matched: int
    in_time: int
    late: int
    dropped: dict[str, int]
    earning: float  # prices earned less penalties paid
    traffic: int  # messages received by all brokers
    duplicates: int
    events: int
    seconds: float  # of computing; not part of what a seed determines
    rows: list[TraceRow]
    refused: dict[str, int] = field(default_factory=dict)  # what whole brokers refused their clients

    @property
    def delivery_rate(self) -> float:
        return self.in_time / self.matched if self.matched else 0.0


def run(setting: MeshSetting, seed: int, progress: Callable[[float], None] | None = None) -> RunResult:
    """Simulate; `progress` is told the share that is done."""
    # A run leaves no cycles of objects behind, and looking for them would take a third of its time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _run(setting, seed, progress)
    finally:
        if was_enabled:
            gc.enable()


def _run(setting: MeshSetting, seed: int, progress: Callable[[float], None] | None) -> RunResult:
    started = time.process_time()
    cluster = build(setting, seed)
    kernel = cluster.kernel
    for step in range(1, _STEPS + 1):
        kernel.run(setting.duration_ns * step // _STEPS)
        if progress is not None:
            progress(step / _STEPS)
    kernel.run(setting.duration_ns + _DRAIN_NS)
    account = cluster.account
    for broker in cluster.brokers.values():
        broker.wake(kernel.now_ns)
    account.close(Reason.HOPELESS)
    return RunResult(
        seed=seed,
        published=account.published,
        matched=account.matched,
        in_time=account.in_time,
        late=account.late,
        dropped={reason: count for reason, count in account.dropped.items() if count},
        earning=(account.earned_micro - account.paid_micro) / MICRO,
        traffic=account.received,
        duplicates=account.duplicates,
        events=kernel.events,
        seconds=time.process_time() - started,
        rows=account.rows,
    )


def build(setting: MeshSetting, seed: int) -> Cluster:
    """Make the brokers, links, subscriptions and publishers of a run."""
    streams = Streams(seed)
    topology = make_topology(setting.topology, streams)
    account = MeshAccount(setting.is_tracing)
    broker = read_broker(setting.reading, setting.strategy, setting.mix, setting.epsilon)
    cluster = Cluster(
        _options(setting, broker),
        account,
        setting.duration_ns,
        measures=setting.estimates == "measured",
        make_forwarder=broker.make_forwarder,
    )
    for name in topology.brokers:
        cluster.add_broker(name)
    means = streams.stream("link means")
    for source, target in topology.links:
        cluster.add_link(_link(source, target, setting.links, streams, means))
    for subscription in make_subscriptions(setting.subscriptions, topology, streams):
        cluster.table.insert(subscription)
    for publisher, its in make_sources(setting.publishers, topology, streams):
        access = None
        if its.link_costs:
            access = _link(publisher.client_id, publisher.home, setting.links, streams, means)
        cluster.add_source(publisher, its.connection_ns, access, its.link_queues)
    schedule_faults(cluster, setting.faults)
    if setting.waiting_share > 0.0:
        cluster.kernel.schedule(REPORT_NS, ReportDelays(cluster, REPORT_NS))
    return cluster


def make_topology(setting: TopologySetting, streams: Streams) -> Topology:
    """Make the brokers and links that a setting describes."""
    random = streams.stream("topology")
    if setting.kind == "layered":
        return shapes.layered(list(setting.layers), setting.parents, random)
    if setting.kind == "tree":
        return shapes.tree(setting.brokers, setting.children)
    if setting.kind == "ring":
        return shapes.ring(setting.brokers)
    if setting.kind == "transit-stub":
        return shapes.transit_stub(setting.transit, setting.stubs, setting.stub_brokers, random)
    return shapes.from_links(list(setting.links), setting.both_ways, setting.names)


def _link(source: str, target: str, setting: LinkSetting, streams: Streams, means: Random) -> SimLink:
    return SimLink(
        source,
        target,
        setting.mean_ms.draw(means),
        setting.deviation_ms,
        streams.stream(f"link {source} {target}"),
        latency_ns=setting.latency_ns,
        loss=setting.loss,
        per_kilobyte=setting.sampling == "kilobyte",
        clips=setting.truncation == "clip",
    )


def _options(setting: MeshSetting, broker: ReadBroker) -> MeshOptions:
    return MeshOptions(
        broker.strategy,
        routing=broker.routing,
        epsilon=broker.epsilon,
        preference=setting.preference,
        waiting_share=setting.waiting_share,
        send_cost=setting.send_cost,
        thrift=setting.thrift,
        keeps_order=setting.keeps_order,
        keeps_fresh=setting.keeps_fresh,
        processing_ns=setting.processing_ns,
        message_bytes=setting.message_bytes,
    )
