"""From packets to the core's values."""

from __future__ import annotations

import pytest

from timebound.errors import FilterError, ProtocolError
from timebound.translate import to_message, to_subscription, to_will
from timebound.units import MILLISECOND, SECOND
from timebound.wire import packets
from timebound.wire.packets import make_publish
from timebound.wire.properties import Properties

NOW_NS = 5 * SECOND


def properties(**values: object) -> Properties:
    made = Properties()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def test_plain_publish_becomes_a_message_without_limits() -> None:
    message = to_message(packets.Publish("", b"x", 1, True, topic_alias=3), "a/b", "press", NOW_NS)

    assert (message.topic, message.payload, message.qos, message.retain) == ("a/b", b"x", 1, True)
    assert (message.publisher, message.published_ns) == ("press", NOW_NS)
    assert (message.timeout_ns, message.priority, message.expires_ns) == (0, 0, 0)
    assert message.properties == b""


def test_terms_and_expiry_of_a_publish_are_read_and_its_properties_passed_on() -> None:
    terms = [("timeout", "400ms"), ("unit", "C"), ("priority", "7")]
    given = properties(content_type="text/plain", user_properties=terms, message_expiry_interval=60)
    packet = make_publish("a", b"x", properties=given)

    message = to_message(packet, "a", "press", NOW_NS)

    assert (message.timeout_ns, message.priority) == (400 * MILLISECOND, 7)
    assert message.expires_ns == NOW_NS + 60 * SECOND
    assert message.user_properties == tuple(terms)
    assert message.properties == packet.passed_on


def test_publish_with_a_term_that_cannot_be_read_is_refused() -> None:
    packet = make_publish("a", b"x", properties=properties(user_properties=[("timeout", "soon")]))

    with pytest.raises(ProtocolError, match="property 'timeout' is 'soon'") as caught:
        to_message(packet, "a", "press", NOW_NS)

    assert caught.value.reason_code == 0x83


def test_will_keeps_its_terms_its_delay_and_a_relative_expiry() -> None:
    given = properties(
        will_delay_interval=30, message_expiry_interval=60, user_properties=[("timeout", "2s"), ("k", "v")]
    )

    will = to_will(packets.Will("left", b"x", 2, True, given), "press", NOW_NS)

    assert (will.client_id, will.delay_s) == ("press", 30)
    assert (will.message.topic, will.message.qos, will.message.retain) == ("left", 2, True)
    assert (will.message.timeout_ns, will.message.expires_ns) == (2 * SECOND, 60 * SECOND)
    assert will.message.user_properties == (("timeout", "2s"), ("k", "v"))


def test_will_that_expires_at_once_is_told_from_one_that_never_does() -> None:
    at_once = packets.Will("left", b"", properties=properties(message_expiry_interval=0))

    assert to_will(at_once, "press", NOW_NS).message.expires_ns == 1
    assert to_will(packets.Will("left", b""), "press", NOW_NS).message.expires_ns == 0


def test_subscription_has_the_options_and_terms_of_its_entry() -> None:
    terms = (("where", "value > 90"), ("deadline", "250ms"), ("price", "3"), ("penalty", "0.5"))

    subscription = to_subscription(
        client_id="c",
        topic_filter="a/+",
        qos=1,
        no_local=True,
        retain_handling=2,
        identifier=9,
        user_properties=terms,
    )

    assert (subscription.client_id, subscription.topic_filter, subscription.qos) == ("c", "a/+", 1)
    assert (subscription.no_local, subscription.retain_as_published) == (True, False)
    assert (subscription.retain_handling, subscription.identifier) == (2, 9)
    assert (subscription.deadline_ns, subscription.price, subscription.penalty) == (
        250 * MILLISECOND,
        3.0,
        0.5,
    )
    assert subscription.predicate is not None
    assert subscription.dependency is None


def test_wrong_content_filter_keeps_its_position() -> None:
    with pytest.raises(FilterError) as caught:
        to_subscription(client_id="c", topic_filter="a", user_properties=(("where", "value >> 90"),))

    assert caught.value.position == 7


@pytest.mark.parametrize("text", ["all(a, b", "all(a/#/b, c)", "("])
def test_wrong_correlation_is_named_as_the_property_it_came_in(text: str) -> None:
    with pytest.raises(ProtocolError, match="property 'correlate'") as caught:
        to_subscription(
            client_id="c", topic_filter="#", user_properties=(("correlate", text), ("within", "1s"))
        )

    assert caught.value.reason_code == 0x83


def test_watchdog_makes_a_subscription_wait_without_a_correlation() -> None:
    watched = to_subscription(client_id="c", topic_filter="a", user_properties=(("watchdog", "20ms"),))

    assert watched.dependency is not None
    assert watched.terms.watchdog_ns == 20 * MILLISECOND
