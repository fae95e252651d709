"""The asyncio client: connect, publish, subscribe, request; see `docs/client.md`.

It works with any MQTT 5 or 3.1.1 server. What only a Timebound broker knows (timeouts, deadlines,
prices, content filters) travels in user properties.
"""

from __future__ import annotations

from timebound.client.client import Client
from timebound.client.message import Message
from timebound.client.refusals import NotTimebound, PublishRefused, SubscribeRefused
from timebound.client.subscription import Subscription
from timebound.client.will import Will

__all__ = ["Client", "Message", "NotTimebound", "PublishRefused", "SubscribeRefused", "Subscription", "Will"]
