"""Faults of a run: brokers crash, links are cut or get slow, and recover.

Brokers notice at once: detecting failures is the node's task. What was on a failing link or waited
at a failing broker is lost and accounted for; what waits elsewhere takes another path if there is
one.
"""

from __future__ import annotations

from typing import Final

from timebound.sim.kernel.kernel import Event
from timebound.sim.mesh.cluster import Cluster
from timebound.sim.mesh.setting import FaultSetting

# Faults precede messages of the same time.
_PRIORITY: Final = -1


def schedule_faults(cluster: Cluster, faults: tuple[FaultSetting, ...]) -> None:
    """Schedule the beginning and the end of every fault."""
    for fault in faults:
        cluster.kernel.schedule(fault.at_ns, _Turn(cluster, fault, True), _PRIORITY)
        if fault.until_ns:
            cluster.kernel.schedule(fault.until_ns, _Turn(cluster, fault, False), _PRIORITY)


class _Turn(Event):
    """A fault begins or ends."""

    __slots__ = ("begins", "cluster", "fault")

    def __init__(self, cluster: Cluster, fault: FaultSetting, begins: bool) -> None:
        self.cluster = cluster
        self.fault = fault
        self.begins = begins

    def happen(self, now_ns: int) -> None:
        cluster = self.cluster
        fault = self.fault
        source, target = fault.link
        if fault.kind == "slow":
            cluster.slow(source, target, fault.factor if self.begins else 1.0, now_ns)
        elif fault.kind == "cut":
            if self.begins:
                cluster.cut(source, target, now_ns)
            else:
                cluster.mend(source, target, now_ns)
        elif self.begins:
            cluster.crash(fault.broker, now_ns)
        else:
            cluster.restart(fault.broker, now_ns)
