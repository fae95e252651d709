"""The naive meaning of filters equals that of the broker."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from timebound.core.predicate.attributes import Attributes
from timebound.core.predicate.predicate import parse
from timebound.sim.deployment.checkers.oracle import WHERE, covers, is_plain, selects, share_of
from timebound.sim.deployment.history import AskedSubscription, SentMessage, payload_of
from timebound.topics import matches

ASKED = AskedSubscription("s", 1, "n1", "a/#", 1, False, {}, 0)
SENT = SentMessage(1, "p", 1, "a/x", 1, False, False, 0, "red", 60)


def test_topics_are_compared_as_the_broker_does() -> None:
    filters = ("#", "a", "a/#", "a/+", "+/x", "+", "+/+", "$SYS/#", "a/x/#", "a//+")
    topics = ("a", "a/x", "b/x", "a/x/y", "$SYS/x", "a/", "/x")

    for topic_filter, topic in product(filters, topics):
        assert covers(topic_filter, topic) == matches(topic_filter, topic), (topic_filter, topic)
    assert covers("$share/g/a/#", "a/x")
    assert share_of("$share/g/a/#") == ("g", "a/#")


def test_content_filters_mean_what_the_broker_takes_them_for() -> None:
    for text, kind, level, is_empty in product(WHERE, ("", "red", "blue"), (10, 20, 55, 60), (False, True)):
        sent = replace(SENT, kind=kind, level=level, is_empty=is_empty)
        payload = b"" if is_empty else payload_of(1, level, 0)
        properties = (("kind", kind),) if kind else ()
        predicate = parse(text)

        assert WHERE[text](sent) == predicate.matches(Attributes(properties, payload, "a/x")), (text, sent)


def test_subscription_selects_by_filter_content_and_no_local() -> None:
    assert selects(ASKED, SENT)
    assert not selects(replace(ASKED, topic_filter="b/#"), SENT)
    assert not selects(replace(ASKED, terms={"where": "level > 50"}), replace(SENT, level=50))
    assert not selects(replace(ASKED, client="p", no_local=True), SENT)


def test_filters_of_scenarios_are_asked_by_properties_and_payload() -> None:
    sent = replace(SENT, properties=(("temperature", "71.5"),))

    for text, is_selected in (("temperature > 70", True), ("temperature > 72", False), ("level = 60", True)):
        assert selects(replace(ASKED, terms={"where": text}), sent) is is_selected


def test_plain_subscription_is_neither_shared_nor_a_correlation() -> None:
    assert is_plain(ASKED)
    assert not is_plain(replace(ASKED, topic_filter="$share/g/a/#"))
    assert not is_plain(replace(ASKED, terms={"correlate": "all(a/x, a/y)"}))
