"""One table of figures: `$SYS`, metrics and the trace say the same after any traffic."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from tests.core.broker_doubles import Node, Peer
from tests.node.doubles import Build
from tests.node.mesh.doubles import SECOND, VirtualNodes

from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, strategy_named
from timebound.core.mesh.options import MeshOptions
from timebound.core.sessions.session import PUBACK, PUBREC
from timebound.core.values.access import ALL, ANYONE, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.subscription import Subscription
from timebound.node.telemetry.figures import FIGURES, MESH, NodeFigure, Sample, Sources
from timebound.node.telemetry.metrics import exposition
from timebound.node.telemetry.sys_topics import SysTopics
from timebound.records import Outcome, Reason
from timebound.terms import Terms

# What refuses a message before it matches has no record in the trace.
REFUSALS = {Reason.NOT_AUTHORIZED, Reason.NOT_ADMITTED, Reason.QUOTA, Reason.MALFORMED}
OPEN = [AccessRule(ANYONE, ALL, "open/#", True)]
REFERENCE = Path(__file__).parents[3] / "docs" / "account.md"


def metrics(sources: Sources, now_ns: int = 0) -> dict[str, float]:
    lines = exposition(sources, now_ns).splitlines()
    return {
        name.removeprefix("timebound_"): float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def topics(sources: Sources, now_ns: int = 0) -> dict[str, float]:
    found = SysTopics(sources, "plant-7").figures(now_ns)
    return {
        topic.removeprefix("$SYS/broker/"): float(value)
        for topic, value in found.items()
        if value.replace(".", "").isdigit()
    }


def test_each_figure_has_names_of_its_own_and_a_meaning() -> None:
    for names in ([one.topic for one in FIGURES], [one.metric for one in FIGURES]):
        used = [name for name in names if name]
        assert len(used) == len(set(used))
    for figure in FIGURES:
        assert figure.topic or figure.metric
        assert figure.meaning.endswith(".")
        assert figure.metric.endswith("_total") == (figure.kind == "counter") or not figure.metric


def row_of(figure: NodeFigure) -> tuple[str, str, str, str]:
    topic = f"`{figure.topic}{figure.label and f'/<{figure.label}>'}`" if figure.topic else ""
    metric = f"`timebound_{figure.metric}{figure.label and f'{{{figure.label}}}'}`" if figure.metric else ""
    return topic, metric, figure.kind, figure.meaning[0].lower() + figure.meaning[1:].removesuffix(".")


def test_the_reference_has_a_row_for_each_figure() -> None:
    section = REFERENCE.read_text(encoding="utf-8").split("## Figures\n")[1].split("\n## ")[0]

    rows = re.findall(r"^\| ?(.*?) \| ?(.*?) \| (gauge|counter) \| (.*) \|$", section, re.MULTILINE)

    assert rows == [row_of(figure) for figure in FIGURES]


def test_a_refused_publish_is_counted_the_same_everywhere() -> None:
    node = Node(rules=OPEN)
    sources = Sources(node.broker)
    peer = node.connect("c")

    node.publish(peer, "closed/a")

    assert topics(sources)["dropped/not_authorized"] == 1
    assert metrics(sources)['dropped_total{reason="not_authorized"}'] == 1
    assert topics(sources)["messages/refused"] == metrics(sources)["messages_refused_total"] == 1
    assert topics(sources)["account/dropped"] == 0


def test_a_copy_for_two_subscriptions_counts_as_two_pairs_everywhere() -> None:
    node = Node()
    sources = Sources(node.broker)
    reader, writer = node.connect("reader"), node.connect("writer")
    node.subscribe(reader, "a/b", 1)
    node.subscribe(reader, "a/+", 1)
    node.disconnect(reader)

    node.publish(writer, "a/b", qos=0)

    assert topics(sources)["dropped/disconnected"] == 2
    assert metrics(sources)['dropped_total{reason="disconnected"}'] == 2


def test_a_message_that_is_not_retained_is_not_counted_as_dropped() -> None:
    node = Node(BrokerLimits(retained_messages_max=0))
    sources = Sources(node.broker)

    node.publish(node.connect("c"), "a", retain=True)

    assert topics(sources)["retained messages/refused"] == 1
    assert metrics(sources)["retained_refused_total"] == 1
    assert topics(sources)["publish/messages/dropped"] == 0


def test_every_figure_of_the_mesh_is_a_metric() -> None:
    rates = {("a", "b"): 10_000, ("b", "a"): 10_000}
    nodes = VirtualNodes(rates, MeshOptions(strategy_named(DEFAULT_STRATEGY)), 0)
    nodes.kernel.run(SECOND)
    node = nodes.nodes["a"]
    sources = Sources(node.broker, mesh=node.mesh)

    found = metrics(sources)

    assert {one.topic.removeprefix("mesh/") for one in MESH} == set(node.mesh.figures())
    assert found["mesh_links_up"] == topics(sources)["mesh/links_up"] == 1
    for figure in MESH:
        assert found[figure.metric] == topics(sources)[figure.topic]


async def test_every_figure_of_the_input_is_published(build: Build) -> None:
    house = build()
    sources = Sources(house.broker)

    found = topics(sources)

    assert {f"input/{name}" for name in house.broker.entrance.figures()} <= set(found)
    assert metrics(sources)["input_quantum_seconds"] == found["input/quantum_ns"] / SECOND


def draw_traffic(random: Random, node: Node) -> None:
    """Traffic with every outcome: in time, late, dropped for several reasons, refused."""
    peers: list[Peer] = []
    for number in range(6):
        peer = node.connect(f"c{number}", receive_maximum=random.choice([2, 65_535]))
        peers.append(peer)
        for topic_filter in random.sample(["open/a", "open/+", "open/b", "open/#"], 2):
            deadline_ns = random.choice([0, SECOND // 2, 3 * SECOND])
            price = random.randrange(3_000_000) / 1_000_000
            terms = Subscription(
                client_id=peer.client_id,
                topic_filter=topic_filter,
                qos=random.randrange(3),
                terms=Terms(
                    deadline_ns=deadline_ns, price=price, penalty=price / 3, keep_last=random.random() < 0.3
                ),
            )
            node.broker.subscribe(peer.session, terms, node.now_ns)
    for step in range(300):
        peer = random.choice(peers)
        action = random.randrange(10)
        if action < 5:
            topic = random.choice(["open/a", "open/b", "closed/c"])
            expiry_s = random.choice([None, None, 1])
            node.publish(peer, topic, b"x" * random.randrange(200), random.randrange(2), expiry_s=expiry_s)
        elif action < 7:
            node.flush_all()
        elif action == 7:
            for packet in [one for one in peer.take() if one.kind == "PUBLISH" and one.packet_id]:
                kind = PUBACK if packet.qos == 1 else PUBREC
                node.acknowledge(peer, kind, packet.packet_id, random.choice([0, 0, 0x80]))
        elif action == 8:
            node.advance(random.choice([0.1, 0.4, 1.5]))
        elif step % 4 == 0:
            node.disconnect(peer)
            peers[peers.index(peer)] = node.connect(peer.client_id)
        node.check()


@pytest.mark.parametrize("seed", range(12))
def test_topics_metrics_and_trace_agree_after_random_traffic(seed: int) -> None:
    limits = BrokerLimits(queue_messages_per_client_max=12)
    node = Node(limits, OPEN, durable=False)
    node.broker.account.is_tracing = True
    draw_traffic(Random(seed), node)

    sources = Sources(node.broker)
    by_topic, by_metric = topics(sources), metrics(sources)
    records = list(node.broker.account.trace.take().records())

    outcomes = Counter(one.receiver.outcome for one in records)
    reasons = Counter(one.receiver.reason for one in records)
    for outcome in (Outcome.IN_TIME.value, Outcome.LATE.value):
        assert by_topic[f"account/{outcome}"] == outcomes[outcome]
        assert by_metric[f'delivered_total{{outcome="{outcome}"}}'] == outcomes[outcome]
    for reason in Reason:
        name = reason.value
        assert by_topic[f"dropped/{name}"] == by_metric[f'dropped_total{{reason="{name}"}}']
        if reason not in REFUSALS:
            assert by_topic[f"dropped/{name}"] == reasons[name], name
    assert by_topic["account/dropped"] == outcomes[Outcome.DROPPED.value]
    earned = sum(one.receiver.price_micro for one in records if one.receiver.outcome == "in_time")
    assert by_topic["account/earned"] == pytest.approx(earned / 1_000_000, abs=1e-9)
    for figure in FIGURES:
        sample = Sample(sources, 0)
        for (_, text), value in zip(
            figure.topic_values(sample).items(), figure.metric_values(sample).values(), strict=False
        ):
            # A topic has nanoseconds, where a metric has seconds; amounts are the same in both.
            unit = SECOND if figure.unit == SECOND else 1
            assert float(text) == pytest.approx(value * unit)


def test_random_traffic_reaches_many_outcomes() -> None:
    """Otherwise the comparison above would compare zeros."""
    reached: set[str] = set()
    for seed in range(12):
        node = Node(BrokerLimits(queue_messages_per_client_max=12), OPEN, durable=False)
        draw_traffic(Random(seed), node)
        statistics = node.broker.statistics()
        reached |= {reason for reason, count in statistics.dropped.items() if count}
        reached |= {"late"} if node.broker.account.late else set()

    wanted = {"late", "timed_out", "replaced", "queue_full", "disconnected", "expired", "refused"}
    assert wanted | {"not_authorized"} <= reached, wanted - reached
