"""Hostile clients beside a well-behaved pair: how much longer do the pair's messages take?

    python benchmarks/hostile.py [--seconds 5] [--attacks search,retained] [--packages FOLDER] [--json]

A pair publishes and receives 100 messages a second. Beside it, another process attacks the broker, over
and over, with what it has to work on longest: content filters, SUBSCRIBE packets, retained messages,
advertisements, timers. Each attack meets a broker of its own. `--packages` names a folder with another
build of Timebound to compare with; both are then measured in turn. `waited_percent` is the part of the
time that the broker was ready to run and had no processor: with much of it, a figure says little.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.synchronize import Event
from typing import Any, Final

from brokers import Kind, find_kinds, running
from flood import FLOW_TOPIC, come_first, connect, measure, waited_s

from timebound.wire.codec import encode
from timebound.wire.packets import Connect, Packet, Subscribe, SubscribeEntry, Unsubscribe, make_publish
from timebound.wire.properties import Properties

ATTACK_NICE: Final = 10
# Before the pair is measured: the attack is under way by then.
WARM_UP_S: Final = 1.0
# For the companions' subscriptions: 4,600 of `crowd` take 20 s.
COMPANIONS_TIMEOUT_S: Final = 120.0
# How a SUBACK begins, in which one filter is granted at QoS 0 without a remark.
GRANTED: Final = b"\x90\x04"
# Filters that one SUBSCRIBE of about 24 KB names; the limit of a client is 1,000.
FILTERS: Final = 992
RETAINED: Final = 2_000
# Clients of an attack by many that are connected at a time, and what each of them advertises.
CROWD: Final = 40
ASKED_BY_EACH: Final = 5


def properties(*pairs: tuple[str, str]) -> Properties:
    made = Properties()
    made.user_properties = list(pairs)
    return made


def overlapping(count: int) -> list[str]:
    """Topic filters that all select the topic `x/x/x/x/x/x/x/x/x/x`."""
    levels = itertools.product("+x", repeat=10)
    return ["/".join(each) for each, _ in zip(levels, range(count), strict=False)]


def subscribe(filters: list[str], *pairs: tuple[str, str]) -> Packet:
    return Subscribe(1, [SubscribeEntry(name) for name in filters], properties(*pairs))


def search() -> Iterator[bytes]:
    """Filters with many LIKEs, and messages of 1 MB to search."""
    where = " OR ".join(f"p LIKE '%{'a' * 20}{number}%'" for number in range(100))
    yield encode(subscribe(overlapping(FILTERS), ("where", where)), 5)
    sizes = itertools.cycle([1_000_000, 200_000, 8_000])
    while True:
        yield encode(make_publish("x/" * 9 + "x", b'{"p": "%s"}' % (b"a" * next(sizes))), 5)


def tests() -> Iterator[bytes]:
    """Long filters without a search, each written differently, and small messages."""
    for number, name in enumerate(overlapping(200)):
        where = " AND ".join(f"(a{one} <> {number} OR b{one} IS NULL)" for one in range(100))
        yield encode(subscribe([name], ("where", where)), 5)
    while True:
        yield encode(make_publish("x/" * 9 + "x", b'{"a1": 1, "a2": 2}'), 5)


def numbers() -> Iterator[bytes]:
    """One filter, and payloads that take long to decode."""
    yield encode(subscribe(["x"], ("where", "tags CONTAINS 'x' OR a.b.c = 1")), 5)
    while True:
        yield encode(make_publish("x", b'{"tags": [%s]}' % b",".join([b"[]"] * 300_000)), 5)
        yield encode(make_publish("x", b'{"tags": [%s]}' % b",".join([b"1"] * 120_000)), 5)


def parse() -> Iterator[bytes]:
    """Filters of 4 KB to be read, each another one."""
    for number in itertools.count():
        where = " OR ".join(f"a{one} = {number}" for one in range(250))
        yield encode(subscribe(overlapping(FILTERS), ("where", where)), 5)


def retained() -> Iterator[bytes]:
    """SUBSCRIBEs with many filters, each of which selects all that is retained."""
    for number in range(RETAINED):
        yield encode(make_publish(f"r/{number}/x", b"x" * 50, retain=True), 5)
    filters = ["r/#", *[f"r/+/{number}" for number in range(FILTERS - 1)]]
    while True:
        yield encode(subscribe(filters), 5)
        yield encode(Unsubscribe(2, filters), 5)


def advertise() -> Iterator[bytes]:
    """Flows to be admitted, again and again, with other terms."""
    for number in itertools.count():
        terms = properties(
            ("period", f"{10 + number % 7}ms"), ("weight", str(1 + number % 50)), ("delay", "10s")
        )
        topic = f"$timebound/advertise/f/{number % 200}"
        yield encode(make_publish(topic, b"", 1, False, 1 + number % 60_000, terms), 5)


def timers() -> Iterator[bytes]:
    """As many timers as there may be, as fast as they may tick."""
    yield encode(subscribe([f"e/{number}" for number in range(FILTERS)], ("every", "10ms")), 5)
    while True:
        time.sleep(0.1)
        yield b"\xc0\x00"  # PINGREQ


def unsubscribe() -> Iterator[bytes]:
    """Filters that are removed one by one while one with a deadline stays."""
    yield encode(subscribe(["last"], ("deadline", "1s")), 5)
    names = [f"u/{number}" for number in range(FILTERS)]
    while True:
        yield encode(subscribe(names), 5)
        for number, name in enumerate(names):
            yield encode(Unsubscribe(1 + number, [name]), 5)


def deadlines() -> Iterator[bytes]:
    """Messages for many readers with deadlines that never read (`COMPANIONS`)."""
    while True:
        yield encode(make_publish("late/x", b"x" * 64), 5)


def crowd() -> Iterator[bytes]:
    """Messages near the payload limit of filters; many clients have filters up to their limit."""
    text = "a" * 8_000
    fields = ", ".join([f'"p{number}": "{text}"' for number in range(30)])
    fields += "".join([f', "a{number}": {number}' for number in range(40)])
    while True:
        yield encode(make_publish("crowd", f"{{{fields}}}".encode()), 5)


def expensive(number: int) -> list[Packet]:
    """Filters of one of many clients: searches of texts, and tests that differ from all others."""
    searches = " OR ".join(f"p{one % 30} LIKE '%{'a' * 12}{number}b{one}%'" for one in range(45))
    made = [Subscribe(1, [SubscribeEntry("crowd")], properties(("where", searches), ("name", "searches")))]
    for part in range(50):
        tests = " AND ".join(f"(a{one} <> {number}.{part} OR b{one} IS NULL)" for one in range(40))
        terms = properties(("where", f"{tests} AND c IS NOT NULL"), ("name", f"tests-{part}"))
        made.append(Subscribe(2 + part, [SubscribeEntry("crowd")], terms))
    return made


def deadline(number: int) -> list[Packet]:
    """A subscription of a reader that does not read, so that its queue is full."""
    return [subscribe(["late/#"], ("deadline", "2s"))]


def arrival() -> Iterator[bytes]:
    """Many clients that subscribe with long filters at the same time (`COMPANIONS`)."""
    while True:
        time.sleep(0.1)
        yield b"\xc0\x00"  # PINGREQ


def advertise_ids(port: int, stopping: Event) -> None:
    """The same from ever new client ids and addresses, which connect, ask and leave."""
    asking = advertise()
    joined: deque[socket.socket] = deque()
    for number in itertools.count():
        if stopping.is_set():
            return
        address = f"127.0.{1 + number // 250 % 250}.{1 + number % 250}"
        with contextlib.suppress(OSError):  # refused, or no port is left for a moment
            sock = socket.create_connection(("127.0.0.1", port), 5.0, source_address=(address, 0))
            joined.append(sock)
            sock.sendall(encode(Connect(f"id-{number}"), 5))
            sock.sendall(b"".join([next(asking) for _ in range(ASKED_BY_EACH)]))
        if len(joined) > CROWD:
            joined.popleft().close()


ATTACKS: Final[dict[str, Callable[[], Iterator[bytes]]]] = {
    made.__name__: made
    for made in (
        search,
        tests,
        numbers,
        parse,
        retained,
        advertise,
        timers,
        unsubscribe,
        deadlines,
        crowd,
        arrival,
    )
}
# Clients that subscribe first and then do nothing: how many, and what they send.
COMPANIONS: Final[dict[str, tuple[int, Callable[[int], list[Packet]]]]] = {
    "deadlines": (50, deadline),
    "crowd": (90, expensive),
    "arrival": (90, expensive),
}
# Attacks of many clients.
CROWDS: Final = {"advertise_ids": advertise_ids}


def gather(name: str, port: int) -> list[socket.socket]:
    """Connect the companions of an attack. What they ask for is only part of `arrival`."""
    count, packets = COMPANIONS.get(name, (0, deadline))
    gathered = [connect(port, f"companion-{number}") for number in range(count)]
    for number, companion in enumerate(gathered):
        asked = packets(number)
        companion.sendall(b"".join([encode(packet, 5) for packet in asked]))
        granted = b""
        while name != "arrival" and granted.count(GRANTED) < len(asked):
            granted += companion.recv(1 << 16)
    return gathered


def attack(name: str, port: int, ready: Event, stopping: Event) -> None:
    """Attack until told to stop; a process of its own. Answers are read and thrown away."""
    os.nice(ATTACK_NICE)
    if name in CROWDS:
        ready.set()
        CROWDS[name](port, stopping)
        return
    companions = gather(name, port)
    ready.set()
    parts = ATTACKS[name]()
    sock: socket.socket | None = None
    unsent = b""
    with selectors.DefaultSelector() as selector:
        while not stopping.is_set():
            if sock is None:
                sock = connect(port, "attacker")
                sock.setblocking(False)
                selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
            for _, events in selector.select(0.1):
                try:
                    if events & selectors.EVENT_READ and not sock.recv(1 << 20):
                        raise ConnectionError
                    if events & selectors.EVENT_WRITE:
                        unsent = unsent or next(parts)
                        unsent = unsent[sock.send(unsent) :]
                except BlockingIOError:
                    continue
                except ConnectionError:  # it was closed for what it did: it comes again
                    selector.unregister(sock)
                    sock.close()
                    sock, unsent = None, b""
                    parts = ATTACKS[name]()
                    time.sleep(0.05)
                    break
    for companion in companions:
        companion.close()


def run(kind: Kind, name: str, seconds: float) -> dict[str, Any]:
    """Start a broker, measure the pair alone and under attack."""
    context = multiprocessing.get_context("spawn")
    ready, stopping = context.Event(), context.Event()
    with running(kind) as broker:
        come_first(broker.process.pid)
        subscriber = connect(broker.port, "reader")
        subscriber.sendall(encode(Subscribe(1, [SubscribeEntry(FLOW_TOPIC)]), 5))
        subscriber.recv(100)
        publisher = connect(broker.port, "press")
        quiet = sorted(measure(publisher, subscriber, min(seconds, 2.0)))
        process = context.Process(target=attack, args=(name, broker.port, ready, stopping))
        process.start()
        ready.wait(COMPANIONS_TIMEOUT_S)
        time.sleep(WARM_UP_S)
        waited_before_s = waited_s(broker.process.pid)
        attacked = sorted(measure(publisher, subscriber, seconds))
        waited = (waited_s(broker.process.pid) - waited_before_s) / seconds
        stopping.set()
        process.join(10)
        if process.is_alive():
            process.kill()
    lost = int(seconds * 100) - len(attacked)
    worst = [*attacked, *[float("inf")] * lost]  # what did not come in time took longest
    return {
        "attack": name,
        "broker": kind.packages or kind.version,
        "lost": lost,
        "quiet_p99_ms": quiet[int(len(quiet) * 0.99)],
        "p50_ms": worst[len(worst) // 2],
        "p99_ms": worst[int(len(worst) * 0.99)],
        "max_ms": worst[-1],
        "waited_percent": 100 * waited,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to measure under each attack")
    parser.add_argument("--attacks", default=",".join([*ATTACKS, *CROWDS]), help="which, in this order")
    parser.add_argument("--packages", default="", help="a folder with another build, measured in turn")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    kinds = find_kinds(["timebound"])
    if given.packages:
        kinds.insert(0, replace(kinds[0], packages=given.packages))
    come_first(0)
    rows = []
    for name in given.attacks.split(","):
        for kind in kinds:
            row = run(kind, name, given.seconds)
            rows.append(row)
            if not given.json:
                cells = " ".join(
                    f"{key} {value:.2f}" for key, value in row.items() if key.endswith(("_ms", "_percent"))
                )
                print(f"{row['attack']:<13} {row['broker']:<32} lost {row['lost']:>4} {cells}", flush=True)
    if given.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
