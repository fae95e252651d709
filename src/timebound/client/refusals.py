"""What a server's refusal looks like to the caller: reason code, reason string, position."""

from __future__ import annotations

import re
from typing import Final

from timebound.errors import PublishError, SubscribeError
from timebound.wire.reasons import describe

FAILURE_FROM: Final = 0x80  # MQTT 5, 2.4: from here on a reason code is a refusal

# How a Timebound broker points into a content filter; it counts characters from 1.
_POSITION: Final = re.compile(r"\bat character (\d+)")


def explain(reason_code: int, reason_string: str) -> str:
    """Return the reason as `0x87 not authorized: the server's own words`."""
    words = f"0x{reason_code:02x} {describe(reason_code)}"
    return f"{words}: {reason_string}" if reason_string else words


class PublishRefused(PublishError):
    """The server's acknowledgement says no."""

    def __init__(self, topic: str, reason_code: int, reason_string: str = "") -> None:
        super().__init__(
            f"message on {topic!r} was refused ({explain(reason_code, reason_string)})",
            reason_code=reason_code,
        )
        self.topic = topic
        self.reason_string = reason_string


class NotTimebound(PublishError):
    """The server took a request to the broker itself for a message like any other, and did nothing."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"nothing was done: the server is not a Timebound broker (no answer to {topic!r})")
        self.topic = topic


class SubscribeRefused(SubscribeError):
    """The server's SUBACK says no; `position` is where the content filter is wrong, from 0, or None."""

    def __init__(self, topic_filter: str, reason_code: int, reason_string: str = "") -> None:
        super().__init__(
            f"subscription to {topic_filter!r} was refused ({explain(reason_code, reason_string)})",
            reason_code=reason_code,
        )
        self.topic_filter = topic_filter
        self.reason_string = reason_string
        found = _POSITION.search(reason_string)
        self.position = None if found is None else int(found[1]) - 1
