"""The control packets of MQTT as values; `decode.py` and `encode.py` convert them from and to bytes.

One class serves MQTT 5 and 3.1.1: what 3.1.1 does not have is empty there. A `Publish` keeps its
properties encoded, because a server passes them on unaltered and reads few of them.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from timebound.wire import packet_types as types
from timebound.wire.primitives import PacketReader, encode_varint
from timebound.wire.properties import Properties, decode_properties

UserProperties = tuple[tuple[str, str], ...]
NO_USER_PROPERTIES: Final[UserProperties] = ()
NO_IDENTIFIERS: Final[tuple[int, ...]] = ()


@mypyc_attr(acyclic=True)
class Packet:
    """Base of all packets: equal if of the same class with equal fields."""

    __slots__ = ()

    def fields(self) -> dict[str, object]:
        """Return the fields by name, for comparison and for logs."""
        return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packet) and type(self) is type(other) and self.fields() == other.fields()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.fields().items())})"


@mypyc_attr(acyclic=True, free_list_len=1)
class Publish(Packet):
    """A message from a publisher or for a subscriber.

    `passed_on` holds the encoded properties that a server must pass on unaltered and in order
    (payload format, content type, response topic, correlation data, user properties), without
    their length; `user_properties` is a view of it and is not encoded again. `frame` is the
    whole received packet if it can be forwarded unchanged to a QoS 0 subscriber of the same
    protocol version, otherwise empty; it is not part of the value and not compared.
    """

    __slots__ = (
        "dup",
        "frame",
        "message_expiry_interval",
        "packet_id",
        "passed_on",
        "payload",
        "qos",
        "retain",
        "subscription_identifiers",
        "topic",
        "topic_alias",
        "user_properties",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        topic_alias: int = 0,
        message_expiry_interval: int = -1,
        user_properties: UserProperties = NO_USER_PROPERTIES,
        subscription_identifiers: tuple[int, ...] = NO_IDENTIFIERS,
        passed_on: bytes = b"",
        frame: bytes = b"",
    ) -> None:
        self.topic = topic  # empty if only the alias is given
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id  # 0 = none
        self.topic_alias = topic_alias  # 0 = none
        self.message_expiry_interval = message_expiry_interval  # seconds; -1 = none
        self.user_properties = user_properties
        self.subscription_identifiers = subscription_identifiers
        self.passed_on = passed_on
        self.frame = frame

    def properties(self) -> Properties:
        """Decode all properties; for clients, which read them once or never."""
        block = encode_varint(len(self.passed_on)) + self.passed_on
        properties = decode_properties(PacketReader(block, 0, len(block)), types.PUBLISH)
        if self.topic_alias:
            properties.topic_alias = self.topic_alias
        if self.message_expiry_interval >= 0:
            properties.message_expiry_interval = self.message_expiry_interval
        properties.subscription_identifiers = list(self.subscription_identifiers)
        return properties

    def fields(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "payload": self.payload,
            "qos": self.qos,
            "retain": self.retain,
            "dup": self.dup,
            "packet_id": self.packet_id,
            "topic_alias": self.topic_alias,
            "message_expiry_interval": self.message_expiry_interval,
            "user_properties": self.user_properties,
            "subscription_identifiers": self.subscription_identifiers,
            "passed_on": self.passed_on,
        }


def make_publish(
    topic: str,
    payload: bytes,
    qos: int = 0,
    retain: bool = False,
    packet_id: int = 0,
    properties: Properties | None = None,
) -> Publish:
    """Return a PUBLISH with properties as values, as clients have them."""
    if properties is None:
        return Publish(topic, payload, qos, retain, False, packet_id)
    expiry = properties.message_expiry_interval
    return Publish(
        topic,
        payload,
        qos,
        retain,
        False,
        packet_id,
        properties.topic_alias or 0,
        -1 if expiry is None else expiry,
        tuple(properties.user_properties),
        tuple(properties.subscription_identifiers),
        properties.encode_passed_on(),
    )


@mypyc_attr(acyclic=True, free_list_len=1)
class Ack(Packet):
    """PUBACK, PUBREC, PUBREL or PUBCOMP; `kind` is the packet type."""

    __slots__ = ("kind", "packet_id", "reason_code", "reason_string", "user_properties")

    def __init__(
        self,
        kind: int,
        packet_id: int,
        reason_code: int = 0,
        reason_string: str = "",
        user_properties: UserProperties = NO_USER_PROPERTIES,
    ) -> None:
        self.kind = kind
        self.packet_id = packet_id
        self.reason_code = reason_code
        self.reason_string = reason_string
        self.user_properties = user_properties

    def fields(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "packet_id": self.packet_id,
            "reason_code": self.reason_code,
            "reason_string": self.reason_string,
            "user_properties": self.user_properties,
        }


class Will(Packet):
    """The message a server publishes when its client is lost; part of a CONNECT."""

    __slots__ = ("payload", "properties", "qos", "retain", "topic")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "payload": self.payload,
            "qos": self.qos,
            "retain": self.retain,
            "properties": self.properties,
        }


class Connect(Packet):
    """A client's first packet. `protocol_version` is 5, 4 (MQTT 3.1.1) or 3 (MQTT 3.1)."""

    __slots__ = (
        "clean_start",
        "client_id",
        "keep_alive",
        "password",
        "properties",
        "protocol_version",
        "username",
        "will",
    )

    def __init__(
        self,
        client_id: str,
        protocol_version: int = 5,
        clean_start: bool = True,
        keep_alive: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
    ) -> None:
        self.client_id = client_id
        self.protocol_version = protocol_version
        self.clean_start = clean_start
        self.keep_alive = keep_alive
        self.username = username
        self.password = password
        self.will = will
        self.properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        # The password is compared, but must not appear in a log.
        return {
            "client_id": self.client_id,
            "protocol_version": self.protocol_version,
            "clean_start": self.clean_start,
            "keep_alive": self.keep_alive,
            "username": self.username,
            "password": None if self.password is None else Secret(self.password),
            "will": self.will,
            "properties": self.properties,
        }


class Secret:
    """Bytes that can be compared, but are not shown."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __repr__(self) -> str:
        return "***"


class Connack(Packet):
    """A server's answer; the 3.1.1 return codes are read and written as their v5 reason codes."""

    __slots__ = ("properties", "reason_code", "session_present")

    def __init__(
        self, session_present: bool = False, reason_code: int = 0, properties: Properties | None = None
    ) -> None:
        self.session_present = session_present
        self.reason_code = reason_code
        self.properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        return {
            "session_present": self.session_present,
            "reason_code": self.reason_code,
            "properties": self.properties,
        }


class SubscribeEntry(Packet):
    """One topic filter of a SUBSCRIBE, with its options."""

    __slots__ = ("no_local", "qos", "retain_as_published", "retain_handling", "topic_filter")

    def __init__(
        self,
        topic_filter: str,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling

    def fields(self) -> dict[str, object]:
        return {
            "topic_filter": self.topic_filter,
            "qos": self.qos,
            "no_local": self.no_local,
            "retain_as_published": self.retain_as_published,
            "retain_handling": self.retain_handling,
        }


class Subscribe(Packet):
    __slots__ = ("entries", "packet_id", "properties")

    def __init__(
        self, packet_id: int, entries: list[SubscribeEntry], properties: Properties | None = None
    ) -> None:
        self.packet_id = packet_id
        self.entries = entries
        self.properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        return {"packet_id": self.packet_id, "entries": self.entries, "properties": self.properties}


class Suback(Packet):
    __slots__ = ("packet_id", "properties", "reason_codes")

    def __init__(self, packet_id: int, reason_codes: list[int], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reason_codes = reason_codes
        self.properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        return {
            "packet_id": self.packet_id,
            "reason_codes": self.reason_codes,
            "properties": self.properties,
        }


class Unsubscribe(Packet):
    __slots__ = ("packet_id", "properties", "topic_filters")

    def __init__(
        self, packet_id: int, topic_filters: list[str], properties: Properties | None = None
    ) -> None:
        self.packet_id = packet_id
        self.topic_filters = topic_filters
        self.properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        return {
            "packet_id": self.packet_id,
            "topic_filters": self.topic_filters,
            "properties": self.properties,
        }


class Unsuback(Packet):
    """The answer to an UNSUBSCRIBE; MQTT 3.1.1 has no reason codes in it."""

    __slots__ = ("packet_id", "properties", "reason_codes")

    def __init__(self, packet_id: int, reason_codes: list[int], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reason_codes = reason_codes
        self.properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        return {
            "packet_id": self.packet_id,
            "reason_codes": self.reason_codes,
            "properties": self.properties,
        }


class Pingreq(Packet):
    __slots__ = ()


class Pingresp(Packet):
    __slots__ = ()


class Disconnect(Packet):
    __slots__ = ("properties", "reason_code")

    def __init__(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        return {"reason_code": self.reason_code, "properties": self.properties}


class Auth(Packet):
    """A step of enhanced authentication; MQTT 5 only."""

    __slots__ = ("properties", "reason_code")

    def __init__(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.properties = Properties() if properties is None else properties

    def fields(self) -> dict[str, object]:
        return {"reason_code": self.reason_code, "properties": self.properties}
