"""Columns that many trace records share: stored once, and referred to by number.

A record has the columns of its message, which all its receivers share, and the columns of its receiver,
which are the same for all messages that one subscription gets on the same terms.
"""

from __future__ import annotations


class ColumnsEpoch:
    """The period in which numbers are valid. Columns refer to it, so that they keep no table alive."""

    __slots__ = ()


class MessageColumns:
    """Columns of messages: origin and time limits."""

    __slots__ = (
        "epoch",
        "hops",
        "number",
        "origin",
        "promised_ns",
        "publisher",
        "started_ns",
        "timeout_ns",
        "topic",
        "traceparent",
    )

    def __init__(
        self,
        epoch: ColumnsEpoch,
        number: int,
        topic: str,
        publisher: str,
        timeout_ns: int,
        promised_ns: int,
        hops: int,
        origin: str,
        started_ns: int,
        traceparent: str,
    ) -> None:
        self.epoch = epoch
        self.number = number
        self.topic = topic
        self.publisher = publisher
        self.timeout_ns = timeout_ns
        self.promised_ns = promised_ns
        self.hops = hops
        self.origin = origin  # broker where they were published, and when that had started
        self.started_ns = started_ns
        self.traceparent = traceparent  # of a sampled message; else empty


class TraceHint:
    """The columns of the latest message of a topic, likely also those of the next one."""

    __slots__ = ("columns",)

    def __init__(self) -> None:
        self.columns: MessageColumns | None = None


class ReceiverColumns:
    """Columns of receivers: client, terms, and outcome."""

    __slots__ = (
        "allowed_ns",
        "client_id",
        "epoch",
        "link",
        "number",
        "outcome",
        "penalty_micro",
        "price_micro",
        "qos",
        "reason",
        "topic_filter",
    )

    def __init__(
        self,
        epoch: ColumnsEpoch,
        number: int,
        client_id: str,
        topic_filter: str,
        price_micro: int,
        penalty_micro: int,
        outcome: str,
        reason: str,
        qos: int,
        allowed_ns: int,
        link: str,
    ) -> None:
        self.epoch = epoch
        self.number = number
        self.client_id = client_id
        self.topic_filter = topic_filter
        self.price_micro = price_micro
        self.penalty_micro = penalty_micro
        self.outcome = outcome
        self.reason = reason
        self.qos = qos
        self.allowed_ns = allowed_ns
        self.link = link
