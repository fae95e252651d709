"""The subscription index against asking every subscription, in any sequence of changes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.topic_strategies import SHARED_FILTERS, TOPICS, selects

from timebound.core.matching import index as index_module
from timebound.core.matching.index import FilterErrors, SubscriptionIndex
from timebound.core.predicate.predicate import Attributes
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms
from timebound.topics import split_share
from timebound.version import is_compiled

CLIENTS = st.sampled_from(["c1", "c2", "c3"])
WHERE = st.sampled_from(["", "", "v > 1", "v = 2 OR w = 1", "w IS NULL"])
PROPERTIES = st.sampled_from([(), (("v", "1"),), (("v", "2"),), (("v", "3"), ("w", "1")), (("w", "0"),)])


def subscription(client_id: str, topic_filter: str, where: str = "") -> Subscription:
    return Subscription(
        client_id=client_id,
        topic_filter=topic_filter,
        terms=Terms(where=where),
    )


def inserted(*subscriptions: Subscription) -> SubscriptionIndex:
    index = SubscriptionIndex()
    for one in subscriptions:
        index.insert(one)
    index._check()
    return index


def plain_clients(index: SubscriptionIndex, topic: str) -> list[str]:
    return sorted(one.client_id for one in index.match(topic).plain)


def test_a_leading_wildcard_does_not_select_system_topics() -> None:
    # MQTT 5, 4.7.2-1
    index = inserted(subscription("all", "#"), subscription("one", "+/x"), subscription("sys", "$SYS/#"))

    assert plain_clients(index, "$SYS/x") == ["sys"]
    assert plain_clients(index, "$SYS") == ["sys"]
    assert plain_clients(index, "a/x") == ["all", "one"]


def test_a_subscription_change_is_seen_by_topics_matched_before() -> None:
    exact, wild = subscription("exact", "a/b"), subscription("wild", "a/+")
    index = inserted(exact)
    assert plain_clients(index, "a/b") == ["exact"]

    index.insert(wild)
    assert plain_clients(index, "a/b") == ["exact", "wild"]
    index.remove(exact)
    assert plain_clients(index, "a/b") == ["wild"]
    index.insert(exact)
    assert plain_clients(index, "a/b") == ["exact", "wild"]


def test_a_content_filter_added_to_a_known_topic_asks_for_attributes() -> None:
    index = inserted(subscription("plain", "a"))
    assert not index.match("a").needs_attributes

    index.insert(subscription("content", "a", "v > 1"))

    assert index.match("a").needs_attributes
    assert not index.match("a").is_simple


def test_a_match_is_simple_only_if_no_session_is_named_twice() -> None:
    index = inserted(subscription("c1", "a"), subscription("c2", "+"))
    assert index.match("a").is_simple

    index.insert(subscription("c1", "#"))

    assert not index.match("a").is_simple
    assert index.match("b").is_simple


def test_the_turn_of_a_group_goes_round() -> None:
    # MQTT 5, 4.8.2: each message goes to one member; here to each as often as to the others.
    members = [subscription(name, "$share/g/a") for name in ("m1", "m2", "m3")]
    index = inserted(*members)

    [group] = index.match("a").groups
    firsts = [group.candidates(None, [])[0].client_id for _ in range(9)]

    assert sorted(firsts) == ["m1"] * 3 + ["m2"] * 3 + ["m3"] * 3
    assert all(first != second for first, second in pairwise(firsts))


def test_candidates_of_a_group_are_every_member_that_wants_the_message_once() -> None:
    index = inserted(
        subscription("m1", "$share/g/a", "v > 1"),
        subscription("m2", "$share/g/a"),
        subscription("m3", "$share/g/a", "v < 0"),
    )
    [group] = index.match("a").groups

    found = [one.client_id for one in group.candidates(Attributes((("v", "2"),), b""), [])]

    assert sorted(found) == ["m1", "m2"]
    assert [one.client_id for one in group.candidates(None, [])] == ["m2"]


def test_a_filter_of_a_group_that_raises_is_named_and_the_others_take_turns() -> None:
    index = inserted(
        subscription("m1", "$share/g/a", "v > 1"),
        subscription("m2", "$share/g/a"),
        subscription("m3", "$share/g/a"),
    )
    [group] = index.match("a").groups
    broken: Any = (("a",),)  # user properties that no client can send: a filter that asks for one raises
    errors: FilterErrors = []

    firsts = [group.candidates(Attributes(broken, b""), errors)[0].client_id for _ in range(4)]

    assert sorted(firsts) == ["m2", "m2", "m3", "m3"]
    assert all(first != second for first, second in pairwise(firsts))
    assert [one.client_id for one, _ in errors] == ["m1"] * 4


def test_a_group_without_members_is_gone() -> None:
    member = subscription("m1", "$share/g/a/+")
    index = inserted(member)
    assert index.match("a/b").groups

    index.remove(member)

    index._check()
    assert not index.match("a/b").groups
    assert len(index) == 0


def test_equal_groups_of_different_filters_are_different_groups() -> None:
    # MQTT 5, 4.8.2: a shared subscription is named by group and filter together.
    index = inserted(subscription("m1", "$share/g/a"), subscription("m2", "$share/g/+"))

    assert len(index.match("a").groups) == 2


@pytest.mark.parametrize("topic_filter", ["a/b/c", "a/+/c", "a/b/#", "$share/g/a/b/c"])
def test_the_last_removal_leaves_no_node(topic_filter: str) -> None:
    one = subscription("c1", topic_filter)
    index = inserted(one)

    index.remove(one)

    index._check()
    assert index._root.is_empty()


def test_topics_that_nobody_subscribes_to_do_not_fill_the_cache() -> None:
    index = inserted(subscription("c1", "a"))

    for number in range(index_module.MATCHES_MAX + 10):
        index.match(f"invented/{number}")

    assert len(index._matches) <= index_module.MATCHES_MAX
    assert plain_clients(index, "a") == ["c1"]


def test_matches_that_were_forgotten_are_computed_anew() -> None:
    index = inserted(subscription("c1", "a"))
    before = index.match("a")

    index.clear_matches()

    assert index.match("a") is not before
    assert plain_clients(index, "a") == ["c1"]


def test_subscriptions_here_and_at_another_broker_share_one_evaluation_and_one_decoded_payload() -> None:
    index = SubscriptionIndex()
    here, there, plain = (subscription(name, "a/+", "payload.x > 1") for name in ("c1", "c1@b", "c2@b"))
    plain.predicate = None
    there.home = plain.home = "b"
    for one in (here, there, plain):
        index.insert(one)
    message = Message("a/1", b'{"x": 2}', 0, False, 0)

    selection = index.select(message)

    assert (selection.local, selection.remote) == ([here], [plain, there])
    assert len(index) == 1  # of this broker's clients
    assert index.select(message) is selection
    index.remove(there)
    assert index.select(message).remote == [plain]
    assert index.end_selection() == []
    index._check()


def test_a_client_named_as_one_of_another_broker_is_another_subscription() -> None:
    index = SubscriptionIndex()
    here, there = subscription("c@b", "a"), subscription("c@b", "a")
    there.home = "b"
    index.insert(here)
    index.insert(there)

    assert (index.match("a").plain, index.match("a").remote) == ([here], [there])
    assert index.has(here)
    assert index.has(there)
    assert index.remove(here)
    assert (index.match("a").plain, index.match("a").remote) == ([], [there])
    assert not index.has(here)
    assert index.remove(there)
    index._check()


@pytest.mark.skipif(is_compiled(), reason="a compiled filter cannot be replaced by a broken one")
def test_a_filter_that_raises_selects_nothing_and_is_reported_once() -> None:
    index = SubscriptionIndex()
    broken, sound = subscription("c1", "a", "x = 1"), subscription("c2@b", "a", "x = 1")
    sound.home = "b"
    for one in (broken, sound):
        index.insert(one)
    broken.predicate = cast(Any, "a bug")
    content = index.match("a").contents[0]
    content._entries[broken].filings[0].rest = cast(Any, "a bug")

    selection = index.select(Message("a", b"", 0, False, 0, user_properties=(("x", "1"),)))

    assert (selection.local, selection.remote) == ([], [sound])
    [(subscribed, error)] = index.end_selection()
    assert subscribed is broken
    assert isinstance(error, AttributeError | TypeError)
    assert index.end_selection() == []


class IndexMachine(RuleBasedStateMachine):
    """Subscriptions come and go; what the index finds is what asking each of them finds."""

    def __init__(self) -> None:
        super().__init__()
        self.index = SubscriptionIndex()
        self.standing: dict[tuple[str, str, str], Subscription] = {}  # by client, filter and home

    @initialize(topics=st.lists(TOPICS, max_size=4))
    def fill_cache(self, topics: list[str]) -> None:
        for topic in topics:
            self.index.match(topic)

    @rule(client_id=CLIENTS, topic_filter=SHARED_FILTERS, where=WHERE, home=st.sampled_from(["", "b", "c"]))
    def subscribe(self, client_id: str, topic_filter: str, where: str, home: str) -> None:
        if home:  # shared groups of other brokers are known by their plain filter
            client_id, topic_filter = f"{client_id}@{home}", split_share(topic_filter)[1]
        old = self.standing.get((client_id, topic_filter, home))
        if old is not None:
            self.index.remove(old)
        new = subscription(client_id, topic_filter, where)
        new.home = home
        self.index.insert(new)
        self.standing[client_id, topic_filter, home] = new

    @precondition(lambda self: self.standing)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.standing)))
        self.index.remove(self.standing.pop(key))

    @rule(topic=TOPICS, properties=PROPERTIES)
    def match(self, topic: str, properties: tuple[tuple[str, str], ...]) -> None:
        attributes = Attributes(properties, b"", topic)
        match = self.index.match(topic)

        message = Message(topic, b"", 0, False, 0, user_properties=properties)
        selection = self.index.select(message)
        found = [*selection.local, *selection.remote]
        assert self.index.select(message) is selection
        assert not any(one.home for one in selection.local)
        assert all(one.home for one in selection.remote)
        assert match.has_remote() or not selection.remote
        shared: dict[tuple[str, str], set[str]] = {}
        for group in match.groups:
            names = {one.client_id for one in group.candidates(attributes, [])}
            if names:
                filters = {split_share(one.topic_filter) for one in group.members.values()}
                assert len(filters) == 1
                shared[filters.pop()] = names

        assert {id(one) for one in found} == {id(one) for one in self._wanted(topic, attributes)}
        assert len(found) == len({id(one) for one in found})
        assert shared == self._wanted_shared(topic, attributes)

    def _wanted(self, topic: str, attributes: Attributes) -> list[Subscription]:
        return [
            one
            for one in self.standing.values()
            if not split_share(one.topic_filter)[0]
            and selects(one.topic_filter, topic)
            and (one.predicate is None or one.predicate.matches(attributes))
        ]

    def _wanted_shared(self, topic: str, attributes: Attributes) -> dict[tuple[str, str], set[str]]:
        wanted: dict[tuple[str, str], set[str]] = {}
        for one in self.standing.values():
            group, topic_filter = split_share(one.topic_filter)
            is_wanted = one.predicate is None or one.predicate.matches(attributes)
            if group and is_wanted and selects(topic_filter, topic):
                wanted.setdefault((group, topic_filter), set()).add(one.client_id)
        return wanted

    @invariant()
    def is_whole(self) -> None:
        self.index._check()
        assert len(self.index) == sum(not one.home for one in self.standing.values())

    def teardown(self) -> None:
        for one in self.standing.values():
            self.index.remove(one)
        self.index._check()
        assert self.index._root.is_empty()


IndexMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestIndex = IndexMachine.TestCase


@settings(max_examples=40)
@given(st.lists(st.tuples(CLIENTS, SHARED_FILTERS), unique=True, max_size=10), TOPICS)
def test_a_simple_match_names_each_session_once(pairs: list[tuple[str, str]], topic: str) -> None:
    index = inserted(*[subscription(client_id, topic_filter) for client_id, topic_filter in pairs])

    match = index.match(topic)

    names = [one.client_id for one in match.plain]
    assert match.is_simple == (not match.groups and len(set(names)) == len(names))
