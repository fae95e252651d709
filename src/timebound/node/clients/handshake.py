"""Decisions about CONNECT: who the client is, whether it is admitted, and its CONNACK.

A decision is `Accepted` or `Refused`; both make their CONNACK. Checking a password costs tens of
milliseconds by design, so it runs in a thread and the answer is delivered on the loop.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.scheduling import scheduling_of
from timebound.config.values import Config
from timebound.core.sessions.session import START_DELAY
from timebound.core.values.access import AccessList
from timebound.core.values.delay import link_of_rate
from timebound.core.values.store_orders import Will
from timebound.errors import ProtocolError
from timebound.linking.codec import BROKER_PROPERTY
from timebound.node.driver import Driver
from timebound.node.login.logins import Logins, Question
from timebound.node.login.passwords import PasswordFile
from timebound.node.login.queue import source_of
from timebound.toml.setting import NEVER_S
from timebound.topics import reserved_fault, topic_fault
from timebound.translate import to_will
from timebound.wire.codec import encode
from timebound.wire.packets import Connack, Connect
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
            properties.user_properties.append((BROKER_PROPERTY, self.node_name))
        return encode(Connack(session_present, 0, properties), version)


class Door:
    """One listener as the handshake sees it: who is admitted, and how many."""

    def __init__(
        self,
        listener: ListenerConfig,
        config: Config,
        driver: Driver,
        access: AccessList,
        passwords: PasswordFile | None,
        logins: Logins,
    ) -> None:
        self.name = listener.label
        self.listener = listener
        self.config = config
        self.limits = config.limits
        self.driver = driver
        self.access = access
        self.passwords = passwords
        self.logins = logins
        self.scheduling = scheduling_of(listener)
        rate = listener.link_bytes_per_second
        self.delay = link_of_rate(rate) if rate else START_DELAY
        self._addresses: dict[int, str] = {}  # of the connections that entered, by number
        self._by_address: dict[str, int] = {}  # how many of them each address has

    def enter(self, number: int, peer: str) -> bool:
        """Count a new connection; return False if there are too many even to wait for its CONNECT."""
        address = address_of(peer)
        self._addresses[number] = address
        count = self._by_address.get(address, 0) + 1
        self._by_address[address] = count
        limit = self.limits.connections_per_address_max
        if limit and count > limit:
            return False
        # Connections before CONNECT get as much room again, so that a full broker can still tell
        # clients that it is full.
        return len(self.driver.connections) < 2 * self.limits.connections_max

    def leave(self, number: int) -> None:
        """Forget a connection that has ended; it may be called again after an error."""
        address = self._addresses.pop(number, None)
        if address is None:
            return
        count = self._by_address.get(address, 0) - 1
        if count > 0:
            self._by_address[address] = count
        else:
            self._by_address.pop(address, None)


def address_of(peer: str) -> str:
    """Return the address of a peer without its port."""
    return peer.rpartition(":")[0]


def source_of_client(door: Door, user: str, peer: str) -> str:
    """Return for whom the requests of a client count: its user, or its address where it is anonymous."""
    if user != door.config.security.anonymous_user:
        return f"user {user}"
    return source_of(address_of(peer))


def decide(packet: Connect, door: Door, transport: Any) -> Accepted | Refused | None:
    """Accept or refuse a CONNECT; return None if a password has to be checked first."""
    refused = _check_form(packet, door)
    if refused is not None:
        return refused
    certificate_user = _certificate_user(door, transport)
    if certificate_user:
        return _accept(packet, door, certificate_user)
    if packet.username is None:
        if not door.listener.anonymous_allowed:
            return Refused(ReasonCode.NOT_AUTHORIZED, "a user name is required")
        return _accept(packet, door, door.config.security.anonymous_user)
    if door.passwords is None:
        if door.listener.anonymous_allowed:
            # As other brokers do. The name is not verified, so access rules must not see it.
            return _accept(packet, door, door.config.security.anonymous_user)
        return Refused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "no password file is configured")
    if door.passwords.check_nowait(packet.username, packet.password or b""):
        return _accept(packet, door, packet.username)
    return None


def decide_with_password(
    packet: Connect, door: Door, peer: str, answer: Callable[[Connect, Accepted | Refused], None]
) -> None:
    """Check the password in a thread, then call `answer` on the loop."""
    passwords = door.passwords
    name = packet.username
    assert passwords is not None
    assert name is not None

    def finish(code: int, reason: str) -> None:
        if code != ReasonCode.SUCCESS:
            answer(packet, Refused(code, reason))
        else:
            # Others may have connected meanwhile and reached the limit.
            answer(packet, _check_form(packet, door) or _accept(packet, door, name))

    door.logins.ask(address_of(peer), Question(passwords, name, packet.password or b"", finish))


def _check_form(packet: Connect, door: Door) -> Refused | None:
    limits = door.limits
    known = door.driver.broker.session(packet.client_id)
    is_take_over = known is not None and known.connection != 0
    if door.driver.authenticated >= limits.connections_max and not is_take_over:
        return Refused(ReasonCode.QUOTA_EXCEEDED, f"connections_max ({limits.connections_max}) is reached")
    if known is None and door.driver.broker.session_count() >= limits.sessions_max:
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


def _accept(packet: Connect, door: Door, user: str) -> Accepted | Refused:
    client_id = packet.client_id or f"auto-{secrets.token_hex(10)}"
    known = door.driver.broker.session(client_id)
    if known is not None and known.user != user and not door.config.security.take_over_from_others:
        return Refused(ReasonCode.NOT_AUTHORIZED, f"client id {client_id!r} belongs to another user")
    will = packet.will
    if will is not None:
        # A request is carried out for a connected client, so a will cannot be one.
        fault = reserved_fault(will.topic)
        if fault:
            return Refused(ReasonCode.NOT_AUTHORIZED, f"not_authorized: will: {fault}")
        fault = topic_fault(will.topic, door.limits.topic_length_max, door.limits.topic_levels_max)
        if fault:
            return Refused(ReasonCode.TOPIC_NAME_INVALID, f"will: {fault}")
        if not door.access.for_client(user, client_id).may_publish(will.topic):
            return Refused(
                ReasonCode.NOT_AUTHORIZED, f"not_authorized: publishing the will to {will.topic!r}"
            )
    try:
        accepted = Accepted(packet, client_id, user, door.limits, door.driver.now_ns())
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


def _certificate_user(door: Door, transport: Any) -> str:
    tls = door.listener.tls
    if tls is None or tls.identity != "common_name":
        return ""
    certificate = transport.get_extra_info("peercert") or {}
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def _expiry_interval_s(packet: Connect) -> int:
    if packet.protocol_version != 5:
        return 0 if packet.clean_start else NEVER_S
    return packet.properties.session_expiry_interval or 0
