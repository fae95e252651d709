"""Base of what stands between a transport and a connection: a protocol to one, a transport to the other.

TLS (`tls.py`) and WebSocket (`websocket.py`) change the bytes, and how a connection ends. All other
calls are passed on to the transport below.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from mypy_extensions import mypyc_attr

from timebound.node.input.buffer import READ_BUFFER, take_read


@mypyc_attr(allow_interpreted_subclasses=True)  # WebSocketAdapter is not compiled
class Adapter:
    """Base of the adapters; `connection_made` sets `_transport`."""

    def __init__(self, inner: Any) -> None:
        self._transport: Any = None
        self._inner: Any = inner  # the protocol behind it: a connection, or another adapter

    # --- protocol, for the event loop -----------------------------------------------

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read; all connections share it."""
        return READ_BUFFER

    def buffer_updated(self, count: int) -> None:
        self.data_received(take_read(count))

    @abstractmethod
    def data_received(self, data: bytes) -> None: ...

    # --- transport, for what is behind it -------------------------------------------

    def set_protocol(self, protocol: Any) -> None:
        """Hand what comes from now on to another protocol."""
        self._inner = protocol

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return bool(self._transport.is_closing())

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_reading(self) -> bool:
        return bool(self._transport.is_reading())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> Any:
        return self._transport.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        return int(self._transport.get_write_buffer_size())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
