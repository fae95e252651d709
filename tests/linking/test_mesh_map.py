"""The map of a mesh: every broker describes the same one, with who is gone and how links do."""

from __future__ import annotations

import json

import pytest
from tests.linking.test_mesh import publish, run, start, subscribe
from tests.node.mesh.doubles import SECOND, VirtualNodes

from timebound.core.values.subscription import Subscription
from timebound.linking.greeting import FIGURES_VERSION
from timebound.linking.mesh_map import encode_map
from timebound.terms import Terms

LINE = {("a", "b"): 10_000, ("b", "c"): 20_000}


def start_told(rates: dict[tuple[str, str], int]) -> VirtualNodes:
    """Brokers of this version, which tell each other figures."""
    nodes = start(rates)
    for node in nodes.nodes.values():
        for link in node.mesh.links.values():
            link.version = FIGURES_VERSION
        node.mesh.member.replica.figures.clear()
    return nodes


def map_of(nodes: VirtualNodes, name: str, later_ns: int = 0) -> dict[str, list[dict[str, object]]]:
    now_ns = nodes.kernel.now_ns + later_ns
    found: dict[str, list[dict[str, object]]] = json.loads(encode_map(nodes.nodes[name].mesh.member, now_ns))
    return found


def test_all_brokers_describe_the_same_links() -> None:
    nodes = start_told(LINE)
    for name in "abc":
        nodes.nodes[name].mesh.report_links(nodes.kernel.now_ns)
        nodes.nodes[name].clock.schedule()
    run(nodes, SECOND)

    documents = [map_of(nodes, name) for name in "abc"]

    assert documents[0]["links"] == documents[1]["links"] == documents[2]["links"]
    ends = [(one["from"], one["to"]) for one in documents[0]["links"]]
    assert ends == [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]
    assert [round(float(str(one["ms_per_kb"])), 1) for one in documents[0]["links"]] == [
        102.4,
        102.4,
        51.2,
        51.2,
    ]
    assert [one["latency_ms"] for one in documents[2]["links"]] == [5.0] * 4
    assert (documents[0]["broker"], documents[0]["routing"]) == ("a", "late")


def test_what_waits_and_is_lost_is_told_to_all() -> None:
    nodes = start_told(LINE)
    subscribe(nodes, "b", "s", Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=SECOND)))
    for _ in range(40):
        publish(nodes, "a", 1_000)  # 100 ms each, for a second
    run(nodes, SECOND)  # most of them could not arrive any more
    for _ in range(5):
        publish(nodes, "a", 1_000)
    run(nodes, SECOND // 10)

    mesh = nodes.nodes["a"].mesh
    mesh.report_links(nodes.kernel.now_ns)
    mesh.report_links(nodes.kernel.now_ns)  # not more than once a second
    nodes.nodes["a"].clock.schedule()
    run(nodes, SECOND)

    [link] = [one for one in map_of(nodes, "c")["links"] if (one["from"], one["to"]) == ("a", "b")]
    assert 0.1 < float(str(link["lost_share"])) < 1.0
    assert int(str(link["waiting"])) > 0
    assert float(str(link["queue_delay_ms"])) > 50


def test_who_is_gone_or_cut_off_is_told_apart_and_since_when() -> None:
    nodes = start({("a", "b"): 10_000, ("a", "c"): 10_000, ("c", "d"): 10_000})
    subscribe(nodes, "d", "s", Subscription(client_id="s", topic_filter="t"))
    nodes.cut("a", "b")
    nodes.cut("a", "c")
    nodes.nodes["a"].mesh.patrol(nodes.kernel.now_ns)

    brokers = {str(one.pop("name")): one for one in map_of(nodes, "a", 7 * SECOND)["brokers"]}

    assert brokers == {
        "a": {"state": "up"},
        "b": {"state": "gone", "subscriptions": 0, "since_s": 7},
        "c": {"state": "cut off", "subscriptions": 0, "since_s": 7},
        "d": {"state": "cut off", "subscriptions": 1, "since_s": 7},
    }


@pytest.mark.parametrize("version", [0, 1])
def test_a_neighbour_of_an_earlier_version_is_not_told_figures(version: int) -> None:
    nodes = start({("a", "b"): 10_000})
    mesh = nodes.nodes["a"].mesh
    mesh.links["b"].version = version
    before = mesh.links["b"].sent
    mesh.member.report("b", 50 * 1_000_000, nodes.kernel.now_ns)

    nodes.nodes["a"].clock.schedule()
    run(nodes, SECOND)

    assert ("a", "b") in mesh.member.replica.figures
    figures = nodes.nodes["b"].mesh.member.replica.figures
    assert ("a", "b") not in figures or figures["a", "b"].latency_ns != 50 * 1_000_000
    assert nodes.nodes["b"].mesh.figures()["refused"] == 0
    assert mesh.links["b"].sent == before
