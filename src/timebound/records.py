"""The words in which the broker accounts for messages, shared by every part.

One enumeration of reasons appears unchanged in reason strings, `$SYS` topics, metrics,
trace records and reports. Nothing here decides anything.
"""

from __future__ import annotations

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
    REPLACED = "replaced"  # a newer message on the topic took its place
    REFUSED = "refused"  # the receiver answered with an error
