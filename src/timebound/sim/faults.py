"""What goes wrong in a run: brokers that crash, links that are cut or get slow, and when that ends.

Brokers notice at once: how failures are detected belongs to the node. What was on a failing
link or waited at a failing broker is lost and accounted for; what waits elsewhere finds another
way if there is one.
"""

from __future__ import annotations

from typing import Final

from timebound.sim.cluster import Cluster
from timebound.sim.kernel import Event
from timebound.sim.setting import FaultSetting

# Faults come before messages of the same moment.
_PRIORITY: Final = -1


def schedule_faults(cluster: Cluster, faults: tuple[FaultSetting, ...]) -> None:
    """Let every fault begin, and end, at its time."""
    for fault in faults:
        cluster.kernel.schedule(fault.at_ns, _Begin(cluster, fault), _PRIORITY)
        if fault.until_ns:
            cluster.kernel.schedule(fault.until_ns, _End(cluster, fault), _PRIORITY)


class _Begin(Event):
    """A fault sets in."""

    __slots__ = ("cluster", "fault")

    def __init__(self, cluster: Cluster, fault: FaultSetting) -> None:
        self.cluster = cluster
        self.fault = fault

    def happen(self, now_ns: int) -> None:
        fault = self.fault
        if fault.kind == "crash":
            self.cluster.crash(fault.broker, now_ns)
        elif fault.kind == "cut":
            self.cluster.cut(fault.link[0], fault.link[1], now_ns)
        else:
            self.cluster.slow(fault.link[0], fault.link[1], fault.factor, now_ns)


class _End(Event):
    """A fault is over."""

    __slots__ = ("cluster", "fault")

    def __init__(self, cluster: Cluster, fault: FaultSetting) -> None:
        self.cluster = cluster
        self.fault = fault

    def happen(self, now_ns: int) -> None:
        fault = self.fault
        if fault.kind == "crash":
            self.cluster.restart(fault.broker, now_ns)
        elif fault.kind == "cut":
            self.cluster.mend(fault.link[0], fault.link[1], now_ns)
        else:
            self.cluster.slow(fault.link[0], fault.link[1], 1.0, now_ns)
