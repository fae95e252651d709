"""The two ends of an experiment as processes of their own: one publishes, one receives.

    python -m timebound.demo.ends publish <settings as JSON>
    python -m timebound.demo.ends receive <settings as JSON>

The publisher prints the time of each publication, the receiver the time of each arrival, by the clock that
all processes of a machine share. The receiver prints `ready` when it is subscribed, and ends with its input.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from timebound.demo.traffic import TrafficClass, plan
from timebound.units import MILLISECOND, SECOND
from timebound.wire.codec import Decoder, encode, encode_ack, encode_publish
from timebound.wire.packet_types import PUBACK
from timebound.wire.packets import Connack, Connect, Publish, Suback, Subscribe, SubscribeEntry
from timebound.wire.properties import Properties

_STAMP: Final = struct.Struct(">IQ")  # number, monotonic nanoseconds at publication
_READ_BYTES: Final = 65_536
# Limit for an answer of the broker.
_ANSWER_S_MAX: Final = 20.0
_SAMPLE_S: Final = 0.1
_UNSENT: Final = re.compile(r"notsent:(\d+)")

Arrivals = list[tuple[str, int, int]]  # class, number, time


class Wire:
    """A connection to a broker, over TCP, TLS or WebSocket."""

    def __init__(self, host: str, port: int, kind: str) -> None:
        raw = socket.create_connection((host, port), _ANSWER_S_MAX)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send: Callable[[bytes], Any] = raw.sendall
        self._receive: Callable[[], bytes] = lambda: raw.recv(_READ_BYTES)
        if kind == "tls":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # the experiment's own broker, on this machine
            secure = context.wrap_socket(raw)
            self._send = secure.sendall
            self._receive = lambda: secure.recv(_READ_BYTES)
        elif kind == "websocket":
            # Imported lazily: costs a fifth of a second, for WebSocket alone.
            from websockets.sync.client import connect
            from websockets.typing import Subprotocol

            sock = connect(
                f"ws://{host}:{port}/mqtt",
                sock=raw,
                subprotocols=[Subprotocol("mqtt")],
                compression=None,
                legacy=True,
            )
            self._send = sock.send
            self._receive = lambda: bytes(sock.recv())  # type: ignore[arg-type]  # frames are binary
        self._decoder = Decoder(5, is_server=False)

    def send(self, data: bytes) -> None:
        self._send(data)

    def packets(self) -> list[Any]:
        """Wait for bytes and return the complete packets; raises OSError or EOFError at the end."""
        data = self._receive()
        if not data:
            raise EOFError("the broker closed the connection")
        return self._decoder.feed(data)

    def await_packet(self, kind: type) -> None:
        while not any(isinstance(packet, kind) for packet in self.packets()):
            pass


def receive(settings: dict[str, Any]) -> None:
    """Subscribe to all classes, and record arrivals until standard input ends."""
    wire = Wire(settings["host"], settings["port"], settings["wire"])
    wire.send(encode(Connect(client_id="receiver", keep_alive=0), 5))
    wire.await_packet(Connack)
    for number, kind in enumerate(read_classes(settings)):
        properties = Properties()
        properties.user_properties.append(("price", str(kind.price)))
        if kind.deadline_ns and settings["timed"]:
            properties.user_properties.append(("deadline", f"{kind.deadline_ns // MILLISECOND}ms"))
        entry = SubscribeEntry(kind.topic, settings["qos"])
        wire.send(encode(Subscribe(number + 1, [entry], properties), 5))
        wire.await_packet(Suback)
    arrivals: Arrivals = []
    threading.Thread(target=_collect, args=(wire, arrivals), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    print(json.dumps({"arrivals": arrivals.copy()}), flush=True)


def _collect(wire: Wire, arrivals: Arrivals) -> None:
    while True:
        try:
            packets = wire.packets()
        except (OSError, EOFError):
            return
        now_ns = time.monotonic_ns()
        for packet in packets:
            if isinstance(packet, Publish):
                if packet.qos:
                    wire.send(encode_ack(PUBACK, packet.packet_id, 0, 5))
                number, _ = _STAMP.unpack_from(packet.payload)
                arrivals.append((packet.topic.rpartition("/")[2], number, now_ns))


def publish(settings: dict[str, Any]) -> None:
    """Publish all classes by plan, while sampling what the broker's socket holds."""
    wire = Wire(settings["host"], settings["port"], "tcp")
    wire.send(encode(Connect(client_id="publisher", keep_alive=0), 5))
    wire.await_packet(Connack)
    seconds, qos = settings["seconds"], settings["qos"]
    due = sorted(
        (at_s, kind.name, number, kind)
        for kind in read_classes(settings)
        for number, at_s in enumerate(plan(kind, settings["bytes_per_s"], seconds, settings["seed"]))
    )
    held: list[tuple[int, int, int]] = []
    if settings["watched"]:
        threading.Thread(target=_watch, args=(settings["watched"], held), daemon=True).start()
    published: Arrivals = []
    started_ns = time.monotonic_ns()
    for at_s, name, number, kind in due:
        wait_s = at_s - (time.monotonic_ns() - started_ns) / SECOND
        if wait_s > 0:
            time.sleep(wait_s)
        now_ns = time.monotonic_ns()
        payload = _STAMP.pack(number, now_ns).ljust(kind.payload_bytes, b".")
        published.append((name, number, now_ns))
        wire.send(encode_publish(kind.topic, payload, qos, False, False, qos and 1 + number % 65_535, b"", 5))
    print(json.dumps({"published": published, "held": held.copy()}), flush=True)


def _watch(peer: str, held: list[tuple[int, int, int]]) -> None:
    """Sample sockets to the peer: the time, the unacknowledged bytes, and the unsent ones of these."""
    command = ["ss", "-tinHO", "dst", peer]
    while True:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        now_ns = time.monotonic_ns()
        for line in found.splitlines():
            unsent = _UNSENT.search(line)
            held.append((now_ns, int(line.split()[2]), int(unsent.group(1)) if unsent else 0))
        time.sleep(_SAMPLE_S)


def read_classes(settings: dict[str, Any]) -> list[TrafficClass]:
    return [TrafficClass(*fields) for fields in settings["classes"]]


if __name__ == "__main__":
    {"publish": publish, "receive": receive}[sys.argv[1]](json.loads(sys.argv[2]))
