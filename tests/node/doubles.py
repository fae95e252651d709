"""A broker with its driver in process, and doubles for what surrounds them: transport and storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from timebound.config.input import InputConfig, entrance_options
from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.values import Config
from timebound.core.broker import Broker
from timebound.core.matching.index import SubscriptionIndex
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.store_orders import StoreOrder
from timebound.node.clients.connection import Connection
from timebound.node.clients.handshake import Door
from timebound.node.driver import Driver
from timebound.node.login.logins import Logins
from timebound.node.login.passwords import PasswordFile
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Packet


class RecordingTransport:
    """Remembers what was written and asked of it."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.written = bytearray()
        self.is_reading = True
        self.is_closed = False
        self.is_aborted = False
        self.settled = asyncio.Event()  # read again, or closed

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "written after close"
        self.written += data

    def packets(self, version: int = 5) -> list[Packet]:
        decoder = Decoder(version, is_server=False)
        found = decoder.feed(bytes(self.written))
        assert decoder.error is None, decoder.error
        return found

    def close(self) -> None:
        self.is_closed = True
        self.settled.set()

    def abort(self) -> None:
        self.is_aborted = True
        self.close()

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True
        self.settled.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def write_eof(self) -> None:
        """The peer closes it."""

    def set_write_buffer_limits(self, high: int, low: int | None = None) -> None:
        assert high >= 0

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self.host, 5000) if name == "peername" else default


class HeldStorage:
    """A storage that finishes when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.pending_orders = 0

    def submit(self, orders: list[StoreOrder], done: Callable[[], None]) -> None:
        self.waiting.append(done)

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done()


class House:
    """A broker with its driver and one door, and connections through it."""

    def __init__(
        self,
        limits: Limits,
        passwords: PasswordFile | None = None,
        is_durable: bool = False,
        input_config: InputConfig | None = None,
        index: SubscriptionIndex | None = None,
    ) -> None:
        self.storage = HeldStorage()
        options = entrance_options(input_config or InputConfig())
        self.broker = Broker(BrokerLimits(), AccessList([]), is_durable, index, options)
        self.driver = Driver(self.broker, self.storage, limits, asyncio.get_running_loop(), input_config)
        self.logins = Logins(asyncio.get_running_loop(), 1)
        config = Config(limits=limits)
        self.door = Door(ListenerConfig(), config, self.driver, AccessList([]), passwords, self.logins)

    def open(self, *packets: Packet) -> tuple[Connection, RecordingTransport]:
        transport = RecordingTransport()
        connection = Connection(self.driver, self.door)
        connection.connection_made(transport)
        if packets:
            self.send(connection, *packets)
        return connection, transport

    def send(self, connection: Connection, *packets: Packet) -> None:
        connection.data_received(b"".join(encode(packet, 5) for packet in packets))
        while connection.is_deferred:  # a SUBSCRIBE that took longer than a turn, on a busy machine
            self.driver.turn()


def lone_connections() -> Callable[[], Connection]:
    """Make connections without a transport: publishers whose packets are the test's own."""

    async def build() -> House:
        return House(Limits())

    house = asyncio.run(build())
    return lambda: Connection(house.driver, house.door)


Build = Callable[..., House]
