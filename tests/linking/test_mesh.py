"""Nodes of a mesh under virtual time: links that come and go, pacing, ages, and who is let in."""

from __future__ import annotations

import pytest
from tests.node.mesh.doubles import NEEDS_PLAIN, SECOND, VirtualNodes

from timebound.config.values import NeighbourConfig
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, strategy_named
from timebound.core.matching.gradual import GradualSelection
from timebound.core.mesh.absence import Absence
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.options import MeshOptions
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.linking import codec as mesh_codec
from timebound.linking.link import LATENCY_WINDOW_NS
from timebound.linking.mesh import REPORT_NS, Mesh
from timebound.terms import Terms

MILLISECOND = 1_000_000
LATENCY_NS = 5 * MILLISECOND
TRIANGLE = {("a", "b"): 10_000, ("b", "c"): 10_000, ("a", "c"): 2_000}


def start(rates: dict[tuple[str, str], int], durable: tuple[str, ...] = ()) -> VirtualNodes:
    both_ways = {**rates, **{(target, source): rate for (source, target), rate in rates.items()}}
    options = MeshOptions(
        strategy_named(DEFAULT_STRATEGY), is_lossless=bool(durable), grace_ns=30 * SECOND if durable else 0
    )
    nodes = VirtualNodes(both_ways, options, LATENCY_NS, durable)
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


def test_a_link_is_up_when_its_hello_was_confirmed_and_its_latency_is_known() -> None:
    nodes = start({("a", "b"): 10_000})

    link = nodes.nodes["a"].mesh.links["b"]
    assert link.is_ready
    assert link.latency_ns == LATENCY_NS
    assert nodes.nodes["b"].mesh.figures()["links_up"] == 1


def test_a_message_is_as_old_on_arrival_as_it_is() -> None:
    nodes = start({("a", "b"): 10_000, ("b", "c"): 10_000})
    subscribe(nodes, "c", "s", Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=SECOND)))
    published_ns = nodes.kernel.now_ns
    publish(nodes, "a", 1_000)
    run(nodes, SECOND)

    # 1,000 bytes take 100 ms on each of two links.
    assert nodes.nodes["c"].arrived == [
        (published_ns + 2 * (100 * MILLISECOND + LATENCY_NS), "s", published_ns)
    ]


def test_a_paced_link_sends_no_faster_than_its_rate_and_loses_no_time() -> None:
    nodes = start({("a", "b"): 10_000})
    subscribe(nodes, "b", "s", Subscription(client_id="s", topic_filter="t"))
    began_ns = nodes.kernel.now_ns
    for _ in range(5):
        publish(nodes, "a", 1_000)
    run(nodes, SECOND)

    assert [sent.time_ns - began_ns for sent in nodes.sent] == [n * 100 * MILLISECOND for n in range(5)]


def test_a_loop_that_calls_early_does_not_stop_a_paced_link() -> None:
    nodes = start({("a", "b"): 10_000})
    subscribe(nodes, "b", "s", Subscription(client_id="s", topic_filter="t"))
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
    subscribe(
        nodes, "c", "s", Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=10 * SECOND))
    )
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
    subscribe(
        nodes, "c", "s", Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=10 * SECOND))
    )
    publish(nodes, "a", 1_000)
    # Sent by b after 105 ms, at c after 210 ms, confirmed after 215 ms.
    run(nodes, 212 * MILLISECOND)
    assert len(nodes.nodes["c"].arrived) == 1

    nodes.cut("b", "c")
    run(nodes, 5 * SECOND)

    assert len(nodes.nodes["c"].arrived) == 1
    assert nodes.nodes["c"].mesh.figures()["duplicates"] == 1


def start_with_durable_subscriber() -> VirtualNodes:
    """Brokers a and b; a durable session at b wants everything, and has been stored."""
    nodes = start({("a", "b"): 10_000}, durable=("b",))
    node = nodes.nodes["b"]
    session, _ = node.broker.connect("s", "", False, 3_600, 65_535, None, 1, nodes.kernel.now_ns)
    node.broker.subscribe(session, Subscription(client_id="s", topic_filter="t", qos=1), nodes.kernel.now_ns)
    node.clock.schedule()
    run(nodes, SECOND)
    node.commit()
    return nodes


def publish_once(nodes: VirtualNodes) -> None:
    """Publish a QoS 1 message at a, and let it reach b."""
    now_ns = nodes.kernel.now_ns
    nodes.nodes["a"].broker.route(Message("t", b"x", 1, False, now_ns, "p"), now_ns)
    nodes.nodes["a"].clock.schedule()
    run(nodes, SECOND)


def unconfirmed(nodes: VirtualNodes) -> list[Copy]:
    return nodes.nodes["a"].member.forwarder.links["b"].unconfirmed()


def test_a_copy_is_confirmed_once_the_copy_of_a_durable_session_is_stored() -> None:
    nodes = start_with_durable_subscriber()

    publish_once(nodes)
    assert len(nodes.nodes["b"].arrived) == 1
    assert len(unconfirmed(nodes)) == 1

    nodes.nodes["b"].commit()
    run(nodes, SECOND)
    assert unconfirmed(nodes) == []


def test_a_second_copy_is_not_confirmed_before_the_first_is_stored() -> None:
    nodes = start_with_durable_subscriber()
    publish_once(nodes)

    nodes.cut("a", "b")
    nodes.join("a", "b")
    run(nodes, SECOND)
    assert nodes.nodes["b"].mesh.figures()["duplicates"] == 1
    assert len(unconfirmed(nodes)) == 1

    nodes.nodes["b"].commit()
    run(nodes, SECOND)
    assert unconfirmed(nodes) == []
    assert len(nodes.nodes["b"].arrived) == 1


def hold_one(nodes: VirtualNodes) -> int:
    """Publish a message whose filters take b several steps, and let it arrive; return how many a took."""
    for number in range(80):
        where = " AND ".join([f"(a{one} <> {number} OR b{one} IS NULL)" for one in range(40)])
        for client_id in ("picky", "choosy"):
            terms = Terms(where=where, name=str(number))
            subscribe(nodes, "b", client_id, Subscription(client_id=client_id, topic_filter="t", terms=terms))
    now_ns = nodes.kernel.now_ns
    broker = nodes.nodes["a"].broker
    broker.route(Message("t", b"x", 1, False, now_ns, "p", user_properties=(("a", "1"),)), now_ns)
    steps = finish_matching(nodes, "a")
    run(nodes, SECOND)
    return steps


def finish_matching(nodes: VirtualNodes, name: str) -> int:
    """Match what is held at a broker; return in how many steps."""
    steps = 0
    broker = nodes.nodes[name].broker
    while broker.is_matching():
        steps += 1
        broker.wake(nodes.kernel.now_ns)
    nodes.nodes[name].clock.schedule()
    run(nodes, SECOND)
    return steps


def test_a_copy_that_meets_expensive_filters_is_matched_in_steps_and_confirmed_afterwards() -> None:
    nodes = start({("a", "b"): 1_000_000})
    steps = hold_one(nodes)
    assert steps > 1

    assert nodes.nodes["b"].broker.is_matching()
    assert nodes.nodes["b"].arrived == []
    assert len(unconfirmed(nodes)) == 1
    assert finish_matching(nodes, "b") == steps

    assert len(nodes.nodes["b"].arrived) == 2
    assert unconfirmed(nodes) == []
    nodes.nodes["b"].broker._check()


def test_a_second_copy_is_not_confirmed_before_the_first_has_been_matched() -> None:
    nodes = start({("a", "b"): 1_000_000}, durable=("b",))
    hold_one(nodes)
    nodes.cut("a", "b")
    nodes.join("a", "b")
    run(nodes, SECOND)
    assert nodes.nodes["b"].mesh.figures()["duplicates"] == 1
    assert len(unconfirmed(nodes)) == 1

    finish_matching(nodes, "b")
    nodes.nodes["b"].commit()
    run(nodes, SECOND)

    assert len(nodes.nodes["b"].arrived) == 2
    assert unconfirmed(nodes) == []


@NEEDS_PLAIN
def test_a_copy_that_causes_an_error_in_a_later_step_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = start({("a", "b"): 1_000_000})
    hold_one(nodes)

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(GradualSelection, "step", fail)
    finish_matching(nodes, "b")

    assert [str(fault.error) for fault in nodes.nodes["b"].broker.take_faults()] == ["a bug"]
    assert nodes.nodes["b"].arrived == []
    assert unconfirmed(nodes) == []


def test_a_copy_that_causes_an_error_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = start({("a", "b"): 10_000})
    node = nodes.nodes["b"]
    link = node.mesh.links["a"]
    faults: list[str] = []
    monkeypatch.setattr(node.clock, "fault", lambda name, error: faults.append(name))
    what = MeshMessage(Message("t", b"x", 1, False, 0, "p"), "a", 100, 1, 1)

    node.mesh.on_copy(link, Copy(what, ("a",), 1, None), 5, nodes.kernel.now_ns)

    assert faults == ["a copy from broker 'a'"]
    assert [reply.packet_id for reply in link.session.replies] == [5]


def test_waiting_for_storage_does_not_make_a_link_seem_slower() -> None:
    nodes = start_with_durable_subscriber()
    publish_once(nodes)
    link = nodes.nodes["a"].mesh.links["b"]
    run(nodes, 2 * LATENCY_WINDOW_NS)

    nodes.nodes["a"].mesh.patrol(nodes.kernel.now_ns)
    run(nodes, SECOND)
    assert len(unconfirmed(nodes)) == 1  # the hello has overtaken it
    nodes.nodes["b"].commit()
    run(nodes, SECOND)

    assert unconfirmed(nodes) == []
    assert link.latency_ns == LATENCY_NS


def test_a_link_that_comes_back_is_used_again() -> None:
    nodes = start(TRIANGLE)
    subscribe(nodes, "c", "s", Subscription(client_id="s", topic_filter="t"))
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
    subscribe(nodes, "c", "s", Subscription(client_id="s", topic_filter="t"))
    assert publish(nodes, "a") == 0

    nodes.join("b", "c")
    run(nodes, SECOND)

    assert publish(nodes, "a") == 1


def test_a_session_that_ends_takes_its_subscriptions_with_it() -> None:
    nodes = start({("a", "b"): 10_000})
    subscribe(nodes, "b", "s", Subscription(client_id="s", topic_filter="t"))
    node = nodes.nodes["b"]
    session = node.broker.session("s")
    assert session is not None

    node.broker.disconnect(session, session.connection, False, nodes.kernel.now_ns)
    node.clock.schedule()
    run(nodes, SECOND)

    assert publish(nodes, "a") == 0


def test_queueing_delays_are_reported_to_neighbours() -> None:
    nodes = start({("a", "b"): 10_000, ("b", "c"): 10_000})
    subscribe(nodes, "c", "s", Subscription(client_id="s", topic_filter="t"))
    for _ in range(20):
        publish(nodes, "b", 1_000)
    run(nodes, 5 * SECOND)

    nodes.nodes["b"].mesh.send_delay_reports()
    run(nodes, SECOND)

    assert nodes.nodes["a"].member.forwarder.links["b"].queue_delay_beyond_ns("c") > 100 * MILLISECOND


def test_only_neighbours_that_log_in_as_configured_are_let_in() -> None:
    nodes = start({("b", "d"): 10_000})
    mesh = nodes.nodes["b"].mesh
    mesh.neighbours["e"] = NeighbourConfig(name="e", accept_user="eve")

    assert mesh.admit("e", "eve", is_anonymous=False) == ""
    assert "not a neighbour" in mesh.admit("x", "x", is_anonymous=True)
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
    subscribe(nodes, "b", "s", Subscription(client_id="s", topic_filter="t"))
    mesh = nodes.nodes["a"].mesh
    mesh.links["b"].packet_size_max = 500

    publish(nodes, "a", 1_000)
    publish(nodes, "a", 300)
    run(nodes, SECOND)

    assert len(nodes.sent) == 1
    assert nodes.nodes["a"].broker.account.dropped["too_large"] == 1


@NEEDS_PLAIN
def test_delay_reports_are_sent_every_half_minute() -> None:
    nodes = start({("a", "b"): 10_000})
    mesh = nodes.nodes["a"].mesh
    topics: list[str] = []

    def record(topic: str, payload: bytes) -> bool:
        topics.append(topic)
        return True

    mesh.links["b"].send_control = record  # type: ignore[method-assign]
    began_ns = nodes.kernel.now_ns
    for seconds in range(61):
        mesh.patrol(began_ns + seconds * SECOND)

    assert REPORT_NS == 30 * SECOND
    assert topics == [mesh_codec.DELAY_REPORT_TOPIC] * 2


def test_an_advertisement_that_cannot_be_read_is_counted_and_the_link_goes_on() -> None:
    nodes = start({("a", "b"): 10_000})
    mesh = nodes.nodes["a"].mesh

    mesh.on_advertisements(
        mesh.links["b"], b'[[0,"x","x","",1,1,[1,0,0]],[0,"b","z","",1,9,[0.1,0.0,0.0]]]', SECOND
    )

    assert mesh.figures()["refused"] == 1
    note = (
        "broker 'b' (mesh protocol 0) sent what this broker cannot use: advertisement: link from 'x' leads to"
    )
    assert nodes.nodes["a"].clock.notes[-1].startswith(note)
    assert mesh.member.replica.link_state.neighbours("b") == ["a", "z"]


def test_an_advertisement_of_a_later_version_reaches_brokers_beyond_one_that_does_not_know_it() -> None:
    nodes = start({("a", "b"): 10_000, ("b", "c"): 10_000})
    mesh = nodes.nodes["a"].mesh

    mesh.links["b"].send_control(mesh_codec.ADVERTISEMENTS_TOPIC, b'[[9,"w","y","",1,1,{"of":["later"]}]]')
    run(nodes, SECOND)

    heard = {
        one.key[1]: one.wire for one in nodes.nodes["c"].mesh.member.replica.snapshot() if one.is_opaque()
    }
    assert heard == {"w": b'[9,"w","y","",1,1,{"of":["later"]}]'}


def test_a_broker_that_is_gone_is_forgotten_and_one_that_is_cut_off_is_not() -> None:
    nodes = start({("a", "b"): 10_000, ("a", "c"): 10_000, ("c", "d"): 10_000})
    for name in "bcd":
        subscribe(nodes, name, f"s-{name}", Subscription(client_id=f"s-{name}", topic_filter="t"))
    mesh = nodes.nodes["a"].mesh
    mesh.member.absence = Absence(mesh.member.replica, 60 * SECOND)
    nodes.cut("a", "b")
    nodes.cut("a", "c")
    mesh.patrol(nodes.kernel.now_ns)

    figures = mesh.figures()
    assert (figures["gone"], figures["cut_off"]) == (1, 2)
    assert publish(nodes, "a") == 3

    mesh.patrol(nodes.kernel.now_ns + 60 * SECOND)
    figures = mesh.figures()
    assert (figures["gone"], figures["cut_off"]) == (0, 2)
    assert publish(nodes, "a") == 2, "b is forgotten"
    text = "broker 'b' is gone: its links and subscriptions are forgotten (mesh.forget_after)"
    assert text in nodes.nodes["a"].clock.notes


def test_a_subscription_too_large_to_advertise_is_refused_with_its_size() -> None:
    nodes = start({("a", "b"): 10_000})
    mesh = nodes.nodes["a"].mesh
    wanted = Subscription(client_id="s", topic_filter="t" * 400)
    assert mesh.refusal(wanted) == ""

    mesh.links["b"].packet_size_max = 500

    assert mesh.refusal(wanted).endswith("bytes (packet_size_max of a link: 500)")
    assert mesh.refusal(Subscription(client_id="s", topic_filter="t")) == ""


def test_an_advertisement_too_large_for_a_neighbour_is_left_out_and_logged() -> None:
    nodes = start({("a", "b"): 10_000})
    nodes.nodes["a"].mesh.links["b"].packet_size_max = 300

    subscribe(nodes, "a", "s", Subscription(client_id="s", topic_filter="t" * 400))
    subscribe(nodes, "a", "s", Subscription(client_id="s", topic_filter="u"))

    assert "at 'a' cannot be advertised to 'b': too large for a packet" in nodes.nodes["a"].clock.notes[-1]
    assert nodes.nodes["a"].mesh.figures()["refused"] == 1
    assert [one.topic_filter for one in nodes.nodes["b"].member.table.subscriptions()] == ["u"]


@NEEDS_PLAIN
def test_an_error_while_a_link_is_served_closes_it_and_its_copies_go_another_way() -> None:
    nodes = start(TRIANGLE)
    subscribe(
        nodes, "c", "s", Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=10 * SECOND))
    )
    mesh = nodes.nodes["a"].mesh
    faults: list[str] = []
    nodes.nodes["a"].clock.fault = lambda name, error: faults.append(name)  # type: ignore[method-assign]

    def fail(now_ns: int) -> None:
        raise RuntimeError("a bug")

    mesh.links["b"].flush = fail  # type: ignore[method-assign]
    publish(nodes, "a")
    run(nodes, 5 * SECOND)

    assert faults == ["the link to broker 'b'"]
    assert hops(nodes) == [("a", "c")]
    assert "b" not in mesh.links


def test_a_second_connection_of_a_neighbour_replaces_the_first() -> None:
    nodes = start({("a", "b"): 10_000})
    mesh: Mesh = nodes.nodes["a"].mesh
    first = mesh.links["b"]

    nodes.join("a", "b")
    run(nodes, SECOND)

    assert mesh.links["b"] is not first
    assert mesh.figures()["links_up"] == 1
    mesh.closed(first)  # its end comes late, and is no end of the new one
    assert mesh.figures()["links_up"] == 1


def test_the_strategy_of_a_link_can_be_changed() -> None:
    nodes = start({("a", "b"): 10_000})
    mesh = nodes.nodes["a"].mesh

    mesh.set_strategy("b", "fifo", -1.0, 0)

    assert mesh.strategies == {"b": ("fifo", -1.0)}
    assert mesh.member.forwarder.links["b"].queue.strategy.name == "fifo"
    with pytest.raises(ValueError, match="'best'"):
        mesh.set_strategy("b", "best", -1.0, 0)


def test_each_name_counts_at_other_brokers_until_it_ends() -> None:
    nodes = start({("a", "b"): 10_000})
    for name, where in (("plain", "unit IS NULL"), ("never", "unit = 'K'"), ("", "")):
        terms = Terms(name=name, where=where, deadline_ns=10 * SECOND if name else 0)
        subscribe(nodes, "b", "s", Subscription(client_id="s", topic_filter="t", terms=terms))

    assert publish(nodes, "a") == 2
    run(nodes, SECOND)
    assert len(nodes.sent) == 1, "one copy for all names of a home"

    node = nodes.nodes["b"]
    session = node.broker.session("s")
    assert session is not None
    assert node.broker.unsubscribe(session, "t", nodes.kernel.now_ns, "") == 0
    node.clock.schedule()
    run(nodes, SECOND)
    assert publish(nodes, "a") == 1
    assert node.broker.unsubscribe(session, "t", nodes.kernel.now_ns) == 0
    node.clock.schedule()
    run(nodes, SECOND)
    assert publish(nodes, "a") == 0
