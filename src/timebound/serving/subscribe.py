"""From an entry of a SUBSCRIBE to a subscription within the limits of the configuration."""

from __future__ import annotations

from timebound.config.limits import Limits
from timebound.core.values.access import covers
from timebound.core.values.subscription import Subscription
from timebound.errors import FilterError, ProtocolError
from timebound.topics import SHARE_PREFIX, check_filter, split_share, topic_fault
from timebound.translate import to_subscription
from timebound.wire.packets import Subscribe, SubscribeEntry
from timebound.wire.reasons import ReasonCode
from timebound.wire.terms import refuse_reserved_terms


def make_subscription(
    limits: Limits, client_id: str, packet: Subscribe, entry: SubscribeEntry
) -> Subscription:
    """Return what an entry asks for.

    Raises:
        FilterError: the topic filter is invalid.
        ProtocolError: a property or a limit refuses it.
    """
    check_filter(entry.topic_filter)
    _check_size(limits, split_share(entry.topic_filter)[1])
    user_properties = tuple(packet.properties.user_properties)
    refuse_reserved_terms(user_properties)
    for name, value in user_properties:
        if name == "where" and len(value) > limits.filter_length_max:
            raise ProtocolError(
                ReasonCode.QUOTA_EXCEEDED,
                f"property 'where' has {len(value)} characters, "
                f"filter_length_max is {limits.filter_length_max}",
            )
    identifiers = packet.properties.subscription_identifiers
    try:
        subscription = to_subscription(
            client_id=client_id,
            topic_filter=entry.topic_filter,
            qos=entry.qos,
            no_local=entry.no_local,
            retain_as_published=entry.retain_as_published,
            retain_handling=entry.retain_handling,
            identifier=identifiers[0] if identifiers else 0,
            user_properties=user_properties,
        )
    except FilterError as error:
        reason = f"property 'where': {error}"
        raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, reason) from error
    for part in subscription.parts:
        _check_part(limits, part, split_share(entry.topic_filter)[1])
    return subscription


def _check_part(limits: Limits, part: str, topic_filter: str) -> None:
    """Refuse a part of a correlation of which no or not every message would come to the subscription."""
    where = "property 'correlate': "
    _check_size(limits, part, where)
    reason = ""
    if part.startswith(SHARE_PREFIX):
        reason = f"{part!r} is shared; only the subscription's own filter can be"
    elif not covers(topic_filter, part):
        reason = (
            f"part {part!r} selects messages that the subscription's own filter {topic_filter!r} does not; "
            "subscribe to a filter that selects those of all parts"
        )
    if reason:
        raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, where + reason)


def _check_size(limits: Limits, topic_filter: str, where: str = "") -> None:
    """Refuse a filter that is too long or too deep: of a SUBSCRIBE, or a part of its correlation."""
    fault = topic_fault(topic_filter, limits.topic_length_max, limits.topic_levels_max)
    if fault:
        raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, where + fault)
