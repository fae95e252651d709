"""Access rules: covering and overlapping filters, placeholders, defaults, and the rule file."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.values.doubles import parse_access_rules

from timebound.core.values.access import (
    CACHED_TOPICS_MAX,
    AccessList,
    AccessRule,
    _Pattern,
    covers,
    read_access_rules,
)
from timebound.errors import ConfigError, FilterError

# "z" occurs in no filter, so that no literal covers a level by luck of a small alphabet.
TOPIC_LEVELS = ["a", "b", "", "$s", "z"]
# The empty topic is none in MQTT, and is left in: it only makes "covers" answer no more often.
TOPICS = [
    "/".join(parts) for count in (1, 2, 3, 4) for parts in itertools.product(TOPIC_LEVELS, repeat=count)
]

filter_levels = st.lists(st.sampled_from(["a", "b", "", "$s", "+"]), min_size=1, max_size=3)


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(filter_levels)
    ending = draw(st.sampled_from(["", "", "/#", "only #"]))
    if ending == "only #":
        return "#"
    return ("/".join(levels) + ending) or "a"


def matches(topic_filter: str, topic: str) -> bool:
    """The standard's words, read from left to right."""
    if topic.startswith("$") and topic_filter[0] in "+#":
        return False
    return matches_levels(topic_filter.split("/"), topic.split("/"))


def matches_levels(pattern: list[str], levels: list[str]) -> bool:
    if pattern == ["#"] or not pattern:
        return bool(pattern) or not levels
    if not levels:
        return False
    return pattern[0] in ("+", levels[0]) and matches_levels(pattern[1:], levels[1:])


@settings(max_examples=300, deadline=None)
@given(topic_filters(), topic_filters())
def test_covers_and_overlaps_agree_with_trying_every_topic(one: str, other: str) -> None:
    ours = {topic for topic in TOPICS if matches(one, topic)}
    theirs = {topic for topic in TOPICS if matches(other, topic)}

    assert covers(one, other) == (theirs <= ours)
    assert _Pattern(one).overlaps(_Pattern(other)) == bool(ours & theirs)
    assert _Pattern(other).overlaps(_Pattern(one)) == bool(ours & theirs)


@settings(max_examples=200, deadline=None)
@given(topic_filters(), st.sampled_from(TOPICS[1:]))
def test_covers_of_a_topic_is_matching(topic_filter: str, topic: str) -> None:
    assert covers(topic_filter, topic) == matches(topic_filter, topic)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a/b", "a/+", False),
        ("a/+", "a/b", True),
        ("a/#", "a", True),
        ("a/+", "a", False),
        ("a/+", "a/#", False),
        ("#", "a/+/b/#", True),
        ("+/#", "#", True),
        ("#", "$SYS/#", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/broker/+", True),
        ("a/+/c", "a/+/c", True),
    ],
)
def test_covers_examples(one: str, other: str, expected: bool) -> None:
    assert covers(one, other) is expected


rules = st.builds(
    AccessRule,
    user=st.sampled_from(["*", "", "u", "v"]),
    action=st.sampled_from(["publish", "subscribe", "all"]),
    topic_filter=topic_filters(),
    allow=st.booleans(),
)


def decide(rule_list: list[AccessRule], user: str, action: str, topic: str) -> bool:
    """First match wins, one topic at a time."""
    openings = ("$timebound/control/", "$timebound/advertise/", "$timebound/link/", "$timebound/alarm/")
    if action == "publish" and topic.startswith(("$SYS/", "$timebound/")) and not topic.startswith(openings):
        return False
    for rule in rule_list:
        if rule.user in ("*", user) and rule.action in ("all", action) and matches(rule.topic_filter, topic):
            return rule.allow
    if action == "subscribe" and matches("$SYS/#", topic):
        return True
    if action == "publish" and topic.startswith("$"):
        return not rule_list if topic.startswith(openings) else False
    return not rule_list


@settings(max_examples=150, deadline=None)
@given(st.lists(rules, max_size=6), st.sampled_from(["", "u", "v", "w"]))
def test_publishing_agrees_with_the_first_matching_rule(rule_list: list[AccessRule], user: str) -> None:
    access = AccessList(rule_list)

    for topic in TOPICS[1:160]:
        expected = decide(rule_list, user, "publish", topic)
        assert access.may_publish(user, "client", topic) == expected
        assert access.may_publish(user, "client", topic) == expected  # from the cache


@settings(max_examples=300, deadline=None)
@given(st.lists(rules, max_size=6), st.sampled_from(["", "u", "v", "w"]), topic_filters())
def test_an_allowed_subscription_reaches_only_allowed_topics(
    rule_list: list[AccessRule], user: str, asked: str
) -> None:
    if AccessList(rule_list).may_subscribe(user, "client", asked):
        reached = [topic for topic in TOPICS if matches(asked, topic)]
        assert all(decide(rule_list, user, "subscribe", topic) for topic in reached)


@settings(max_examples=150, deadline=None)
@given(st.lists(rules, max_size=6), st.sampled_from(["", "u"]), st.sampled_from(TOPICS[1:160]))
def test_subscribing_to_one_topic_agrees_with_the_first_matching_rule(
    rule_list: list[AccessRule], user: str, topic: str
) -> None:
    assert AccessList(rule_list).may_subscribe(user, "client", topic) == decide(
        rule_list, user, "subscribe", topic
    )


def test_without_rules_everything_but_server_topics_is_allowed() -> None:
    access = AccessList([])

    assert access.may_publish("", "c", "a/b")
    assert access.may_subscribe("", "c", "#")
    assert access.may_subscribe("", "c", "$SYS/#")
    assert access.may_publish("", "c", "$timebound/advertise/a")
    assert not access.may_publish("", "c", "$SYS/broker/uptime")
    assert not access.may_publish("", "c", "$timeboundish")


def test_with_rules_everything_else_is_denied_but_reading_sys() -> None:
    access = AccessList(parse_access_rules("allow user u publish a/#"))

    assert access.may_publish("u", "c", "a/1")
    assert not access.may_publish("u", "c", "b")
    assert not access.may_publish("v", "c", "a/1")
    assert not access.may_subscribe("u", "c", "a/1")
    assert access.may_subscribe("v", "c", "$SYS/broker/#")
    assert not access.may_subscribe("v", "c", "$timebound/#")


def test_findings_and_requests_need_a_rule_once_there_are_any() -> None:
    topics = ["$timebound/control/weight", "$timebound/link/c", "$timebound/alarm/n/c"]
    free = AccessList([])
    ruled = AccessList(parse_access_rules("allow user root all $timebound/#"))

    for topic in topics:
        assert free.may_publish("", "c", topic)
        assert ruled.may_publish("root", "c", topic)
        assert not ruled.may_publish("u", "c", topic)
    assert ruled.may_publish("u", "c", "$timebound/advertise/a")


@pytest.mark.parametrize(
    "topic", ["$SYS", "$SYS/x", "$timebound", "$timebound/", "$timebound/drops/a", "$timebound/mesh/news"]
)
def test_no_rule_opens_the_brokers_own_topics(topic: str) -> None:
    rules = "allow anyone all #\nallow anyone all $SYS/#\nallow anyone all $timebound/#"

    assert not AccessList(parse_access_rules(rules)).may_publish("root", "c", topic)
    assert not AccessList([]).may_publish("root", "c", topic)


def test_server_topics_can_be_opened_and_closed_by_rules() -> None:
    access = AccessList(
        parse_access_rules(
            "deny anyone subscribe $SYS/secret\ndeny anyone publish $timebound/#\nallow user root all $SYS/#"
        )
    )

    assert not access.may_publish("root", "c", "$timebound/advertise/a")
    assert not access.may_subscribe("root", "c", "$SYS/#")
    assert access.may_subscribe("v", "c", "$SYS/load")


def test_a_wildcard_does_not_reach_around_a_denied_topic() -> None:
    access = AccessList(parse_access_rules("deny anyone subscribe a/secret\nallow anyone subscribe a/#"))

    assert access.may_subscribe("u", "c", "a/open/#")
    assert not access.may_subscribe("u", "c", "a/#")
    assert not access.may_subscribe("u", "c", "a/+")
    assert not access.may_subscribe("u", "c", "$share/group/a/+")


@pytest.mark.parametrize("asked", ["$share/g", "$share/g/", "$share/", "$share//"])
def test_a_malformed_share_is_denied(asked: str) -> None:
    assert not AccessList([AccessRule("*", "all", "#", True)]).may_subscribe("u", "c", asked)


def test_the_filter_of_a_shared_subscription_counts() -> None:
    access = AccessList(parse_access_rules("allow anyone subscribe a/#"))

    assert access.may_subscribe("u", "c", "$share/g/a/b")
    assert not access.may_subscribe("u", "c", "$share/a/b")


def test_placeholders_become_the_names_of_the_client() -> None:
    access = AccessList(parse_access_rules("allow anyone all home/%u/#\nallow anyone publish from-%c/%u%%"))

    assert access.may_subscribe("ann", "c1", "home/ann/+")
    assert not access.may_subscribe("ann", "c1", "home/+/x")
    assert not access.may_publish("ann", "c1", "home/bob")
    assert access.may_publish("ann", "c1", "from-c1/ann%%")


def test_a_name_that_looks_like_a_placeholder_is_not_one() -> None:
    access = AccessList(parse_access_rules("allow anyone publish x/%u"))

    assert access.may_publish("%c", "secret", "x/%c")
    assert not access.may_publish("%c", "secret", "x/secret")


@pytest.mark.parametrize("name", ["", "+", "#", "a/b", "a+", "/", "a\0"])
def test_an_unusual_name_widens_no_allowance_and_narrows_no_denial(name: str) -> None:
    access = AccessList(
        parse_access_rules(
            "deny anyone all vault/%c/key\nallow anyone all vault/#\n"
            "allow anyone all home/%c/#\nallow anyone all x/%u\n"
        )
    )

    for topic in ("home/a/x", "home/a/b/c", "home//x", "home/+/x", "home/x"):
        assert not access.may_publish("u", name, topic)
        assert not access.may_subscribe("u", name, topic)
    assert not access.may_subscribe("u", name, "home/+/#")
    assert not access.may_publish(name, "c", "x/a")
    assert not access.may_publish("u", name, "vault/a/b/key")
    assert not access.may_publish("u", name, "vault//key")
    assert access.may_publish("u", "plain", "vault/other/key")


def test_anonymous_clients_have_rules_of_their_own() -> None:
    access = AccessList(parse_access_rules("allow anonymous subscribe public/#\nallow user u all #"))

    assert access.may_subscribe("", "c", "public/x")
    assert not access.may_subscribe("u2", "c", "public/x")
    assert access.may_subscribe("u", "c", "public/x")


def test_the_cache_of_decisions_stays_bounded_and_right() -> None:
    client = AccessList(parse_access_rules("allow anyone publish a/+")).for_client("u", "c")

    for number in range(3 * CACHED_TOPICS_MAX):
        assert client.may_publish(f"a/{number}")
        assert not client.may_publish(f"b/{number}")
        assert len(client._publish_cache) <= CACHED_TOPICS_MAX
    assert client.may_publish("a/" + "x" * 5_000)


def test_parse_reads_all_forms_of_a_rule() -> None:
    text = (
        "# who may what\n\n"
        "allow user ann publish plant/+/temp\r\n"
        "  deny   anyone\tall secret/#  \n"
        "allow anonymous subscribe a topic with spaces/#\n"
    )

    assert parse_access_rules(text) == [
        AccessRule("ann", "publish", "plant/+/temp", True),
        AccessRule("*", "all", "secret/#", False),
        AccessRule("", "subscribe", "a topic with spaces/#", True),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("permit anyone all #", "expected 'allow' or 'deny', found 'permit'"),
        ("allow", "expected 'user NAME', 'anyone' or 'anonymous', found ''"),
        ("allow bob all #", "expected 'user NAME', 'anyone' or 'anonymous', found 'bob'"),
        ("allow user bob read a", "expected 'publish', 'subscribe' or 'all', found 'read'"),
        ("allow user bob", "expected 'publish', 'subscribe' or 'all', found ''"),
        ("allow user * all #", "'user *' is not a user name; write 'anyone' for every client"),
        ("allow anyone all", "topic filter is empty; '#' stands for every topic"),
        ("allow anyone all a/#/b", "topic filter 'a/#/b' has '#' before its end"),
        ("allow anyone all a/b#", "topic filter 'a/b#' has '#' before its end"),
        ("allow anyone all a/b+", "topic filter 'a/b+' has '+' beside other characters of a level"),
        (
            "allow anyone all $share/g/a",
            "topic filter '$share/g/a' begins with '$share/'; write only the filter after the group name",
        ),
    ],
)
def test_parse_names_file_line_and_mistake(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_access_rules(f"# comment\n{line}\n", "rules.acl")

    assert str(caught.value) == f"rules.acl:2: {message}"
    assert caught.value.line == 2


def test_read_collects_every_mistake() -> None:
    found, mistakes = read_access_rules("x\nallow anyone all #\ny\n")

    assert len(found) == 1
    assert [mistake.line for mistake in mistakes] == [1, 3]


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    _, mistakes = read_access_rules(text)

    assert all(mistake.line > 0 for mistake in mistakes)


def test_a_rule_with_a_bad_filter_tells_the_position() -> None:
    with pytest.raises(FilterError) as caught:
        AccessRule("*", "all", "a/b/+c", True)

    assert caught.value.position == 4
