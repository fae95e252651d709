"""The asyncio client: connect, publish, subscribe, request; see `docs/client.md`.

It speaks to any MQTT 5 or 3.1.1 server, and puts the product's own words (timeouts,
deadlines, prices, content filters) where a Timebound broker reads them.
"""

from __future__ import annotations

from timebound.client.client import Client
from timebound.client.message import Message
from timebound.client.refusals import NotTimebound, PublishRefused, SubscribeRefused
from timebound.client.subscription import Subscription
from timebound.client.will import Will

__all__ = ["Client", "Message", "NotTimebound", "PublishRefused", "SubscribeRefused", "Subscription", "Will"]
