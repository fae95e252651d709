"""How far the processor is used before a deadline is missed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from timebound.bench import channel_federated, channel_utilisation
from timebound.bench.channel_results import (
    Laxity,
    Reached,
    UtilisationStep,
)
from timebound.bench.channel_tools import LIMIT_S, real_time_trouble
from timebound.bench.channel_work import Figures, Stall

# Beside each other they would delay each other, at the same priorities of one processor.
pytestmark = pytest.mark.xdist_group("real-time")


# Sleeps a millisecond again and again, more urgent than any lane, and prints when that took far longer.
WITNESS = """
import json, os, select, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(49))
poll = select.poll()
poll.register(0)
stalls = []
print("ready", flush=True)
last_ns = time.monotonic_ns()
while not poll.poll(1):
    now_ns = time.monotonic_ns()
    if now_ns - last_ns > 3_000_000:
        stalls.append((now_ns, now_ns - last_ns))
    last_ns = now_ns
print(json.dumps(stalls))
"""


@contextmanager
def witness() -> Iterator[list[Stall]]:
    """Note, from a process of its own, when nobody was given the lanes' processor; complete at the end."""
    stalls: list[Stall] = []
    command = [sys.executable, "-c", WITNESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield stalls
        finally:
            told, _ = process.communicate(timeout=LIMIT_S)
            stalls += [(end_ns, length_ns) for end_ns, length_ns in json.loads(told)]


@pytest.mark.parametrize("federated", [False, True])
def test_light_load_misses_no_deadline(federated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if real_time_trouble():
        pytest.skip("SCHED_FIFO is not permitted here, and other programs would decide the outcome")
    monkeypatch.setattr(channel_utilisation, "TARGETS", (0.4,))
    judge, judged = channel_utilisation.judge, list[tuple[float, Figures, Figures]]()

    def note(target: float, high: Figures, low: Figures, stalls: list[Stall]) -> UtilisationStep:
        judged.append((target, high, low))
        return judge(target, high, low, stalls)

    monkeypatch.setattr(channel_utilisation, "judge", note)
    measure = channel_federated.measure_utilisation if federated else channel_utilisation.measure

    with witness() as stalls:
        run = measure(0.1, real_time=True)

    # In the channel and on plain threads. The experiment detects only stalls while somebody works, which at
    # this load is less than half of the time: those of the witness count.
    assert len(judged) == 2
    for found in judged:
        light = judge(*found, stalls)
        assert light.unexplained == (0,)
        # A stall of the machine in the middle of work counts as work, so as much more as was stalled.
        assert 0.38 <= light.utilisation <= 0.42 + light.stalled
        assert light.high.runs > light.low.runs > 0 or stalls
        assert channel_utilisation.reached([light]).corrected == light.utilisation
    assert [len(run.steps), len(run.bare_steps)] == [1, 1]
    assert run.federated is federated


def figures(*jobs: tuple[int, int, int], period_ns: int = 100, used_ns: int = 0) -> Figures:
    return Figures(period_ns, list(jobs), used_ns)


def test_load_is_raised_until_every_burst_of_each_kind_misses_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_utilisation, "PAUSE_S", 0.0)
    monkeypatch.setattr(channel_utilisation, "TARGETS", (0.6, 0.8, 0.9, 0.95, 1.0))
    tried: list[tuple[str, float]] = []

    def bursts(name: str, limit: float, unlucky: float) -> channel_utilisation.Burst:
        def burst(target: float) -> channel_utilisation.Found:
            tried.append((name, target))
            is_first = tried.count((name, target)) == 1
            late = target > limit or (target == unlucky and is_first)
            # What was left is more than the machine's stall, unless the load was one of the light ones.
            low = figures((0, 130 if late else 90, 5 if target > limit else 1))
            return figures((0, 10, 0), used_ns=int(target * 100)), low, [(50, 2)]

        return burst

    ours, bare = channel_utilisation.raise_load([bursts("ours", 0.8, 0.6), bursts("bare", 0.9, 0.0)], 1.7)

    assert tried[:4] == [("ours", 0.6), ("bare", 0.6)] * 2
    assert [step.target for step in ours] == [step.target for step in bare] == [0.6, 0.8, 0.9, 0.95]
    assert [step.missed for step in ours] == [(1, 0), (0, 0), (1, 1), (1, 1)]
    assert [step.unexplained for step in ours] == [(0, 0), (0, 0), (1, 1), (1, 1)]
    # The first load missed a deadline in one burst, for which a stall of the machine accounts.
    assert channel_utilisation.reached(ours) == Reached(corrected=0.8, best=0.8, always=0.0)
    assert channel_utilisation.reached(bare) == Reached(corrected=0.9, best=0.9, always=0.9)


@pytest.mark.parametrize(
    ("unexplained", "corrected"), [((0, 0, 4), 0.5), ((0, 1, 4), 0.0), ((0, 1), 0.0), ((0, 0), 0.5)]
)
def test_most_bursts_of_a_load_must_keep_their_deadlines(
    unexplained: tuple[int, ...], corrected: float
) -> None:
    nothing = Laxity(0, 0.0, 0.0, 0.0, 0)
    step = UtilisationStep(0.5, 0.5, 0.0, nothing, nothing, unexplained, unexplained)

    assert channel_utilisation.reached([step]).corrected == corrected
