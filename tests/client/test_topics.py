from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound import topics as broker_topic
from timebound.client.topics import FilterMatcher, check_filter, check_topic
from timebound.errors import FilterError

LEVELS = st.sampled_from(["", "a", "b", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER_TEXTS = st.lists(st.sampled_from(["", "a", "b", "$x", "+", "#", "a+"]), min_size=1, max_size=4).map(
    "/".join
)


@given(FILTER_TEXTS, TOPICS)
def test_client_and_broker_agree_on_filters(topic_filter: str, topic: str) -> None:
    """The broker's own functions are the oracle; the client may not import them."""
    try:
        broker_topic.check_filter(topic_filter)
    except FilterError:
        with pytest.raises(ValueError, match="filter"):
            check_filter(topic_filter)
        return

    check_filter(topic_filter)
    assert FilterMatcher(topic_filter).matches(topic) == broker_topic.matches(topic_filter, topic)


def test_shared_filter_matches_by_what_follows_its_group() -> None:
    matcher = FilterMatcher("$share/group/a/+")

    assert matcher.matches("a/b")
    assert not matcher.matches("$share/group/a/b")


@pytest.mark.parametrize("text", ["$share/", "$share/g", "$share//a", "$share/g/", "$share/+/a"])
def test_incomplete_shared_filter_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write \$share/GROUP/FILTER"):
        check_filter(text)


@pytest.mark.parametrize(
    ("topic", "message"),
    [("", "topic is empty"), ("a/+", "has a wildcard"), ("#", "has a wildcard"), ("a\0", "U\\+0000")],
)
def test_topic_that_cannot_be_published_to_is_refused(topic: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_topic(topic)
