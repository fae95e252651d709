"""Messages a second over one link between two brokers, each a process of its own.

    python benchmarks/mesh.py [--count 30000] [--deadline 60s] [--json]

One client publishes to the first broker as fast as its socket takes it, one subscribes at the second.
The brokers' processor time is told beside the rate: on a small machine the two clients compete with them.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Ack, Connect, Packet, Publish, Subscribe, SubscribeEntry, make_publish
from timebound.wire.properties import Properties

TOPIC: Final = "t"
SIZE: Final = 100
TIMEOUT_S: Final = 30.0


class Peer:
    """A client that does one thing after the other."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._decoder = Decoder(5, is_server=False)
        self._waiting: list[Packet] = []
        self.ask(Connect(""))

    def ask(self, packet: Packet) -> Packet:
        self.socket.sendall(encode(packet, 5))
        return self.receive()

    def receive(self) -> Packet:
        while not self._waiting:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            self._waiting = self._decoder.feed(data)[::-1]
        return self._waiting.pop()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start(folder: Path, name: str, port: int, neighbour: str) -> subprocess.Popen[bytes]:
    config = folder / f"{name}.toml"
    config.write_text(
        f'node_name = "{name}"\nsys_interval = "0s"\n[log]\nlevel = "error"\n'
        f"[[listeners]]\nport = {port}\n[[neighbours]]\n{neighbour}"
    )
    command = [sys.executable, "-m", "timebound", "serve", "--config", str(config), "--memory"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    while not process.stdout.readline().startswith(b"data in "):
        assert process.poll() is None, "the broker did not start"
    return process


def wait_wanted(publisher: Peer) -> None:
    """Publish until the first broker knows of the subscription at the second."""
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        answer = publisher.ask(make_publish(TOPIC, b"", 1, packet_id=1))
        if isinstance(answer, Ack) and answer.reason_code == 0:
            return
        time.sleep(0.01)
    raise TimeoutError("the brokers are not linked")


def measure(ports: list[int], count: int, deadline: str) -> float:
    """Seconds from the first message sent to the last one received."""
    subscriber, publisher = Peer(ports[1]), Peer(ports[0])
    properties = Properties()
    if deadline:
        properties.user_properties.append(("deadline", deadline))
    subscriber.ask(Subscribe(1, [SubscribeEntry(TOPIC, 0)], properties))
    wait_wanted(publisher)
    assert isinstance(subscriber.receive(), Publish)
    frames = encode(make_publish(TOPIC, b"x" * SIZE), 5) * 100
    began_s = time.perf_counter()
    sender = threading.Thread(target=lambda: [publisher.socket.sendall(frames) for _ in range(count // 100)])
    sender.start()
    for _ in range(count // 100 * 100):
        subscriber.receive()
    sender.join(TIMEOUT_S)
    return time.perf_counter() - began_s


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30_000)
    parser.add_argument("--deadline", default="", help="of the subscription")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ports = free_ports(2)
    with tempfile.TemporaryDirectory() as name:
        address = f'name = "b"\nhost = "127.0.0.1"\nport = {ports[1]}\n'
        brokers = [start(Path(name), "b", ports[1], 'name = "a"\n')]
        brokers.insert(0, start(Path(name), "a", ports[0], address))
        try:
            before = [cpu_s(broker) for broker in brokers]
            seconds = measure(ports, options.count, options.deadline)
            used = [round(cpu_s(broker) - was, 2) for broker, was in zip(brokers, before, strict=True)]
        finally:
            for broker in brokers:
                broker.terminate()
                broker.wait(TIMEOUT_S)
    result = {"count": options.count, "per_s": round(options.count / seconds), "cpu_s": used}
    print(json.dumps(result) if options.json else f"{result['per_s']:,} messages/s, brokers used {used} s")


if __name__ == "__main__":
    main()
