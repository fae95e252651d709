"""What a broker tells the mesh about its clients' subscriptions."""

from __future__ import annotations

from timebound.core.mesh.interest import Interest, WatchedIndex
from timebound.core.mesh.table import SubscriptionTable
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms

Told = list[tuple[str, str, float, bool]]


def told(interest: Interest) -> Told:
    return [(one.subscriber, one.topic_filter, one.price, is_on) for one, is_on in interest.take()]


def test_terms_are_advertised_with_the_home() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    index.insert(
        Subscription(
            client_id="c",
            topic_filter="t/#",
            qos=1,
            terms=Terms(where="x > 1", deadline_ns=5, price=2.0, penalty=1.0),
        )
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
    first = Subscription(client_id="c", topic_filter="t", terms=Terms(price=1.0))
    index.insert(first)
    index.remove(first)
    index.insert(Subscription(client_id="c", topic_filter="t", terms=Terms(price=3.0)))

    assert told(interest) == [("c", "t", 1.0, True), ("c", "t", 1.0, False), ("c", "t", 3.0, True)]
    assert told(interest) == []


def test_topics_of_the_broker_itself_are_not_advertised() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    index.insert(Subscription(client_id="c", topic_filter="$SYS/#"))
    index.insert(Subscription(client_id="c", topic_filter="$timebound/drops/#"))
    index.insert(Subscription(client_id="c", topic_filter="$share/g/$SYS/broker/uptime"))

    assert told(interest) == []


def test_a_client_named_like_a_shared_group_does_not_withdraw_its_subscription() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    client = Subscription(client_id="$share/g", topic_filter="t")
    index.insert(client)
    index.insert(Subscription(client_id="c", topic_filter="$share/g/t"))
    table = SubscriptionTable()
    for advertised, _ in interest.take():
        table.insert(advertised)

    index.remove(client)
    for advertised, _ in interest.take():
        table.remove(advertised.client_id, advertised.topic_filter)

    assert len(table) == 1


def test_members_of_a_shared_group_are_advertised_as_one() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    one = Subscription(client_id="c1", topic_filter="$share/g/t", terms=Terms(price=1.0))
    other = Subscription(client_id="c2", topic_filter="$share/g/t", terms=Terms(price=2.0))
    index.insert(one)
    index.insert(other)
    assert told(interest) == [("$share/g", "t", 1.0, True)]

    index.remove(one)
    assert told(interest) == [("$share/g", "t", 2.0, True)]

    index.remove(other)
    assert told(interest) == [("$share/g", "t", 2.0, False)]


def test_each_name_is_advertised_for_itself_and_says_whose_it_is() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    hot = Subscription(client_id="c", topic_filter="t", terms=Terms(name="hot", where="x > 1", price=9.0))
    index.insert(hot)
    index.insert(Subscription(client_id="c", topic_filter="t"))

    advertised = [one for one, _ in interest.take()]

    assert [one.client_id for one in advertised] == ["c\0hot@b1", "c@b1"]
    assert [one.subscriber for one in advertised] == ["c", "c"]
    index.remove(hot)
    assert [(one.client_id, is_on) for one, is_on in interest.take()] == [("c\0hot@b1", False)]


def test_a_shared_group_is_advertised_without_a_content_filter_where_its_members_differ() -> None:
    index = WatchedIndex()
    interest = Interest(index, "b1")
    members = [
        Subscription(client_id=client_id, topic_filter="$share/g/t", terms=Terms(name=name, where=where))
        for client_id, name, where in (
            ("c", "a", "x = 1"),
            ("d", "", "x = 1"),
            ("c", "b", "x = 2"),
            ("d", "z", "x = 3"),
        )
    ]
    seen: list[list[str]] = []
    for member in members:
        index.insert(member)
        seen.append([one.terms.where for one, _ in interest.take()])
    for member in (members[2], members[3]):
        index.remove(member)
        seen.append([one.terms.where for one, _ in interest.take()])

    assert seen == [["x = 1"], [], [""], [""], [""], ["x = 1"]]
