"""The message that a server publishes when it loses a client."""

from __future__ import annotations

from dataclasses import dataclass

from timebound.client.topics import check_topic
from timebound.client.values import (
    Duration,
    Payload,
    UserPropertiesLike,
    check_qos,
    duration_text,
    priority_text,
    to_payload,
    to_user_properties,
    to_whole_seconds,
)
from timebound.wire import packets
from timebound.wire.properties import Properties


@dataclass(frozen=True, slots=True)
class Will:
    """A message to publish if the connection ends without DISCONNECT; all but the first four need MQTT 5.

    The server publishes it after `delay`, or when the session ends, unless the client is back by
    then. `timeout` and `priority` mean the same as in `Client.publish`.
    """

    topic: str
    payload: Payload = None
    qos: int = 0
    retain: bool = False
    delay: Duration = 0
    timeout: Duration | None = None
    priority: int | None = None
    expiry: Duration | None = None
    content_type: str | None = None
    user_properties: UserPropertiesLike | None = None

    def to_packet(self, version: int) -> packets.Will:
        """Return the will as CONNECT carries it.

        Raises:
            ValueError: this version of MQTT cannot carry a value.
        """
        check_topic(self.topic, "will topic")
        check_qos(self.qos, "will QoS")
        properties = Properties()
        properties.will_delay_interval = to_whole_seconds(self.delay, "will delay") or None
        if self.expiry is not None:
            properties.message_expiry_interval = to_whole_seconds(self.expiry, "will expiry")
        properties.content_type = self.content_type
        properties.user_properties = to_user_properties(self.user_properties)
        if self.timeout is not None:
            properties.user_properties.append(("timeout", duration_text(self.timeout, "will timeout")))
        if self.priority is not None:
            properties.user_properties.append(("priority", priority_text(self.priority)))
        if version != 5 and properties.present():
            raise ValueError(f"a will with {', '.join(properties.present())} needs MQTT 5 (version is 4)")
        return packets.Will(self.topic, to_payload(self.payload), self.qos, self.retain, properties)
