"""A received message."""

from __future__ import annotations

import json
from typing import Any

from timebound.errors import UnitError
from timebound.units import SECOND, parse_duration
from timebound.wire.packets import Publish, UserProperties
from timebound.wire.properties import Properties


class Message:
    """Topic, payload and properties; `text` and `json` decode the payload."""

    __slots__ = ("_properties", "_publish", "payload", "qos", "retain", "topic")

    def __init__(self, topic: str, publish: Publish) -> None:
        self.topic = topic
        self.payload = publish.payload
        self.qos = publish.qos
        self.retain = publish.retain  # stored by the server, sent for a new subscription
        self._publish = publish
        self._properties: Properties | None = None

    @property
    def properties(self) -> Properties:
        """All MQTT 5 properties, decoded on first use."""
        if self._properties is None:
            self._properties = self._publish.properties()
        return self._properties

    @property
    def user_properties(self) -> UserProperties:
        return self._publish.user_properties

    @property
    def subscription_identifiers(self) -> tuple[int, ...]:
        return self._publish.subscription_identifiers

    @property
    def content_type(self) -> str | None:
        return self.properties.content_type

    @property
    def response_topic(self) -> str | None:
        return self.properties.response_topic

    @property
    def correlation_data(self) -> bytes | None:
        return self.properties.correlation_data

    @property
    def age_ns(self) -> int | None:
        """Nanoseconds since publication; sent by Timebound to subscriptions with a deadline."""
        # The broker's own comes last; a publisher may use the name as well.
        for name, value in reversed(self._publish.user_properties):
            if name == "age":
                try:
                    return parse_duration(value)
                except UnitError:
                    return None
        return None

    @property
    def age(self) -> float | None:
        """Seconds since publication, or None if the broker did not send it."""
        age_ns = self.age_ns
        return None if age_ns is None else age_ns / SECOND

    def text(self) -> str:
        """Return the payload as UTF-8 text; raises UnicodeDecodeError (a ValueError) for other bytes."""
        return self.payload.decode("utf-8")

    def json(self) -> Any:
        """Return the payload decoded as JSON; raises ValueError for anything else."""
        return json.loads(self.payload)

    def __repr__(self) -> str:
        shown = self.payload if len(self.payload) <= 60 else self.payload[:60] + b"..."
        return f"Message(topic={self.topic!r}, payload={shown!r}, qos={self.qos}, retain={self.retain})"
