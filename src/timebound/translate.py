"""Converts packets to the core's values: the only place that knows both.

The wire does not know the core, nor the core the wire. Here a PUBLISH becomes a message, a
SUBSCRIBE entry a subscription with its terms, and a will of a CONNECT one of the core.
"""

from __future__ import annotations

from timebound.core.correlation.expression import Correlator, Dependency
from timebound.core.correlation.text import parse_correlation
from timebound.core.predicate.predicate import parse
from timebound.core.sessions.correlations import dependency_of
from timebound.core.values.message import Message
from timebound.core.values.store_orders import Will
from timebound.core.values.subscription import Subscription, UserProperties
from timebound.errors import FilterError, ProtocolError
from timebound.topics import check_filter
from timebound.units import SECOND
from timebound.wire import packets
from timebound.wire.reasons import ReasonCode
from timebound.wire.terms import SubscribeTerms, parse_publish_terms, parse_subscribe_terms


def to_message(packet: packets.Publish, topic: str, publisher: str, now_ns: int) -> Message:
    """Return the message of a PUBLISH; its topic is passed because the packet may have an alias.

    Raises:
        ProtocolError: a property such as `timeout` is malformed; with its name and value.
    """
    message = Message(topic, packet.payload, packet.qos, packet.retain, now_ns, publisher)
    if packet.passed_on:
        message.properties = packet.passed_on
        if packet.user_properties:
            message.user_properties = packet.user_properties
            terms = parse_publish_terms(packet.user_properties)
            message.timeout_ns = terms.timeout_ns
            message.priority = terms.priority
    if packet.message_expiry_interval >= 0:
        message.expires_ns = now_ns + packet.message_expiry_interval * SECOND
    return message


def to_will(will: packets.Will, client_id: str, now_ns: int) -> Will:
    """Return the will of a CONNECT; its expiry is relative until it is published."""
    properties = will.properties
    user_properties = tuple(properties.user_properties)
    message = Message(will.topic, will.payload, will.qos, will.retain, now_ns, client_id)
    message.properties = properties.encode_passed_on()
    message.user_properties = user_properties
    terms = parse_publish_terms(user_properties)
    message.timeout_ns = terms.timeout_ns
    message.priority = terms.priority
    if properties.message_expiry_interval is not None:
        message.expires_ns = max(properties.message_expiry_interval * SECOND, 1)
    return Will(client_id, message, properties.will_delay_interval or 0)


def to_subscription(
    client_id: str,
    topic_filter: str,
    qos: int,
    no_local: bool,
    retain_as_published: bool,
    retain_handling: int,
    identifier: int,
    user_properties: UserProperties,
) -> Subscription:
    """Return the subscription of a SUBSCRIBE entry, or of a stored one.

    Raises:
        ProtocolError: a term such as `deadline` is malformed.
        FilterError: the content filter `where` is invalid; carries the position.
    """
    terms = parse_subscribe_terms(user_properties)
    return Subscription(
        client_id,
        topic_filter,
        qos,
        no_local,
        retain_as_published,
        retain_handling,
        identifier,
        parse(terms.where) if terms.where else None,
        terms.deadline_ns,
        terms.price,
        terms.penalty,
        user_properties,
        terms.keep_last,
        terms.is_ordered,
        terms.notify_missed,
        _dependency(topic_filter, terms),
        terms.watchdog_ns,
    )


def _dependency(topic_filter: str, terms: SubscribeTerms) -> Dependency | None:
    """Return what a subscription waits for; the parts of `correlate` must be valid filters."""
    try:
        correlation = parse_correlation(terms.correlate, terms.within_ns) if terms.correlate else None
        dependency = dependency_of(topic_filter, correlation, terms.watchdog_ns, terms.every_ns)
        if correlation is not None and dependency is not None:
            # As a whole: `watchdog` and `every` add to the depth and signals of the correlation.
            for leaf in Correlator(dependency).leaves:
                check_filter(str(leaf.key))
    except (FilterError, ValueError) as error:
        raise ProtocolError(
            ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, f"property 'correlate': {error}"
        ) from error
    return dependency
