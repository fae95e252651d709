"""Encoding of deliveries for one client: version, aliases, expiry, size.

The plain case, QoS 0 without properties of the receiver, has the same bytes for every receiver of a
protocol version and is cached on the message; everything else is encoded per receiver.
"""

from __future__ import annotations

from typing import Final

from timebound.core.sessions.session import ENCODED, Reply
from timebound.core.values.message import FRAME_KEPT_MAX, Delivery, Message
from timebound.units import MILLISECOND, SECOND
from timebound.wire.codec import encode_ack, encode_property_prefix, encode_publish, with_user_property

# A shorter topic does not gain: an alias costs three bytes in every packet.
ALIASED_TOPIC_LENGTH_MIN: Final = 4


class OutgoingEncoder:
    """Encodes for one connection."""

    __slots__ = (
        "_aliases",
        "_is_v5",
        "_topic_alias_maximum",
        "_version",
        "packet_size_max",
        "wants_reasons",
    )

    def __init__(
        self, version: int, packet_size_max: int, topic_alias_maximum: int, wants_reasons: bool
    ) -> None:
        self._version = version
        self._is_v5 = version == 5
        self._topic_alias_maximum = topic_alias_maximum
        self._aliases: dict[str, int] = {}
        self.packet_size_max = packet_size_max  # of the client; 0 = no limit
        self.wants_reasons = wants_reasons

    def encode_reply(self, reply: Reply) -> bytes:
        if reply.kind == ENCODED:
            return reply.frame
        reason = reply.reason if self.wants_reasons else ""
        frame = encode_ack(reply.kind, reply.packet_id, reply.reason_code, self._version, reason)
        if reason and not self.fits(frame):
            # [MQTT-3.4.2-2] and others: a reason string is omitted if it exceeds the client's maximum.
            frame = encode_ack(reply.kind, reply.packet_id, reply.reason_code, self._version)
        return frame

    def fits(self, frame: bytes) -> bool:
        """Whether a packet is within the client's maximum packet size."""
        return not self.packet_size_max or len(frame) <= self.packet_size_max

    def encode(self, delivery: Delivery, now_ns: int) -> bytes:
        """Encode the PUBLISH packet of a delivery; empty if it exceeds the client's maximum packet size."""
        message = delivery.message
        if (
            delivery.qos == 0
            and not delivery.retain
            and not delivery.subscription_ids
            and not message.expires_ns
            and not self._topic_alias_maximum
            and not delivery.group
            and not _wants_age(delivery)
        ):
            frame = self._plain(message)
        else:
            frame = self._special(delivery, message, now_ns)
        return frame if self.fits(frame) else b""

    def _plain(self, message: Message) -> bytes:
        known = message.frame_v5 if self._is_v5 else message.frame_v4
        if known:
            return known
        properties = message.properties if self._is_v5 else b""
        version = 5 if self._is_v5 else 4
        frame = encode_publish(message.topic, message.payload, 0, False, False, 0, properties, version)
        if len(frame) <= FRAME_KEPT_MAX:
            if self._is_v5:
                message.frame_v5 = frame
            else:
                message.frame_v4 = frame
        return frame

    def _special(self, delivery: Delivery, message: Message, now_ns: int) -> bytes:
        topic = message.topic
        properties = message.properties
        alias = 0
        if self._is_v5:
            left_s = -1
            if message.expires_ns:
                # MQTT 5, 3.3.2.3.3: the time left is sent; a started second counts.
                left_s = -(-max(message.expires_ns - now_ns, 0) // SECOND)
            if self._topic_alias_maximum and len(topic) >= ALIASED_TOPIC_LENGTH_MIN:
                alias = self._aliases.get(topic, 0)
                if alias:
                    topic = ""
                elif len(self._aliases) < self._topic_alias_maximum:
                    alias = len(self._aliases) + 1
            if left_s >= 0 or alias or delivery.subscription_ids:
                properties = encode_property_prefix(left_s, alias, delivery.subscription_ids) + properties
            if delivery.group:
                properties = with_user_property(properties, "correlated", delivery.group)
            if _wants_age(delivery):
                age_ms = (now_ns - message.published_ns) / MILLISECOND
                properties = with_user_property(properties, "age", f"{age_ms:.3f}ms")
        frame = encode_publish(
            topic,
            message.payload,
            delivery.qos,
            delivery.retain,
            delivery.dup,
            delivery.packet_id,
            properties,
            self._version,
        )
        # The client learns an alias only from a packet that is sent.
        if alias and topic and self.fits(frame):
            self._aliases[topic] = alias
        return frame


def _wants_age(delivery: Delivery) -> bool:
    """Whether the copy is for a subscription with a deadline, which gets the age of the message."""
    subscription = delivery.subscription
    return subscription is not None and subscription.deadline_ns > 0
