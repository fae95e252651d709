"""Nodes under virtual time whose links are full or down: who waits, for how long, and who does not."""

from __future__ import annotations

import pytest
from tests.linking.test_mesh import LATENCY_NS, run, subscribe
from tests.node.mesh.doubles import SECOND, VirtualNodes

from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, strategy_named
from timebound.core.mesh.options import LATE, TREE, MeshOptions
from timebound.core.publishing import TAKEN
from timebound.core.sessions.session import Session
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.sim.deployment.timers import Call

SLOW = 20_000  # bytes a second: 100 messages


class Line:
    """a - b - c: b's link to c is slow, and full at 20 messages; a client publishes at a."""

    def __init__(self, routing: int = LATE) -> None:
        options = MeshOptions(
            strategy_named(DEFAULT_STRATEGY),
            routing=routing,
            messages_max=20,
            is_lossless=True,
            grace_ns=30 * SECOND,
        )
        rates = {("a", "b"): 1_000_000, ("b", "c"): SLOW}
        both_ways = {**rates, **{(target, source): rate for (source, target), rate in rates.items()}}
        self.nodes = VirtualNodes(both_ways, options, LATENCY_NS)
        run(self.nodes, SECOND)
        subscribe(self.nodes, "c", "s", Subscription(client_id="s", topic_filter="t/#"))
        self.publisher = self.client("p", 7)
        self._packet_id = 0

    def client(self, client_id: str, connection: int) -> Session:
        broker = self.nodes.nodes["a"].broker
        session, _ = broker.connect(
            client_id, "", True, 0, 65_535, None, connection, self.nodes.kernel.now_ns
        )
        return session

    def publish(self, count: int, qos: int = 1, *, timeout_ns: int = 0, promised_ns: int = 0) -> None:
        """Publish messages of 200 bytes, all at once, and give the mesh a moment."""
        node = self.nodes.nodes["a"]
        now_ns = self.nodes.kernel.now_ns
        for _ in range(count):
            self._packet_id += 1
            message = Message("t/x", b"x" * 89, qos, False, now_ns, "p", timeout_ns=timeout_ns)
            message.promised_ns = promised_ns
            assert node.broker.publish(self.publisher, message, self._packet_id, now_ns) == TAKEN
        node.clock.schedule()
        run(self.nodes, 100_000_000)

    def patrol(self) -> None:
        for node in self.nodes.nodes.values():
            node.mesh.patrol(self.nodes.kernel.now_ns)
            node.clock.schedule()

    def answered(self) -> int:
        return len(self.publisher.replies)

    def arrived(self) -> int:
        return len(self.nodes.nodes["c"].arrived)


@pytest.mark.parametrize("routing", [LATE, TREE])
def test_publishers_wait_for_a_full_link_two_brokers_on(routing: int) -> None:
    line = Line(routing)
    line.publish(40)
    assert line.answered() == 40  # a's own link has carried all of them before b could tell

    line.publish(10)
    assert line.answered() == 40
    run(line.nodes, SECOND)

    assert (line.answered(), line.arrived()) == (50, 50)
    assert line.nodes.nodes["b"].mesh.figures()["dropped"] == 0


def test_a_client_of_qos_0_is_slowed_while_the_link_is_full() -> None:
    line = Line()
    line.publish(40)

    line.publish(1, qos=0)
    assert list(line.publisher.slowed_by) == ["c"]
    run(line.nodes, SECOND)

    assert not line.publisher.slowed_by
    assert line.arrived() == 41


def test_messages_with_a_time_limit_and_advertised_flows_wait_for_no_link() -> None:
    line = Line()
    line.publish(40)

    line.publish(5, timeout_ns=10 * SECOND)
    line.publish(5, promised_ns=1_000_000)

    assert line.answered() == 50


def test_what_was_published_while_a_link_is_down_arrives_when_it_is_back() -> None:
    line = Line()
    line.publish(3)
    line.nodes.cut("b", "c")
    run(line.nodes, SECOND)
    line.publish(5)
    assert line.arrived() < 8

    line.nodes.join("b", "c")
    run(line.nodes, SECOND)

    assert (line.answered(), line.arrived()) == (8, 8)


def test_a_broker_that_stays_away_holds_up_nobody_for_longer_than_the_grace() -> None:
    line = Line()
    line.nodes.cut("b", "c")
    run(line.nodes, SECOND)
    line.publish(30)
    assert line.answered() == 19

    line.nodes.kernel.schedule(line.nodes.kernel.now_ns + 30 * SECOND, Call(line.patrol))
    run(line.nodes, 31 * SECOND)
    line.publish(30)

    assert line.answered() == 60
    figures = [line.nodes.nodes[name].mesh.figures() for name in "ab"]
    assert sum(one["dropped"] for one in figures) == 60
    assert sum(one["parked"] for one in figures) == 0


def test_a_program_that_publishes_by_itself_can_ask_for_room() -> None:
    line = Line()
    broker = line.nodes.nodes["a"].broker
    line.publish(40)

    broker.route(Message("t/x", b"x", 1, False, line.nodes.kernel.now_ns), line.nodes.kernel.now_ns)
    homes = broker.pressed()
    assert homes == ["c"]
    assert not broker.has_room(homes)
    line.nodes.nodes["a"].clock.schedule()
    run(line.nodes, SECOND)

    assert broker.has_room(homes)
    broker.route(Message("other", b"x", 1, False, line.nodes.kernel.now_ns), line.nodes.kernel.now_ns)
    assert broker.pressed() == []
