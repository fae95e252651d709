"""Faults of a run: when they begin and end, and that they come before the messages of the same moment."""

from __future__ import annotations

from random import Random

import pytest

from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.options import MeshOptions
from timebound.sim.kernel.kernel import Event
from timebound.sim.mesh.cluster import Cluster
from timebound.sim.mesh.faults import schedule_faults
from timebound.sim.mesh.network import SimLink
from timebound.sim.mesh.setting import FaultSetting
from timebound.units import SECOND


def pair() -> Cluster:
    """Brokers a and b with a link from a to b."""
    cluster = Cluster(MeshOptions(strategy_named("fifo")), MeshAccount(), SECOND)
    cluster.add_broker("a")
    cluster.add_broker("b")
    cluster.add_link(SimLink("a", "b", 10.0, 0.0, Random(1)))
    return cluster


def mean_ms(cluster: Cluster) -> float:
    """What the mesh knows of the link, per KB; -1 while it is down."""
    delay = cluster.links.delay("a", "b")
    return -1.0 if delay is None else round(delay.mean_s_per_kb * 1_000, 6)


@pytest.mark.parametrize(
    ("fault", "during"),
    [
        (FaultSetting("cut", 2, 5, link=("a", "b")), -1.0),
        (FaultSetting("crash", 2, 5, broker="a"), -1.0),
        (FaultSetting("crash", 2, 5, broker="b"), -1.0),
        (FaultSetting("slow", 2, 5, link=("a", "b"), factor=4.0), 40.0),
    ],
)
def test_a_fault_holds_from_its_beginning_to_its_end(fault: FaultSetting, during: float) -> None:
    cluster = pair()
    schedule_faults(cluster, (fault,))

    found = []
    for now_ns in range(1, 7):
        cluster.kernel.run(now_ns)
        found.append(mean_ms(cluster))

    assert found == [10.0, during, during, during, 10.0, 10.0]


def test_a_fault_without_end_lasts() -> None:
    cluster = pair()
    schedule_faults(cluster, (FaultSetting("cut", 2, link=("a", "b")),))

    assert not cluster.kernel.run(SECOND)

    assert mean_ms(cluster) == -1.0


def test_a_fault_comes_before_what_else_happens_at_the_same_time() -> None:
    class Look(Event):
        def happen(self, now_ns: int) -> None:
            seen.append(mean_ms(cluster))

    seen: list[float] = []
    cluster = pair()
    cluster.kernel.schedule(2, Look())
    schedule_faults(cluster, (FaultSetting("cut", 2, link=("a", "b")),))

    cluster.kernel.run(3)

    assert seen == [-1.0]


def test_a_link_with_two_faults_works_again_after_both() -> None:
    cluster = pair()
    schedule_faults(
        cluster, (FaultSetting("cut", 1, 3, link=("a", "b")), FaultSetting("crash", 2, 4, broker="b"))
    )

    found = []
    for now_ns in range(1, 5):
        cluster.kernel.run(now_ns)
        found.append(mean_ms(cluster))

    assert found == [-1.0, -1.0, -1.0, 10.0]
