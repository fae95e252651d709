"""From an entry of a SUBSCRIBE to a subscription."""

from __future__ import annotations

import pytest
from tests.peer import props

from timebound.config.limits import Limits
from timebound.core.values.subscription import Subscription
from timebound.errors import FilterError, ProtocolError
from timebound.serving.subscribe import make_subscription
from timebound.wire.packets import Subscribe, SubscribeEntry
from timebound.wire.reasons import ReasonCode


def make(topic_filter: str, *terms: tuple[str, str], limits: Limits | None = None) -> Subscription:
    entry = SubscribeEntry(topic_filter, 1, True, True, 2)
    packet = Subscribe(1, [entry], props(user_properties=list(terms)))
    return make_subscription(limits or Limits(), "c", packet, entry)


def test_options_and_terms_are_taken_over() -> None:
    entry = SubscribeEntry("a/#", 1, True, True, 2)
    packet = Subscribe(1, [entry], props(user_properties=[("deadline", "2s"), ("name", "hot")]))
    packet.properties.subscription_identifiers = [7]

    made = make_subscription(Limits(), "c", packet, entry)

    assert (made.client_id, made.topic_filter, made.qos, made.identifier) == ("c", "a/#", 1, 7)
    assert (made.no_local, made.retain_as_published, made.retain_handling) == (True, True, 2)
    assert (made.terms.deadline_ns, made.terms.name) == (2_000_000_000, "hot")


def test_filter_that_is_invalid_raises() -> None:
    with pytest.raises(FilterError):
        make("a/#/b")


@pytest.mark.parametrize(
    ("topic_filter", "term", "text"),
    [
        ("a" * 20, ("name", "x"), "topic"),
        ("a", ("where", "a = 1 AND b = 2"), "filter_length_max is 10"),
        ("a", ("where", "a = = 1"), "property 'where'"),
        ("a", ("reserve", "1"), "reservations are not supported"),
        ("a/#", ("correlate", "all($share/g/a/x, a/y)"), "correlate"),
    ],
)
def test_limits_and_wrong_terms_are_protocol_errors(
    topic_filter: str, term: tuple[str, str], text: str
) -> None:
    with pytest.raises(ProtocolError, match=text.replace("$", r"\$")):
        make(topic_filter, term, limits=Limits(topic_length_max=16, filter_length_max=10))


@pytest.mark.parametrize("topic_filter", ["a/#", "$share/g/a/#", "#", "a/+"])
def test_parts_of_a_correlation_within_the_filter_are_accepted(topic_filter: str) -> None:
    made = make(topic_filter, ("correlate", "all(a/x, any(a/+, a/y))"))

    assert {"a/x", "a/y"} <= set(made.parts)


@pytest.mark.parametrize(
    ("topic_filter", "part"),
    [("a/#", "b/x"), ("$share/g/a/#", "b/x"), ("a/+", "+/x"), ("a/x", "a/#"), ("#", "$SYS/broker/version")],
)
def test_part_outside_of_the_filter_is_refused_by_name(topic_filter: str, part: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        make(topic_filter, ("correlate", f"all(a/x, {part})"))

    own = topic_filter.removeprefix("$share/g/")
    assert caught.value.reason_code == ReasonCode.TOPIC_FILTER_INVALID
    assert str(caught.value) == (
        f"property 'correlate': part {part!r} selects messages that the subscription's own filter {own!r} "
        "does not; subscribe to a filter that selects those of all parts"
    )
