"""MQTT 5 reason codes that the broker itself decides on (2.4); `wire/reasons.py` has all."""

from __future__ import annotations

from typing import Final

SUCCESS: Final = 0x00
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
IMPLEMENTATION_SPECIFIC_ERROR: Final = 0x83
NOT_AUTHORIZED: Final = 0x87
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_NAME_INVALID: Final = 0x90
PACKET_IDENTIFIER_NOT_FOUND: Final = 0x92
QUOTA_EXCEEDED: Final = 0x97
