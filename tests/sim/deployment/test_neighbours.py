"""Links between simulated brokers open, fail, and are opened again."""

from __future__ import annotations

from timebound.config.mesh import NeighbourConfig
from timebound.config.values import Config
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.neighbours import RETRY_NS_MAX
from timebound.units import SECOND

from .plans import FAR, LINK, PUBLISHER, TWO, act, numbers, plan, publish, run, subscribe


def notes(deployment: Deployment, node: str) -> list[str]:
    return [text.split(",")[0] for text in deployment.nodes[node].clock.notes]


def test_link_is_opened_and_measured() -> None:
    deployment = run(plan(configs=TWO, links=LINK))

    assert notes(deployment, "n1") == ["link to 'n2' is up"]
    assert notes(deployment, "n2") == ["link to 'n1' is up"]


def test_link_that_is_cut_is_opened_again_after_it_was_mended() -> None:
    deployment = run(plan(act(3, "cut", "n1-n2"), act(8, "mend", "n1-n2"), configs=TWO, links=LINK))

    assert notes(deployment, "n1") == ["link to 'n2' is up", "link to 'n2' is down", "link to 'n2' is up"]


def test_silent_link_is_given_up_by_its_keep_alive() -> None:
    deployment = run(plan(act(3, "dead", "n1-n2"), act(18, "mend", "n1-n2"), configs=TWO, links=LINK))

    assert deployment.history.counts["silent link given up"] >= 1
    assert notes(deployment, "n1")[-1] == "link to 'n2' is up"


def test_both_may_dial_and_one_link_stays() -> None:
    both = tuple(
        Config(node_name=one, neighbours=(NeighbourConfig(name=other, host=other),))
        for one, other in (("n1", "n2"), ("n2", "n1"))
    )

    deployment = run(
        plan(subscribe(1, "a/#"), publish(4, 1, qos=2), clients=(PUBLISHER, FAR), configs=both, links=LINK)
    )

    assert numbers(deployment) == [1]
    assert len(deployment.nodes["n1"].mesh.links) == 1  # type: ignore[union-attr]  # it has neighbours
    assert not deployment.failures


def test_broker_that_is_no_neighbour_is_refused() -> None:
    alone = (TWO[0], Config(node_name="n2"))

    deployment = run(plan(configs=alone, links=LINK))

    # It asks again, but ever more rarely.
    asked_max = 6 + deployment.kernel.now_ns // RETRY_NS_MAX
    assert 30 * SECOND // RETRY_NS_MAX <= deployment.history.counts["refused connect"] <= asked_max
    assert notes(deployment, "n1") == []
