"""What many trace records have in common: it stands once, and records say its number.

A record is made of a message's part, which all who get that message share, and a receiver's part, which all
messages share that one subscription gets on the same terms.
"""

from __future__ import annotations


class ColumnsEpoch:
    """How long numbers count: those of another epoch are forgotten. What knows one keeps no table alive."""

    __slots__ = ()


class MessageColumns:
    """Of messages: where they come from, and what they were given to arrive."""

    __slots__ = ("epoch", "hops", "number", "promised_ns", "publisher", "timeout_ns", "topic")

    def __init__(
        self,
        epoch: ColumnsEpoch,
        number: int,
        topic: str,
        publisher: str,
        timeout_ns: int,
        promised_ns: int,
        hops: int,
    ) -> None:
        self.epoch = epoch
        self.number = number
        self.topic = topic
        self.publisher = publisher
        self.timeout_ns = timeout_ns
        self.promised_ns = promised_ns
        self.hops = hops


class TraceHint:
    """The columns of the latest message of a topic: likely also those of the next one."""

    __slots__ = ("columns",)

    def __init__(self) -> None:
        self.columns: MessageColumns | None = None


class ReceiverColumns:
    """Of pairs: whose they are, on what terms, and what became of them."""

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
