"""Topic filters: what is refused and where, and what selects what."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from timebound.errors import FilterError
from timebound.topics import (
    FINDINGS,
    REQUESTS,
    check_filter,
    has_wildcard,
    level_count,
    matches,
    reserved_fault,
    split_share,
    topic_fault,
)

from .topic_strategies import FILTERS, SHARED_FILTERS, TOPICS, selects


@pytest.mark.parametrize(
    ("topic_filter", "position", "fault"),
    [
        ("", 0, "empty"),  # 4.7.3-1
        ("a/#/b", 2, "before its last level"),  # 4.7.1-1
        ("a/b#", 2, "'#' inside a level"),  # 4.7.1-1
        ("#a", 0, "'#' inside a level"),
        ("a/+b", 2, "'+' inside a level"),  # 4.7.1-2
        ("a+", 0, "'+' inside a level"),
        ("a/\0", 2, "null character"),  # 4.7.3-2
        ("$share", 6, "incomplete"),  # 4.8.2-1
        ("$share/", 6, "incomplete"),
        ("$share/g", 6, "incomplete"),
        ("$share/g/", 6, "incomplete"),
        ("$share//a", 6, "incomplete"),
        ("$share/g+/a", 7, "wildcard in its group"),  # 4.8.2-2
        ("$share/#/a", 7, "wildcard in its group"),
        ("$share/g/a/+b", 11, "'+' inside a level"),
        ("$share/g/#/b", 9, "before its last level"),
        ("$share/g/a\0", 10, "null character"),
        ("$share/g\0/a", 8, "null character"),
    ],
)
def test_wrong_filters_are_refused_with_the_position(topic_filter: str, position: int, fault: str) -> None:
    with pytest.raises(FilterError, match=re.escape(fault)) as caught:
        check_filter(topic_filter)

    assert caught.value.position == position


@pytest.mark.parametrize(
    "topic_filter",
    [
        "a",
        "/",
        "//",
        "+",
        "#",
        "+/+",
        "a/#",
        "/#",
        "+/a/#",
        "$SYS/#",
        "$share/g/a",
        "$share/g//",
        "$shared/a",
    ],
)
def test_right_filters_are_accepted(topic_filter: str) -> None:
    check_filter(topic_filter)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        # 4.7.1.2: the number sign includes the parent level.
        ("sport/tennis/#", "sport/tennis", True),
        ("sport/tennis/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/#", "sport/tennis2", False),
        # 4.7.1.3: the plus sign is exactly one level, which may be empty.
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        # 4.7.2: a leading wildcard does not select what begins with $.
        ("#", "$SYS/load", False),
        ("+/load", "$SYS/load", False),
        ("$SYS/#", "$SYS/load", True),
        ("$SYS/+", "$SYS/load", True),
        ("a/+", "a/$b", True),
        # 4.7.3: names are compared exactly, case included.
        ("ACCOUNTS", "Accounts", False),
    ],
)
def test_the_examples_of_the_standard(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


@settings(max_examples=200)
@given(FILTERS, TOPICS)
def test_matches_agrees_with_a_regular_expression(topic_filter: str, topic: str) -> None:
    assert matches(topic_filter, topic) is selects(topic_filter, topic)


@settings(max_examples=100)
@given(SHARED_FILTERS)
def test_a_valid_filter_splits_into_group_and_filter(topic_filter: str) -> None:
    check_filter(topic_filter)

    group, inner = split_share(topic_filter)

    assert (f"$share/{group}/{inner}" if group else inner) == topic_filter
    assert has_wildcard(inner) == any(level in ("+", "#") for level in inner.split("/"))
    assert level_count(inner) == len(inner.split("/"))


@pytest.mark.parametrize(
    ("topic", "openings", "is_reserved"),
    [
        ("a/b", (), False),
        ("$other/x", (), False),
        ("$SYSTEM/x", (), False),
        ("$timeboundish", (), False),
        ("$SYS", (), True),
        ("$SYS/broker/uptime", REQUESTS + FINDINGS, True),
        ("$timebound/control/weight", (), True),
        ("$timebound/control/weight", REQUESTS, False),
        ("$timebound/control/weight", FINDINGS, True),
        ("$timebound/alarm/n/l", REQUESTS, True),
        ("$timebound/alarm/n/l", FINDINGS, False),
        ("$timebound/controlled", REQUESTS, True),
    ],
)
def test_own_topics_are_reserved_but_for_the_openings(
    topic: str, openings: tuple[str, ...], is_reserved: bool
) -> None:
    assert bool(reserved_fault(topic, openings)) is is_reserved


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("a" * 10, ""),
        ("a" * 11, "topic has 11 bytes, topic_length_max is 10"),
        ("é" * 6, "topic has 12 bytes, topic_length_max is 10"),
        ("a/b/c", ""),
        ("a/b/c/d", "topic has 4 levels, topic_levels_max is 3"),
        ("///", "topic has 4 levels, topic_levels_max is 3"),
        ("", ""),
    ],
)
def test_topics_that_are_too_long_or_too_deep_have_a_fault(topic: str, fault: str) -> None:
    assert topic_fault(topic, 10, 3) == fault
