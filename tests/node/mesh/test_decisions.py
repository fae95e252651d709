"""The node and the simulator take the same decisions on the same inputs.

The node's side is all its own: broker, member, links, and packets encoded and decoded. The
simulator's side is its cluster. Both get the same overlay, subscriptions and messages, more than the
links carry; then every copy that was sent, every message that arrived and every one that was given
up is compared, with its time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.node.mesh.doubles import SECOND, VirtualNodes

from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.member import COPY_BYTES
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.options import LATE, TREE, MeshOptions
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.sim.deployment.timers import Call
from timebound.sim.mesh.cluster import Cluster, EnterEvent, SentEvent
from timebound.sim.mesh.network import SimLink
from timebound.terms import Terms
from timebound.wire.properties import encode_user_property

LATENCY_NS = 1_000_000
# Divisors of 10^9: a byte takes whole nanoseconds, and with sizes as they come no two things happen at the
# same moment. Which of two events of one moment comes first is no decision.
RATES = {
    ("a", "b"): 20_000,
    ("a", "c"): 25_000,
    ("b", "d"): 31_250,
    ("c", "d"): 16_000,
    ("b", "c"): 40_000,
    ("d", "e"): 50_000,
    ("c", "e"): 12_500,
}
# All times are multiples of this, but for the last digit of a float here and there.
GRAIN_NS = 500
START_NS = 5 * SECOND  # the nodes know each other by then
TOPIC = "t"


class Even(Random):
    """Every draw is the mean: a link takes exactly as long as its rate says."""

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        return mu


class Publication:
    """One message, to be made anew for each side; the time of its publication tells it apart."""

    def __init__(self, random: Random) -> None:
        self.origin = random.choice("abc")
        self.time_ns = START_NS + GRAIN_NS * random.randrange(10 * SECOND // GRAIN_NS)
        self.size_bytes = random.randrange(1_000, 20_000)
        self.kind = str(random.randrange(4))

    def message(self) -> Message:
        topic = f"{TOPIC}/{self.kind}"
        properties = encode_user_property("kind", self.kind)
        payload = b"x" * (self.size_bytes - COPY_BYTES - 8 - len(topic) - len(properties))
        message = Message(
            topic, payload, 0, False, self.time_ns, "p", properties, (("kind", self.kind),), timeout_ns=0
        )
        assert message.size() + COPY_BYTES == self.size_bytes
        return message


def subscriptions() -> list[tuple[str, Subscription]]:
    """Homes with subscriptions; prices are whole, so that sums do not depend on their order."""
    return [
        (
            "d",
            Subscription(
                client_id="s1",
                topic_filter=f"{TOPIC}/#",
                terms=Terms(deadline_ns=4 * SECOND, price=3.0, penalty=1.0),
            ),
        ),
        (
            "d",
            Subscription(
                client_id="s2", topic_filter=f"{TOPIC}/1", terms=Terms(deadline_ns=2 * SECOND, price=9.0)
            ),
        ),
        (
            "e",
            Subscription(
                client_id="s3",
                topic_filter=f"{TOPIC}/+",
                terms=Terms(deadline_ns=6 * SECOND, price=2.0, penalty=2.0),
            ),
        ),
        (
            "c",
            Subscription(
                client_id="s4", topic_filter=f"{TOPIC}/#", terms=Terms(where="kind = '2'", price=1.0)
            ),
        ),
        (
            "e",
            Subscription(
                client_id="s5", topic_filter=f"{TOPIC}/3", terms=Terms(deadline_ns=3 * SECOND, price=5.0)
            ),
        ),
    ]


def options(routing: int, strategy: str) -> MeshOptions:
    return MeshOptions(strategy_named(strategy), routing=routing)


def even(time_ns: int) -> int:
    return (time_ns + GRAIN_NS // 2) // GRAIN_NS


class Outcome:
    """What one side decided: everything is told apart by when its message was published."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, str, str, int, tuple[str, ...], tuple[str, ...]]] = []
        self.arrived: list[tuple[int, str, int]] = []
        self.dropped: list[tuple[int, str, str, int, str]] = []
        self.late = 0  # reached their home too late

    def note_send(self, time_ns: int, source: str, target: str, copy: Copy, published_ns: int) -> None:
        assert copy.targets is not None
        self.sent.append(
            (even(time_ns), source, target, even(published_ns), tuple(sorted(copy.targets)), copy.via)
        )

    def note_arrival(self, time_ns: int, client_id: str, published_ns: int) -> None:
        self.arrived.append((even(time_ns), client_id, even(published_ns)))

    def note_drops(self, account: MeshAccount) -> None:
        """Who did not get what, why, after how many links, and for which one it waited."""
        for row in account.rows:
            if row[11] == "dropped":
                self.dropped.append((even(row[8]), row[4].partition("@")[0], row[12], row[15], row[16]))


def simulate(publications: list[Publication], routing: int, strategy: str) -> Outcome:
    account = MeshAccount(is_tracing=True)
    cluster = Cluster(options(routing, strategy), account, 0)
    for name in "abcde":
        cluster.add_broker(name)
    for (one, other), rate in RATES.items():
        for source, target in ((one, other), (other, one)):
            mean_ms = 1_024_000 / rate
            deviation_ms = 0.05 * mean_ms  # what a node assumes of a rate that is configured
            cluster.add_link(SimLink(source, target, mean_ms, deviation_ms, Even(0), latency_ns=LATENCY_NS))
    for home, terms in subscriptions():
        cluster.table.insert(
            MeshSubscription(
                client_id=terms.client_id,
                home=home,
                topic_filter=terms.topic_filter,
                terms=terms.terms,
            )
        )
    for publication in publications:
        what = MeshMessage(publication.message(), publication.origin, publication.size_bytes)
        cluster.kernel.schedule(publication.time_ns, EnterEvent(cluster, what))
    outcome = Outcome()
    _run_and_note_sends(cluster, outcome)
    for broker in cluster.brokers.values():
        broker.wake(cluster.kernel.now_ns)
    outcome.note_drops(account)
    for row in account.rows:
        if row[11] == "in_time":
            outcome.note_arrival(row[0], row[4], row[8])
    outcome.late = account.late
    return outcome


def _run_and_note_sends(cluster: Cluster, outcome: Outcome) -> None:
    seen: set[int] = set()
    heap = cluster.kernel._heap
    while heap:
        cluster.kernel.run(heap[0][0])
        for time_ns, _, sequence, event in heap:
            if isinstance(event, SentEvent) and sequence not in seen:
                seen.add(sequence)
                copy, link = event.copy, event.link
                published_ns = copy.what.message.published_ns
                outcome.note_send(time_ns - event.duration_ns, link.source, link.target, copy, published_ns)


def run_nodes(publications: list[Publication], routing: int, strategy: str) -> Outcome:
    rates: dict[tuple[str, str], int] = {}
    for (one, other), rate in RATES.items():
        rates[(one, other)] = rates[(other, one)] = rate
    nodes = VirtualNodes(rates, options(routing, strategy), LATENCY_NS)
    for home, terms in subscriptions():
        broker = nodes.nodes[home].broker
        session, _ = broker.connect(terms.client_id, "", True, 0, 65_535, None, 1, 0)
        assert broker.subscribe(session, terms, 0) < 0x80
        nodes.nodes[home].clock.schedule()
    nodes.kernel.run(START_NS - 1)
    assert not nodes.sent, "nothing was published yet"
    for publication in publications:
        nodes.kernel.schedule(publication.time_ns, Call(_publishing(nodes, publication)))
    return _collect(nodes)


def _publishing(nodes: VirtualNodes, publication: Publication) -> Callable[[], None]:
    def publish() -> None:
        node = nodes.nodes[publication.origin]
        node.broker.route(publication.message(), publication.time_ns)
        node.clock.schedule()

    return publish


def _collect(nodes: VirtualNodes) -> Outcome:
    nodes.kernel.run(1_000 * SECOND)
    outcome = Outcome()
    for sent in nodes.sent:
        outcome.note_send(sent.time_ns, sent.source, sent.target, sent.copy, sent.published_ns)
    for node in nodes.nodes.values():
        node.member.wake(nodes.kernel.now_ns)
        outcome.note_drops(node.account)
        for time_ns, client_id, published_ns in node.arrived:
            outcome.note_arrival(time_ns, client_id, published_ns)
        # A home does not bother its clients with what is too late.
        outcome.late += sum(node.broker.account.dropped.values()) - node.account.dropped_total()
    return outcome


@pytest.mark.parametrize("routing", [LATE, TREE], ids=["late", "tree"])
@pytest.mark.parametrize("strategy", ["worth", "eb", "mtep", "fifo"])
def test_node_and_simulator_decide_alike(strategy: str, routing: int) -> None:
    random = Random(f"decisions {strategy} {routing}")
    publications = sorted([Publication(random) for _ in range(150)], key=lambda one: one.time_ns)

    simulated = simulate(publications, routing, strategy)
    lived = run_nodes(publications, routing, strategy)

    assert sorted(lived.sent) == sorted(simulated.sent)
    assert sorted(lived.arrived) == sorted(simulated.arrived)
    assert sorted(lived.dropped) == sorted(simulated.dropped)
    assert lived.late == simulated.late
    assert len(simulated.dropped) > 20, "the links were not overloaded"
    assert len(simulated.arrived) > 20
