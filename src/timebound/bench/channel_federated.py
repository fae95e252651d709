"""The experiments with two processes: latency of local and remote events, and utilisation of a federation.

Each measurement starts two child processes that join their channels over a local socket, work, and print
their figures; run as a module, this file is such a child.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from timebound.bench.channel_published import CONSUMERS, SUPPLIERS, TWO_PROCESSES, UTILISATION_FEDERATED
from timebound.bench.channel_results import LatencyRow, UtilisationRun, spread_of
from timebound.bench.channel_tools import LIMIT_S, Stopwatch, build, push_together, settle, wait_for
from timebound.bench.channel_utilisation import (
    BURST_S,
    HIGH_PERIOD_NS,
    LOW_PERIOD_NS,
    Found,
    Pair,
    bare_burst,
    build_channel,
    costs_for,
    raise_load,
    summarise,
)
from timebound.bench.channel_work import Figures, StallDetector
from timebound.channel import DiallingGateway, Event, EventChannel, ListeningGateway
from timebound.channel.base.realtime import LANE_PRIORITY_MAX, LANE_PRIORITY_MIN, become_real_time
from timebound.channel.federation.gateway import hub_of
from timebound.units import MILLISECOND

# The names of the two channels; the first one listens.
SIDES: Final = ("left", "right")
# All lanes of the low-priority process have lower priorities than those of the other.
_LOW_PRIORITY_MAX: Final = LANE_PRIORITY_MAX - 20
# Time for both sides to start their threads, after both are ready.
BEGIN_AFTER_NS: Final = 200 * MILLISECOND


def measure_two_processes(events: int) -> list[LatencyRow]:
    """Measure latency of local and remote events, for each number of suppliers and consumers."""
    rows = []
    for suppliers in SUPPLIERS:
        for consumers in CONSUMERS:
            tasks = [{"suppliers": suppliers, "consumers": consumers, "events": events}] * 2
            found = _run_children("latency", tasks)
            local = spread_of([value for side in found for value in side["local"]])
            remote = spread_of([value for side in found for value in side["remote"]])
            published = TWO_PROCESSES[(suppliers, consumers)]
            rows.append(LatencyRow("lanes", suppliers, consumers, local, remote, *published))
    return rows


def measure_utilisation(step_s: float, *, real_time: bool) -> UtilisationRun:
    """Raise the load of the high-priority process until a deadline is missed."""
    found = raise_load(
        [lambda load: _burst(load, real_time), lambda load: bare_burst(load, real_time)], step_s
    )
    return summarise(found, federated=True, real_time=real_time, published=UTILISATION_FEDERATED)


def _burst(target: float, real_time: bool) -> Found:
    high_ns, low_ns = costs_for(target)
    tasks = [{"pair": "high", "cost_ns": high_ns}, {"pair": "low", "cost_ns": low_ns}]
    high, low = _run_children("utilisation", [{**task, "real_time": real_time} for task in tasks])
    stalls = [(end_ns, length_ns) for side in (high, low) for end_ns, length_ns in side["stalls"]]
    return Figures(**high["figures"]), Figures(**low["figures"]), stalls


def _run_children(experiment: str, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Start both sides, begin together, collect both figures, and only then end them."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="timebound-"))
        address = str(Path(folder) / "gateway")
        children = []
        for side, task in zip(SIDES, tasks, strict=True):
            child = stack.enter_context(_start(experiment, side, address, json.dumps(task)))
            # Runs before the child is waited for: none outlives a failure of the other.
            stack.callback(child.kill)
            children.append(child)
        for child in children:
            _read_line(child)
        begin_ns = time.monotonic_ns() + BEGIN_AFTER_NS
        for child in children:
            _tell(child, begin_ns)
        found = [_read_line(child) for child in children]
        for child in children:
            child.communicate(timeout=LIMIT_S)
    return found


def _start(experiment: str, side: str, address: str, task: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, experiment, side, address, task],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def _read_line(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise RuntimeError(f"measuring process ended without figures (exit code {child.wait(LIMIT_S)})")
    found: dict[str, Any] = json.loads(line)
    if "error" in found:
        raise RuntimeError(f"measuring process failed: {found['error']}")
    return found


def _tell(child: subprocess.Popen[str], begin_ns: int) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{begin_ns}\n")
    child.stdin.flush()


# --- in the child -----------------------------------------------------------------------


def _join(
    channel: EventChannel, side: str, address: str, lane_priority_max: int = LANE_PRIORITY_MAX
) -> ListeningGateway | DiallingGateway:
    gateway = ListeningGateway if side == SIDES[0] else DiallingGateway
    return gateway(channel, address, priority=lane_priority_max + 1)


def _other(side: str) -> str:
    return SIDES[1 - SIDES.index(side)]


def _wait_ready(channel: EventChannel, side: str, event_type: str) -> None:
    """Wait until this channel forwards its events to the other one."""
    hub = hub_of(channel)
    hops = (_other(side),)
    wait_for(
        lambda: hub.next_hops(event_type, "") == hops and hub.has_settled(),
        f"channel {side!r} did not learn what {_other(side)!r} wants",
    )


def _child_latency(side: str, address: str, task: dict[str, Any]) -> None:
    total = task["suppliers"] * task["events"]
    locals_ = [Stopwatch(total, side) for _ in range(task["consumers"])]
    remotes = [Stopwatch(total, _other(side)) for _ in range(task["consumers"])]
    channel = build(side, "lanes")
    for local, remote in zip(locals_, remotes, strict=True):
        channel.connect(_Both(local, remote))
    with channel, _join(channel, side, address):
        _wait_ready(channel, side, "x")
        begin_ns = _wait_for_the_other_side()
        # An ordinary thread could lose the processor while it polls below and holds Python's lock: for up to
        # 30 ms on a busy machine, in which all lanes waited.
        become_real_time(LANE_PRIORITY_MIN)
        push_together(channel, task["suppliers"], task["events"], begin_ns=begin_ns)
        wait_for(lambda: all(len(watch) == total for watch in [*locals_, *remotes]))
        found = {
            "local": [value for watch in locals_ for value in watch.values()],
            "remote": [value for watch in remotes for value in watch.values()],
        }
        _print_and_wait(found)


class _Both:
    """Times local and remote events separately, as one consumer."""

    def __init__(self, local: Stopwatch, remote: Stopwatch) -> None:
        self._local = local
        self._remote = remote

    def __call__(self, event: Event) -> None:
        self._local(event)
        self._remote(event)


def _ignore(event: Event) -> None:
    """Receive a remote event without doing work."""


def _child_utilisation(side: str, address: str, task: dict[str, Any]) -> None:
    is_high = task["pair"] == "high"
    priority_max = LANE_PRIORITY_MAX if is_high else _LOW_PRIORITY_MAX
    period_ns = HIGH_PERIOD_NS if is_high else LOW_PERIOD_NS
    channel = build_channel(side, real_time=task["real_time"], priority_max=priority_max)
    with channel, _join(channel, side, address, priority_max):
        channel.connect(_ignore, "low" if is_high else "high")
        _wait_ready(channel, side, task["pair"])
        _wait_for_the_other_side()
        # The other process uses the processor as well.
        stalls = StallDetector(alone=False)
        pair = Pair(channel, task["pair"], period_ns, task["cost_ns"], stalls)
        time.sleep(BURST_S)
        _print_and_wait({"figures": asdict(pair.figures()), "stalls": stalls.found})


def _wait_for_the_other_side() -> int:
    """Report that this side is ready, and wait until both are; return the time to begin.

    An ordinary thread collects garbage and starts threads while it holds Python's lock, on a busy machine for
    up to 0.3 s. Events that the other side pushed meanwhile would wait and count as slow.
    """
    settle()
    print(json.dumps({}), flush=True)
    return int(sys.stdin.readline())


def _print_and_wait(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)
    sys.stdin.read()


def _main() -> None:
    experiment, side, address, task = sys.argv[1:]
    child = _child_latency if experiment == "latency" else _child_utilisation
    try:
        child(side, address, json.loads(task))
    except TimeoutError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    _main()
