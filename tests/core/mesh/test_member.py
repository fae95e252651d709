"""Brokers as members of a mesh: what they tell each other, and what becomes of messages between them."""

from __future__ import annotations

import pytest

from timebound.core.account.account import Account
from timebound.core.broker import Broker
from timebound.core.distribution import MISSED_MAX
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.mesh.member import ADVERTISE_NS, Member
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.options import MeshOptions
from timebound.core.predicate import attributes as attributes_module
from timebound.core.predicate.values import read_json
from timebound.core.values.access import AccessList
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms
from timebound.version import is_compiled

FAST = LinkDelay(0.001, 1e-8)
SLOW = LinkDelay(0.1, 1e-4)


class Mesh:
    """Members that hear each other at once; what arrives at a home is noted, and so is every send."""

    def __init__(self, *links: tuple[str, str]) -> None:
        self.members: dict[str, Member] = {}
        self.indexes: dict[str, WatchedIndex] = {}
        self.arrived: list[tuple[str, int]] = []
        self.sent: list[tuple[str, str, Copy]] = []
        self.links = [*links, *((target, source) for source, target in links)]
        for name in sorted({name for link in links for name in link}):
            self.start(name, 1)
        for source, target in self.links:
            self.members[source].add_neighbour(target, FAST)
        for source, target in self.links:
            self.members[source].link_up(target, 0)
        self.settle()

    def start(self, name: str, started_ns: int) -> None:
        self.indexes[name] = WatchedIndex()
        account = MeshAccount(pairs=Account())
        options = MeshOptions(strategy_named(DEFAULT_STRATEGY))
        self.members[name] = Member(name, options, self.indexes[name], account, started_ns)

    def settle(self, now_ns: int = 0) -> None:
        """Let everything that is said be heard, and everything that is sent arrive."""
        is_quiet = False
        while not is_quiet:
            is_quiet = True
            for name, member in self.members.items():
                for send in member.take_advertisements():
                    self.members[send.neighbour].receive_advertisement(name, send.advertisement)
                    is_quiet = False
                for send in member.take_sends():
                    self.sent.append((name, send.neighbour, send.copy))
                    member.link_free(send.neighbour, now_ns)
                    if self.members[send.neighbour].receive(send.copy, now_ns):
                        self.arrived.append((send.neighbour, send.copy.what.number))
                    is_quiet = False

    def fail(self, source: str, target: str, now_ns: int = 0) -> None:
        self.members[source].link_down(target, now_ns)
        self.members[target].link_down(source, now_ns)
        self.settle(now_ns)

    def hops(self) -> list[tuple[str, str]]:
        return [(source, target) for source, target, _ in self.sent]


def message(number: int = 1, topic: str = "t") -> Message:
    return Message(topic, b"x" * 100, 0, False, 0, "p", sequence=number)


def pairs_of(member: Member) -> Account:
    assert member.account.pairs is not None
    return member.account.pairs


def test_a_message_finds_its_subscriber_two_brokers_away() -> None:
    mesh = Mesh(("a", "b"), ("b", "c"))
    mesh.indexes["c"].insert(
        Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=10**9, price=2.0))
    )
    mesh.settle()

    assert mesh.members["a"].publish(message(), 0) == 1
    mesh.settle()

    assert mesh.arrived == [("c", 1)]
    assert mesh.hops() == [("a", "b"), ("b", "c")]
    assert [mesh.members[name].received for name in "abc"] == [0, 1, 1]


def test_what_nobody_elsewhere_wants_stays() -> None:
    mesh = Mesh(("a", "b"))
    mesh.indexes["a"].insert(Subscription(client_id="s", topic_filter="t"))
    mesh.settle()

    assert mesh.members["a"].publish(message(), 0) == 0
    assert mesh.members["a"].publish(message(2, "other"), 0) == 0
    mesh.settle()

    assert mesh.sent == []


def test_an_ended_subscription_draws_no_more_messages() -> None:
    mesh = Mesh(("a", "b"))
    subscription = Subscription(client_id="s", topic_filter="t")
    mesh.indexes["b"].insert(subscription)
    mesh.settle()
    mesh.indexes["b"].remove(subscription)
    mesh.settle()

    assert mesh.members["a"].publish(message(), 0) == 0


def test_in_a_triangle_nothing_arrives_twice_and_the_direct_way_is_taken() -> None:
    mesh = Mesh(("a", "b"), ("b", "c"), ("a", "c"))
    mesh.indexes["b"].insert(Subscription(client_id="s", topic_filter="t"))
    mesh.indexes["c"].insert(Subscription(client_id="s", topic_filter="t"))
    mesh.settle()

    for number in range(1, 6):
        mesh.members["a"].publish(message(number), 0)
    mesh.settle()

    assert sorted(mesh.arrived) == sorted((home, number) for home in "bc" for number in range(1, 6))
    assert set(mesh.hops()) == {("a", "b"), ("a", "c")}


def test_when_a_link_fails_the_other_way_is_taken_and_taken_back() -> None:
    mesh = Mesh(("a", "b"), ("b", "c"), ("a", "c"))
    mesh.indexes["c"].insert(Subscription(client_id="s", topic_filter="t"))
    mesh.settle()

    mesh.fail("a", "c")
    mesh.members["a"].publish(message(1), 0)
    mesh.settle()
    assert mesh.hops() == [("a", "b"), ("b", "c")]

    mesh.members["a"].link_up("c", 0)
    mesh.members["c"].link_up("a", 0)
    mesh.settle()
    mesh.members["a"].publish(message(2), 0)
    mesh.settle()
    assert mesh.hops()[2:] == [("a", "c")]


def test_without_any_way_the_pair_is_accounted_where_it_ends() -> None:
    mesh = Mesh(("a", "b"))
    mesh.indexes["b"].insert(Subscription(client_id="s", topic_filter="t", terms=Terms(penalty=0.5)))
    mesh.settle()
    mesh.fail("a", "b")

    mesh.members["a"].publish(message(), 0)

    account = pairs_of(mesh.members["a"])
    assert (account.matched, account.dropped["disconnected"], account.paid_micro) == (1, 1, 500_000)


def test_what_was_not_confirmed_goes_another_way_and_its_home_knows_it() -> None:
    mesh = Mesh(("a", "b"), ("b", "c"), ("a", "c"))
    mesh.indexes["c"].insert(Subscription(client_id="s", topic_filter="t"))
    mesh.settle()
    a, c = mesh.members["a"], mesh.members["c"]
    a.forwarder.links["c"].open(10)
    a.publish(message(), 0)
    [send] = a.take_sends()
    assert c.receive(send.copy, 0)  # it arrived, but the link fails before a hears of it

    assert a.link_down("c", 0) == 1
    mesh.settle()

    assert mesh.hops() == [("a", "b"), ("b", "c")]
    assert mesh.arrived == []
    assert (a.resent, c.account.duplicates) == (1, 1)


def test_a_broker_that_comes_back_learns_and_tells_everything_again() -> None:
    mesh = Mesh(("a", "b"), ("b", "c"))
    mesh.indexes["a"].insert(Subscription(client_id="s1", topic_filter="t"))
    mesh.indexes["c"].insert(Subscription(client_id="old", topic_filter="t"))
    mesh.settle()
    mesh.members["b"].link_down("c", 0)
    mesh.start("c", 2)
    mesh.members["c"].add_neighbour("b", FAST)
    mesh.indexes["c"].insert(Subscription(client_id="new", topic_filter="t"))

    mesh.members["b"].link_up("c", 0)
    mesh.members["c"].link_up("b", 0)
    mesh.settle()

    known = {
        name: sorted(one.client_id for one in member.table.subscriptions())
        for name, member in mesh.members.items()
    }
    assert known == {"a": ["new@c"], "b": ["new@c", "s1@a"], "c": ["s1@a"]}  # all but their own
    mesh.members["c"].publish(message(), 0)
    mesh.settle()
    assert mesh.arrived == [("a", 1)]


def test_a_measured_delay_is_advertised_at_most_once_a_second() -> None:
    mesh = Mesh(("a", "b"))
    a, b = mesh.members["a"], mesh.members["b"]
    a.measured("b", SLOW, ADVERTISE_NS)
    mesh.settle()
    a.measured("b", FAST, ADVERTISE_NS + 1)
    mesh.settle()
    heard = b.replica.link_state.delay("a", "b")
    assert heard is not None
    assert heard.mean_s_per_kb == SLOW.mean_s_per_kb

    a.wake(2 * ADVERTISE_NS)
    mesh.settle()

    heard = b.replica.link_state.delay("a", "b")
    assert heard is not None
    assert heard.mean_s_per_kb == FAST.mean_s_per_kb


def test_a_slow_link_is_gone_round() -> None:
    mesh = Mesh(("a", "b"), ("b", "c"), ("a", "c"))
    mesh.indexes["c"].insert(Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=10**9)))
    mesh.members["a"].measured("c", SLOW, ADVERTISE_NS)
    mesh.settle()

    mesh.members["a"].publish(message(), 0)
    mesh.settle()

    assert mesh.hops() == [("a", "b"), ("b", "c")]


def test_a_broker_is_woken_when_a_copy_for_another_broker_is_late() -> None:
    mesh = Mesh(("a", "b"))
    mesh.indexes["b"].insert(
        Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=10**9, price=2.0))
    )
    mesh.settle()
    member = mesh.members["a"]
    broker = Broker(BrokerLimits(), AccessList([]), False, mesh.indexes["a"])
    broker.join_mesh(member)
    assert broker.next_wakeup_ns() is None
    for number in (1, 2):
        broker.route(message(number), 0)
    assert len(member.take_sends()) == 1  # and the link is never free again

    wakeup_ns = broker.next_wakeup_ns()
    assert wakeup_ns is not None
    assert 0.9e9 < wakeup_ns <= 10**9
    broker.wake(wakeup_ns)

    assert member.forwarder.waiting_messages() == 0
    assert sum(pairs_of(member).dropped.values()) == 1
    assert broker.next_wakeup_ns() is None


@pytest.mark.skipif(is_compiled(), reason="counts calls of a function that compiled code calls directly")
def test_a_payload_is_decoded_once_at_each_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def read(payload: bytes) -> object:
        decoded.append(payload)
        return read_json(payload)

    monkeypatch.setattr(attributes_module, "read_json", read)
    mesh = Mesh(("a", "b"), ("b", "c"))
    for name in "abc":
        mesh.indexes[name].insert(Subscription(client_id="s", topic_filter="t", terms=Terms(where="x > 1")))
    mesh.settle()
    brokers = {
        name: Broker(BrokerLimits(), AccessList([]), False, index) for name, index in mesh.indexes.items()
    }
    for name, broker in brokers.items():
        broker.join_mesh(mesh.members[name])
        broker.connect("s", "", True, 0, 10, None, 1, 0)

    brokers["a"].route(Message("t", b'{"x": 2}', 0, False, 0, "p"), 0)
    [to_b] = mesh.members["a"].take_sends()
    assert len(decoded) == 1  # for the client at a, and for two other brokers
    message = Message("t", b'{"x": 2}', 0, False, 0, "p")
    received = Copy(MeshMessage(message, "a", 200, 1, 1), to_b.copy.via, 1, to_b.copy.targets)
    brokers["b"].receive_copy(received, brokers["b"].open_link("a", 2), 0, 0)

    assert len(decoded) == 2  # for the client at b, and for c
    assert [send.neighbour for send in mesh.members["b"].take_sends()] == ["c"]
    session = brokers["b"].session("s")
    assert session is not None
    assert session.queued_messages() == 1


@pytest.mark.skipif(is_compiled(), reason="counts calls of a function that compiled code calls directly")
def test_notices_between_matching_here_and_for_other_brokers_cost_no_second_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[bytes] = []

    def read(payload: bytes) -> object:
        decoded.append(payload)
        return read_json(payload)

    monkeypatch.setattr(attributes_module, "read_json", read)
    mesh = Mesh(("a", "b"))
    broker = Broker(BrokerLimits(), AccessList([]), False, mesh.indexes["a"])
    broker.join_mesh(mesh.members["a"])
    session, _ = broker.connect("s", "", True, 60, 10, None, 1, 0)
    wanted = Terms(where="x > 1", notify_missed=True)
    broker.subscribe(session, Subscription(client_id="s", topic_filter="t", terms=wanted), 0)
    mesh.indexes["b"].insert(Subscription(client_id="far", topic_filter="t", terms=Terms(where="x > 1")))
    mesh.settle()
    broker.disconnect(session, 1, True, 0)
    watcher, _ = broker.connect("w", "", True, 60, 10, None, 2, 0)
    broker.subscribe(watcher, Subscription(client_id="w", topic_filter="$timebound/drops/#"), 0)

    for _ in range(MISSED_MAX + 1):
        broker.route(Message("t", b'{"x": 2}', 0, False, 0, "p"), 0)

    assert watcher.queued_messages() == MISSED_MAX + 1  # the last one published them
    assert len(decoded) == MISSED_MAX + 1


def test_an_index_shared_with_the_mesh_counts_and_advertises_its_own_subscriptions_only() -> None:
    mesh = Mesh(("a", "b"), ("b", "c"))
    mesh.indexes["a"].insert(Subscription(client_id="s", topic_filter="t"))
    mesh.indexes["c"].insert(Subscription(client_id="s", topic_filter="t", terms=Terms(deadline_ns=10**9)))
    mesh.settle()

    assert [len(mesh.indexes[name]) for name in "abc"] == [1, 0, 1]
    assert [len(mesh.members[name].table) for name in "abc"] == [1, 2, 1]
    assert [one.home for one in mesh.indexes["b"].match("t").remote] == ["a", "c"]
    assert all(not index.changes for index in mesh.indexes.values())
    for index in mesh.indexes.values():
        index._check()
