"""The subscriptions of a whole mesh, against a list that is searched one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.mesh.table import HomeGroup, MeshSubscription, SubscriptionTable
from timebound.core.values.message import Message
from timebound.terms import Terms
from timebound.topics import matches

SECOND = 1_000_000_000


def message(topic: str = "t", **properties: str) -> Message:
    return Message(topic, b"", 0, False, 0, "p", user_properties=tuple(properties.items()))


def found(table: SubscriptionTable, what: Message) -> dict[str, list[str]]:
    return {group.home: [one.client_id for one in group.subscriptions] for group in table.match(what)}


def test_a_match_is_one_group_per_home_by_name() -> None:
    table = SubscriptionTable()
    for client_id, home, topic_filter in (("x", "d", "t"), ("y", "c", "#"), ("z", "d", "+"), ("w", "d", "u")):
        table.insert(MeshSubscription(client_id=client_id, home=home, topic_filter=topic_filter))

    groups = table.match(message())

    assert [(group.home, len(group.subscriptions)) for group in groups] == [("c", 1), ("d", 2)]
    assert table.match(message("a/b/c/d")) != []
    assert SubscriptionTable().match(message()) == []


def test_the_content_of_a_message_decides_where_a_subscription_asks_for_it() -> None:
    table = SubscriptionTable()
    table.insert(
        MeshSubscription(client_id="hot", home="d", topic_filter="t", terms=Terms(where="celsius > 30"))
    )
    table.insert(MeshSubscription(client_id="all", home="d", topic_filter="t"))

    assert found(table, message(celsius="31")) == {"d": ["all", "hot"]}
    assert found(table, message(celsius="29")) == {"d": ["all"]}


def test_a_subscription_of_the_same_client_and_filter_is_replaced() -> None:
    table = SubscriptionTable()
    table.insert(MeshSubscription(client_id="s", home="c", topic_filter="t", terms=Terms(price=1.0)))
    before = table.version

    table.insert(MeshSubscription(client_id="s", home="d", topic_filter="t", terms=Terms(price=7.0)))

    assert len(table) == 1
    assert table.home_of("s", "t") == "d"
    assert [one.price for one in table.subscriptions()] == [7.0]
    assert table.version > before


def test_what_is_not_there_is_not_removed() -> None:
    table = SubscriptionTable()
    table.insert(MeshSubscription(client_id="s", home="d", topic_filter="t"))

    assert not table.remove("s", "u")
    assert table.remove("s", "t")
    assert not table.remove("s", "t")
    assert (len(table), table.home_of("s", "t")) == (0, "")


def test_a_group_merges_subscriptions_of_the_same_deadline_and_last_mile() -> None:
    terms = [(10, 0, 1.0, 0.5), (10, 0, 2.0, 0.25), (20, 0, 4.0, 0.0), (10, 5, 8.0, 0.0)]
    group = HomeGroup(
        3,
        [
            MeshSubscription(
                client_id=f"s{number}",
                home="d",
                topic_filter="t",
                last_mile_ns=last_mile_ns,
                terms=Terms(deadline_ns=seconds * SECOND, price=price, penalty=penalty),
            )
            for number, (seconds, last_mile_ns, price, penalty) in enumerate(terms)
        ],
    )

    assert [(term.deadline_ns // SECOND, term.last_mile_ns, term.count) for term in group.terms] == [
        (10, 0, 2),
        (20, 0, 1),
        (10, 5, 1),
    ]
    assert [(term.price, term.penalty) for term in group.terms] == [(3.0, 0.75), (4.0, 0.0), (8.0, 0.0)]
    assert group.penalty_micro == 750_000
    assert group.deadline_ns == 12_500_000_000  # the mean of all four


def test_one_subscription_without_a_deadline_leaves_its_group_without_one() -> None:
    group = HomeGroup(
        0,
        [
            MeshSubscription(client_id="a", home="d", topic_filter="t", terms=Terms(deadline_ns=SECOND)),
            MeshSubscription(client_id="b", home="d", topic_filter="t"),
        ],
    )

    assert group.deadline_ns == 0


def test_equal_sets_of_subscriptions_are_one_group() -> None:
    table = SubscriptionTable()
    for number in range(3):
        table.insert(MeshSubscription(client_id=f"s{number}", home="d", topic_filter=f"t{number}"))
    first = table.match(message("t0"))[0]

    numbers = {group.number for topic in ("t0", "t1", "t2") for group in table.match(message(topic))}

    assert table.match(message("t0"))[0] is first
    assert len(numbers) == 3


def test_a_group_is_not_that_of_a_subscription_it_replaced() -> None:
    table = SubscriptionTable()
    table.insert(MeshSubscription(client_id="s", home="d", topic_filter="t", terms=Terms(price=1.0)))
    [before] = table.match(message())

    table.insert(MeshSubscription(client_id="s", home="d", topic_filter="t", terms=Terms(price=7.0)))
    [after] = table.match(message())

    assert after.number != before.number
    assert [term.price for term in after.terms] == [7.0]


def test_a_copy_is_equal_but_numbered_by_its_own_table() -> None:
    original = MeshSubscription(
        client_id="s@d",
        home="d",
        topic_filter="t",
        last_mile_ns=4,
        subscriber="s",
        terms=Terms(where="a > 1", deadline_ns=SECOND, price=2.0, penalty=3.0),
    )
    tables = [SubscriptionTable(), SubscriptionTable()]
    tables[1].insert(MeshSubscription(client_id="other", home="d", topic_filter="t"))
    tables[0].insert(original)

    again = original.copy()
    tables[1].insert(again)

    fields = ("client_id", "home", "topic_filter", "predicate", "deadline_ns", "price", "penalty")
    assert [getattr(again, name) for name in fields] == [getattr(original, name) for name in fields]
    assert (again.last_mile_ns, again.subscriber) == (4, "s")
    assert (original.number, again.number) == (0, 1)
    assert MeshSubscription(client_id="s", home="d", topic_filter="t").subscriber == "s"


topic_names = st.sampled_from(("a", "b", "a/b", "a/c"))
filters = st.sampled_from(("a", "b", "a/+", "#", "+/b", "a/#"))
changes = st.tuples(st.booleans(), st.sampled_from("stuv"), filters, st.sampled_from("xyz"))


@given(st.lists(changes, max_size=25), st.lists(topic_names, min_size=1, max_size=4))
def test_the_table_matches_what_a_search_of_all_subscriptions_finds(
    history: list[tuple[bool, str, str, str]], published: list[str]
) -> None:
    table = SubscriptionTable()
    naive: dict[tuple[str, str], str] = {}
    for is_added, client_id, topic_filter, home in history:
        if is_added:
            table.insert(MeshSubscription(client_id=client_id, home=home, topic_filter=topic_filter))
            naive[client_id, topic_filter] = home
        else:
            assert table.remove(client_id, topic_filter) == (
                naive.pop((client_id, topic_filter), None) is not None
            )

    assert len(table) == len(naive)
    for topic in published:
        expected: dict[str, list[str]] = {}
        for (client_id, topic_filter), home in naive.items():
            if matches(topic_filter, topic):
                expected.setdefault(home, []).append(client_id)
        got = found(table, message(topic))
        assert list(got) == sorted(expected)
        assert {home: sorted(names) for home, names in got.items()} == {
            home: sorted(names) for home, names in expected.items()
        }
