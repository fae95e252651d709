"""How copies of a session compete for its link: entries, audiences, flows, and answers that are due."""

from __future__ import annotations

import pytest
from tests.core.broker_doubles import Node, Peer

from timebound.core.link.scheduling import Scheduling
from timebound.core.sessions.entries import make_entry, needs_scheduling
from timebound.core.sessions.session import PUBACK, PUBCOMP, PUBREC, Session
from timebound.core.values.delay import link_of_rate
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND


def subscription(topic_filter: str = "t", **terms: object) -> Subscription:
    return Subscription(client_id="receiver", topic_filter=topic_filter, qos=2, terms=Terms(**terms))  # type: ignore[arg-type]  # mixed terms


def session_of() -> Session:
    return Node().connect("receiver").session


def delivery_of(wanted: Subscription, *others: Subscription, qos: int = 0, **fields: int) -> Delivery:
    message = Message("t", b"x" * 100, qos, False, 5 * SECOND, "publisher")
    for name, value in fields.items():
        setattr(message, name, value)
    delivery = Delivery(message, qos, False, subscription=wanted)
    delivery.others = others
    return delivery


@pytest.mark.parametrize(
    ("wanted", "fields", "expected"),
    [
        (subscription(), {}, False),
        (subscription(price=5.0), {}, False),
        (subscription(deadline_ns=1), {}, True),
        (subscription(keep_last=True), {}, True),
        (subscription(), {"timeout_ns": 1}, True),
        (subscription(), {"priority": 9}, False),
    ],
)
def test_only_what_can_lose_its_worth_competes(
    wanted: Subscription, fields: dict[str, int], expected: bool
) -> None:
    message = delivery_of(wanted, **fields).message

    assert needs_scheduling(session_of(), message, wanted, ()) is expected
    assert needs_scheduling(session_of(), message, subscription("plain"), (wanted,)) is (
        expected or bool(fields.get("timeout_ns"))
    )


def test_priorities_compete_where_the_strategy_goes_by_them() -> None:
    session = session_of()
    session.scheduling = Scheduling("fixed")
    urgent = delivery_of(subscription(), priority=1).message

    assert needs_scheduling(session, urgent, subscription(), ())


def test_an_entry_has_the_terms_of_all_its_subscriptions() -> None:
    first = subscription("t", deadline_ns=2 * SECOND, price=3.0, penalty=1.0)
    second = subscription("+", deadline_ns=SECOND, price=2.0)
    delivery = delivery_of(first, second, timeout_ns=4 * SECOND)

    entry = make_entry(session_of(), delivery)

    assert [(term.deadline_ns, term.price, term.penalty) for term in entry.audience.terms] == [
        (SECOND, 2.0, 0.0),
        (2 * SECOND, 3.0, 1.0),
    ]
    assert (entry.timeout_ns, entry.published_ns) == (4 * SECOND, 5 * SECOND)
    assert entry.size_bytes == delivery.message.size()


def test_copies_for_one_subscription_share_an_audience() -> None:
    session = session_of()
    wanted = subscription(deadline_ns=SECOND)

    one, other = (make_entry(session, delivery_of(wanted)) for _ in range(2))

    assert one.audience is other.audience
    assert one.flow == other.flow


def test_a_copy_whose_subscription_has_gone_is_worth_the_default() -> None:
    delivery = Delivery(Message("t", b"", 1, False, 0), 1, False)

    entry = make_entry(session_of(), delivery)

    assert [(term.deadline_ns, term.price) for term in entry.audience.terms] == [(0, 1.0)]


def test_an_ordered_subscription_is_one_flow_over_all_topics() -> None:
    session = session_of()
    wanted = subscription("#", is_ordered=True)
    one = delivery_of(wanted)
    other = delivery_of(wanted, qos=1)
    other.message.topic = "another"

    first, second = make_entry(session, one), make_entry(session, other)

    assert first.flow == second.flow
    assert first.ordered


def test_the_shorter_of_expiry_and_timeout_limits_an_entry() -> None:
    delivery = delivery_of(subscription(), timeout_ns=3 * SECOND, expires_ns=7 * SECOND)

    assert make_entry(session_of(), delivery).timeout_ns == 2 * SECOND


class Congested:
    """A receiver behind a link of 100 kB/s, and a publisher."""

    def __init__(self, receive_maximum: int = 65_535, strategy: str = "worth", **limits: int) -> None:
        self.node = Node(BrokerLimits(**limits), durable=False)
        self.publisher = self.node.connect("publisher")
        self.receiver: Peer = self.node.connect("receiver", receive_maximum=receive_maximum)
        session = self.receiver.session
        scheduling = Scheduling(strategy)
        self.node.broker.bind(session, "tcp", scheduling, link_of_rate(100_000.0), self.node.now_ns)
        self.node.settle()
        self.receiver.take()

    def subscribe(self, topic_filter: str, qos: int = 1, **terms: object) -> None:
        wanted = Subscription(client_id="receiver", topic_filter=topic_filter, qos=qos, terms=Terms(**terms))  # type: ignore[arg-type]  # mixed terms
        self.node.broker.subscribe(self.receiver.session, wanted, self.node.now_ns)

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> None:
        self.node.publish(self.publisher, topic, payload, qos)

    def flush(self, bytes_max: int = 1) -> list[bytes]:
        """Let the link take about this many bytes."""
        before = len(self.receiver.publishes())
        self.node.flush("receiver", bytes_max)
        self.node.check()
        return self.receiver.payloads()[before:]

    def acknowledge_all(self) -> None:
        for packet_id in list(self.receiver.session.inflight):
            self.node.acknowledge(self.receiver, PUBACK, packet_id)


def test_what_waits_for_answers_of_the_client_still_competes() -> None:
    link = Congested(receive_maximum=1)
    link.subscribe("bulk", deadline_ns=60 * SECOND, price=1.0)
    link.subscribe("alert", deadline_ns=SECOND, price=50.0)
    for number in range(3):
        link.publish("bulk", b"bulk %d" % number)
    assert link.flush() == [b"bulk 0"]
    assert link.flush(1_000_000) == []

    link.publish("alert", b"alert")
    link.acknowledge_all()

    assert link.flush(1_000_000) == [b"alert"]
    link.acknowledge_all()
    assert link.flush(1_000_000) == [b"bulk 1"]


def test_qos_zero_passes_what_needs_an_answer() -> None:
    link = Congested(receive_maximum=1)
    link.subscribe("confirmed", 1, deadline_ns=60 * SECOND, price=50.0)
    link.subscribe("plain", 0, deadline_ns=60 * SECOND)
    for number in range(3):
        link.publish("confirmed", b"confirmed %d" % number)
    link.publish("plain", b"plain", 0)

    assert link.flush(1_000_000) == [b"confirmed 0", b"plain"]
    assert not link.receiver.session.has_work()

    link.acknowledge_all()
    assert link.flush(1_000_000) == [b"confirmed 1"]


@pytest.mark.parametrize("deadline_ns", [0, 60 * SECOND])
def test_qos_zero_flows_on_past_a_queue_full_of_what_needs_answers(deadline_ns: int) -> None:
    link = Congested(receive_maximum=2, queue_messages_per_client_max=16)
    link.subscribe("confirmed", 1, deadline_ns=deadline_ns, price=50.0)
    link.subscribe("plain", 0, deadline_ns=deadline_ns)
    for number in range(20):
        link.publish("confirmed", b"confirmed %d" % number)
        link.flush(1_000_000)
    assert link.receiver.session.queued_messages() == 16

    for number in range(20):
        link.publish("confirmed", b"more %d" % number)
        link.publish("plain", b"plain %d" % number, 0)
        assert link.flush(1_000_000) == [b"plain %d" % number]
    assert not link.receiver.session.has_work()

    sent = link.receiver.payloads()[:2]
    while link.receiver.session.inflight:
        link.acknowledge_all()
        sent += link.flush(1_000_000)
    assert sent == sorted(sent, key=_number_of)
    assert len(sent) == 18


def _number_of(payload: bytes) -> tuple[bool, int]:
    word, number = payload.split()
    return word == b"more", int(number)


def test_mixed_traffic_keeps_its_order_per_qos_over_a_narrow_receive_maximum() -> None:
    link = Congested(receive_maximum=1)
    link.subscribe("t/#", 1, deadline_ns=60 * SECOND)
    sent: list[bytes] = []
    for number in range(12):
        link.publish("t/confirmed", b"confirmed %d" % number)
        link.publish("t/plain", b"plain %d" % number, 0)
        sent += link.flush(1_000_000 if number % 3 else 1)
        if number % 4 == 3:
            link.acknowledge_all()
    while link.receiver.session.has_work() or link.receiver.session.inflight:
        link.acknowledge_all()
        sent += link.flush(1_000_000)

    for word in (b"confirmed", b"plain"):
        assert [one for one in sent if one.startswith(word)] == [
            word + b" %d" % number for number in range(12)
        ]


def test_a_client_that_answers_nothing_keeps_nobody_busy_and_late_copies_go() -> None:
    link = Congested(receive_maximum=1)
    link.subscribe("t", 1, deadline_ns=SECOND)
    link.subscribe("plain", 0)
    for number in range(3):
        link.publish("t", b"%d" % number)
    link.publish("plain", b"plain", 0)
    assert link.flush(1_000_000) == [b"0", b"plain"]
    assert not link.receiver.session.has_work()

    link.node.advance(2)
    link.node.broker.expire(link.node.now_ns)

    dropped = link.node.broker.account.dropped
    assert dropped[Reason.TIMED_OUT.value] + dropped[Reason.HOPELESS.value] == 2
    link.node.check()


def test_a_session_with_a_deadline_is_in_control_of_its_link_before_anything_urgent_comes() -> None:
    link = Congested()
    session = link.receiver.session
    assert session.scheduled is None

    link.subscribe("alert", deadline_ns=SECOND)
    assert session.scheduled is not None

    link.node.disconnect(link.receiver)
    assert session.scheduled is None
    again = link.node.connect("receiver")
    link.node.broker.bind(again.session, "tcp", Scheduling(), link_of_rate(1e5), link.node.now_ns)
    assert again.session.scheduled is not None

    link.node.unsubscribe(again, "alert")
    assert again.session.scheduled is None


def test_a_new_strategy_loses_nothing_that_waits() -> None:
    link = Congested(strategy="fifo")
    link.subscribe("t", deadline_ns=60 * SECOND, price=1.0)
    link.subscribe("u", deadline_ns=50 * SECOND, price=9.0)
    for number in range(5):
        link.publish("t", b"t%d" % number)
        link.publish("u", b"u%d" % number)
    assert link.flush() == [b"t0"]

    link.node.broker.set_scheduling("tcp", Scheduling("worth"), link.node.now_ns)

    rest = [link.flush() for _ in range(9)]
    assert rest[:5] == [[b"u0"], [b"u1"], [b"u2"], [b"u3"], [b"u4"]]
    assert rest[5:] == [[b"t1"], [b"t2"], [b"t3"], [b"t4"]]


def test_what_the_link_is_busy_with_counts_against_the_deadline() -> None:
    link = Congested()
    link.subscribe("t", 0, deadline_ns=100 * MILLISECOND)
    link.publish("t", b"x" * 1_000, 0)
    link.publish("t", b"y" * 1_000, 0)
    session = link.receiver.session

    taken = link.node.broker.take_deliveries(session, 1, link.node.now_ns, 95 * MILLISECOND)

    # 95 ms of what was given before and 10 ms of its own: none of them arrives in time.
    assert taken == []
    assert link.node.broker.account.dropped[Reason.HOPELESS.value] == 2


def test_a_link_that_proves_faster_is_believed() -> None:
    link = Congested()
    link.subscribe("t", 0, deadline_ns=SECOND)
    session = link.receiver.session
    for _ in range(3):
        link.publish("t", b"x" * 1_000, 0)
    assert len(link.node.broker.take_deliveries(session, 1, link.node.now_ns, 900 * MILLISECOND)) == 1

    link.node.advance(0.2)
    for _ in range(3):
        link.publish("t", b"y" * 1_000, 0)

    # After an outage: at the pace of before it would be 1.1 s until these are sent.
    assert len(link.node.broker.take_deliveries(session, 1_000_000, link.node.now_ns, 0)) == 5


def test_a_notice_of_what_was_missed_has_no_deadline_and_earns_nothing() -> None:
    link = Congested()
    link.subscribe("t", 0, deadline_ns=100 * MILLISECOND, price=7.0, notify_missed=True)
    link.publish("t", b"x" * 1_000, 0)
    link.node.advance(0.2)
    link.node.broker.expire(link.node.now_ns)

    link.node.advance(60)

    [told] = link.flush(1_000_000)
    assert b'"reason": "hopeless"' in told or b'"reason": "timed_out"' in told
    assert link.node.broker.account.earned_micro == 0


def test_no_more_is_on_the_way_than_answers_allow() -> None:
    node = Node(durable=False)
    publisher, receiver = node.connect("publisher"), node.connect("receiver")
    node.broker.subscribe(receiver.session, subscription(deadline_ns=SECOND), node.now_ns)
    node.settle()
    for _ in range(100):
        node.publish(publisher, "t", b"x" * 992, 1)

    node.settle()  # would not end if the session stayed ready with nothing to write
    first = receiver.publishes()
    for packet in first:
        node.acknowledge(receiver, PUBACK, packet.packet_id)
    node.settle()

    assert 16 <= len(first) <= 17
    assert len(receiver.publishes()) == pytest.approx(3 * len(first), abs=2)
    node.check()


def test_a_receiver_without_answers_is_served_again_after_a_while() -> None:
    node = Node(durable=False)
    publisher, receiver = node.connect("publisher"), node.connect("receiver")
    node.broker.subscribe(receiver.session, subscription(deadline_ns=60 * SECOND), node.now_ns)
    node.settle()
    for _ in range(40):
        node.publish(publisher, "t", b"x" * 992, 1)
    node.settle()
    assert len(receiver.publishes()) < 40

    node.advance(2.0)
    node.broker.expire(node.now_ns)
    node.settle()

    assert len(receiver.publishes()) == 40


def test_qos_2_counts_when_it_has_arrived() -> None:
    node = Node(durable=False)
    publisher, receiver = node.connect("publisher"), node.connect("receiver")
    node.broker.subscribe(receiver.session, subscription(deadline_ns=SECOND), node.now_ns)
    node.publish(publisher, "t", b"x", 2)
    node.settle()
    packet = receiver.publishes()[0]

    node.advance(0.5)
    node.acknowledge(receiver, PUBREC, packet.packet_id)
    counted = (node.broker.account.in_time, node.broker.account.late)
    node.advance(5.0)
    node.acknowledge(receiver, PUBCOMP, packet.packet_id)

    assert counted == (1, 0)
    assert (node.broker.account.in_time, node.broker.account.late) == (1, 0)
