"""Two builds of this broker in turn: processor time per message, as a ratio with its interval.

    python -m pip install --no-deps --no-build-isolation --target BEFORE .     # in the older checkout
    python benchmarks/before_after.py BEFORE [--rounds 9] [--only qos0-1to1,flood,storage] [--check]
    python benchmarks/before_after.py BEFORE --programs-before CHECKOUT/benchmarks

Every round runs every work on both builds, whoever was second last time first. A work's ratio is
that of the build this program imports against BEFORE, within a round; what is shown is the median
of the rounds and a 95 % interval of it (bootstrap over rounds). With --check the exit code is 1
where the upper end of an interval is above 1.05.

`traced` writes a full trace, `deadline` has a subscriber with a deadline that never waits; `queue` is
the cost of a choice among 10,000 messages, `simulation` that of an event in two simulated hours.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from brokers import Kind, RunningBroker, find_kinds, running
from compare import make_works

import timebound
from timebound.bench.handshake import open_connections
from timebound.bench.load import run_load
from timebound.bench.options import LoadOptions
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Packet, Pingreq, Pingresp, Publish, Suback, Subscribe, SubscribeEntry
from timebound.wire.properties import Properties

RATIO_MAX: Final = 1.05
RESAMPLES: Final = 2_000
FLOOD_MESSAGES: Final = 1_000_000
FLOOD_CHUNK: Final = 500
DEADLINE_MESSAGES: Final = 5_000
OWN_PROGRAMS: Final = Path(__file__).parent
# Benchmarks that run in a process of their own, and print microseconds by name as JSON.
PROGRAMS: Final = {
    "storage": ("storage.py", "--json", "--seconds", "0.3"),
    "queue": ("queue_choice.py", "--json", "--decisions", "1000"),
    "simulation": ("simulation.py", "--json", "002"),
}
TRACED: Final = "[trace]\nenabled = true\n"

Measure = Callable[[Kind], dict[str, float]]


def measure_works(kind: Kind, *, duration_s: float, names: list[str]) -> dict[str, float]:
    """Microseconds of the broker per message, for each work of `compare.py`."""
    found = {}
    works = make_works(mqtt_version=4, duration_s=duration_s, warmup_s=0.5, window=1000)
    with running(kind) as broker:
        for work in works:
            if work.name in names:
                before_s = broker.cpu_s()
                result = run_load(replace(work.options, port=broker.port))
                found[work.name] = (broker.cpu_s() - before_s) * 1e6 / (result.sent + result.received)
    return found


def measure_flood(kind: Kind) -> dict[str, float]:
    """Microseconds of the broker per message that nobody subscribes to, from one client and from four."""
    with running(kind) as broker:
        flood_cost_us(broker, 4)  # a new process touches new memory for the first time
        return {f"flood-{count}": flood_cost_us(broker, count) for count in (1, 4)}


def flood_cost_us(broker: RunningBroker, publishers: int) -> float:
    connections = open_connections(
        LoadOptions(port=broker.port), [f"flood-{number}" for number in range(publishers)]
    )
    data = encode(Publish("noise/flood", b"x" * 64), 5) * FLOOD_CHUNK
    before_s = broker.cpu_s()
    for _ in range(FLOOD_MESSAGES // FLOOD_CHUNK // publishers):
        for connection in connections:
            connection.sock.sendall(data)
    for connection in connections:
        connection.sock.sendall(encode(Pingreq(), 5))
        wait_for(connection.sock.recv, Pingresp)  # then everything sent before it has been taken in
        connection.sock.close()
    return (broker.cpu_s() - before_s) * 1e6 / FLOOD_MESSAGES


def wait_for(receive: Callable[[int], bytes], kind: type[Packet]) -> None:
    """Wait for a packet of a kind."""
    decoder = Decoder(5, is_server=False)
    while not any(isinstance(packet, kind) for packet in decoder.feed(receive(65_536))):
        pass


def measure_traced(kind: Kind, *, duration_s: float) -> dict[str, float]:
    """Microseconds of the broker per message while every delivery is written to a trace."""
    costs = measure_works(replace(kind, settings=TRACED), duration_s=duration_s, names=["qos0-1to1"])
    return {"traced": costs["qos0-1to1"]}


def measure_deadline(kind: Kind) -> dict[str, float]:
    """Microseconds of the broker per message to a subscriber with a deadline, one message at a time."""
    with running(kind) as broker:
        options = LoadOptions(port=broker.port, mqtt_version=5)
        publisher, subscriber = open_connections(options, ["publisher", "subscriber"])
        terms = Properties()
        terms.user_properties = [("deadline", "1s")]
        subscriber.sock.sendall(encode(Subscribe(1, [SubscribeEntry("bench/deadline", 0)], terms), 5))
        wait_for(subscriber.sock.recv, Suback)
        data = encode(Publish("bench/deadline", b"x" * 64), 5)
        before_s = broker.cpu_s()
        for _ in range(DEADLINE_MESSAGES):
            publisher.sock.sendall(data)
            wait_for(subscriber.sock.recv, Publish)
        cost_us = (broker.cpu_s() - before_s) * 1e6 / DEADLINE_MESSAGES
        for connection in (publisher, subscriber):
            connection.sock.close()
    return {"deadline": cost_us}


def measure_program(kind: Kind, command: tuple[str, ...], folder: Path) -> dict[str, float]:
    """Microseconds of processor time that a benchmark prints, run in a process of its own."""
    program, *arguments = command
    done = subprocess.run(
        [sys.executable, str(folder / program), *arguments],
        env=os.environ | {"PYTHONPATH": kind.packages},
        capture_output=True,
        text=True,
        check=True,
    )
    costs: dict[str, float] = json.loads(done.stdout)
    return costs


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the median and the ends of its 95 % interval."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return statistics.median(ratios), medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def measures(only: list[str], duration_s: float, programs: dict[str, Path]) -> Iterator[Measure]:
    names = [work.name for work in make_works(mqtt_version=4, duration_s=1.0, warmup_s=0.5, window=1000)]
    others: dict[str, Measure] = {
        "flood": measure_flood,
        "traced": lambda kind: measure_traced(kind, duration_s=duration_s),
        "deadline": measure_deadline,
    }
    for name, command in PROGRAMS.items():
        others[name] = lambda kind, command=command: measure_program(kind, command, programs[kind.name])
    known = [*names, *others]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise SystemExit(f"unknown work {unknown[0]!r}; expected one of {', '.join(known)}")
    wanted = [name for name in names if not only or name in only]
    if wanted:
        yield lambda kind: measure_works(kind, duration_s=duration_s, names=wanted)
    for name, measure in others.items():
        if not only or name in only:
            yield measure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", help="folder with the older build")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--duration", type=float, default=2.0, help="measured seconds of each work")
    parser.add_argument("--only", default="", help="works, with commas")
    parser.add_argument(
        "--programs-before",
        type=Path,
        default=OWN_PROGRAMS,
        help="benchmarks that suit the older build, where its modules have other names",
    )
    parser.add_argument(
        "--check", action="store_true", help=f"exit with 1 where an interval ends above {RATIO_MAX}"
    )
    given = parser.parse_args()
    after = str(Path(timebound.__file__).parent.parent)
    (ours,) = find_kinds(["timebound"])
    kinds = [
        replace(ours, name="timebound-before", packages=given.before),
        replace(ours, name="timebound-after", packages=after),
    ]
    only = [name for name in given.only.split(",") if name]
    programs = {"timebound-before": given.programs_before, "timebound-after": OWN_PROGRAMS}
    costs: dict[str, list[dict[str, float]]] = {kind.name: [] for kind in kinds}
    for number in range(given.rounds):
        for kind in kinds if number % 2 else reversed(kinds):
            found: dict[str, float] = {}
            for measure in measures(only, given.duration, programs):
                found |= measure(kind)
            costs[kind.name].append(found)
        print(f"round {number + 1} of {given.rounds} done", file=sys.stderr)
    before, now = costs["timebound-before"], costs["timebound-after"]
    print(f"{'processor time per message':<32} {'before µs':>9} {'after µs':>9} {'ratio':>6}  95 % interval")
    is_met = True
    for name in before[0]:
        middle, low, high = interval([new[name] / old[name] for new, old in zip(now, before, strict=True)])
        old_us, new_us = (statistics.median(row[name] for row in rows) for rows in (before, now))
        print(f"{name:<32} {old_us:>9.2f} {new_us:>9.2f} {middle:>6.3f}  {low:.3f} to {high:.3f}")
        is_met = is_met and high <= RATIO_MAX
    return 1 if given.check and not is_met else 0


if __name__ == "__main__":
    sys.exit(main())
