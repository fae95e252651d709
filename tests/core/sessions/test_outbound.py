"""Copies on their way out: order, Receive Maximum, acknowledgements right and wrong, time limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.broker_doubles import Pair

from timebound.core.sessions.outbound import NO_OTHERS, PACKET_ID_NOT_FOUND
from timebound.core.sessions.ranked import STEP_COPIES_MAX
from timebound.core.sessions.session import PUBACK, PUBCOMP, PUBREC, PUBREL
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import RELEASED, Message
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.terms import Terms
from timebound.units import SECOND

from .alone import NOW_NS, Alone

DURABLE = pytest.mark.parametrize("durable", [False, True])


@DURABLE
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_copies_arrive_in_the_order_of_publication(qos: int, durable: bool) -> None:
    # MQTT 5, 4.6.0-5
    pair = Pair(durable=durable)

    pair.publish(b"1", b"2", b"3", qos=qos)

    assert pair.payloads() == [b"1", b"2", b"3"]


def test_a_small_budget_takes_little_at_a_time_and_loses_nothing() -> None:
    pair = Pair(1)
    pair.publish(b"1", b"2", b"3", qos=1)

    counts = []
    for _ in range(3):
        pair.node.flush("receiver", bytes_max=1)
        counts.append(len(pair.receiver.publishes()))

    assert counts == [1, 2, 3]
    assert pair.receiver.payloads() == [b"1", b"2", b"3"]


@DURABLE
def test_a_qos_two_copy_is_released_and_completed(durable: bool) -> None:
    # MQTT 5, 4.3.3
    pair = Pair(durable=durable)
    pair.publish(b"1")
    [publish] = pair.received()

    assert pair.node.acknowledge(pair.receiver, PUBREC, publish.packet_id)
    assert [(packet.kind, packet.code) for packet in pair.received()] == [("PUBREL", 0)]
    assert pair.node.acknowledge(pair.receiver, PUBCOMP, publish.packet_id)

    assert not pair.receiver.session.inflight
    pair.node.settle()
    assert not pair.node.storage.deliveries


# --- Receive Maximum: MQTT 5, 3.1.2.11.3 and 4.9 ---------------------------------------


@DURABLE
def test_no_more_are_sent_than_the_receive_maximum(durable: bool) -> None:
    # MQTT 5, 3.3.4-9
    pair = Pair(1, receive_maximum=2, durable=durable)

    pair.publish(b"1", b"2", b"3", b"4", qos=1)
    first = pair.received()
    assert [packet.payload for packet in first] == [b"1", b"2"]
    pair.node.acknowledge(pair.receiver, PUBACK, first[1].packet_id)

    assert pair.payloads() == [b"3"]


def test_qos_zero_passes_what_waits_for_an_acknowledgement() -> None:
    # MQTT 5, 3.3.4-9: the quota counts QoS 1 and 2 only.
    pair = Pair(1, receive_maximum=1)

    pair.publish(b"1", b"2", qos=1)
    pair.publish(b"zero", qos=0)

    assert pair.payloads() == [b"1", b"zero"]


@pytest.mark.parametrize(("kind", "qos"), [(PUBACK, 1), (PUBREC, 2)])
def test_an_error_from_the_receiver_ends_the_copy_and_frees_the_quota(kind: int, qos: int) -> None:
    # MQTT 5, 4.9: PUBACK, and PUBREC with a code of 0x80 or above, count up.
    pair = Pair(2, receive_maximum=1)
    pair.publish(b"1", b"2", qos=qos)
    [publish] = pair.received()

    assert pair.node.acknowledge(pair.receiver, kind, publish.packet_id, 0x80)

    assert pair.payloads() == [b"2"]
    assert pair.dropped(Reason.REFUSED) == 1


@DURABLE
def test_a_smaller_receive_maximum_holds_for_what_is_sent_again(durable: bool) -> None:
    # MQTT 5, 4.9: the quota begins anew with each connection.
    pair = Pair(1, durable=durable)
    pair.publish(b"1", b"2", b"3", qos=1)
    pair.received()

    pair.reconnect(receive_maximum=1)
    [connack, first] = pair.received()
    assert (connack.kind, first.payload, first.dup) == ("CONNACK", b"1", True)
    pair.node.acknowledge(pair.receiver, PUBACK, first.packet_id)
    [second] = pair.received()
    assert (second.payload, second.dup) == (b"2", True)
    assert second.packet_id != first.packet_id


def test_the_broker_bounds_what_is_in_flight() -> None:
    pair = Pair(1, outgoing_inflight_max=2)

    pair.publish(b"1", b"2", b"3", qos=1)

    assert pair.payloads() == [b"1", b"2"]


def test_a_receiver_that_never_completes_does_not_use_up_the_packet_ids() -> None:
    # Each connection starts with a fresh quota (4.9). Copies that were released and not completed
    # must count against it, or they add up until no packet id is free.
    pair = Pair(2, outgoing_inflight_max=4)

    for _ in range(3):
        pair.publish(b"1", b"2", b"3", b"4")
        for packet in pair.received():
            if packet.kind == "PUBLISH":
                pair.node.acknowledge(pair.receiver, PUBREC, packet.packet_id)
        pair.reconnect()
    pair.node.settle()

    assert len(pair.receiver.session.inflight) == 4
    for packet_id in list(pair.receiver.session.inflight):
        pair.node.acknowledge(pair.receiver, PUBCOMP, packet_id)
    pair.receiver.take()
    assert len(pair.payloads()) == 4


def test_what_expired_while_away_leaves_the_quota_to_what_was_released() -> None:
    pair = Pair(2, receive_maximum=2)
    pair.publish(b"kept", qos=2)
    pair.publish(b"late", qos=1, expiry_s=5)
    first, second = pair.received()
    pair.node.acknowledge(pair.receiver, PUBREC, first.packet_id)
    pair.publish(b"3", b"4", qos=1)
    pair.node.advance(5)

    pair.reconnect(receive_maximum=2)

    assert second.payload == b"late"
    assert pair.payloads() == [b"3"]
    assert pair.receiver.session.send_quota == 0


# --- acknowledgements that do not fit ----------------------------------------------------


@pytest.mark.parametrize(("kind", "replies"), [(PUBACK, []), (PUBREC, ["PUBREL"]), (PUBCOMP, [])])
def test_an_unknown_packet_id_is_answered_as_the_standard_says(kind: int, replies: list[str]) -> None:
    # MQTT 5, 3.6.2.1: PUBREL with 0x92, Packet Identifier not found
    pair = Pair()

    assert pair.node.acknowledge(pair.receiver, kind, 77)

    received = pair.received()
    assert [packet.kind for packet in received] == replies
    assert all(packet.code == 0x92 for packet in received)


def test_an_error_for_an_unknown_packet_id_is_not_released() -> None:
    # MQTT 5, 4.3.3: PUBREL follows a PUBREC below 0x80.
    pair = Pair()

    assert pair.node.acknowledge(pair.receiver, PUBREC, 77, 0x80)

    assert pair.received() == []


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBREC), (1, PUBCOMP), (2, PUBACK), (2, PUBCOMP)])
def test_an_acknowledgement_of_the_wrong_kind_breaks_the_protocol(qos: int, kind: int) -> None:
    pair = Pair()
    pair.publish(b"1", qos=qos)
    [publish] = pair.received()

    assert not pair.node.acknowledge(pair.receiver, kind, publish.packet_id)

    assert publish.packet_id in pair.receiver.session.inflight


@DURABLE
def test_pubrec_twice_is_answered_twice(durable: bool) -> None:
    pair = Pair(durable=durable)
    pair.publish(b"1")
    [publish] = pair.received()

    pair.node.acknowledge(pair.receiver, PUBREC, publish.packet_id)
    pair.node.acknowledge(pair.receiver, PUBREC, publish.packet_id)

    assert [packet.kind for packet in pair.received()] == ["PUBREL", "PUBREL"]


def test_an_acknowledgement_before_the_copy_is_sent_again_spares_it() -> None:
    # A client may keep its answer over a reconnect; the copy must not go out without a packet id.
    pair = Pair(1, receive_maximum=1)
    pair.publish(b"1", b"2", qos=1)
    [publish] = pair.received()

    pair.reconnect(receive_maximum=1)
    pair.node.acknowledge(pair.receiver, PUBACK, publish.packet_id)

    assert pair.payloads() == [b"2"]
    assert pair.receiver.session.send_quota == 0


def test_a_qos_two_copy_received_before_it_is_sent_again_is_only_released() -> None:
    # Sent after PUBREL, it would count as new at the receiver (4.3.3).
    pair = Pair(2)
    pair.publish(b"1")
    [publish] = pair.received()

    pair.reconnect()
    pair.node.acknowledge(pair.receiver, PUBREC, publish.packet_id)

    assert [packet.kind for packet in pair.received()] == ["CONNACK", "PUBREL"]


# --- sent again: MQTT 5, 4.4 ---------------------------------------------------------------


@DURABLE
def test_what_was_not_acknowledged_is_sent_again_in_order_with_the_same_packet_ids(durable: bool) -> None:
    # MQTT 5, 4.4.0-1 and 4.6.0-1
    pair = Pair(2, durable=durable)
    pair.publish(b"1", b"2", qos=1)
    pair.publish(b"3", qos=2)
    before = pair.received()

    pair.reconnect()
    connack, *after = pair.received()

    assert connack.kind == "CONNACK"
    assert [(packet.payload, packet.packet_id) for packet in after] == [
        (packet.payload, packet.packet_id) for packet in sorted(before, key=lambda packet: packet.payload)
    ]
    assert all(packet.dup for packet in after)


@DURABLE
def test_a_released_copy_is_not_sent_again_but_released_again(durable: bool) -> None:
    # MQTT 5, 4.3.3-6
    pair = Pair(durable=durable)
    pair.publish(b"1")
    [publish] = pair.received()
    pair.node.acknowledge(pair.receiver, PUBREC, publish.packet_id)

    pair.reconnect()

    after = pair.received()
    assert [packet.kind for packet in after] == ["CONNACK", "PUBREL"]
    assert after[1].packet_id == publish.packet_id


def test_what_waited_goes_before_what_came_while_away() -> None:
    pair = Pair(1, receive_maximum=1)
    pair.publish(b"1", b"2", qos=1)
    pair.received()
    pair.node.disconnect(pair.receiver)
    pair.publish(b"3", qos=1)

    pair.receiver = pair.node.connect("receiver")

    assert pair.payloads() == [b"1", b"2", b"3"]


# --- what expires ----------------------------------------------------------------------


def test_an_expired_message_is_not_sent() -> None:
    # MQTT 5, 3.3.2-5
    pair = Pair(1)
    pair.node.disconnect(pair.receiver)
    pair.publish(b"short", qos=1, expiry_s=5)
    pair.publish(b"long", qos=1, expiry_s=6)
    pair.node.advance(5)

    pair.receiver = pair.node.connect("receiver")

    assert pair.payloads() == [b"long"]
    assert pair.dropped(Reason.EXPIRED) == 1


def test_an_expired_message_that_waited_for_the_quota_is_not_sent() -> None:
    pair = Pair(1, receive_maximum=1)
    pair.publish(b"1", b"2", qos=1, expiry_s=5)
    pair.publish(b"3", qos=1)
    [publish] = pair.received()
    pair.node.advance(5)

    pair.node.acknowledge(pair.receiver, PUBACK, publish.packet_id)

    assert pair.payloads() == [b"3"]


@DURABLE
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_abandoned_copy_frees_its_place_and_is_accounted(qos: int, durable: bool) -> None:
    # MQTT 5, 3.1.2-25: as if it had been sent, although it is too large for the receiver.
    pair = Pair(2, receive_maximum=1, durable=durable)
    pair.publish(b"1", b"2", qos=qos)
    pair.node.take_batch()
    while pair.node.pending:
        pair.node.commit()
    session = pair.receiver.session
    taken = pair.node.broker.take_deliveries(session, 1, pair.node.now_ns)
    if not taken:  # a stored QoS 2 copy waits until its packet id is on disk
        pair.node.take_batch()
        pair.node.commit()
        taken = pair.node.broker.take_deliveries(session, 1, pair.node.now_ns)
    sent = pair.node.broker.counters.messages_sent

    pair.node.abandon(pair.receiver, taken[0], Reason.TOO_LARGE)

    assert pair.dropped(Reason.TOO_LARGE) == 1
    assert pair.node.broker.counters.messages_sent == sent - 1
    assert not session.inflight
    assert pair.payloads() == [b"2"]


# --- storage -----------------------------------------------------------------------------------


def test_a_stored_qos_two_copy_leaves_only_when_its_packet_id_is_on_disk() -> None:
    pair = Pair(2, durable=True)
    pair.publish(b"1")
    pair.node.flush_all()
    assert pair.receiver.publishes() == []

    pair.node.take_batch()
    pair.node.commit()
    pair.node.flush_all()

    [publish] = pair.receiver.publishes()
    stored = pair.node.storage.deliveries["receiver", 1]
    assert stored.packet_id == publish.packet_id


def test_pubrel_leaves_only_when_storage_knows_of_the_receipt() -> None:
    pair = Pair(2, durable=True)
    pair.publish(b"1")
    [publish] = pair.received()

    pair.node.acknowledge(pair.receiver, PUBREC, publish.packet_id)
    pair.node.flush_all()
    assert pair.receiver.kinds() == []
    pair.node.settle()

    assert pair.receiver.kinds() == ["PUBREL"]
    assert pair.node.storage.deliveries["receiver", 1].state == RELEASED


# --- without time limits again -----------------------------------------------------------------


def timed_pair() -> Pair:
    """A receiver of `t`, with a deadline, and of `u`; it has one message to acknowledge at a time."""
    pair = Pair(1, receive_maximum=1)
    wanted = Subscription(client_id="receiver", topic_filter="t", qos=1, terms=Terms(deadline_ns=5 * SECOND))
    pair.node.broker.subscribe(pair.receiver.session, wanted, pair.node.now_ns)
    pair.node.subscribe(pair.receiver, "u", 1)
    pair.received()
    assert pair.receiver.session.scheduled is not None
    return pair


def test_what_waits_without_a_limit_goes_back_to_order_of_arrival_with_the_last_timed_subscription() -> None:
    pair = timed_pair()
    node, session = pair.node, pair.receiver.session
    for payload in (b"1", b"2", b"3"):
        node.publish(pair.publisher, "u", payload, 1)
    assert pair.payloads() == [b"1"]

    node.unsubscribe(pair.receiver, "t")

    assert (session.scheduled, session.transit, session.path_delay) == (None, None, None)
    node.check()
    for packet_id, payload in ((1, b"2"), (2, b"3")):
        node.acknowledge(pair.receiver, PUBACK, packet_id)
        assert pair.payloads() == [payload]


def test_what_waits_with_a_limit_keeps_it_after_its_subscription() -> None:
    pair = timed_pair()
    node, session = pair.node, pair.receiver.session
    pair.publish(b"1", b"2", b"3", qos=1)
    assert pair.payloads() == [b"1"]

    node.unsubscribe(pair.receiver, "t")
    node.broker.expire(node.now_ns)
    assert session.scheduled is not None
    node.advance(5)
    node.broker.expire(node.now_ns)

    assert pair.dropped(Reason.TIMED_OUT) + pair.dropped(Reason.HOPELESS) == 2
    assert (session.scheduled, session.is_relaxing) == (None, False)
    node.check()


def test_a_new_time_limit_keeps_the_queue_by_worth() -> None:
    pair = timed_pair()
    node, session = pair.node, pair.receiver.session
    pair.publish(b"1", b"2", qos=1)
    pair.received()
    node.unsubscribe(pair.receiver, "t")
    again = Subscription(client_id="receiver", topic_filter="v", qos=1, terms=Terms(deadline_ns=SECOND))
    node.broker.subscribe(session, again, node.now_ns)

    node.advance(5)
    node.broker.expire(node.now_ns)

    assert (session.scheduled is None, session.is_relaxing) == (False, False)


def test_a_link_that_messages_with_a_limit_need_stays_when_other_subscriptions_go() -> None:
    pair = Pair(1)
    node, session = pair.node, pair.receiver.session
    node.subscribe(pair.receiver, "u", 1)
    message = Message("t", b"x", 0, False, node.now_ns, timeout_ns=SECOND)
    node.broker.route(message, node.now_ns)
    pair.received()
    scheduled = session.scheduled
    assert scheduled is not None

    node.unsubscribe(pair.receiver, "u")
    node.broker.expire(node.now_ns)

    assert session.scheduled is scheduled


def test_a_timed_subscription_that_is_no_longer_allowed_takes_the_queue_by_worth_along() -> None:
    pair = timed_pair()

    pair.node.broker.set_access(AccessList([AccessRule("*", "all", "u", True)]), pair.node.now_ns)

    assert list(pair.receiver.session.subscriptions) == ["u"]
    assert pair.receiver.session.scheduled is None
    pair.node.check()


def test_a_way_that_was_slow_is_forgotten_when_nothing_is_answered_any_more() -> None:
    pair = timed_pair()
    session = pair.receiver.session
    scheduled = session.scheduled
    assert scheduled is not None
    before = scheduled.link.mean_ns_per_byte
    session.path_delay = LinkDelay(1.0, 0.1)
    scheduled.set_link(session.link_delay(), pair.node.now_ns)
    assert scheduled.link.mean_ns_per_byte > before

    pair.node.broker.expire(pair.node.now_ns)

    assert session.path_delay is None
    assert scheduled.link.mean_ns_per_byte == before


# --- the class by itself -----------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 60)), max_size=40))
def test_sums_and_account_follow_every_offer_take_and_answer(steps: list[tuple[int, int, int]]) -> None:
    alone = Alone(queue_messages_per_client_max=6)
    alone.session.receive_maximum = alone.session.send_quota = 3
    offered = 0
    for step, qos, number in steps:
        if step < 2:
            offered += 1
            alone.offer(b"x" * number, qos=qos, deadline_ns=step * SECOND)
        elif step == 2:
            alone.take(bytes_max=number, now_ns=NOW_NS)
        elif alone.session.inflight:
            delivery = list(alone.session.inflight.values())[number % len(alone.session.inflight)]
            kinds = [PUBACK] if delivery.qos == 1 else [PUBREC, PUBCOMP]
            for kind in kinds:
                assert alone.outbound.acknowledge(alone.session, kind, delivery.packet_id, 0, NOW_NS)
        alone.check()
        assert len(alone.session.inflight) <= 3

    account = alone.account
    assert account.matched == offered
    assert account.earned_micro == 2_000_000 * account.in_time
    assert account.paid_micro == 500_000 * (offered - account.in_time - account.outstanding())
    assert not alone.faults.take()


def test_a_copy_is_queued_in_order_and_its_session_becomes_ready() -> None:
    alone = Alone()

    assert alone.offer(b"1", b"2") == [True, True]

    assert alone.ready.take() == [alone.session]
    assert [delivery.sequence for delivery in alone.session.queue] == [1, 2]
    assert alone.take() == [b"1", b"2"]
    assert (alone.account.in_time, alone.counters.messages_sent) == (2, 2)


def test_a_copy_counts_for_every_subscription_that_it_is_for() -> None:
    alone = Alone()
    first, second = (
        Subscription(client_id="c", topic_filter="t", terms=Terms(price=2.0)),
        Subscription(client_id="c", topic_filter="#", terms=Terms(price=0.5)),
    )

    alone.outbound.offer(
        alone.session, alone.message(b"1"), 0, False, (1, 2), first, (second,), NOW_NS, "7:1/2"
    )

    [delivery] = alone.session.queue
    assert (delivery.subscription_ids, delivery.others, delivery.group) == ((1, 2), (second,), "7:1/2")
    assert alone.account.matched == 2
    alone.take()
    assert (alone.account.in_time, alone.account.earned_micro) == (2, 2_500_000)


def test_what_does_not_fit_is_dropped_and_told_once_until_the_session_is_served() -> None:
    alone = Alone(queue_messages_per_client_max=1)

    assert alone.offer(b"1", b"2", b"3") == [True, False, False]

    [alert] = alone.counters.alerts
    assert alert == "queue of client 'c' is full (1 messages, 591 bytes; all queues 591 bytes)"
    alone.take()
    alone.offer(b"4", b"5")
    assert len(alone.counters.alerts) == 2
    assert alone.account.dropped[Reason.QUEUE_FULL.value] == 3


def test_an_error_while_queueing_is_noted_and_the_session_put_right() -> None:
    alone = Alone(queue_messages_per_client_max=1)
    alone.offer(b"1", deadline_ns=SECOND)
    del alone.account.dropped[Reason.HOPELESS.value]  # so that what has to leave cannot be counted
    alone.outbound.set_delay(alone.session, LinkDelay(0.1, 0.0), NOW_NS)

    later_ns = NOW_NS + SECOND - 1
    is_queued = alone.outbound.offer(
        alone.session,
        alone.message(b"2"),
        0,
        False,
        (),
        Subscription(client_id="c", topic_filter="t"),
        NO_OTHERS,
        later_ns,
    )

    assert not is_queued
    [fault] = alone.faults.take()
    assert (fault.client_id, fault.connection, type(fault.error)) == ("c", 1, KeyError)
    assert alone.session.scheduled is None
    alone.session._check()


def test_a_link_that_is_busy_makes_what_is_taken_later() -> None:
    alone = Alone()
    alone.offer(b"1", b"2", deadline_ns=SECOND)

    taken = alone.outbound.take(alone.session, 1 << 20, NOW_NS, ahead_ns=SECOND // 2)

    assert [delivery.sent_ns for delivery in taken] == [NOW_NS + SECOND // 2] * 2
    assert alone.account.in_time == 2
    alone.offer(b"3", deadline_ns=SECOND)
    assert alone.outbound.take(alone.session, 1 << 20, NOW_NS, ahead_ns=SECOND) == []
    assert alone.account.dropped[Reason.TIMED_OUT.value] == 1


def test_an_unknown_pubrec_is_released_with_the_code_of_the_standard() -> None:
    alone = Alone()

    assert alone.outbound.acknowledge(alone.session, PUBREC, 7, 0, NOW_NS)

    [reply] = alone.session.replies
    assert (reply.kind, reply.packet_id, reply.reason_code) == (PUBREL, 7, PACKET_ID_NOT_FOUND)
    assert PACKET_ID_NOT_FOUND == 0x92


def test_copies_that_were_not_sent_can_be_withdrawn_for_others() -> None:
    alone = Alone()
    alone.offer(b"1", b"2", qos=1, topic_filter="$share/g/t")
    alone.offer(b"own", qos=1)
    waiting = alone.outbound.unsent(alone.session, "$share/g/t")
    assert [delivery.message.payload for delivery in waiting] == [b"1", b"2"]

    alone.outbound.withdraw(alone.session, waiting[1:], Reason.SESSION_EXPIRED, NOW_NS)

    assert [orphan.delivery for orphan in alone.outbound.orphans] == waiting[1:]
    assert [delivery.message.payload for delivery in alone.session.queue] == [b"1", b"own"]
    alone.check()


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_stored_leaves_storage_with_its_acknowledgement(durable: bool) -> None:
    alone = Alone(durable=durable)
    alone.offer(b"1", qos=1)
    stored = ["PutMessage", "PutDelivery"] if durable else []
    assert alone.orders() == stored
    alone.take()
    assert alone.orders() == (["PutDelivery"] if durable else [])

    assert alone.outbound.acknowledge(alone.session, PUBACK, 1, 0, NOW_NS)

    assert alone.orders() == (["DropDelivery", "DropMessage"] if durable else [])
    alone.check()


def test_expiry_goes_on_in_steps_until_all_are_looked_after() -> None:
    alone = Alone()
    alone.offer(*[b"x"] * (STEP_COPIES_MAX + 10), deadline_ns=SECOND)
    late_ns = NOW_NS + 2 * SECOND

    alone.outbound.expire(late_ns)

    assert list(alone.outbound.expiring) == [alone.session]
    while alone.outbound.expiring:
        alone.outbound.continue_expiry(late_ns)
        alone.check()
    assert alone.session.queued_messages() == 0
    assert alone.account.dropped[Reason.TIMED_OUT.value] + alone.account.dropped[Reason.HOPELESS.value] == 266
