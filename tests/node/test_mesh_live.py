"""Real brokers, each a process of its own, linked to a mesh."""

from __future__ import annotations

import socket
import time

from tests.conftest import BrokerProcess, StartBroker
from tests.peer import Peer, join

from timebound.wire.packets import Ack, Publish

TIMEOUT_S = 15.0
PROBE = b"probe"


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
    """Brokers and how they are linked; the first of a pair opens the link."""

    def __init__(self, start: StartBroker, *links: tuple[str, str], more: str = "") -> None:
        self._start = start
        self._links = links
        self._more = more
        names = sorted({name for link in links for name in link})
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.brokers: dict[str, BrokerProcess] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> BrokerProcess:
        text = f'node_name = "{name}"\nsys_interval = "100ms"\n'
        text += f"[[listeners]]\nport = {self.ports[name]}\n"
        for source, target in self._links:
            if source == name:
                text += f'[[neighbour]]\nname = "{target}"\nhost = "127.0.0.1"\nport = {self.ports[target]}\n'
            elif target == name:
                text += f'[[neighbour]]\nname = "{source}"\n'
            if name in (source, target):
                text += self._more
        self.brokers[name] = self._start(text)
        return self.brokers[name]

    def wait_links(self) -> None:
        for source, target in self._links:
            self.brokers[source].wait_logged(f"link to '{target}' is up")
            self.brokers[target].wait_logged(f"link to '{source}' is up")

    def join(self, name: str) -> Peer:
        return join(self.ports[name])


def wait_wanted(publisher: Peer, topic: str) -> None:
    """Publish probes until the broker knows of a subscription: it says so in its PUBACK."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        publisher.publish(topic, PROBE, qos=1)
        if publisher.expect(Ack).reason_code == 0:
            return
        assert time.monotonic() < end_s, f"nobody wanted {topic!r} in {TIMEOUT_S} s"
        time.sleep(0.01)


def read(subscriber: Peer, count: int) -> list[Publish]:
    """The next messages that are no probes."""
    found: list[Publish] = []
    while len(found) < count:
        packet = subscriber.expect(Publish, TIMEOUT_S)
        if packet.payload != PROBE:
            found.append(packet)
    return found


def test_a_message_reaches_a_subscriber_of_another_broker(start_broker: StartBroker) -> None:
    mesh = Mesh(start_broker, ("a", "b"))
    mesh.wait_links()
    with mesh.join("a") as publisher, mesh.join("b") as subscriber:
        subscriber.subscribe("t/#", user_properties=[("deadline", "5s")])
        wait_wanted(publisher, "t/x")

        publisher.publish("t/x", b"hello", user_properties=[("k", "v")])

        [found] = read(subscriber, 1)
        assert (found.topic, found.payload) == ("t/x", b"hello")
        assert [name for name, _ in found.user_properties] == ["k", "age"]
