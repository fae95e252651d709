"""A running channel's side of its file: the gateways it names, and the operations that are connected."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Final

from timebound.channel.base.consumer import Callback, Consumer, Predicate
from timebound.channel.base.errors import ChannelError
from timebound.channel.carrier import Carrier, Supplier
from timebound.channel.config.reader import ChannelFile
from timebound.channel.config.values import GatewayConfig, OperationConfig

if TYPE_CHECKING:
    from timebound.channel.federation.remote import RemoteGateway


class Configuration:
    """What a channel's file states, and what is open and connected because of it."""

    def __init__(self, file: ChannelFile) -> None:
        # Held while a file is applied; taken before the channel's own lock, never after it.
        self.lock: Final = RLock()
        self.file = file
        # Sections whose module the program has replaced by one of its own.
        self.overridden: set[str] = set()
        self.gateways: dict[GatewayConfig, RemoteGateway] = {}
        self._consumers: dict[str, Consumer] = {}
        self._suppliers: dict[str, Supplier] = {}

    def note_override(self, sections: list[str]) -> None:
        with self.lock:
            self.overridden.update(sections)

    def open_gateways(self, channel: Carrier) -> None:
        """Open the gateways of the file.

        Raises:
            ChannelFileError: one cannot be opened; the others are closed again.
        """
        with self.lock:
            for config in self.file.config.gateways:
                try:
                    self.gateways[config] = open_gateway(channel, self.file, config)
                except ChannelError:
                    self.close_gateways()
                    raise

    def close_gateways(self) -> None:
        with self.lock:
            opened = list(self.gateways.values())
            self.gateways.clear()
        for gateway in opened:
            gateway.close()

    def connect(self, channel: Carrier, name: str, callback: Callback, where: Predicate | None) -> Consumer:
        with self.lock:
            stated = self._stated(name)
            if name in self.connected():
                raise ChannelError(f"operation {name!r} is already connected; disconnect its consumer first")
            consumer = channel.connect(
                callback,
                stated.dependency,
                name=name,
                operation=stated.operation(),
                where=where,
                evict_after=stated.evict_after,
                evict_slow=stated.evict_slow,
                queue_max=stated.queue_max,
            )
            self._consumers[name] = consumer
            return consumer

    def supplier(self, channel: Carrier, name: str) -> Supplier:
        with self.lock:
            stated = self._stated(name)
            if not stated.supplies:
                raise ChannelError(f"operation {name!r} supplies nothing in {self.file.path}")
            if name in self.supplying():
                raise ChannelError(f"operation {name!r} already has a supplier; disconnect it first")
            supplier = channel.supplier(name, *stated.supplies, source=stated.source)
            self._suppliers[name] = supplier
            return supplier

    def connected(self) -> dict[str, Consumer]:
        """Return the consumers of operations that are connected now."""
        return {name: consumer for name, consumer in self._consumers.items() if not consumer.is_closed}

    def supplying(self) -> dict[str, Supplier]:
        """Return the suppliers of operations that are connected now."""
        return {name: supplier for name, supplier in self._suppliers.items() if supplier.is_connected()}

    def _stated(self, name: str) -> OperationConfig:
        stated = self.file.config.operation(name)
        if stated is None:
            known = ", ".join(operation.name for operation in self.file.config.operations) or "none"
            raise ChannelError(f"operation {name!r} is not in {self.file.path} (it has: {known})")
        return stated


def open_gateway(channel: Carrier, file: ChannelFile, config: GatewayConfig) -> RemoteGateway:
    """Open one gateway.

    Raises:
        ChannelFileError: the system refuses it.
    """
    from timebound.channel.federation.remote import DiallingGateway, ListeningGateway

    make = ListeningGateway if config.kind == "listen" else DiallingGateway
    try:
        return make(channel, config.address, priority=config.priority)
    except OSError as error:
        at = ("gateways", file.config.gateways.index(config), "address")
        reason = error.strerror or str(error)
        raise file.failure(at, f"{config.address!r} cannot be opened: {reason.lower()}") from error
