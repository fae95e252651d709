"""Every exception of the package.

    TimeboundError
    ├── ProtocolError            a peer broke MQTT; carries the reason code to answer with
    │   └── MalformedPacket      its bytes could not be read at all
    ├── FilterError              a topic filter or content filter cannot be used; carries the position
    ├── UnitError                a duration, rate or number cannot be read (also a ValueError)
    ├── ConfigError              a configuration is invalid; carries file, line and key
    ├── StorageError             the data directory cannot be used
    ├── JournalError             a journal cannot be read, or rows cannot be published through its service
    │   └── JournalGap           requested rows were removed; carries which
    └── ClientError              base of the client's errors
        ├── ConnectError         the server refused or could not be reached
        ├── NotConnected         there was no connection in time
        ├── PublishError         the server refused a message
        └── SubscribeError       the server refused a filter

Messages are lower case, the fact first, then the values, and have no full stop.
"""

from __future__ import annotations


class TimeboundError(Exception):
    """Base of all errors raised on purpose by this package."""


class ProtocolError(TimeboundError):
    """A peer broke the protocol; `reason_code` is the answer in MQTT 5.

    The message may quote what the peer sent, so it is cut: it becomes a Reason String and a log line.
    """

    MESSAGE_LENGTH_MAX = 1_000

    def __init__(self, reason_code: int, message: str) -> None:
        if len(message) > self.MESSAGE_LENGTH_MAX:
            message = message[: self.MESSAGE_LENGTH_MAX] + "…"
        super().__init__(message)
        self.reason_code = reason_code


class MalformedPacket(ProtocolError):
    """Bytes that are not an MQTT packet (MQTT 5, 4.13.1)."""

    def __init__(self, message: str, reason_code: int = 0x81) -> None:
        super().__init__(reason_code, message)


class FilterError(TimeboundError):
    """A topic filter or content filter is invalid; `position` counts characters from 0."""

    def __init__(self, message: str, *, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class UnitError(TimeboundError, ValueError):
    """A duration, rate or number cannot be read."""


class ConfigError(TimeboundError):
    """A configuration cannot be used; names file, line and key of the mistake."""

    def __init__(self, message: str, *, path: str = "", line: int = 0, key: str = "") -> None:
        where = f"{path}:{line}: " if path and line else f"{path}: " if path else ""
        super().__init__(f"{where}{key}: {message}" if key else f"{where}{message}")
        self.path = path
        self.line = line
        self.key = key


class StorageError(TimeboundError):
    """The data directory or its database cannot be used."""


class JournalError(TimeboundError):
    """A broker's journal cannot be read, or its service refused or could not be reached."""


class JournalGap(JournalError):
    """Requested rows were removed; `offset` is the first of them, `count` their number."""

    def __init__(self, message: str, *, offset: int = 0, count: int = 0) -> None:
        super().__init__(message)
        self.offset = offset
        self.count = count


class ClientError(TimeboundError):
    """Base of the errors of `timebound.Client`."""

    def __init__(self, message: str, *, reason_code: int = 0) -> None:
        super().__init__(message)
        self.reason_code = reason_code


class ConnectError(ClientError):
    """The server refused the connection or could not be reached."""


class NotConnected(ClientError):
    """The operation needs a connection and there is none."""


class PublishError(ClientError):
    """The server refused a message."""


class SubscribeError(ClientError):
    """The server refused a subscription."""
