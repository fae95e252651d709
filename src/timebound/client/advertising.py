"""Advertised flows: what a client will publish, for which the broker guarantees a delay bound.

A contract ends with its connection, so those still wanted are renewed on the next one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from timebound.client.outbox import OutgoingMessage
from timebound.client.topics import check_topic
from timebound.client.values import Duration, duration_text, number_text
from timebound.wire.properties import Properties

logger = logging.getLogger("timebound.client")

PREFIX: Final = "$timebound/advertise/"


def advertisement(
    topic: str,
    *,
    period: Duration | None,
    rate: float | None,
    burst: int | None,
    size: int | None,
    weight: int | None,
    delay: Duration | None,
) -> OutgoingMessage:
    """Return the message that advertises a flow.

    Raises:
        ValueError: neither or both of `period` and `rate` are given, or a value is out of range.
    """
    check_topic(topic)
    if (period is None) == (rate is None):
        raise ValueError('a flow needs either a period like "20ms" or a rate per second')
    properties = Properties()
    terms = properties.user_properties
    if period is not None:
        terms.append(("period", duration_text(period, "period")))
    elif rate is not None:
        terms.append(("rate", number_text(rate, "rate")))
    for name, value in (("burst", burst), ("size", size), ("weight", weight)):
        if value is not None:
            if value < 1:
                raise ValueError(f"{name} is {value!r}; it must be above zero")
            terms.append((name, str(value)))
    if delay is not None:
        terms.append(("delay", duration_text(delay, "delay")))
    return OutgoingMessage(PREFIX + topic, b"", 1, False, properties.encode_passed_on())


def withdrawal(topic: str) -> OutgoingMessage:
    """Return the message that ends a flow's contract."""
    check_topic(topic)
    return OutgoingMessage(PREFIX + topic, b"", 1, False, b"")


class Advertised:
    """The flows that the server admitted; they are renewed on each new connection."""

    def __init__(self) -> None:
        self._flows: dict[str, bytes] = {}

    def add(self, outgoing: OutgoingMessage) -> None:
        self._flows[outgoing.topic] = outgoing.passed_on

    def remove(self, outgoing: OutgoingMessage) -> None:
        self._flows.pop(outgoing.topic, None)

    def renewals(self) -> list[OutgoingMessage]:
        """Return the messages that renew all flows; a refusal is logged, since nobody awaits it."""
        renewed = []
        for topic, terms in self._flows.items():
            outgoing = OutgoingMessage(topic, b"", 1, False, terms)
            outgoing.future = asyncio.get_running_loop().create_future()
            outgoing.future.add_done_callback(_log_refusal)
            renewed.append(outgoing)
        return renewed


def _log_refusal(future: asyncio.Future[int]) -> None:
    if not future.cancelled() and future.exception() is not None:
        logger.warning("an advertised flow was not renewed: %s", future.exception())
