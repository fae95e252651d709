"""The channel's experiments really run, and show what they found beside what was published."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from timebound.bench import channel, channel_federated, channel_report, channel_utilisation
from timebound.bench.channel_published import COLLOCATED, CONSUMERS, SUPPLIERS, TWO_PROCESSES
from timebound.bench.channel_results import (
    ChannelResults,
    LatencyRow,
    Laxity,
    Reached,
    SpacingStep,
    Speed,
    UtilisationRun,
    UtilisationStep,
    spread_of,
)
from timebound.bench.channel_tools import LIMIT_S, real_time_trouble
from timebound.bench.channel_work import STALL_NS_MIN, BusyWorker, Figures, Stall, Stalls, laxity_of
from timebound.cli import app

# Beside each other they would delay each other, at the same priorities of one processor.
pytestmark = pytest.mark.xdist_group("real-time")

TINY = channel.ChannelBenchPlan(events=3, speed_events=500, step_s=0.1)
SPREAD = spread_of([1_000, 2_000, 9_000])


def example() -> ChannelResults:
    good, late = Laxity(5, 1.0, 2.0, 3.0, 0), Laxity(5, -1.0, 0.5, 1.0, 2, 1)
    steps = [
        UtilisationStep(0.9, 0.9, 0.0, good, good, (0, 0), (0, 0)),
        UtilisationStep(1.0, 0.995, 0.02, good, late, (0, 2), (0, 1)),
    ]
    channel_reached, bare_reached = Reached(0.9, 0.995, 0.88), Reached(0.97, 0.995, 0.9)
    return ChannelResults(
        True,
        2,
        "not permitted",
        Speed(0.4, 12.0, SPREAD),
        [LatencyRow("lanes", 1, 5, SPREAD, SPREAD, *COLLOCATED[(1, 5)])],
        [LatencyRow("lanes", 10, 20, SPREAD, SPREAD, *TWO_PROCESSES[(10, 20)])],
        [
            UtilisationRun(False, True, 0.99, channel_reached, bare_reached, steps, steps),
            UtilisationRun(True, True, 0.96, channel_reached, bare_reached, steps, steps),
        ],
        [SpacingStep("reactive", 10.0, 1.0), SpacingStep("lanes", 10.0, 0.5)],
    )


def test_spread_has_the_usual_figures() -> None:
    assert (SPREAD.min_us, SPREAD.max_us, SPREAD.mean_us, SPREAD.p50_us) == (1.0, 9.0, 4.0, 2.0)
    assert spread_of([]).count == 0


def test_published_tables_are_complete() -> None:
    cells = {(suppliers, consumers) for suppliers in SUPPLIERS for consumers in CONSUMERS}

    assert set(COLLOCATED) == set(TWO_PROCESSES) == cells
    for table in (COLLOCATED, TWO_PROCESSES):
        for near, far in table.values():
            assert near[0] <= near[2] <= near[1]
            assert far[0] <= far[2] <= far[1]


def test_unknown_experiment_is_refused() -> None:
    with pytest.raises(ValueError, match="choose from speed, collocated"):
        channel.run(["nonsense"])


def test_speed_is_measured() -> None:
    told: list[str] = []

    results = channel.run(["speed"], plan=TINY, progress=told.append)

    assert told == ["speed"]
    assert results.speed is not None
    assert 0 < results.speed.reactive_to_1_us < results.speed.reactive_to_20_us
    assert results.speed.lanes_hand_over.count == 15


def test_experiment_that_fails_is_reported_and_the_others_keep_their_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(plan: channel.ChannelBenchPlan) -> Speed:
        raise TimeoutError("events were not delivered within 60 s")

    monkeypatch.setattr(channel, "measure_speed", fail)
    monkeypatch.setattr(channel, "SPACINGS_NS", (100_000,))
    plots = tmp_path / "plots"

    done = CliRunner().invoke(
        app, ["bench", "channel", "--only", "speed,spacing", "--json", "--plot", str(plots)]
    )

    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["failed"] == {"speed": "events were not delivered within 60 s"}
    assert [step["dispatching"] for step in found["spacing"]] == ["reactive", "lanes"]
    assert (plots / "spacing.png").exists()
    assert "error: speed failed: events were not delivered within 60 s" in " ".join(done.stderr.split())


def test_failure_of_a_measuring_process_carries_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    child = ["-c", 'print(\'{"error": "channel left did not learn"}\')']
    monkeypatch.setattr(
        channel_federated,
        "_start",
        lambda *_: subprocess.Popen(
            [sys.executable, *child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ),
    )

    with pytest.raises(RuntimeError, match="measuring process failed: channel left did not learn"):
        channel_federated.measure_two_processes(3)


def test_every_cell_of_table_1_is_measured_for_each_dispatching() -> None:
    rows = channel.run(["collocated"], plan=TINY).collocated

    assert len(rows) == 24
    assert all(row.near.count == row.far.count == 3 * row.suppliers for row in rows)
    assert all(0 < row.near.min_us <= row.near.mean_us <= row.near.max_us for row in rows)


def test_two_processes_time_local_and_remote_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_federated, "SUPPLIERS", (2,))
    monkeypatch.setattr(channel_federated, "CONSUMERS", (5,))

    (row,) = channel_federated.measure_two_processes(3)

    assert row.near.count == row.far.count == 2 * 2 * 5 * 3
    assert row.far.min_us > row.near.min_us


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

    # In the channel and on plain threads. The experiment itself sees only stalls while somebody works: at
    # this load that is less than half of the time, so an onlooker's are taken.
    assert len(judged) == 2
    for found in judged:
        light = judge(*found, stalls)
        assert light.unexplained == (0,)
        # A stall of the machine in the middle of work counts as work, so as much more as was stalled.
        assert 0.38 <= light.utilisation <= 0.42 + light.stopped
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


def test_miss_is_explained_by_stops_since_the_processor_was_last_free() -> None:
    high = figures((0, 60, 0), (100, 160, 0))
    late = figures((0, 230, 15), period_ns=200)

    def unexplained(*stalls: tuple[int, int]) -> int:
        return laxity_of(late, (high,), stalls).unexplained

    assert laxity_of(late, (high,), ()).misses == 1
    assert unexplained() == unexplained((50, 14)) == 1
    assert unexplained((50, 15)) == unexplained((50, 8), (150, 8)) == 0
    # Of one that outlasts the deadline, what lies before it counts, be it all of the job's time.
    assert unexplained((260, 160)) == unexplained((400, 390)) == 0
    # Stalls after the deadline, or while there was nothing to do, made nobody late.
    assert unexplained((210, 15)) == unexplained((-1, 15)) == 1
    # Of one that had begun before, only what came after the release counts.
    assert unexplained((10, 30)) == 1


def test_stops_while_an_older_job_was_still_open_count_as_well() -> None:
    first_late = figures((0, 130, 9), (100, 210, 12))

    assert laxity_of(first_late, (), [(40, 12)]).unexplained == 0
    assert laxity_of(figures((0, 90, 0), (100, 210, 12)), (), [(40, 12)]).unexplained == 1


def test_worker_does_what_it_is_told_and_says_what_was_left_at_the_deadline() -> None:
    worker = BusyWorker(period_ns=10**9, cost_ns=2_000_000, stalls=Stalls(alone=True))
    hurried = BusyWorker(period_ns=0, cost_ns=2_000_000, stalls=Stalls(alone=False))

    worker.work(time.monotonic_ns())
    hurried.work(time.monotonic_ns())

    done = worker.figures()
    assert done.utilisation() == pytest.approx(0.002, rel=0.1)
    assert [left_ns for _, _, left_ns in done.jobs] == [0]
    assert [left_ns for _, _, left_ns in hurried.figures().jobs] == [2_000_000]
    # A job that nobody began counts as late once its deadline has passed.
    assert hurried.figures(100, [1, 2]).unfinished == 1


def test_stretch_without_processor_time_is_a_stop_only_while_somebody_works() -> None:
    stalls = Stalls(alone=True)
    stalls.begin()
    stalls.end()
    time.sleep(20 * STALL_NS_MIN / 1e9)
    stalls.begin()
    assert stalls.found == []

    # Sleeping stands for a machine that takes the processor away.
    time.sleep(20 * STALL_NS_MIN / 1e9)
    stalls.look()

    assert len(stalls.found) == 1
    assert stalls.found[0][1] >= STALL_NS_MIN


def test_spacing_is_measured_for_each_dispatching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "SPACINGS_NS", (100_000,))

    steps = channel.measure_spacing()

    assert [step.dispatching for step in steps] == ["reactive", "lanes"]
    assert all(0 < step.ratio <= 1 for step in steps)


def test_json_holds_everything() -> None:
    found = json.loads(channel_report.to_json(example()))

    assert found["speed"]["reactive_to_1_us"] == 0.4
    assert found["collocated"][0]["published_near"] == [107, 189, 114]
    assert found["utilisation"][1]["federated"] is True


def test_tables_show_ours_beside_the_published_values() -> None:
    text = io.StringIO()
    console = Console(file=text, width=220)
    for table in channel_report.tables(example()):
        console.print(table)
    shown = text.getvalue()

    for expected in (
        "107 / 189 / 114",
        "1,266 / 65,449 / 24,345",
        "published: over 99%",
        "every deadline kept in most bursts, but for stalls of the machine: 90.00%",
        "plain threads without a channel: 97.00%",
        "50.0%",
        "12.00",
    ):
        assert expected in shown
    assert channel_report.notes(example()) == [
        "compiled, 2 processors",
        "no real-time priorities: not permitted",
    ]


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_plots_are_drawn(tmp_path: Path) -> None:
    paths = channel_report.plot(example(), tmp_path / "new")

    assert [path.name for path in paths] == [
        "utilisation_single.png",
        "utilisation_federated.png",
        "spacing.png",
        "latency_collocated.png",
        "latency_two_processes.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
