"""Brokers with a journal, for tests that read it or publish through it."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

from tests.conftest import BrokerProcess
from tests.peer import join

from timebound.wire.packets import Ack

# Unacknowledged messages at a time, below what a broker allows.
IN_FLIGHT = 500


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


class JournalBroker(BrokerProcess):
    """A broker whose journal can be read at `server`, the same after a restart on its data."""

    def __init__(self, folder: Path, more: str = "", *, port: int = 0, data: Path | None = None) -> None:
        self.flight_port = port or free_port()
        config = (
            "[[listeners]]\nport = 0\n"
            f'[[journals]]\nname = "all"\n{more}'
            f"[flight]\nport = {self.flight_port}\n"
        )
        super().__init__(folder, config, data)

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.flight_port}"

    def again(self) -> JournalBroker:
        """Start it again after it was killed."""
        return JournalBroker(self.folder, port=self.flight_port, data=self.data)

    def publish(self, topics: Iterable[str], payload: str = "") -> None:
        """Publish with QoS 1 and wait for all acknowledgements: then the journal has them."""
        with join(self.port) as peer:
            waiting = 0
            for topic in topics:
                peer.publish(topic, (payload or topic).encode(), qos=1)
                waiting += 1
                while waiting >= IN_FLIGHT:
                    peer.expect(Ack)
                    waiting -= 1
            for _ in range(waiting):
                peer.expect(Ack)
