"""A driver whose time stands still, and a transport that records: for one connection to a neighbour."""

from __future__ import annotations

from typing import Any

from tests.node.mesh.doubles import SECOND

from timebound.config.limits import Limits
from timebound.core.broker import Broker
from timebound.node.input.input import Input
from timebound.units import MILLISECOND
from timebound.wire.codec import Decoder
from timebound.wire.packets import Packet


class StillDriver:
    """A driver whose time is the test's own."""

    def __init__(self, broker: Broker) -> None:
        self.limits = Limits(packet_size_max=10_000)
        self.broker = broker
        self.input = Input(broker, 0, MILLISECOND)
        self.connections: dict[int, Any] = {}
        self.throttled: list[Any] = []
        self.time_ns = SECOND
        self.is_behind = False
        self.failures: list[Exception] = []
        self.turns = 0
        self.is_stopped = False

    def next_number(self) -> int:
        return 7

    def now_ns(self) -> int:
        return self.time_ns

    def schedule(self) -> None:
        self.turns += 1

    def turn_now(self) -> None:
        self.turns += 1

    def is_storage_behind(self) -> bool:
        return self.is_behind

    def remove(self, number: int) -> None:
        self.connections.pop(number, None)

    def failed(self, client: Any, error: Exception) -> None:
        self.failures.append(error)


class Wire:
    """A transport that records; `packets` is what the other side would read."""

    def __init__(self, *, is_server: bool = True) -> None:
        self.written = bytearray()
        self.is_reading = True
        self.is_aborted = False
        self._is_closed = False
        self._is_server = is_server
        self._decoder: Decoder | None = None
        self.protocol: Any = None

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def write(self, data: bytes) -> None:
        self.written += data

    def packets(self) -> list[Packet]:
        data = bytes(self.written)
        self.written.clear()
        if self._decoder is None:
            self._decoder = Decoder(0 if data[:1] == b"\x10" else 5, is_server=self._is_server)
        return self._decoder.feed(data)

    def close(self) -> None:
        self._is_closed = True

    def is_closing(self) -> bool:
        return self._is_closed

    def abort(self) -> None:
        self.is_aborted = True
        self._is_closed = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def get_extra_info(self, name: str) -> object:
        return None

    def get_write_buffer_size(self) -> int:
        return 0
