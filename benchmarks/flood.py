"""A flood beside a periodic flow: how long does the flow take, against what was promised?

    python benchmarks/flood.py [--seconds 10] [--flooders 1] [--json]

One client publishes 100 messages a second on a topic of its own. Others flood another topic as
fast as their sockets take it, and nobody subscribes to that. The same is done to each broker as a
real process; Timebound is told about the flow beforehand and answers with a bound.
Latency is taken from before the send until the message is at the subscriber's socket, by the kernel's
own stamp: when this process gets round to reading it is not the broker's doing.

In earnest a flood comes from other machines. Here it competes for the processors with the broker and
the stopwatch, so these two come first, where that is permitted. What the machine takes from the
broker all the same stands beside the figures: the part of the time that it waited for a processor, and the
part of all processors' time that the machine under this one, if it is virtual, gave to others.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import selectors
import socket
import struct
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

from brokers import Kind, find_kinds, running

from timebound.bench.handshake import open_connections
from timebound.bench.options import LoadOptions
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Ack, Publish, Subscribe, SubscribeEntry, make_publish
from timebound.wire.properties import Properties

RATE: Final = 100
PERIOD_NS: Final = 1_000_000_000 // RATE
SIZE: Final = 64
# Generous, so that the flow is admitted on any machine; the answer tells the bound it really gets.
DELAY: Final = "1s"
# After the last message is sent, how long answers may still come.
DRAIN_S: Final = 5.0
# The flood has begun when the broker has used so much processor time; by then it has measured itself.
WARM_UP_S: Final = 10.0
FLOW_TOPIC: Final = "plant/pressure"
FLOOD_TOPIC: Final = "noise/flood"
# Linux's number of SO_TIMESTAMPNS, which Python has no name for.
TIMESTAMPS: Final = 35
# Who comes first: lower is earlier.
FIRST_NICE: Final = -15
FLOOD_NICE: Final = 10
_BOUND: Final = re.compile(r"waits at most ([0-9.]+) ms")


def flood(port: int, count: int, stopping: Event) -> None:
    """Publish on some connections as fast as their sockets take it; a process of its own."""
    os.nice(FLOOD_NICE)
    names = [f"flooder-{number}" for number in range(count)]
    data = encode(Publish(FLOOD_TOPIC, b"x" * SIZE), 5) * 500
    with selectors.DefaultSelector() as selector:
        for connection in open_connections(LoadOptions(port=port), names):
            connection.sock.setblocking(False)
            selector.register(connection.sock, selectors.EVENT_WRITE, bytearray())
        while not stopping.is_set():
            for key, _ in selector.select(0.1):
                unsent = key.data or bytearray(data)
                del unsent[: key.fileobj.send(unsent)]  # type: ignore[union-attr]  # a socket
                selector.modify(key.fileobj, selectors.EVENT_WRITE, unsent)


def come_first(pid: int) -> bool:
    try:
        os.setpriority(os.PRIO_PROCESS, pid, FIRST_NICE)
    except PermissionError:
        return False
    return True


def waited_s(pid: int) -> float:
    """How long the main thread of a process was ready to run and did not."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def stolen_s() -> float:
    """How long a virtual machine's processors were ready to run and did not, all together."""
    ticks = int(Path("/proc/stat").read_text().partition("\n")[0].split()[8])
    return ticks / os.sysconf("SC_CLK_TCK")


def connect(port: int, name: str) -> socket.socket:
    sock = open_connections(LoadOptions(port=port), [name])[0].sock
    sock.settimeout(10.0)
    return sock


def advertise(sock: socket.socket) -> float | None:
    """Tell the broker about the flow; gives the bound in milliseconds, None if it promises nothing."""
    properties = Properties()
    properties.user_properties = [("period", f"{PERIOD_NS}ns"), ("size", str(SIZE)), ("delay", DELAY)]
    packet = make_publish(f"$timebound/advertise/{FLOW_TOPIC}", b"", 1, False, 1, properties)
    sock.settimeout(10.0)
    sock.sendall(encode(packet, 5))
    decoder = Decoder(5, is_server=False)
    while True:
        for answer in decoder.feed(sock.recv(65_536)):
            assert isinstance(answer, Ack), answer
            found = _BOUND.search(answer.reason_string)
            return float(found[1]) if found else None


def stamped_ns(stamps: list[tuple[int, int, bytes]]) -> int:
    """When the kernel had the data; now, if it did not say, as just after it was first asked to."""
    if not stamps:
        return time.time_ns()
    seconds, nanoseconds = struct.unpack("qq", stamps[0][2])
    return int(seconds * 1_000_000_000 + nanoseconds)


def measure(publisher: socket.socket, subscriber: socket.socket, seconds: float) -> list[float]:
    """Send the flow and return the latency of each message that came, in milliseconds."""
    decoder = Decoder(5, is_server=False)
    latencies: list[float] = []
    count = int(seconds * RATE)
    started_ns = time.monotonic_ns()
    sent = 0
    publisher.setblocking(False)
    subscriber.setblocking(False)
    subscriber.setsockopt(socket.SOL_SOCKET, TIMESTAMPS, 1)
    with selectors.DefaultSelector() as selector:
        selector.register(subscriber, selectors.EVENT_READ)
        while len(latencies) < count:
            now_ns = time.monotonic_ns()
            due_ns = started_ns + sent * PERIOD_NS
            if sent < count and now_ns >= due_ns:
                payload = time.time_ns().to_bytes(8, "big") + b"y" * (SIZE - 8)
                publisher.send(encode(Publish(FLOW_TOPIC, payload), 5))
                sent += 1
                continue
            wait_s = (due_ns - now_ns) / 1e9 if sent < count else DRAIN_S
            if not selector.select(wait_s):
                if sent == count:
                    break
                continue
            data, stamps, _, _ = subscriber.recvmsg(65_536, 64)
            received_ns = stamped_ns(stamps)
            for packet in decoder.feed(data):
                if isinstance(packet, Publish):
                    latencies.append((received_ns - int.from_bytes(packet.payload[:8], "big")) / 1e6)
    return latencies


def run(kind: Kind, seconds: float, warm_up_s: float, flooders: int) -> dict[str, Any]:
    """Start a broker, flood it, and measure the flow."""
    context = multiprocessing.get_context("spawn")
    stopping = context.Event()
    with running(kind) as broker:
        is_first = come_first(broker.process.pid)
        subscriber = connect(broker.port, "reader")
        subscriber.sendall(encode(Subscribe(1, [SubscribeEntry(FLOW_TOPIC)]), 5))
        subscriber.recv(100)
        publisher = connect(broker.port, "press")
        bound_ms = advertise(publisher) if kind.name.startswith("timebound") else None
        quiet = measure(publisher, subscriber, 1.0)
        process = context.Process(target=flood, args=(broker.port, flooders, stopping))
        process.start()
        cpu_s = broker.cpu_s()
        end = time.monotonic() + 40
        while broker.cpu_s() - cpu_s < warm_up_s and time.monotonic() < end:
            time.sleep(0.05)
        if bound_ms is not None:
            bound_ms = advertise(publisher)  # again: by now the broker knows its own speed
        waited_before_s, stolen_before_s = waited_s(broker.process.pid), stolen_s()
        latencies = measure(publisher, subscriber, seconds)
        waited = (waited_s(broker.process.pid) - waited_before_s) / seconds
        stolen = (stolen_s() - stolen_before_s) / seconds / (os.cpu_count() or 1)
        stopping.set()
        process.join(10)
    latencies.sort()
    count = int(seconds * RATE)
    return {
        "broker": kind.version,
        "lost": count - len(latencies),
        "quiet_p50_ms": sorted(quiet)[len(quiet) // 2],
        "p50_ms": latencies[len(latencies) // 2],
        "p99_ms": latencies[int(len(latencies) * 0.99)],
        "p999_ms": latencies[min(int(len(latencies) * 0.999), len(latencies) - 1)],
        "max_ms": latencies[-1],
        "bound_ms": bound_ms,
        "waited_percent": 100 * waited,
        "stolen_percent": 100 * stolen,
        "comes_first": is_first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure each broker")
    parser.add_argument(
        "--warm-up", type=float, default=WARM_UP_S, help="processor seconds of the broker before that"
    )
    parser.add_argument("--flooders", type=int, default=1, help="clients that flood")
    parser.add_argument("--brokers", default="timebound,mosquitto", help="timebound, mosquitto, nats")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    kinds = [kind for kind in find_kinds(given.brokers.split(",")) if not kind.missing]
    come_first(0)
    rows = [run(kind, given.seconds, given.warm_up, given.flooders) for kind in kinds]
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    print(
        f"{RATE} messages/s beside {given.flooders} flooding client(s); milliseconds until at the subscriber"
    )
    names = ["quiet_p50_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms", "bound_ms"]
    names += ["waited_percent", "stolen_percent"]
    titles = [name.removesuffix("_ms").replace("_percent", " %") for name in names]
    print(f"{'broker':<32} {'lost':>5}" + "".join(f" {title:>9}" for title in titles))
    for row in rows:
        cells = "".join(" " * 9 + "-" if row[name] is None else f" {row[name]:>9.2f}" for name in names)
        print(f"{row['broker']:<32} {row['lost']:>5}{cells}")
    if not all(row["comes_first"] for row in rows):
        print("not permitted to put the broker before the flood: it competes for the processors")


if __name__ == "__main__":
    main()
