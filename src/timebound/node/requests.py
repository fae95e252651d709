"""The seldom packets of an open connection: SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from timebound.core.session import Session
from timebound.core.subscription import Subscription
from timebound.core.topic import check_filter, check_wildcards, level_count, split_share
from timebound.errors import FilterError, ProtocolError
from timebound.node.translate import to_subscription
from timebound.records import Reason
from timebound.wire.codec import encode
from timebound.wire.packets import (
    Auth,
    Disconnect,
    Packet,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from timebound.wire.reasons import ReasonCode
from timebound.wire.terms import refuse_reserved_terms, subscribe_hints

if TYPE_CHECKING:
    from timebound.node.connection import Connection

# Of one packet; enough for the reasons of several filters.
REASON_STRING_LENGTH_MAX: Final = 1_024


def handle(connection: Connection, session: Session, packet: Packet, now_ns: int) -> None:
    """Act on a packet that is neither PUBLISH nor an acknowledgement."""
    if isinstance(packet, Subscribe):
        _subscribe(connection, session, packet, now_ns)
    elif isinstance(packet, Unsubscribe):
        _unsubscribe(connection, session, packet)
    elif isinstance(packet, Disconnect):
        _disconnect(connection, session, packet)
    elif isinstance(packet, Auth):
        # MQTT 5, 4.12: a client that named no method in CONNECT must not send AUTH.
        connection.close(ReasonCode.PROTOCOL_ERROR, "AUTH without an authentication method in CONNECT")
    else:
        connection.close(ReasonCode.PROTOCOL_ERROR, f"unexpected {type(packet).__name__.upper()}")


def topic_fault(topic: str, length_max: int, levels_max: int) -> str:
    """What is wrong with the size of a topic or filter; empty if nothing."""
    length = len(topic.encode("utf-8", "surrogatepass"))
    if length > length_max:
        return f"topic has {length} bytes, topic_length_max is {length_max}"
    levels = level_count(topic)
    if levels > levels_max:
        return f"topic has {levels} levels, topic_levels_max is {levels_max}"
    return ""


def _subscribe(connection: Connection, session: Session, packet: Subscribe, now_ns: int) -> None:
    mark = connection.broker.mark()
    codes: list[int] = []
    reasons: list[str] = []
    if len(packet.properties.user_properties) > connection.driver.limits.user_properties_max:
        connection.close(ReasonCode.QUOTA_EXCEEDED, "too many user properties")
        return
    if _is_violated(connection, [entry.topic_filter for entry in packet.entries]):
        return
    for entry in packet.entries:
        if entry.no_local and entry.topic_filter.startswith("$share/"):
            # MQTT 5, 3.8.3.1
            connection.close(ReasonCode.PROTOCOL_ERROR, "no local on a shared subscription")
            return
        try:
            subscription = _make_subscription(connection, session, packet, entry)
        except FilterError as error:
            codes.append(ReasonCode.TOPIC_FILTER_INVALID)
            reasons.append(str(error))
        except ProtocolError as error:
            codes.append(error.reason_code)
            reasons.append(str(error))
        else:
            code = connection.broker.subscribe(session, subscription, now_ns)
            codes.append(code)
            if code >= 0x80:
                reasons.append(_refusal(code, entry.topic_filter))
    for reason in reasons:
        connection.note(f"subscription: {reason}")
    hints = subscribe_hints(packet.properties.user_properties)
    for hint in hints:
        connection.hint(f"subscription: {hint}")
    _answer(connection, session, Suback(packet.packet_id, codes), reasons + hints, mark)


def _is_violated(connection: Connection, topic_filters: list[str]) -> bool:
    """Close the connection for a filter that MQTT 3.1.1 does not allow [MQTT-4.7.1-3] [MQTT-4.8.0-1].

    MQTT 5 has a reason code for each filter; here nothing of the packet is done.
    """
    if connection.version == 5:
        return False
    for topic_filter in topic_filters:
        try:
            check_wildcards(topic_filter)
        except FilterError as error:
            connection.close(ReasonCode.MALFORMED_PACKET, str(error))
            return True
    return False


def _answer(
    connection: Connection, session: Session, answer: Suback | Unsuback, reasons: list[str], mark: int
) -> None:
    frame = _with_reasons(connection, answer, reasons)
    if connection.outgoing.fits(frame):
        connection.broker.reply(session, frame, mark)
    else:
        # [MQTT-3.1.2-24]: it must not be sent, and without an answer the client would wait for ever.
        reason = f"the answer has {len(frame)} bytes, more than the client's maximum packet size"
        connection.close(ReasonCode.PACKET_TOO_LARGE, reason)


def _with_reasons(connection: Connection, answer: Suback | Unsuback, reasons: list[str]) -> bytes:
    """Encode an answer, with its reasons where the client wants them and has room for them."""
    bare = encode(answer, connection.version)
    if not reasons or not connection.request_problem_information:
        return bare
    answer.properties.reason_string = "; ".join(reasons)[:REASON_STRING_LENGTH_MAX]
    frame = encode(answer, connection.version)
    return frame if connection.outgoing.fits(frame) else bare


def _make_subscription(
    connection: Connection, session: Session, packet: Subscribe, entry: SubscribeEntry
) -> Subscription:
    limits = connection.driver.limits
    check_filter(entry.topic_filter)
    _, plain_filter = split_share(entry.topic_filter)
    fault = topic_fault(plain_filter, limits.topic_length_max, limits.topic_levels_max)
    if fault:
        raise ProtocolError(ReasonCode.TOPIC_FILTER_INVALID, fault)
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
        return to_subscription(
            session.client_id,
            entry.topic_filter,
            entry.qos,
            entry.no_local,
            entry.retain_as_published,
            entry.retain_handling,
            identifiers[0] if identifiers else 0,
            user_properties,
        )
    except FilterError as error:
        reason = f"property 'where': {error}"
        raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, reason) from error


def _refusal(code: int, topic_filter: str) -> str:
    if code == ReasonCode.NOT_AUTHORIZED:
        return f"{Reason.NOT_AUTHORIZED.value}: subscribing to {topic_filter!r} is not allowed"
    return f"{Reason.QUOTA.value}: subscriptions_per_client_max is reached at {topic_filter!r}"


def _unsubscribe(connection: Connection, session: Session, packet: Unsubscribe) -> None:
    mark = connection.broker.mark()
    codes: list[int] = []
    reasons: list[str] = []
    if _is_violated(connection, packet.topic_filters):
        return
    for topic_filter in packet.topic_filters:
        try:
            check_filter(topic_filter)
        except FilterError as error:
            codes.append(ReasonCode.TOPIC_FILTER_INVALID)
            reasons.append(str(error))
        else:
            codes.append(connection.broker.unsubscribe(session, topic_filter, connection.driver.now_ns()))
    _answer(connection, session, Unsuback(packet.packet_id, codes), reasons, mark)


def _disconnect(connection: Connection, session: Session, packet: Disconnect) -> None:
    expiry_interval_s = packet.properties.session_expiry_interval
    if expiry_interval_s is not None:
        if expiry_interval_s and not connection.connect_expiry_s:
            # MQTT 5, 3.14.2.2.2
            connection.close(
                ReasonCode.PROTOCOL_ERROR, "session expiry was 0 in CONNECT and cannot be raised now"
            )
            return
        session.expiry_interval_s = min(expiry_interval_s, connection.driver.limits.session_expiry_max_s)
    connection.end(packet.reason_code)
