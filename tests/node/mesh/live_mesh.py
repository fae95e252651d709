"""Real brokers in a mesh, each a process of its own, and clients that publish as fast as they can."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conftest import BrokerProcess, Certificates
from tests.peer import Peer, join

from timebound.wire.codec import encode
from timebound.wire.packets import Ack, Packet, Publish, make_publish

TIMEOUT_S = 20.0
PROBE = b"probe"
Links = dict[tuple[str, str], str]  # the broker that opens it first; what both say of it
PUBACK, PUBREC, PUBREL, PUBCOMP = 4, 5, 6, 7


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on; brokers that know each other need them before they start."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Mesh:
    """Brokers and how they are linked."""

    def __init__(
        self,
        folder: Path,
        links: Links,
        more: str = "",
        relay: Callable[[int], int] | None = None,
        tops: dict[str, str] | None = None,
        listeners: str = "",
    ) -> None:
        """Start them; `more` is the top of every configuration, `tops` of some; `relay` leads to a port.

        `listeners` are those for clients beside the one that links use.
        """
        self._folder = folder
        self._links = links
        self._more = more
        self._tops = tops or {}
        self._listeners = listeners
        self._started: list[BrokerProcess] = []
        names = sorted({name for link in links for name in link})
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._doors = {name: relay(port) if relay is not None else port for name, port in self.ports.items()}
        with ThreadPoolExecutor(len(names)) as pool:  # most of starting is waiting for it
            self.brokers = dict(zip(names, pool.map(self.start, names), strict=True))
        for source, target in links:
            self.brokers[source].wait_logged(f"link to '{target}' is up")
            self.brokers[target].wait_logged(f"link to '{source}' is up")

    def start(self, name: str) -> BrokerProcess:
        text = f'node_name = "{name}"\nsys_interval = "50ms"\n{self._tops.get(name, self._more)}'
        text += f"[[listeners]]\nport = {self.ports[name]}\n{self._listeners}"
        for (source, target), more in self._links.items():
            if source == name:
                where = f'host = "127.0.0.1"\nport = {self._doors[target]}\n'
                text += f'[[neighbours]]\nname = "{target}"\n{where}{more}'
            elif target == name:
                text += f'[[neighbours]]\nname = "{source}"\n{more}'
        folder = self._folder / f"{name}-{len(self._started)}"
        process = BrokerProcess(folder, text)
        self._started.append(process)
        return process

    def end(self) -> None:
        """End all brokers; none may have logged a traceback."""
        for process in self._started:
            process.kill()
        for process in self._started:
            assert "Traceback" not in process.log(), process.log()

    def join(self, name: str, client_id: str = "") -> Peer:
        return join(self.ports[name], client_id)

    def join_over(self, name: str, scheme: str, certificates: Certificates) -> Peer:
        """A client of a broker over one of `listeners`."""
        return join(self.brokers[name].over(scheme, certificates).port)

    def figures(self, name: str, *wanted: str) -> dict[str, float]:
        """Figures of a broker under $SYS/broker/, as they are now."""
        found: dict[str, float] = {}
        with self.join(name) as watcher:
            watcher.subscribe(*[f"$SYS/broker/{one}" for one in wanted])
            while len(found) < len(wanted):
                packet = watcher.expect(Publish, TIMEOUT_S)
                found[packet.topic.removeprefix("$SYS/broker/")] = float(packet.payload)
        return found


def wait_wanted(publisher: Peer, topic: str) -> None:
    """Publish probes until the broker knows of a subscription: it says so in its PUBACK."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        publisher.publish(topic, PROBE, qos=1)
        if publisher.expect(Ack).reason_code == 0:
            return
        assert time.monotonic() < end_s, f"nobody wanted {topic!r} in {TIMEOUT_S} s"
        time.sleep(0.01)


class Flood:
    """A client that publishes numbers as fast as it may, in a thread, and keeps the quota it was given."""

    def __init__(
        self, peer: Peer, topic: str, count: int, qos: int, *, digits: int = 1, window: int = 1_024
    ) -> None:
        self.peer = peer
        self.acknowledged = 0
        self.refused: list[int] = []
        self.sent = 0
        self._topic = topic
        self._count = count
        self._qos = qos
        self._digits = digits
        self._window = window
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until everything is sent and acknowledged."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.acknowledged} of {self._count} acknowledged"

    def _run(self) -> None:
        under_way = 0
        while self.acknowledged + len(self.refused) < self._count or under_way:
            frames = []
            while self.sent < self._count and under_way < self._window and len(frames) < 200:
                packet_id = self.sent % 60_000 + 1 if self._qos else 0
                payload = b"%0*d" % (self._digits, self.sent)
                frames.append(encode(make_publish(self._topic, payload, self._qos, packet_id=packet_id), 5))
                self.sent += 1
                under_way += 1 if self._qos else 0
            if frames:
                self.peer.send_bytes(b"".join(frames))
            if self._qos == 0:
                self.acknowledged = self.sent
            elif under_way == self._window or self.sent == self._count:
                under_way -= self._on_answer(self.peer.receive(TIMEOUT_S))

    def _on_answer(self, packet: Packet | None) -> int:
        assert isinstance(packet, Ack), packet
        if packet.kind == PUBREC and packet.reason_code < 0x80:
            self.peer.send(Ack(PUBREL, packet.packet_id))
            return 0
        if packet.reason_code >= 0x80:
            self.refused.append(packet.reason_code)
        else:
            self.acknowledged += 1
        return 1


def read_numbers(subscriber: Peer, count: int, timeout_s: float = TIMEOUT_S) -> list[int]:
    """The numbers that arrive, in order, until there are `count` of them."""
    found: list[int] = []
    while len(found) < count:
        packet = subscriber.receive(timeout_s)
        assert isinstance(packet, Publish), packet
        if packet.payload != PROBE:
            found.append(int(packet.payload))
    return found


def read(subscriber: Peer, count: int) -> list[Publish]:
    """The next messages that are no probes."""
    found: list[Publish] = []
    while len(found) < count:
        packet = subscriber.expect(Publish, TIMEOUT_S)
        if packet.payload != PROBE:
            found.append(packet)
    return found
