"""What counts as work, when a copy is late, and the list of sessions that are ready."""

from __future__ import annotations

import pytest

from timebound.core.link.scheduling import Scheduling
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import NEVER_NS, Entry
from timebound.core.sessions.session import PUBACK, ReadyList, Reply, Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms


def make_session(connection: int = 1) -> Session:
    session = Session("c", "", AccessList([]).for_client("", "c"))
    session.connection = connection
    return session


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


def test_a_session_is_due_for_the_earliest_of_its_limits_its_ranking_and_its_queue() -> None:
    session = make_session()
    delivery = Delivery(Message("t", b"", 1, False, 0), 1, False)
    assert session.next_drop_ns() == NEVER_NS

    session.limits.append((50, 1, delivery))
    session.rank_ns = 20  # nothing is ranked without a queue by worth
    assert session.next_drop_ns() == 50
    session.scheduled = Scheduling().make_queue(session.delay, 10, 1_000, 0)
    assert session.next_drop_ns() == 50  # nothing waits to be ranked
    session.queue.append(delivery)
    assert session.next_drop_ns() == 20
    session.scheduled.push(Entry(delivery, 1, 0, Audience([Term(deadline_ns=10)])), 0)
    assert session.next_drop_ns() <= 10


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

    session.add_subscription(Subscription(client_id="c", topic_filter="a", terms=Terms(deadline_ns=1)))
    session.add_subscription(Subscription(client_id="c", topic_filter="b", terms=Terms(keep_last=True)))
    session.add_subscription(Subscription(client_id="c", topic_filter="c"))
    session.add_subscription(Subscription(client_id="c", topic_filter="a"))  # replaces the first

    assert session.timed_subscriptions == 1
    session._check()
    assert session.remove_subscription("b") is not None
    assert session.remove_subscription("b") is None
    assert session.timed_subscriptions == 0
    session._check()


def test_the_cost_of_filters_counts_searches_once_for_each_text() -> None:
    session = make_session()

    def wanted(topic_filter: str, where: str) -> Subscription:
        return Subscription(client_id="c", topic_filter=topic_filter, terms=Terms(where=where))

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
