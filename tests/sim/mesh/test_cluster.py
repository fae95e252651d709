"""The cluster as driver of its brokers: when copies arrive, and what failing brokers and links lose.

All links take exactly 10 ms per KB and brokers 2 ms per message, so every time is known in advance.
"""

from __future__ import annotations

from random import Random

import pytest

from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.options import TREE, MeshOptions
from timebound.core.mesh.table import MeshSubscription
from timebound.records import TRACE_FIELDS
from timebound.sim.kernel.draws import fixed
from timebound.sim.mesh.cluster import Cluster
from timebound.sim.mesh.network import SimLink
from timebound.sim.mesh.setting import PublisherSetting
from timebound.sim.mesh.workload import Source
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND

KB = 1_024
NAMES = [name for name, _ in TRACE_FIELDS]


class StartsAtZero(Random):
    """Lets a periodic publisher begin at once."""

    def random(self) -> float:
        return 0.0


def link(source: str, target: str) -> SimLink:
    return SimLink(source, target, 10.0, 0.0, Random(1), latency_ns=MILLISECOND)


def line(*, seconds: int = 1, measures: bool = False) -> Cluster:
    """Brokers a, b and c in a line, and one subscriber with a deadline of 1 s at c."""
    options = MeshOptions(strategy_named("fifo"), routing=TREE, processing_ns=2 * MILLISECOND)
    cluster = Cluster(options, MeshAccount(is_tracing=True), seconds * SECOND, measures=measures)
    for name in "abc":
        cluster.add_broker(name)
    cluster.add_link(link("a", "b"))
    cluster.add_link(link("b", "c"))
    cluster.table.insert(
        MeshSubscription(client_id="s", home="c", topic_filter="#", terms=Terms(deadline_ns=SECOND))
    )
    return cluster


def publish(cluster: Cluster, *, access: SimLink | None = None, queues: bool = True, size: int = KB) -> None:
    """One message of `size` bytes each second from a publisher at broker a, the first at once."""
    setting = PublisherSetting(60.0, fixed(size), arrivals="periodic")
    cluster.add_source(Source("p", "a", setting, StartsAtZero()), 3 * MILLISECOND, access, queues)


def rows(cluster: Cluster) -> list[dict[str, object]]:
    return [dict(zip(NAMES, row, strict=True)) for row in cluster.account.rows]


def test_a_message_takes_connection_links_and_processing_of_every_broker() -> None:
    cluster = line()
    publish(cluster)

    cluster.kernel.run(2 * SECOND)

    [row] = rows(cluster)
    assert row["time_ns"] == (3 + 2 + 2 * (10 + 1 + 2)) * MILLISECOND
    assert (row["outcome"], row["hop"], row["subscriber"]) == ("in_time", 2, "s")


def test_publishers_stop_at_the_end_of_the_run() -> None:
    cluster = line(seconds=3)
    publish(cluster)

    assert not cluster.kernel.run(10 * SECOND)

    assert cluster.account.published == 3


@pytest.mark.parametrize(("queues", "second_ms"), [(True, 4_000), (False, 3_000)])
def test_messages_wait_for_each_other_on_the_publishers_own_link_unless_told_otherwise(
    queues: bool, second_ms: int
) -> None:
    cluster = line(seconds=2)
    publish(cluster, access=link("p", "a"), queues=queues, size=200 * KB)

    # 200 KB take 2 s over the publisher's link, and then wait nowhere before broker a.
    entered = []
    while len(entered) < 2:
        before = cluster.account.published
        cluster.kernel.run(cluster.kernel.now_ns + MILLISECOND)
        entered += [cluster.kernel.now_ns // MILLISECOND] * (cluster.account.published - before)

    assert entered == [2_000 + 3 + 2, second_ms + 3 + 2]


def test_a_link_sends_one_copy_after_another() -> None:
    cluster = line()
    publish(cluster)
    publish(cluster)

    cluster.kernel.run(2 * SECOND)

    first, second = (row["time_ns"] for row in rows(cluster))
    assert isinstance(first, int)
    assert second == first + 10 * MILLISECOND


def test_what_waits_at_a_crashed_broker_is_lost_and_accounted_for() -> None:
    cluster = line()
    publish(cluster)
    publish(cluster)

    cluster.kernel.run(10 * MILLISECOND)
    cluster.crash("a", cluster.kernel.now_ns)
    cluster.kernel.run(2 * SECOND)

    assert [(row["outcome"], row["reason"]) for row in rows(cluster)] == [("dropped", "disconnected")] * 2
    assert cluster.account.open_pairs() == 0


def test_a_broker_that_is_down_refuses_what_is_published_to_it_and_works_again_after_its_restart() -> None:
    cluster = line(seconds=3)
    publish(cluster)
    cluster.crash("a", 0)

    cluster.kernel.run(SECOND // 2)
    assert [row["outcome"] for row in rows(cluster)] == ["dropped"]

    cluster.restart("a", cluster.kernel.now_ns)
    cluster.kernel.run(5 * SECOND)

    assert [row["outcome"] for row in rows(cluster)] == ["dropped", "in_time", "in_time"]


def test_a_copy_on_a_link_that_is_cut_does_not_arrive_even_if_the_link_is_mended_before() -> None:
    cluster = line()
    publish(cluster)

    cluster.kernel.run(20 * MILLISECOND)  # at b, on its way to c
    cluster.cut("b", "c", cluster.kernel.now_ns)
    cluster.mend("b", "c", cluster.kernel.now_ns)
    cluster.kernel.run(2 * SECOND)

    assert [(row["outcome"], row["link"]) for row in rows(cluster)] == [("dropped", "c")]


def test_a_link_stays_down_while_one_of_its_ends_is_down() -> None:
    cluster = line()
    cluster.cut("b", "c", 0)
    cluster.crash("c", 0)

    cluster.mend("b", "c", 0)
    assert cluster.links.delay("b", "c") is None

    cluster.restart("c", 0)
    assert cluster.links.delay("b", "c") is not None


def test_a_restart_does_not_mend_a_cut_link() -> None:
    cluster = line()
    cluster.cut("b", "c", 0)
    cluster.crash("c", 0)

    cluster.restart("c", 0)

    assert cluster.links.delay("b", "c") is None


def test_a_slow_link_is_announced_at_once_where_delays_are_known() -> None:
    cluster = line()

    cluster.slow("a", "b", 3.0, 0)

    delay = cluster.links.delay("a", "b")
    assert delay is not None
    assert delay.mean_s_per_kb == pytest.approx(0.03)


def test_a_slow_link_is_announced_after_measuring_where_delays_are_not_known() -> None:
    cluster = line(seconds=60, measures=True)
    publish(cluster)
    cluster.slow("a", "b", 3.0, 0)
    built = cluster.links.delay("a", "b")
    assert built is not None
    assert built.mean_s_per_kb == pytest.approx(0.01)

    cluster.kernel.run(61 * SECOND)

    learned = cluster.links.delay("a", "b")
    assert learned is not None
    assert learned.mean_s_per_kb == pytest.approx(0.03, rel=0.3)
