"""Converts packets to the core's values: the only place that knows both.

The wire does not know the core, nor the core the wire. Here a PUBLISH becomes a message, a
SUBSCRIBE entry a subscription with its terms, and a will of a CONNECT one of the core.
"""

from __future__ import annotations

from timebound.core.values.message import Message
from timebound.core.values.store_orders import Will
from timebound.core.values.subscription import NO_USER_PROPERTIES, Subscription, UserProperties
from timebound.errors import ProtocolError
from timebound.units import SECOND
from timebound.wire import packets
from timebound.wire.reasons import ReasonCode
from timebound.wire.terms import parse_publish_terms, parse_subscribe_terms


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
    *,
    client_id: str,
    topic_filter: str,
    qos: int = 0,
    no_local: bool = False,
    retain_as_published: bool = False,
    retain_handling: int = 0,
    identifier: int = 0,
    user_properties: UserProperties = NO_USER_PROPERTIES,
) -> Subscription:
    """Return the subscription of a SUBSCRIBE entry, or of a stored one.

    Raises:
        ProtocolError: a term such as `deadline` is malformed.
        FilterError: the content filter `where` is invalid; carries the position.
    """
    terms = parse_subscribe_terms(user_properties)
    try:
        return Subscription(
            client_id=client_id,
            topic_filter=topic_filter,
            qos=qos,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
            identifier=identifier,
            terms=terms,
            user_properties=user_properties,
        )
    except ValueError as error:
        reason = f"property 'correlate': {error}"
        raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, reason) from error
