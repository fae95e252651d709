"""One link between two brokers, each a process of its own, beside a Mosquitto bridge and a route of NATS.

    python benchmarks/mesh.py                       all works, three rounds, about two minutes
    python benchmarks/mesh.py --rounds 1 --only qos0 --systems timebound
    python benchmarks/mesh.py --check               exit with 1 if a bar is not met

Publishers are MQTT clients of the first broker, subscribers of the second; both live in one process (see
docs/benchmarks.md). Every round runs every work on every pair in turn, and ratios are taken within a round.
The brokers' processor time per message stands beside the rates: on a small machine everything competes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from brokers import Kind, RunningBroker, find_kinds, free_port

import timebound
from timebound.bench.handshake import open_connections, subscribe
from timebound.bench.load import LoadRun
from timebound.bench.options import LoadOptions, LoadResult
from timebound.bench.report import format_latency, warnings
from timebound.wire.codec import encode, encode_publish
from timebound.wire.packets import Publish, Subscribe, SubscribeEntry
from timebound.wire.properties import Properties

LINKED_S_MAX: Final = 20.0
STOP_S_MAX: Final = 10.0
WINDOW: Final = 1000
PROBE_TOPIC: Final = "probe"

TIMEBOUND: Final = """\
node_name = "{name}"
[log]
level = "warning"
[[listeners]]
port = {port}
[[neighbours]]
{neighbour}
"""
MOSQUITTO: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_inflight_messages {window}
max_queued_messages 100000
log_type error
{bridge}
"""
# `out 2`: each message crosses with the QoS of its publisher.
BRIDGE: Final = """\
connection b
address 127.0.0.1:{port}
topic # out 2
bridge_protocol_version mqttv311
notifications false
"""
NATS: Final = """\
server_name: {name}
listen: "127.0.0.1:-1"
jetstream {{ store_dir: "{folder}" }}
cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: ["nats://127.0.0.1:{other}"] }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: {window} }}
"""
SETTINGS: Final = {
    "timebound": "serve --memory, one neighbour, no rate configured, else defaults",
    "mosquitto": "bridge `topic # out 2`, persistence off, TCP_NODELAY, max_queued_messages 100000",
    "nats": "cluster of two with one route, JetStream (its MQTT needs it), store in a file",
}


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work, and the bars of docs/benchmarks.md: least ratios of rates, or most of latencies."""

    name: str
    options: LoadOptions
    bars: dict[str, float]

    @property
    def is_latency(self) -> bool:
        return self.options.total_rate > 0


@dataclass(frozen=True, slots=True)
class Run:
    """What one pair of brokers did with one work in one round."""

    result: LoadResult
    cpu_s: tuple[float, float]  # of each broker, from the first connection to the last

    def cpu_us(self, broker: int) -> float:
        return self.cpu_s[broker] * 1e6 / max(self.result.received, 1)

    def value(self, name: str) -> float:
        if name == "received_per_s":
            return self.result.received_per_s
        latency = self.result.latency
        return float("inf") if latency is None else float(getattr(latency, name))


class HopRun(LoadRun):
    """A load whose publishers are at the first broker, and its subscribers at the second."""

    def __init__(self, options: LoadOptions, publish_port: int, deadline: str = "") -> None:
        super().__init__(options)
        self._ports = (publish_port, options.port)
        self._deadline = deadline

    def _connect_subscribers(self) -> None:
        super()._connect_subscribers()
        if self._deadline:
            properties = Properties()
            properties.user_properties.append(("deadline", self._deadline))
            for number, subscriber in enumerate(self._subscribers):
                filters = self._plan.filters_of_subscriber(number)
                entries = [SubscribeEntry(one, self.options.delivery_qos) for one in filters]
                subscriber.sock.sendall(encode(Subscribe(9, entries, properties), 5))

    def _connect_publishers(self) -> None:
        self._await_link()
        options = self.options
        self.options = replace(options, port=self._ports[0])
        super()._connect_publishers()
        self.options = options

    def _await_link(self) -> None:
        """Publish probes until one comes out of the other broker: earlier subscriptions are known then."""
        options = self.options
        version = options.mqtt_version
        there = open_connections(options, [f"probe-{self._plan.run_id}"])
        here = open_connections(replace(options, port=self._ports[0]), [f"prober-{self._plan.run_id}"])
        topic = f"{PROBE_TOPIC}/{self._plan.run_id}"
        subscribe(there, [[topic]], qos=0, version=version)
        frame = encode_publish(topic, b"", 0, False, False, 0, b"", version)
        there[0].sock.settimeout(0.05)
        end_s = time.monotonic() + LINKED_S_MAX
        while True:
            here[0].sock.sendall(frame)
            with contextlib.suppress(TimeoutError):
                if any(isinstance(one, Publish) for one in there[0].decoder.feed(there[0].sock.recv(4096))):
                    break
            if time.monotonic() > end_s:
                raise TimeoutError("the brokers are not linked")
        for connection in (*here, *there):
            connection.sock.close()


def run_hop(options: LoadOptions, brokers: list[RunningBroker], deadline: str) -> Run:
    """Run one work over a pair of brokers."""
    before = [broker.cpu_s() for broker in brokers]
    run = HopRun(replace(options, port=brokers[1].port), brokers[0].port, deadline)
    try:
        result = run.run()
    finally:
        run.close()
    used = [broker.cpu_s() - was for broker, was in zip(brokers, before, strict=True)]
    return Run(result, (used[0], used[1]))


@contextlib.contextmanager
def linked(kind: Kind) -> Iterator[list[RunningBroker]]:
    """Start two brokers of a kind that are linked, and stop them in the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as stack:
        root = Path(name)
        root.chmod(0o755)  # a broker that gives up root still has to read its configuration
        ports = [free_port(), free_port()]
        routes = [free_port(), free_port()]
        brokers: list[RunningBroker] = []
        for index in (1, 0):  # the first one opens the link
            folder = root / "ab"[index]
            folder.mkdir()
            folder.chmod(0o777)
            command = _command(kind, index, ports, routes, folder)
            brokers.insert(0, stack.enter_context(_started(kind, ports[index], command, folder)))
        for broker in brokers:
            broker.wait_ready()
        yield brokers


@contextlib.contextmanager
def _started(kind: Kind, port: int, command: list[str], folder: Path) -> Iterator[RunningBroker]:
    environment = os.environ | {"PYTHONPATH": str(Path(timebound.__file__).parent.parent)}
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder
        )
    try:
        yield RunningBroker(kind, port, process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S_MAX)
        print(log.read_text(errors="replace"), file=sys.stderr, end="")


def _command(kind: Kind, index: int, ports: list[int], routes: list[int], folder: Path) -> list[str]:
    name, other = "ab"[index], "ba"[index]
    file = folder / "broker.conf"
    if kind.name.startswith("timebound"):
        address = f'host = "127.0.0.1"\nport = {ports[1]}\n' if index == 0 else ""
        neighbour = f'name = "{other}"\n{address}'
        file = folder / "broker.toml"
        file.write_text(TIMEBOUND.format(name=name, port=ports[index], neighbour=neighbour))
        return [kind.program, "-m", "timebound", "serve", "--config", str(file), "--memory"]
    if kind.name == "mosquitto":
        bridge = BRIDGE.format(port=ports[1]) if index == 0 else ""
        file.write_text(MOSQUITTO.format(port=ports[index], window=WINDOW, bridge=bridge))
    else:
        values = {"port": ports[index], "route": routes[index], "other": routes[1 - index]}
        file.write_text(NATS.format(name=name, folder=folder, window=WINDOW, **values))
    return [kind.program, "-c", str(file)]


def make_works(duration_s: float, version: int) -> list[Work]:
    base = LoadOptions(mqtt_version=version, duration_s=duration_s, warmup_s=1.0, window=WINDOW, size=64)
    return [
        Work("qos0", base, {"mosquitto": 6.0, "nats": 0.6}),
        Work("qos1", replace(base, qos=1), {"mosquitto": 3.0}),
        Work("latency", replace(base, rate=1000.0), {"mosquitto": 1.3}),
    ]


Runs = dict[tuple[str, str], list[Run]]  # by work and kind


def run_all(works: list[Work], kinds: list[Kind], rounds: int, deadline: str) -> Runs:
    runs: Runs = {(work.name, kind.name): [] for work in works for kind in kinds}
    with contextlib.ExitStack() as stack:
        pairs = {kind.name: stack.enter_context(linked(kind)) for kind in kinds}
        for number in range(rounds):
            for work in works:
                for index in range(len(kinds)):  # whoever goes first finds a cooler machine: take turns
                    kind = kinds[(index + number) % len(kinds)]
                    asked = deadline if kind.name.startswith("timebound") else ""
                    runs[work.name, kind.name].append(run_hop(work.options, pairs[kind.name], asked))
    return runs


def median(runs: list[Run], name: str) -> float:
    return statistics.median(run.value(name) for run in runs)


def lines_of(works: list[Work], kinds: list[Kind], runs: Runs) -> Iterator[str]:
    for work in works:
        for kind in kinds:
            done = runs[work.name, kind.name]
            costs = [statistics.median(run.cpu_us(broker) for run in done) for broker in (0, 1)]
            cost = f"brokers {costs[0]:.2f} and {costs[1]:.2f} µs/message"
            if work.is_latency:
                middle, far = (format_latency(int(median(done, one))) for one in ("median_ns", "p99_ns"))
                yield f"{work.name:8} {kind.name:10} {middle} median, {far} 99 %; {cost}"
            else:
                rate = median(done, "received_per_s")
                lost = max(run.result.loss for run in done)
                yield f"{work.name:8} {kind.name:10} {rate:9,.0f}/s, {lost:.2%} lost at most; {cost}"
            for warning in sorted({each for run in done for each in warnings(run.result)}):
                yield f"         note: {warning}"


def bars_of(works: list[Work], kinds: list[Kind], runs: Runs) -> Iterator[tuple[str, bool]]:
    """Return every promise that this run can judge, and whether it was kept."""
    names = [kind.name for kind in kinds]
    if "timebound" not in names:
        return
    for work in works:
        for other, bar in work.bars.items():
            if other not in names:
                continue
            for value in ("median_ns", "p99_ns") if work.is_latency else ("received_per_s",):
                both = zip(runs[work.name, "timebound"], runs[work.name, other], strict=True)
                ratio = statistics.median(
                    ours.value(value) / max(theirs.value(value), 1e-9) for ours, theirs in both
                )
                is_met = ratio <= bar if work.is_latency else ratio >= bar
                least = "at most" if work.is_latency else "at least"
                yield f"{work.name} {value}: {ratio:.2f} × {other} ({least} {bar:g})", is_met
        if not work.is_latency:
            lost = sum(run.result.expected - run.result.received for run in runs[work.name, "timebound"])
            yield f"{work.name}: {lost} lost (none)", lost <= 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--systems", default="timebound,mosquitto,nats", help="with commas")
    parser.add_argument("--only", default="", help="works, with commas: qos0,qos1,latency")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration", type=float, default=3.0, help="measured seconds")
    parser.add_argument("--deadline", default="", help="of the subscription, with Timebound")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is not met")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    works = make_works(options.duration, 5 if options.deadline else 4)
    only = options.only.split(",") if options.only else [work.name for work in works]
    works = [work for work in works if work.name in only]
    kinds = [kind for kind in find_kinds(options.systems.split(",")) if not kind.missing]
    if options.deadline:
        kinds = [kind for kind in kinds if kind.name.startswith("timebound")]
    if not options.json:
        print(
            f"{os.cpu_count()} processors; load average {os.getloadavg()[0]:.1f}; 64 bytes, window {WINDOW}"
        )
        for kind in kinds:
            print(f"{kind.name}: {kind.version}; {SETTINGS.get(kind.name, '')}")
    runs = run_all(works, kinds, options.rounds, options.deadline)
    bars = list(bars_of(works, kinds, runs))
    if options.json:
        values = {
            f"{work} {kind}": [
                {
                    "per_s": run.result.received_per_s,
                    "loss": run.result.loss,
                    "cpu_us": [run.cpu_us(0), run.cpu_us(1)],
                    "median_ns": run.value("median_ns"),
                    "p99_ns": run.value("p99_ns"),
                }
                for run in done
            ]
            for (work, kind), done in runs.items()
        }
        print(json.dumps({"runs": values, "bars": bars}, indent=2))
    else:
        print("\n".join(lines_of(works, kinds, runs)))
        for text, is_met in bars:
            print(f"{'pass' if is_met else 'FAIL'}  {text}")
    return int(options.check and not all(is_met for _, is_met in bars))


if __name__ == "__main__":
    sys.exit(main())
