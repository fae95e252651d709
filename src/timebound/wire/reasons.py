"""The reason codes of MQTT 5, their names, and their counterparts in MQTT 3.1.1.

The codes that each packet may carry are here too, because a receiver must refuse others (MQTT 5,
2.4 and the tables of each packet).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ReasonCode(IntEnum):
    """Every reason code of MQTT 5 (table 2-6); 0 has three names."""

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


_DESCRIPTIONS: Final[dict[int, str]] = {
    int(code): code.name.lower().replace("_", " ").replace("qos", "QoS") for code in ReasonCode
}

CONNACK_CODES: Final = frozenset(
    {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}
)
# PUBACK and PUBREC share one set, PUBREL and PUBCOMP another.
PUBLISH_ANSWER_CODES: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
RELEASE_CODES: Final = frozenset({0x00, 0x92})
SUBACK_CODES: Final = frozenset({0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2})
SUBACK_CODES_V4: Final = frozenset({0, 1, 2, 0x80})
UNSUBACK_CODES: Final = frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91})
# MQTT 5, table 3-10: what a client may send, and what a server may.
DISCONNECT_CODES_OF_CLIENT: Final = frozenset(
    {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
)
DISCONNECT_CODES_OF_SERVER: Final = frozenset(
    {0x00, *range(0x80, 0x84), 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90, *range(0x93, 0xA3)}
)
AUTH_CODES_OF_CLIENT: Final = frozenset({0x18, 0x19})
AUTH_CODES_OF_SERVER: Final = frozenset({0x00, 0x18})

# MQTT 3.1.1, table 3.1, has six return codes; reasons without one become "server unavailable".
_RETURN_CODES: Final[dict[int, int]] = {0x00: 0, 0x84: 1, 0x85: 2, 0x86: 4, 0x87: 5, 0x8A: 5, 0x8C: 5}
_RETURN_CODE_UNAVAILABLE: Final = 3
_REASONS_OF_RETURN_CODES: Final = (0x00, 0x84, 0x85, 0x88, 0x86, 0x87)


def describe(code: int) -> str:
    """Return the standard's name of a reason code, for logs and messages."""
    description = _DESCRIPTIONS.get(code)
    return description if description is not None else f"unknown reason code 0x{code:02x}"


def connack_return_code(code: int) -> int:
    """Return the 3.1.1 CONNACK return code (0..5) nearest to a v5 reason code."""
    return _RETURN_CODES.get(code, _RETURN_CODE_UNAVAILABLE)


def reason_of_return_code(return_code: int) -> int:
    """Return the v5 reason code for a 3.1.1 return code, or -1 for an unknown one."""
    return _REASONS_OF_RETURN_CODES[return_code] if 0 <= return_code <= 5 else -1
