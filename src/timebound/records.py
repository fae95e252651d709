"""The words for what happens to messages, and the columns of records, shared by every part.

The same reasons appear unchanged in reason strings, `$SYS` topics, metrics, trace records and
reports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum


class Reason(Enum):
    """Why a message was refused, dropped or not delivered."""

    TIMED_OUT = "timed_out"  # its timeout or the subscription's deadline passed
    HOPELESS = "hopeless"  # it could no longer arrive in time
    QUEUE_FULL = "queue_full"  # the receiver's queue reached its limit
    QUOTA = "quota"  # a limit of the client or the broker was reached
    NOT_ADMITTED = "not_admitted"  # admission control refused the flow
    NOT_AUTHORIZED = "not_authorized"  # the access list does not allow it
    SESSION_EXPIRED = "session_expired"  # the receiver's session ended
    EXPIRED = "expired"  # the Message Expiry Interval passed
    TOO_LARGE = "too_large"  # larger than the receiver's Maximum Packet Size
    DISCONNECTED = "disconnected"  # a QoS 0 message for a receiver that is not connected
    REPLACED = "replaced"  # a newer message on the topic replaced it
    REFUSED = "refused"  # the receiver answered with an error
    FAULT = "fault"  # an error of the broker while it was handled
    MALFORMED = "malformed"  # a term of its publisher, such as `timeout`, cannot be read


# The name of a message: broker, start of that broker and number. Names of brokers have no colon.
MESSAGE_NAME_FORM = "<broker>:<start>.<number>, such as plant-1:1763480000000000000.42"


def message_name(origin: str, started_ns: int, number: int) -> str:
    """Return the name of a message as text."""
    return f"{origin}:{started_ns}.{number}"


def parse_message_name(text: str) -> tuple[str, int, int]:
    """Return broker, start and number of a message's name.

    Raises:
        ValueError: the text is not a name; shows the right form.
    """
    origin, _, rest = text.rpartition(":")
    started, _, number = rest.partition(".")
    if not origin or not (started.isascii() and started.isdigit() and number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not the name of a message: expected {MESSAGE_NAME_FORM}")
    return origin, int(started), int(number)


# W3C Trace Context: version, trace id, parent id and flags in hexadecimal, here of a context with `sampled`.
TRACEPARENT = "traceparent"
_SAMPLED_CONTEXT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf](?=-|$)"
)
_FIRST_VERSION = "00-"  # it ends there; later ones may have more


def sampled_traceparent(user_properties: Sequence[tuple[str, str]]) -> str:
    """Return the `traceparent` of a publisher that samples its message; empty if there is none."""
    for name, value in user_properties:
        if name == TRACEPARENT:
            found = _SAMPLED_CONTEXT.match(value)
            if found is None or (value.startswith(_FIRST_VERSION) and len(value) > found.end()):
                return ""
            return found.group()
    return ""


class Outcome(Enum):
    """The outcome of one matched (message, subscription)."""

    IN_TIME = "in_time"
    LATE = "late"
    DROPPED = "dropped"


# One trace record for each matched (message, subscription): field and Arrow type. Times are
# nanoseconds since the epoch, money is in millionths. New fields are added at the end.
TRACE_FIELDS: tuple[tuple[str, str], ...] = (
    ("time_ns", "int64"),  # when the outcome was known
    ("message_id", "int64"),  # order of arrival at this broker
    ("topic", "string"),
    ("publisher", "string"),  # client id
    ("subscriber", "string"),  # client id
    ("topic_filter", "string"),
    ("qos", "int8"),
    ("size_bytes", "int32"),
    ("published_ns", "int64"),
    ("queued_ns", "int64"),  # time spent in this broker's queue
    ("allowed_ns", "int64"),  # min(timeout, deadline); 0 = no limit
    ("outcome", "string"),
    ("reason", "string"),  # empty unless dropped
    ("price_micro", "int64"),  # earned if in time
    ("penalty_micro", "int64"),  # paid if not
    ("hop", "int16"),  # brokers passed before this one
    ("link", "string"),  # name of the outgoing link; the client id for a subscriber
    # Since version 2.
    ("sent_ns", "int64"),  # time of handing it to the link; 0 = not sent
    ("promised_ns", "int64"),  # the delay bound guaranteed to its flow; 0 = none
    # Since version 3: the name of the message, the same at every broker that it passes.
    ("origin", "string"),  # broker where it was published
    ("started_ns", "int64"),  # when that broker had started; 0 = an earlier start, not known
    ("number", "int64"),  # its number since
    ("traceparent", "string"),  # of its publisher, if that samples the message (W3C); else empty
)
TRACE_SCHEMA_VERSION = 3
# Number of fields of each version; files of an older one are read with the rest missing.
TRACE_FIELD_COUNTS: dict[int, int] = {1: 17, 2: 19, 3: 23}

# Columns of a journal: field and Arrow type; `properties` are the user properties in their order. A
# reader gets them between `offset` and `gap`. In a gap row, `gap` is the number of rows, from
# `offset` on, that were removed; in every other row it is null.
JOURNAL_FIELDS: tuple[tuple[str, str], ...] = (
    ("topic", "string"),
    ("payload", "binary"),
    ("publisher", "string"),  # client id
    ("qos", "int8"),
    ("retain", "bool"),
    ("published_ns", "int64"),
    ("properties", "list<struct<name: string, value: string>>"),
)
# Columns of rows to publish: field and Arrow type; all but the first two may be left out or null.
PUBLISH_FIELDS: tuple[tuple[str, str], ...] = (
    ("topic", "string"),
    ("payload", "binary"),
    ("qos", "int8"),
    ("retain", "bool"),
    ("timeout", "string"),  # how long it stays valid, such as 250ms
    ("properties", "list<struct<name: string, value: string>>"),
)
