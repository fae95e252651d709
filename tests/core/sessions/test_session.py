"""Packet ids, what counts as work, and the list of sessions that are ready."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.predicate.predicate import parse
from timebound.core.sessions.session import PACKET_ID_MAX, PUBACK, ReadyList, Reply, Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import SENT, Delivery, Message
from timebound.core.values.subscription import Subscription


def make_session(connection: int = 1) -> Session:
    session = Session("c", "", AccessList([]).for_client("", "c"))
    session.connection = connection
    return session


def in_flight(session: Session, packet_id: int) -> None:
    message = Message("t", b"", 1, False, 0)
    session.inflight[packet_id] = Delivery(message, 1, False, packet_id=packet_id, state=SENT)


def test_packet_ids_begin_at_one_and_go_up() -> None:
    session = make_session()

    assert [session.next_packet_id() for _ in range(3)] == [1, 2, 3]


def test_packet_ids_wrap_around_and_skip_those_in_use() -> None:
    # MQTT 5, 2.2.1: a packet id is not 0 and not in use.
    session = make_session()
    session.last_packet_id = PACKET_ID_MAX - 1
    for packet_id in (PACKET_ID_MAX, 1, 2, 4):
        in_flight(session, packet_id)

    assert [session.next_packet_id() for _ in range(3)] == [3, 5, 6]


def test_the_last_free_packet_id_is_found() -> None:
    session = make_session()
    for packet_id in range(1, PACKET_ID_MAX + 1):
        if packet_id != 777:
            in_flight(session, packet_id)
    session.last_packet_id = 778

    assert session.next_packet_id() == 777


@settings(max_examples=50)
@given(st.sets(st.integers(1, 40)), st.integers(0, PACKET_ID_MAX))
def test_a_new_packet_id_is_never_in_use(used: set[int], last: int) -> None:
    session = make_session()
    for packet_id in used:
        in_flight(session, packet_id)
    session.last_packet_id = last

    packet_id = session.next_packet_id()

    assert packet_id not in used
    assert 1 <= packet_id <= PACKET_ID_MAX


def test_a_session_has_work_if_something_could_be_written_now() -> None:
    session = make_session()
    delivery = Delivery(Message("t", b"", 1, False, 0), 1, False)
    assert not session.has_work()

    session.blocked.append(delivery)
    assert session.has_work()
    session.send_quota = 0
    assert not session.has_work()
    session.resend.append(delivery)
    assert not session.has_work()
    session.replies.append(Reply(PUBACK, 1))
    assert session.has_work()


def test_a_session_that_lost_count_of_its_bytes_is_found_out() -> None:
    session = make_session()
    session.queue.append(Delivery(Message("t", b"", 0, False, 0), 0, False))

    with pytest.raises(AssertionError):
        session._check()


def test_the_ready_list_names_a_session_once_in_order() -> None:
    ready = ReadyList()
    first, second = make_session(1), make_session(2)

    for session in (second, first, second):
        ready.add(session)

    assert ready.take() == [second, first]
    assert ready.take() == []
    ready.add(second)
    assert ready.take() == [second]


def test_a_session_without_connection_is_not_ready() -> None:
    ready = ReadyList()

    ready.add(make_session(0))

    assert ready.is_empty()


def test_a_session_counts_its_timed_subscriptions() -> None:
    session = make_session()

    session.add_subscription(Subscription("c", "a", deadline_ns=1))
    session.add_subscription(Subscription("c", "b", keep_last=True))
    session.add_subscription(Subscription("c", "c"))
    session.add_subscription(Subscription("c", "a"))  # replaces the first

    assert session.timed_subscriptions == 1
    session._check()
    assert session.remove_subscription("b") is not None
    assert session.remove_subscription("b") is None
    assert session.timed_subscriptions == 0
    session._check()


def test_the_cost_of_filters_counts_searches_once_for_each_text() -> None:
    session = make_session()

    def wanted(topic_filter: str, where: str) -> Subscription:
        return Subscription("c", topic_filter, predicate=parse(where))

    session.add_subscription(wanted("a", "x = 1 AND text LIKE '%a%'"))
    assert session.costs.total == 2 + 32
    assert session.sums_with(wanted("b", "x = 1 AND text LIKE '%a%'")) == (4 + 32, 4 + 32, 0)
    assert session.sums_with(wanted("a", "x = 1")) == (1, 1, 0)  # in its place
    session.add_subscription(wanted("b", "x = 1 AND text LIKE '%a%'"))
    session.add_subscription(wanted("c", "y = 1"))
    assert session.costs.total == 5 + 32
    session._check()
    session.remove_subscription("a")
    assert session.costs.total == 3 + 32
    session.remove_subscription("b")
    assert session.costs.total == 1
    session.remove_subscription("c")
    assert session.costs.total == 0
    session._check()
