"""Decisions about CONNECT that need no clock, no files and no sockets: form, limits, rights, and CONNACK.

A decision is `Accepted` or `Refused`; both make their CONNACK. Who a client is was decided before.
"""

from __future__ import annotations

from typing import Final

from timebound.config.limits import Limits
from timebound.core.broker import Broker
from timebound.core.sessions.session import Reply
from timebound.core.values.access import AccessList
from timebound.core.values.store_orders import Will
from timebound.errors import ProtocolError
from timebound.linking.codec import BROKER_PROPERTY
from timebound.linking.greeting import greeting_properties
from timebound.toml.setting import NEVER_S
from timebound.topics import reserved_fault, topic_fault
from timebound.translate import to_will
from timebound.wire.codec import encode
from timebound.wire.packets import Connack, Connect
from timebound.wire.packets import Will as WillOfConnect
from timebound.wire.properties import Properties
from timebound.wire.reasons import CONNACK_CODES, ReasonCode

# A client id is a key of sessions, logs and records; no legitimate one is longer.
CLIENT_ID_LENGTH_MAX: Final = 1_024


class Refused:
    """A refused CONNECT, with the reason."""

    def __init__(self, reason_code: int, reason: str) -> None:
        self.reason_code = reason_code
        self.reason = reason

    def connack(self, version: int) -> bytes:
        properties = Properties()
        properties.reason_string = self.reason or None
        # A connection may end before its CONNACK for a reason that only DISCONNECT has a code for.
        code = self.reason_code if self.reason_code in CONNACK_CODES else ReasonCode.SERVER_UNAVAILABLE
        return encode(Connack(False, code, properties), version)


class Accepted:
    """An accepted CONNECT, with everything the connection and the core need from it."""

    def __init__(self, packet: Connect, client_id: str, user: str, limits: Limits, now_ns: int) -> None:
        asked = packet.properties
        self.client_id = client_id
        self.user = user
        self.limits = limits
        self.node_name = ""  # sent to an admitted broker
        self.is_assigned = client_id != packet.client_id
        self.keep_alive_s = packet.keep_alive
        self.is_keep_alive_ours = False
        is_too_long = limits.keep_alive_max_s and not 0 < packet.keep_alive <= limits.keep_alive_max_s
        # MQTT 3.1.1 cannot tell the client, so the client's own choice applies there.
        if is_too_long and packet.protocol_version == 5:
            self.keep_alive_s = limits.keep_alive_max_s
            self.is_keep_alive_ours = True
        self.expiry_asked_s = _expiry_interval_s(packet)
        self.expiry_interval_s = min(self.expiry_asked_s, limits.session_expiry_max_s)
        self.receive_maximum = asked.receive_maximum or 65_535
        self.packet_size_max = asked.maximum_packet_size or 0
        self.own_packet_size_max = limits.packet_size_max
        self.topic_alias_maximum = min(asked.topic_alias_maximum or 0, limits.topic_alias_max)
        self.wants_reasons = asked.request_problem_information != 0
        # A broker that wants to link names itself; all others are clients.
        self.broker_name = dict(asked.user_properties).get(BROKER_PROPERTY, "")
        self.user_properties = asked.user_properties
        self.will: Will | None = None
        if packet.will is not None:
            self.will = to_will(packet.will, client_id, now_ns)

    def connack(self, session_present: bool, version: int) -> bytes:
        if version != 5:
            # MQTT 3.1 reserves the byte that has the bit in 3.1.1.
            return encode(Connack(session_present and version != 3, 0), version)
        properties = Properties()
        properties.receive_maximum = self.limits.inflight_max
        properties.maximum_packet_size = self.own_packet_size_max
        if self.limits.topic_alias_max:
            properties.topic_alias_maximum = self.limits.topic_alias_max
        if self.expiry_interval_s != self.expiry_asked_s:
            properties.session_expiry_interval = self.expiry_interval_s
        if self.is_keep_alive_ours:
            properties.server_keep_alive = self.keep_alive_s
        if self.is_assigned:
            properties.assigned_client_identifier = self.client_id
        if self.node_name:
            properties.user_properties += greeting_properties(self.node_name)
        return encode(Connack(session_present, 0, properties), version)


def check_form(packet: Connect, broker: Broker, limits: Limits, authenticated: int) -> Refused | None:
    """Refuse a CONNECT that breaks a limit or a rule; so many clients are `authenticated` now."""
    known = broker.session(packet.client_id)
    is_take_over = known is not None and known.connection != 0
    if authenticated >= limits.connections_max and not is_take_over:
        return Refused(ReasonCode.QUOTA_EXCEEDED, f"connections_max ({limits.connections_max}) is reached")
    if known is None and broker.session_count() >= limits.sessions_max:
        return Refused(ReasonCode.QUOTA_EXCEEDED, f"sessions_max ({limits.sessions_max}) is reached")
    if packet.properties.authentication_method is not None:
        method = packet.properties.authentication_method
        return Refused(
            ReasonCode.BAD_AUTHENTICATION_METHOD, f"authentication method {method!r} is not configured"
        )
    if not packet.client_id and packet.protocol_version != 5 and not packet.clean_start:
        return Refused(
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            "an empty client id requires a clean session in MQTT 3.1.1",
        )
    if len(packet.client_id) > CLIENT_ID_LENGTH_MAX:
        return Refused(
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            f"client id has {len(packet.client_id)} characters, at most {CLIENT_ID_LENGTH_MAX} are allowed",
        )
    if len(packet.properties.user_properties) > limits.user_properties_max:
        return Refused(ReasonCode.QUOTA_EXCEEDED, "too many user properties")
    return None


def accept(
    packet: Connect,
    client_id: str,
    user: str,
    *,
    broker: Broker,
    access: AccessList,
    limits: Limits,
    takes_over_from_others: bool,
    now_ns: int,
) -> Accepted | Refused:
    """Decide about a client whose user is known; `client_id` is its own, or one assigned to it."""
    known = broker.session(client_id)
    if known is not None and known.user != user and not takes_over_from_others:
        return Refused(ReasonCode.NOT_AUTHORIZED, f"client id {client_id!r} belongs to another user")
    if packet.will is not None:
        refused = _check_will(packet.will, client_id, user, access, limits)
        if refused is not None:
            return refused
    try:
        accepted = Accepted(packet, client_id, user, limits, now_ns)
    except ProtocolError as error:
        return Refused(error.reason_code, f"will: {error}")
    size = len(accepted.connack(False, packet.protocol_version))
    if 0 < accepted.packet_size_max < size:
        # [MQTT-3.1.2-24]. The client has to know every property of it.
        return Refused(
            ReasonCode.PACKET_TOO_LARGE,
            f"maximum packet size is {accepted.packet_size_max} bytes, CONNACK alone has {size}",
        )
    return accepted


def put_first(replies: list[Reply], connack: bytes) -> bool:
    """Move CONNACK to the front of the answers [MQTT-3.2.0-1]; False if it is not ready yet.

    It may wait for storage, while earlier deliveries of the session do not.
    """
    for reply in replies:
        if reply.frame is connack:
            replies.remove(reply)
            replies.insert(0, reply)
            return True
    return False


def _check_will(
    will: WillOfConnect, client_id: str, user: str, access: AccessList, limits: Limits
) -> Refused | None:
    # A request is carried out for a connected client, so a will cannot be one.
    fault = reserved_fault(will.topic)
    if fault:
        return Refused(ReasonCode.NOT_AUTHORIZED, f"not_authorized: will: {fault}")
    fault = topic_fault(will.topic, limits.topic_length_max, limits.topic_levels_max)
    if fault:
        return Refused(ReasonCode.TOPIC_NAME_INVALID, f"will: {fault}")
    if not access.for_client(user, client_id).may_publish(will.topic):
        return Refused(ReasonCode.NOT_AUTHORIZED, f"not_authorized: publishing the will to {will.topic!r}")
    return None


def _expiry_interval_s(packet: Connect) -> int:
    if packet.protocol_version != 5:
        return 0 if packet.clean_start else NEVER_S
    return packet.properties.session_expiry_interval or 0
