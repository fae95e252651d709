"""The account: every pair counted once when it matches and once when its outcome is known.

The property runs a broker through traffic with and without limits, slow and fast links, answers right
and wrong, lost connections, expiry and changed settings, and adds up after every step.
"""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.broker_doubles import Node, Peer

from timebound.core.account.account import Account, pairs
from timebound.core.account.trace_log import TraceRecord
from timebound.core.link.scheduling import STRATEGY_NAMES, Scheduling
from timebound.core.sessions.session import PUBACK, PUBCOMP, PUBREC, PUBREL, Session
from timebound.core.values.delay import link_of_rate
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import RELEASED, Delivery, Message
from timebound.core.values.subscription import MICRO, Subscription
from timebound.records import Outcome, Reason
from timebound.terms import Terms
from timebound.units import MILLISECOND

PRICES = (0.0, 0.1, 1.0, 2.5)
TOPICS = ("a", "b", "c/d")


def delivery_of(
    *wanted: Subscription, qos: int = 0, sequence: int = 1, timeout_ns: int = 0, sent_ns: int = 0
) -> Delivery:
    message = Message("t", b"x", qos, False, 0, "p", timeout_ns=timeout_ns, sequence=sequence)
    delivery = Delivery(message, qos, False, subscription=wanted[0])
    delivery.others = wanted[1:]
    delivery.sent_ns = sent_ns
    return delivery


def wants(deadline_ms: int = 0, price: float = 1.0, penalty: float = 0.0) -> Subscription:
    return Subscription(
        client_id="s",
        topic_filter="t",
        terms=Terms(deadline_ns=deadline_ms * MILLISECOND, price=price, penalty=penalty),
    )


class TestAmounts:
    def test_in_time_earns_the_price(self) -> None:
        account = Account()

        account.delivered("s", delivery_of(wants(100, 2.5), sent_ns=100 * MILLISECOND), 5)

        assert (account.in_time, account.late, account.earned_micro) == (1, 0, 2_500_000)

    def test_late_pays_the_penalty(self) -> None:
        account = Account()

        account.delivered("s", delivery_of(wants(100, 2.5, 0.3), sent_ns=100 * MILLISECOND + 1), 5)

        assert (account.in_time, account.late) == (0, 1)
        assert (account.earned_micro, account.paid_micro) == (0, 300_000)

    def test_what_is_acknowledged_counts_by_its_acknowledgement(self) -> None:
        account = Account()

        for qos, known_ms in ((1, 100), (1, 101), (2, 101)):
            copy = delivery_of(wants(100), qos=qos, sent_ns=MILLISECOND)
            account.delivered("s", copy, known_ms * MILLISECOND)

        assert (account.in_time, account.late) == (1, 2)

    def test_each_subscription_of_a_copy_has_its_own_limit(self) -> None:
        account = Account()
        copy = delivery_of(wants(50, 1.0, 0.5), wants(200, 2.0), wants(0, 4.0), sent_ns=100 * MILLISECOND)

        account.delivered("s", copy, 5)

        assert (account.in_time, account.late) == (2, 1)
        assert (account.earned_micro, account.paid_micro) == (6_000_000, 500_000)

    def test_dropped_pays_for_each_and_is_told(self) -> None:
        account = Account()

        account.drop("s", delivery_of(wants(50, 1.0, 0.5), wants(0, 1.0, 0.25)), Reason.HOPELESS, 5)

        assert account.dropped[Reason.HOPELESS.value] == 2
        assert account.paid_micro == 750_000
        assert [missed.reason for missed in account.missed] == [Reason.HOPELESS] * 2

    def test_a_tenth_added_ten_times_is_one(self) -> None:
        account = Account()

        for _ in range(10):
            account.delivered("s", delivery_of(wants(0, 0.1)), 5)

        assert account.earned_micro == MICRO

    def test_what_is_taken_back_leaves_no_trace(self) -> None:
        account = Account()
        account.is_tracing = True
        copies = [delivery_of(wants(100, 2.0, 1.0), sequence=number) for number in (1, 2, 3)]
        subscription = copies[0].subscription
        for copy in copies:
            copy.subscription = subscription
            account.delivered("s", copy, 5)

        account.retract("s", copies[1])

        assert (account.in_time, account.earned_micro) == (2, 4_000_000)
        assert [record.message_id for record in account.trace.take().records()] == [1, 3]
        assert account.trace.take().count == 0


CHANGES = (
    *("sequence", "subscription", "offered", "published", "payload", "topic", "publisher", "timeout"),
    *("promised", "hops", "properties", "link", "others", "qos"),
)


def changed(delivery: Delivery, change: str) -> None:
    message = delivery.message
    if change == "sequence":
        message.sequence += 3
    elif change == "subscription":
        delivery.subscription = wants(1, 3.0, 0.5)
    elif change == "offered":
        delivery.offered_ns += 1
    elif change == "published":
        message.published_ns += 1
    elif change == "payload":
        message.payload += b"x"
    elif change == "topic":
        message.topic += "x"
    elif change == "publisher":
        message.publisher += "x"
    elif change == "timeout":
        message.timeout_ns += 1
    elif change == "promised":
        message.promised_ns += 1
    elif change == "hops":
        message.hops += 1
    elif change == "properties":
        message.properties += b"x"
    elif change == "link":
        delivery.link += "x"
    elif change == "others":
        delivery.others = (wants(0, 0.7), wants(2, 1.0, 0.3))
    else:
        delivery.qos = 1


def expanded(account: Account) -> list[tuple[object, ...]]:
    """All records one by one, in what they say: whose columns they refer to differs between accounts."""
    return [
        (
            *(message.topic, message.publisher, message.timeout_ns, message.promised_ns, message.hops),
            *(receiver.client_id, receiver.topic_filter, receiver.price_micro, receiver.penalty_micro),
            *(receiver.outcome, receiver.reason, receiver.qos, receiver.allowed_ns, receiver.link),
            *numbers,
        )
        for message, receiver, *numbers in account.trace.take().records()
    ]


@settings(max_examples=200, deadline=None)
@given(
    changes=st.lists(st.sampled_from(("", "", "", "", *CHANGES)), min_size=1, max_size=30),
    deadline_ms=st.sampled_from((0, 1, 5)),
    is_tracing=st.booleans(),
)
def test_taking_those_that_are_alike_together_is_as_taking_each(
    changes: list[str], deadline_ms: int, is_tracing: bool
) -> None:
    wanted = wants(deadline_ms, 2.5, 0.3)
    deliveries = []
    for number, change in enumerate(changes):
        deliveries.append(delivery_of(wanted, sequence=number, sent_ns=3 * MILLISECOND))
        if change:
            changed(deliveries[-1], change)
    together, one_by_one = Account(), Account()
    together.is_tracing = one_by_one.is_tracing = is_tracing

    together.delivered_now("s", deliveries, 1, 3 * MILLISECOND)
    for delivery in deliveries[1:]:
        if delivery.qos == 0:
            one_by_one.delivered("s", delivery, 3 * MILLISECOND)

    for name in ("in_time", "late", "earned_micro", "paid_micro"):
        assert getattr(together, name) == getattr(one_by_one, name)
    assert expanded(together) == expanded(one_by_one)


# --- the sum, under anything that can happen --------------------------------------------


def open_pairs(session: Session) -> int:
    """Pairs of a session whose outcome is not known yet."""
    waiting = list(session.queue) + list(session.blocked)
    if session.scheduled is not None:
        waiting += [entry.item for entry in session.scheduled.entries()]  # type: ignore[misc]  # of this type
    waiting += [delivery for delivery in session.inflight.values() if not delivery.is_settled]
    return sum(len(pairs(delivery)) for delivery in waiting)


def test_without_a_trace_nothing_is_kept_for_one() -> None:
    account = Account()
    wanted = wants(100)

    account.delivered_now("s", [delivery_of(wanted, sequence=sequence) for sequence in range(3)], 0, 5)
    account.drop("s", delivery_of(wanted), Reason.HOPELESS, 5)

    assert account.in_time == 3
    assert account.trace.is_empty()
    batch = account.trace.take()
    assert (batch.count, batch.message_columns, batch.receiver_columns, batch.size_bytes()) == (0, [], [], 0)


class Bookkeeper:
    """Adds up the trace on its own and compares it with the account."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.rows: Counter[tuple[str, str]] = Counter()
        self.earned = 0
        self.paid = 0

    def check(self, open_count: int) -> None:
        for record in self.account.trace.take().records():
            self._add(record)
        account = self.account
        dropped = sum(account.dropped.values())
        assert account.matched == account.in_time + account.late + dropped + open_count
        assert self.rows[Outcome.IN_TIME.value, ""] == account.in_time
        assert self.rows[Outcome.LATE.value, ""] == account.late
        for reason in Reason:
            assert self.rows[Outcome.DROPPED.value, reason.value] == account.dropped[reason.value], reason
        assert (self.earned, self.paid) == (account.earned_micro, account.paid_micro)

    def _add(self, record: TraceRecord) -> None:
        receiver = record.receiver
        self.rows[receiver.outcome, receiver.reason] += 1
        if receiver.outcome == Outcome.IN_TIME.value:
            self.earned += receiver.price_micro
        else:
            self.paid += receiver.penalty_micro


class World:
    """A node with two publishers and three receivers, driven at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        limits = BrokerLimits(queue_bytes_per_client_max=2_000, queue_messages_per_client_max=20)
        self.node = Node(limits, durable=self.random.random() < 0.5)
        self.node.broker.account.is_tracing = True
        self.books = Bookkeeper(self.node.broker.account)
        self.publishers = [self.node.connect(f"p{number}") for number in range(2)]
        self.receivers: dict[str, Peer] = {}
        for number in range(3):
            self.connect(f"s{number}")
            self.subscribe()

    def connect(self, client_id: str) -> None:
        peer = self.node.connect(
            client_id, clean=self.random.random() < 0.2, receive_maximum=self.random.choice((1, 3, 65_535))
        )
        self.receivers[client_id] = peer
        self.node.broker.bind(
            peer.session,
            "tcp",
            Scheduling(self.random.choice(STRATEGY_NAMES)),
            link_of_rate(self.random.choice((1e3, 1e5, 1e7))),
            self.node.now_ns,
        )

    def any_receiver(self) -> Peer:
        return self.random.choice(list(self.receivers.values()))

    def is_connected(self, peer: Peer) -> bool:
        return peer.number in self.node.peers

    def subscribe(self) -> None:
        peer = self.any_receiver()
        if not self.is_connected(peer):
            return
        choose = self.random.choice
        wanted = Subscription(
            client_id=peer.client_id,
            topic_filter=choose(("a", "b", "#", "+", "$timebound/drops/#")),
            qos=choose((0, 1, 2)),
            terms=Terms(
                deadline_ns=choose((0, 0, 30, 500)) * MILLISECOND,
                price=choose(PRICES),
                penalty=choose(PRICES),
                keep_last=self.random.random() < 0.2,
                is_ordered=self.random.random() < 0.2,
                notify_missed=self.random.random() < 0.3,
            ),
        )
        self.node.broker.subscribe(peer.session, wanted, self.node.now_ns)

    def unsubscribe(self) -> None:
        peer = self.any_receiver()
        if self.is_connected(peer) and peer.session.subscriptions:
            self.node.unsubscribe(peer, self.random.choice(list(peer.session.subscriptions)))

    def publish(self) -> None:
        choose = self.random.choice
        for _ in range(choose((1, 3, 10))):
            message = Message(
                choose(TOPICS),
                b"x" * choose((1, 100, 900)),
                choose((0, 0, 1, 2)),
                self.random.random() < 0.1,
                self.node.now_ns - choose((0, 20)) * MILLISECOND,
                "p0",
                timeout_ns=choose((0, 0, 40, 700)) * MILLISECOND,
                priority=choose((0, 0, 9)),
            )
            if self.random.random() < 0.1:
                message.expires_ns = self.node.now_ns + choose((0, 10, 1_000)) * MILLISECOND
            self.node.broker.route(message, self.node.now_ns)

    def flush(self) -> None:
        peer = self.any_receiver()
        if not self.is_connected(peer):
            return
        bytes_max = self.random.choice((1, 300, 5_000))
        ahead_ns = self.random.choice((0, 0, 25)) * MILLISECOND
        self.node.collect_ready()
        self.node.ready.pop(peer.client_id, None)
        peer.session.replies.clear()
        for delivery in self.node.broker.take_deliveries(peer.session, bytes_max, self.node.now_ns, ahead_ns):
            if self.random.random() < 0.05:
                self.node.abandon(peer, delivery, Reason.TOO_LARGE)
        self.node.broker.put_ready(peer.session)

    def answer(self) -> None:
        peer = self.any_receiver()
        if not self.is_connected(peer):
            return
        for packet_id, delivery in list(peer.session.inflight.items())[: self.random.choice((1, 5))]:
            code = 0x80 if self.random.random() < 0.1 else 0
            kind = PUBACK if delivery.qos == 1 else PUBREC
            if delivery.state == RELEASED:
                kind, code = PUBCOMP, 0
            assert self.node.acknowledge(peer, kind, packet_id, code)

    def come_or_go(self) -> None:
        peer = self.any_receiver()
        if self.is_connected(peer):
            self.node.disconnect(peer, expiry_s=self.random.choice((0, 1, 60)))
        else:
            self.connect(peer.client_id)

    def change_settings(self) -> None:
        now_ns = self.node.now_ns
        if self.random.random() < 0.5:
            self.node.broker.set_scheduling("tcp", Scheduling(self.random.choice(STRATEGY_NAMES)), now_ns)
        else:
            delay = link_of_rate(self.random.choice((1e3, 1e5, 1e7)))
            self.node.broker.set_delay(self.any_receiver().session, delay, now_ns)

    def let_time_pass(self) -> None:
        self.node.advance(self.random.choice((0.001, 0.02, 0.3, 2.0)))
        self.node.broker.expire(self.node.now_ns)

    def commit(self) -> None:
        self.node.take_batch()
        while self.node.pending:
            self.node.commit()

    def step(self) -> None:
        often = [self.publish, self.flush, self.flush, self.answer]
        seldom = [
            self.subscribe,
            self.unsubscribe,
            self.come_or_go,
            self.change_settings,
            self.let_time_pass,
            self.commit,
        ]
        self.random.choice(often if self.random.random() < 0.7 else seldom)()

    def check(self) -> None:
        self.node.check()
        sessions = {id(session): session for session in self.all_sessions()}
        self.books.check(sum(open_pairs(session) for session in sessions.values()))

    def all_sessions(self) -> list[Session]:
        found = [self.node.broker.session(client_id) for client_id in ("p0", "p1", "s0", "s1", "s2")]
        return [session for session in found if session is not None]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_matched_is_in_time_late_dropped_or_still_open(seed: int) -> None:
    world = World(seed)
    for _ in range(120):
        world.step()
        world.check()

    for client_id in list(world.receivers):
        session = world.node.broker.session(client_id)
        if session is not None and session.connection:
            world.node.disconnect(world.receivers[client_id], expiry_s=0)
    world.node.advance(120)
    world.check()


def test_the_random_world_reaches_every_outcome() -> None:
    reached: Counter[tuple[str, str]] = Counter()
    for seed in range(25):
        world = World(seed)
        for _ in range(150):
            world.step()
            world.check()
        reached += world.books.rows

    expected = {
        Reason.TIMED_OUT,
        Reason.HOPELESS,
        Reason.QUEUE_FULL,
        Reason.SESSION_EXPIRED,
        Reason.EXPIRED,
        Reason.TOO_LARGE,
        Reason.DISCONNECTED,
        Reason.REPLACED,
        Reason.REFUSED,
    }
    missing = [reason for reason in expected if not reached[Outcome.DROPPED.value, reason.value]]
    assert not missing
    assert reached[Outcome.IN_TIME.value, ""] > 100
    assert reached[Outcome.LATE.value, ""] > 0


def test_pubrel_of_a_publisher_does_not_concern_the_account() -> None:
    node = Node(durable=False)
    peer = node.connect("p")

    node.acknowledge(peer, PUBREL, 7)

    assert node.broker.account.matched == 0
