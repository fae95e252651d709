"""Two builds of this broker in turn: processor time per message, as a ratio with its interval.

    python -m pip install --no-deps --no-build-isolation --target BEFORE .     # in the older checkout
    python benchmarks/before_after.py BEFORE [--rounds 9] [--only qos0,flood,storage] [--check]
    python benchmarks/before_after.py BEFORE --programs-before CHECKOUT/benchmarks

Both builds run as brokers side by side, one works while the other is idle. In every round they start anew
and do every work in short turns, before-after-after-before, so that a machine that gets slower meets both.
A pair is one turn of each; its ratio is that of the build this program imports against BEFORE. What is shown
is the median of all pairs and its 95 % interval (bootstrap over rounds, since the pairs of a round share
their processes). `yes` stands where the interval ends at or below 1.05, `no` where it begins above it, and
`open` where more rounds, or a quieter machine, have to decide. With --check the exit code is 1 unless all
are `yes`.

`traced` writes a full trace, `deadline` has a subscriber with a deadline that never waits; `queue` is
the cost of a choice among 10,000 messages, `simulation` that of an event in two simulated hours.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
# Turns of each build in a round. Even: each is first equally often.
PAIRS: Final = 4
TURN_S: Final = 0.4
WARM_UP_S: Final = 0.1
FLOOD_MESSAGES: Final = 200_000
FLOOD_CHUNK: Final = 500
DEADLINE_MESSAGES: Final = 2_000
OWN_PROGRAMS: Final = Path(__file__).parent
# Benchmarks that run in a process of their own, and print microseconds by name as JSON.
PROGRAMS: Final = {
    "storage": ("storage.py", "--json", "--seconds", "0.2"),
    "queue": ("queue_choice.py", "--json", "--decisions", "10000"),
    "simulation": ("simulation.py", "--json", "002"),
}
TRACED: Final = "[trace]\nenabled = true\n"

Costs = dict[str, float]  # microseconds by name
Pair = tuple[float, float]  # microseconds before and after
Pairs = dict[str, list[Pair]]  # of one round


@dataclass(frozen=True, slots=True)
class Work:
    """What a broker does in one turn, and the configuration it needs."""

    name: str
    measure: Callable[[RunningBroker], float]  # returns microseconds of the broker per message
    settings: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """A benchmark in a process of its own."""

    name: str
    command: tuple[str, ...]


def load_cost_us(broker: RunningBroker, options: LoadOptions) -> float:
    before_s = broker.cpu_s()
    result = run_load(replace(options, port=broker.port))
    return (broker.cpu_s() - before_s) * 1e6 / (result.sent + result.received)


def flood_cost_us(broker: RunningBroker, publishers: int) -> float:
    """Microseconds of the broker per message that nobody subscribes to."""
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


def deadline_cost_us(broker: RunningBroker) -> float:
    """Microseconds of the broker per message to a subscriber with a deadline, one message at a time."""
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
    return cost_us


def wait_for(receive: Callable[[int], bytes], kind: type[Packet]) -> None:
    """Wait for a packet of a kind."""
    decoder = Decoder(5, is_server=False)
    while not any(isinstance(packet, kind) for packet in decoder.feed(receive(65_536))):
        pass


def all_works(turn_s: float) -> list[Work | Program]:
    loads = make_works(mqtt_version=4, duration_s=turn_s, warmup_s=WARM_UP_S, window=1000)
    options = {work.name: work.options for work in loads}

    def load(options: LoadOptions) -> Callable[[RunningBroker], float]:
        return lambda broker: load_cost_us(broker, options)

    return [
        *[Work(name, load(options[name])) for name in options],
        Work("flood-1", lambda broker: flood_cost_us(broker, 1)),
        Work("flood-4", lambda broker: flood_cost_us(broker, 4)),
        Work("deadline", deadline_cost_us),
        Work("traced", load(options["qos0-1to1"]), TRACED),
        *[Program(name, command) for name, command in PROGRAMS.items()],
    ]


def chosen(works: list[Work | Program], only: list[str]) -> list[Work | Program]:
    """Return the works that are named, each by its name or by what its name begins with, such as `flood`."""
    for name in only:
        if not any(is_named(work.name, name) for work in works):
            raise SystemExit(f"unknown work {name!r}; expected one of {', '.join(one.name for one in works)}")
    return [work for work in works if not only or any(is_named(work.name, name) for name in only)]


def is_named(work: str, name: str) -> bool:
    return work == name or work.startswith(name + "-")


def in_turn(number: int) -> Iterator[tuple[int, int]]:
    """Yield who is first and second in each pair of a round: 0 = before, 1 = after."""
    for pair in range(PAIRS):
        first = (number + pair) % 2
        yield first, 1 - first


def measure_works(kinds: list[Kind], works: list[Work], number: int) -> Pairs:
    """Do one round of works with the same settings."""
    found: Pairs = {}
    with ExitStack() as stack:
        brokers = [stack.enter_context(running(replace(kind, settings=works[0].settings))) for kind in kinds]
        for broker in brokers:
            flood_cost_us(broker, 4)  # a new process touches new memory for the first time
        for work in works:
            for order in in_turn(number):
                costs = {turn: work.measure(brokers[turn]) for turn in order}
                found.setdefault(work.name, []).append((costs[0], costs[1]))
    return found


def run_program(kind: Kind, command: tuple[str, ...], folder: Path) -> Costs:
    """Microseconds of processor time that a benchmark prints, run in a process of its own."""
    program, *arguments = command
    done = subprocess.run(
        [sys.executable, str(folder / program), *arguments],
        env=os.environ | {"PYTHONPATH": kind.packages},
        capture_output=True,
        text=True,
        check=True,
    )
    costs: Costs = json.loads(done.stdout)
    return costs


def measure_program(kinds: list[Kind], program: Program, folders: list[Path], number: int) -> Pairs:
    """Run a benchmark once with each build: a new process each time, so one pair says as much as four."""
    found = {}
    for turn in (number % 2, 1 - number % 2):
        found[turn] = run_program(kinds[turn], program.command, folders[turn])
    return {name: [(found[0][name], found[1][name])] for name in found[0]}


def measure_round(kinds: list[Kind], works: list[Work | Program], folders: list[Path], number: int) -> Pairs:
    found: Pairs = {}
    live = [work for work in works if isinstance(work, Work)]
    for settings in dict.fromkeys(work.settings for work in live):
        found |= measure_works(kinds, [work for work in live if work.settings == settings], number)
    for work in works:
        if isinstance(work, Program):
            found |= measure_program(kinds, work, folders, number)
    return found


def interval(rounds: list[list[Pair]]) -> tuple[float, float, float]:
    """Return the median ratio of all pairs, and the ends of its 95 % interval."""
    ratios = [[after / before for before, after in pairs] for pairs in rounds]
    draw = random.Random(1)
    medians = sorted(_median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    whole = _median(ratios)
    return whole, medians[RESAMPLES // 40], medians[-RESAMPLES // 40 - 1]


def _median(rounds: list[list[float]]) -> float:
    return statistics.median(itertools.chain.from_iterable(rounds))


def verdict(low: float, high: float) -> str:
    """Return whether an interval shows that the ratio is at most RATIO_MAX."""
    if high <= RATIO_MAX:
        return "yes"
    return "no" if low > RATIO_MAX else "open"


def report(rounds: list[Pairs]) -> bool:
    """Print a line for each work; return whether all of them are shown to be at most RATIO_MAX."""
    title = f"at most {RATIO_MAX}"
    print(
        f"{'processor time per message':<32} {'before µs':>9} {'after µs':>9} {'ratio':>6}"
        f"  {'95 % interval':<14}  {title}"
    )
    is_met = True
    for name in rounds[0]:
        of_work = [one[name] for one in rounds]
        middle, low, high = interval(of_work)
        old_us, new_us = (statistics.median(pair[turn] for row in of_work for pair in row) for turn in (0, 1))
        said = verdict(low, high)
        is_met = is_met and said == "yes"
        print(
            f"{name:<32} {old_us:>9.2f} {new_us:>9.2f} {middle:>6.3f}  {low:.3f} to {high:.3f}  {said:>12}",
            flush=True,
        )
    return is_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", help="folder with the older build")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turn", type=float, default=TURN_S, help="measured seconds of a turn under load")
    parser.add_argument("--only", default="", help="works, or how their names begin, with commas")
    parser.add_argument(
        "--programs-before",
        type=Path,
        default=OWN_PROGRAMS,
        help="benchmarks that suit the older build, where its modules have other names",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 unless every answer is yes")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error(f"--rounds is {given.rounds}; expected at least 1")
    after = str(Path(timebound.__file__).parent.parent)
    (ours,) = find_kinds(["timebound"])
    kinds = [
        replace(ours, name="timebound-before", packages=given.before),
        replace(ours, name="timebound-after", packages=after),
    ]
    works = chosen(all_works(given.turn), [name for name in given.only.split(",") if name])
    folders = [given.programs_before, OWN_PROGRAMS]
    rounds: list[Pairs] = []
    began_s = time.monotonic()
    for number in range(given.rounds):
        rounds.append(measure_round(kinds, works, folders, number))
        took_s = time.monotonic() - began_s
        print(f"round {number + 1} of {given.rounds} done after {took_s:.0f} s", file=sys.stderr)
    is_met = report(rounds)
    return 1 if given.check and not is_met else 0


if __name__ == "__main__":
    sys.exit(main())
