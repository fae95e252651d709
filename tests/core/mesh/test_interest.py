"""What a broker tells the mesh about its clients' subscriptions."""

from __future__ import annotations

from timebound.core.mesh.interest import Interest, WatchedIndex
from timebound.core.predicate.predicate import parse
from timebound.core.values.subscription import Subscription

Told = list[tuple[str, str, float, bool]]


def told(interest: Interest) -> Told:
    return [(one.subscriber, one.topic_filter, one.price, is_on) for one, is_on in interest.take()]


def test_terms_are_advertised_with_the_home() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    index.insert(
        Subscription("c", "t/#", predicate=parse("x > 1"), deadline_ns=5, price=2.0, penalty=1.0, qos=1)
    )

    [(advertised, is_on)] = interest.take()

    assert is_on
    assert (advertised.home, advertised.client_id, advertised.subscriber) == ("b1", "c@b1", "c")
    assert advertised.topic_filter == "t/#"
    assert (advertised.deadline_ns, advertised.price, advertised.penalty) == (5, 2.0, 1.0)
    assert advertised.predicate is not None
    assert advertised.predicate.text == "x > 1"


def test_changes_are_told_once_and_in_order() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    first = Subscription("c", "t", price=1.0)
    index.insert(first)
    index.remove(first)
    index.insert(Subscription("c", "t", price=3.0))

    assert told(interest) == [("c", "t", 1.0, True), ("c", "t", 1.0, False), ("c", "t", 3.0, True)]
    assert told(interest) == []


def test_topics_of_the_broker_itself_are_not_advertised() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    index.insert(Subscription("c", "$SYS/#"))
    index.insert(Subscription("c", "$timebound/drops/#"))
    index.insert(Subscription("c", "$share/g/$SYS/broker/uptime"))

    assert told(interest) == []


def test_members_of_a_shared_group_are_advertised_as_one() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    one = Subscription("c1", "$share/g/t", price=1.0)
    other = Subscription("c2", "$share/g/t", price=2.0)
    index.insert(one)
    index.insert(other)
    assert told(interest) == [("$share/g", "t", 1.0, True)]

    index.remove(one)
    assert told(interest) == [("$share/g", "t", 2.0, True)]

    index.remove(other)
    assert told(interest) == [("$share/g", "t", 2.0, False)]
