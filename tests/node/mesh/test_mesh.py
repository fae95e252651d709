"""Nodes of a mesh under virtual time: links that come and go, pacing, ages, and who is let in.

Then `[mesh]`: each of its keys changes what is sent, and where.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.node.mesh.doubles import SECOND, VirtualNodes

from timebound.config.mesh import NeighbourConfig
from timebound.core.broker import Broker
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, strategy_named
from timebound.core.mesh.flooding import LINK, SUBSCRIPTION, LinkStateAdvertisement
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.mesh.member import COPY_BYTES, Member
from timebound.core.mesh.options import MeshOptions
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.access import AccessList
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.node.config import parse_config
from timebound.node.mesh.mesh import REPORT_NS, Timer, join_mesh

PATH = Path("/etc/t.toml")
MILLISECOND = 1_000_000
LATENCY_NS = 5 * MILLISECOND
TRIANGLE = {("a", "b"): 10_000, ("b", "c"): 10_000, ("a", "c"): 2_000}


def start(rates: dict[tuple[str, str], int]) -> VirtualNodes:
    both_ways = {**rates, **{(target, source): rate for (source, target), rate in rates.items()}}
    nodes = VirtualNodes(both_ways, MeshOptions(strategy_named(DEFAULT_STRATEGY)), LATENCY_NS)
    run(nodes, SECOND)
    return nodes


def run(nodes: VirtualNodes, duration_ns: int) -> None:
    nodes.kernel.run(nodes.kernel.now_ns + duration_ns)


def subscribe(nodes: VirtualNodes, name: str, client_id: str, subscription: Subscription) -> None:
    node = nodes.nodes[name]
    session = node.broker.session(client_id)
    if session is None:
        session, _ = node.broker.connect(
            client_id, "", True, 0, 65_535, None, len(client_id), nodes.kernel.now_ns
        )
    assert node.broker.subscribe(session, subscription, nodes.kernel.now_ns) < 0x80
    node.clock.schedule()
    run(nodes, SECOND)


def publish(nodes: VirtualNodes, name: str, size: int = 900) -> int:
    """Publish a message that is so large on the wire; the count of those who want it."""
    node = nodes.nodes[name]
    now_ns = nodes.kernel.now_ns
    count = node.broker.route(Message("t", b"x" * (size - 109), 0, False, now_ns, "p"), now_ns)
    node.clock.schedule()
    return count


def hops(nodes: VirtualNodes) -> list[tuple[str, str]]:
    return [(sent.source, sent.target) for sent in nodes.sent]


def test_a_link_is_up_when_its_greeting_was_answered_and_its_latency_is_known() -> None:
    nodes = start({("a", "b"): 10_000})

    link = nodes.nodes["a"].mesh.links["b"]
    assert link.is_ready
    assert link.latency_ns == LATENCY_NS
    assert nodes.nodes["b"].mesh.figures()["links_up"] == 1


def test_a_message_is_as_old_on_arrival_as_it_is() -> None:
    nodes = start({("a", "b"): 10_000, ("b", "c"): 10_000})
    subscribe(nodes, "c", "s", Subscription("s", "t", deadline_ns=SECOND))
    published_ns = nodes.kernel.now_ns
    publish(nodes, "a", 1_000)
    run(nodes, SECOND)

    # 1,000 bytes take 100 ms on each of two links.
    assert nodes.nodes["c"].arrived == [
        (published_ns + 2 * (100 * MILLISECOND + LATENCY_NS), "s", published_ns)
    ]


def test_a_paced_link_sends_no_faster_than_its_rate_and_loses_no_time() -> None:
    nodes = start({("a", "b"): 10_000})
    subscribe(nodes, "b", "s", Subscription("s", "t"))
    began_ns = nodes.kernel.now_ns
    for _ in range(5):
        publish(nodes, "a", 1_000)
    run(nodes, SECOND)

    assert [sent.time_ns - began_ns for sent in nodes.sent] == [n * 100 * MILLISECOND for n in range(5)]


def test_a_loop_that_calls_early_does_not_stop_a_paced_link() -> None:
    nodes = start({("a", "b"): 10_000})
    subscribe(nodes, "b", "s", Subscription("s", "t"))
    publish(nodes, "a", 1_000)
    publish(nodes, "a", 1_000)
    run(nodes, 99 * MILLISECOND)

    mesh = nodes.nodes["a"].mesh
    mesh._on_time(mesh.links["b"])
    assert len(nodes.sent) == 1

    run(nodes, SECOND)
    assert len(nodes.sent) == 2


def test_what_was_on_a_link_that_fails_goes_another_way_and_arrives_once() -> None:
    nodes = start(TRIANGLE)
    subscribe(nodes, "c", "s", Subscription("s", "t", deadline_ns=10 * SECOND))
    publish(nodes, "a", 1_000)
    run(nodes, 150 * MILLISECOND)  # between b and c
    assert hops(nodes) == [("a", "b"), ("b", "c")]

    nodes.cut("b", "c")
    run(nodes, 5 * SECOND)

    # b turns it round: the only way left leads back over a.
    assert hops(nodes)[2:] == [("b", "a"), ("a", "c")]
    assert [client_id for _, client_id, _ in nodes.nodes["c"].arrived] == ["s"]
    assert nodes.nodes["b"].mesh.figures()["resent"] == 1


def test_a_copy_that_arrived_before_its_link_failed_is_not_given_out_again() -> None:
    nodes = start(TRIANGLE)
    subscribe(nodes, "c", "s", Subscription("s", "t", deadline_ns=10 * SECOND))
    publish(nodes, "a", 1_000)
    # Sent by b after 105 ms, at c after 210 ms, confirmed after 215 ms.
    run(nodes, 212 * MILLISECOND)
    assert len(nodes.nodes["c"].arrived) == 1

    nodes.cut("b", "c")
    run(nodes, 5 * SECOND)

    assert len(nodes.nodes["c"].arrived) == 1
    assert nodes.nodes["c"].mesh.figures()["duplicates"] == 1


def test_a_link_that_comes_back_is_used_again() -> None:
    nodes = start(TRIANGLE)
    subscribe(nodes, "c", "s", Subscription("s", "t"))
    nodes.cut("b", "c")
    run(nodes, SECOND)
    publish(nodes, "a")
    run(nodes, 5 * SECOND)
    assert hops(nodes) == [("a", "c")]

    nodes.join("b", "c")
    run(nodes, SECOND)
    publish(nodes, "a")
    run(nodes, 5 * SECOND)

    assert hops(nodes)[1:] == [("a", "b"), ("b", "c")]


def test_what_was_subscribed_while_a_link_was_down_is_learned_when_it_is_up() -> None:
    nodes = start({("a", "b"): 10_000, ("b", "c"): 10_000})
    nodes.cut("b", "c")
    subscribe(nodes, "c", "s", Subscription("s", "t"))
    assert publish(nodes, "a") == 0

    nodes.join("b", "c")
    run(nodes, SECOND)

    assert publish(nodes, "a") == 1


def test_a_session_that_ends_takes_its_subscriptions_with_it() -> None:
    nodes = start({("a", "b"): 10_000})
    subscribe(nodes, "b", "s", Subscription("s", "t"))
    node = nodes.nodes["b"]
    session = node.broker.session("s")
    assert session is not None

    node.broker.disconnect(session, session.connection, False, nodes.kernel.now_ns)
    node.clock.schedule()
    run(nodes, SECOND)

    assert publish(nodes, "a") == 0


def test_waits_are_reported_to_neighbours() -> None:
    nodes = start({("a", "b"): 10_000, ("b", "c"): 10_000})
    subscribe(nodes, "c", "s", Subscription("s", "t"))
    for _ in range(20):
        publish(nodes, "b", 1_000)
    run(nodes, 5 * SECOND)

    nodes.nodes["b"].mesh.send_delay_reports()
    run(nodes, SECOND)

    assert nodes.nodes["a"].member.forwarder.links["b"].queue_delay_beyond_ns("c") > 100 * MILLISECOND


def test_a_broker_whose_neighbours_never_came_reports_no_waits() -> None:
    config = parse_config("node_name = 'a'\n[[neighbours]]\nname = 'b'\n", PATH)
    index = WatchedIndex()
    mesh = join_mesh(config, Broker(BrokerLimits(), AccessList([]), False, index), index, StillClock())

    mesh.patrol(2 * REPORT_NS)

    assert mesh.member.forwarder.delay_report() == {}


def test_only_neighbours_that_log_in_as_configured_are_let_in() -> None:
    nodes = start({("b", "d"): 10_000})
    mesh = nodes.nodes["b"].mesh
    mesh.neighbours["e"] = NeighbourConfig(name="e", accept_user="eve")

    assert mesh.admit("e", "eve", is_anonymous=False) == ""
    assert "no neighbour" in mesh.admit("x", "x", is_anonymous=True)
    assert "must log in as user 'eve'" in mesh.admit("e", "e", is_anonymous=False)
    assert mesh.admit("e", "", is_anonymous=True) == ""


def test_of_two_links_opened_at_once_that_of_the_lesser_name_stays() -> None:
    nodes = start({("b", "d"): 10_000})
    lesser, greater = nodes.nodes["b"].mesh, nodes.nodes["d"].mesh

    assert "opened a link" in lesser.admit("d", "d", is_anonymous=False)
    assert not lesser.gives_way("d")
    assert greater.admit("b", "b", is_anonymous=False) == ""
    assert greater.gives_way("b")


def test_what_is_larger_than_the_neighbour_takes_is_dropped_and_the_link_goes_on() -> None:
    nodes = start({("a", "b"): 10_000})
    subscribe(nodes, "b", "s", Subscription("s", "t"))
    mesh = nodes.nodes["a"].mesh
    mesh.links["b"].packet_size_max = 500

    publish(nodes, "a", 1_000)
    publish(nodes, "a", 300)
    run(nodes, SECOND)

    assert len(nodes.sent) == 1
    assert nodes.nodes["a"].broker.account.dropped["too_large"] == 1


class StillClock:
    """A clock that stands: nothing is called."""

    def now_ns(self) -> int:
        return 1

    def call_at_ns(self, when_ns: int, callback: Callable[[], None]) -> Timer:
        raise AssertionError("nothing is sent")

    def schedule(self) -> None:
        pass


def member_of(mesh: str) -> Member:
    """Broker a, linked with b and c, which lead to d; c's way is twice as long. A client of d wants `t`."""
    config = parse_config(
        f"node_name = 'a'\n{mesh}[[neighbours]]\nname = 'b'\n[[neighbours]]\nname = 'c'\n", PATH
    )
    index = WatchedIndex()
    broker = Broker(BrokerLimits(), AccessList([]), False, index)
    member = join_mesh(config, broker, index, StillClock()).member
    for name, delay_s in (("b", 0.05), ("c", 0.1)):
        member.measured(name, LinkDelay(delay_s, 0.0001), 0)
        member.link_up(name, 0)
        member.receive_advertisement(
            name, LinkStateAdvertisement((LINK, name, "d", ""), (1, 1), LinkDelay(delay_s, 0.0001))
        )
    wanted = MeshSubscription("s@d", "d", "t", deadline_ns=2 * SECOND)
    member.receive_advertisement(
        "b", LinkStateAdvertisement((SUBSCRIPTION, "d", "s@d", "t"), (1, 2), subscription=wanted)
    )
    return member


def kilobytes(size: int, topic: str = "t") -> Message:
    return Message(topic, b"x" * (1_024 * size - 8 - len(topic) - COPY_BYTES), 0, False, 0)


def sends_of(member: Member) -> list[str]:
    return [send.neighbour for send in member.take_sends()]


def test_routing_is_late_unless_the_single_path_is_asked_for() -> None:
    late, single = member_of(""), member_of("[mesh]\nrouting = 'single-path'\n")
    for member in (late, single):
        for _ in range(3):
            member.publish(kilobytes(1), 0)

    assert sends_of(late) == ["b", "c"]
    assert sends_of(single) == ["b"]
    assert [member.forwarder.waiting_messages() for member in (late, single)] == [2, 2]  # one waits for both
    assert len(single.forwarder.links["c"].queue) == 0


def test_epsilon_decides_what_is_hopeless() -> None:
    # 20 KB take 2 s to d over b, of 2 s: an even chance.
    assert sends_of(publish_one(member_of(""), 19)) == ["b"]
    assert sends_of(publish_one(member_of("[mesh]\nepsilon = 0.5\n"), 20)) == []
    assert sends_of(publish_one(member_of("[mesh]\nepsilon = 0.4\n"), 20)) == ["b"]


def publish_one(member: Member, size: int) -> Member:
    member.publish(kilobytes(size), 0)
    return member


def test_preference_leaves_a_message_to_a_way_that_promises_more() -> None:
    # Over c 10 KB take 2 s, of 2 s: an even chance. b, when it is free again, promises nearly all.
    def second_over(mesh: str) -> list[str]:
        member = member_of(mesh)
        member.publish(kilobytes(1), 0)
        member.publish(kilobytes(10), 0)
        return sends_of(member)

    assert second_over("[mesh]\npreference = 0.0\n") == ["b", "c"]
    assert second_over("[mesh]\npreference = 0.9\n") == ["b"]


def test_waiting_share_is_what_reported_waits_count() -> None:
    def sent_over(mesh: str) -> list[str]:
        member = member_of(mesh)
        member.forwarder.receive_delay_report("b", {"d": 3 * SECOND})
        member.forwarder.receive_delay_report("c", {"d": 3 * SECOND})
        return sends_of(publish_one(member, 1))

    assert sent_over("[mesh]\nwaiting_share = 0.1\n") == ["b"]
    assert sent_over("[mesh]\nwaiting_share = 1.0\n") == []


def test_thrift_is_off_unless_it_is_asked_for() -> None:
    def sent_over(mesh: str) -> list[str]:
        member = member_of(mesh + "waiting_share = 0.0\n")
        for name in "bc":
            member.forwarder.receive_delay_report(name, {"d": SECOND})
            member.forwarder.links[name].note_worth(1e6, 1_024.0, float(SECOND))
        return sends_of(publish_one(member, 1))

    assert sent_over("[mesh]\n") == ["b"]
    assert sent_over("[mesh]\nthrift = 1\n") == []
