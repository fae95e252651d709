"""Messages, and the deliveries of one message to one session.

A `Message` is made once, when a publisher's packet has been read, and shared by every
receiver; only its caches change afterwards. A `Delivery` is one copy on its way to one
session: it carries what differs between receivers and the state of its acknowledgement.
"""

from __future__ import annotations

from typing import Final

# States of a delivery. QoS 0 never leaves QUEUED; QoS 1 ends from SENT; QoS 2 from RELEASED.
QUEUED: Final = 0  # waits in the session's queue
SENT: Final = 1  # handed to the connection, awaiting PUBACK or PUBREC
RELEASED: Final = 2  # PUBREC received, awaiting PUBCOMP

UserProperties = tuple[tuple[str, str], ...]
NO_USER_PROPERTIES: Final[UserProperties] = ()


class Message:
    """One published message.

    `properties` holds the encoded properties that a server passes on unaltered and in order;
    the core never looks inside. `frame_v4` and `frame_v5` are room for the shell to keep the
    encoded packet of a plain QoS 0 delivery; the core never reads them.
    """

    __slots__ = (
        "expires_ns",
        "frame_v4",
        "frame_v5",
        "payload",
        "priority",
        "properties",
        "published_ns",
        "publisher",
        "qos",
        "retain",
        "sequence",
        "stored_copies",
        "timeout_ns",
        "topic",
        "user_properties",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        published_ns: int,
        publisher: str = "",
        properties: bytes = b"",
        user_properties: UserProperties = NO_USER_PROPERTIES,
        expires_ns: int = 0,
        timeout_ns: int = 0,
        priority: int = 0,
        sequence: int = 0,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.published_ns = published_ns
        self.publisher = publisher  # client id, for No Local and the account
        self.properties = properties
        self.user_properties = user_properties
        self.expires_ns = expires_ns  # absolute; 0 = never (Message Expiry Interval)
        self.timeout_ns = timeout_ns  # from publication; 0 = none (property `timeout`)
        self.priority = priority  # 0..9
        self.sequence = sequence  # order of arrival at this broker, unique
        self.stored_copies = 0  # deliveries of it that are in storage
        self.frame_v4 = b""
        self.frame_v5 = b""

    def is_expired(self, now_ns: int) -> bool:
        return 0 < self.expires_ns <= now_ns

    def size(self) -> int:
        """Bytes this message counts for in queues: what a receiver is sent, roughly."""
        return len(self.topic) + len(self.payload) + len(self.properties) + 8


class Delivery:
    """One copy of a message on its way to one session."""

    __slots__ = (
        "dup",
        "message",
        "packet_id",
        "qos",
        "retain",
        "sequence",
        "state",
        "stored",
        "subscription_ids",
    )

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...] = (),
        sequence: int = 0,
        packet_id: int = 0,
        state: int = QUEUED,
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.subscription_ids = subscription_ids
        self.sequence = sequence  # order inside the session; the key in storage
        self.packet_id = packet_id  # 0 = none yet
        self.state = state
        self.dup = False
        self.stored = False
