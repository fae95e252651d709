"""Refusals of a server, as errors with reason code, reason string and position."""

from __future__ import annotations

import re
from typing import Final

from timebound.errors import PublishError, SubscribeError
from timebound.wire.reasons import describe

FAILURE_FROM: Final = 0x80  # MQTT 5, 2.4: from here on a reason code is a refusal

# A Timebound broker names the position in a content filter like this, counted from 1.
_POSITION: Final = re.compile(r"\bat character (\d+)")


def explain(reason_code: int, reason_string: str) -> str:
    """Return the reason like `0x87 not authorized: no rule for ann`."""
    words = f"0x{reason_code:02x} {describe(reason_code)}"
    return f"{words}: {reason_string}" if reason_string else words


class PublishRefused(PublishError):
    """The server refused a message in its acknowledgement."""

    def __init__(self, topic: str, reason_code: int, reason_string: str = "") -> None:
        super().__init__(
            f"message on {topic!r} was refused ({explain(reason_code, reason_string)})",
            reason_code=reason_code,
        )
        self.topic = topic
        self.reason_string = reason_string


class NotTimebound(PublishError):
    """The server treated a request to the broker as an ordinary message."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"the server is not a Timebound broker: it did not answer the request {topic!r}")
        self.topic = topic


class SubscribeRefused(SubscribeError):
    """The server refused a filter; `position` is the mistake in its content filter, from 0, or None."""

    def __init__(self, topic_filter: str, reason_code: int, reason_string: str = "") -> None:
        super().__init__(
            f"subscription to {topic_filter!r} was refused ({explain(reason_code, reason_string)})",
            reason_code=reason_code,
        )
        self.topic_filter = topic_filter
        self.reason_string = reason_string
        found = _POSITION.search(reason_string)
        self.position = None if found is None else int(found[1]) - 1
