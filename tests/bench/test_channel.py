"""The channel's experiments really run, and show what they found beside what was published."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from timebound.bench import channel, channel_federated, channel_report, channel_utilisation
from timebound.bench.channel_published import COLLOCATED, CONSUMERS, SUPPLIERS, TWO_PROCESSES
from timebound.bench.channel_results import (
    ChannelResults,
    LatencyRow,
    Laxity,
    SpacingStep,
    Speed,
    UtilisationRun,
    UtilisationStep,
    spread_of,
)
from timebound.bench.channel_tools import real_time_trouble
from timebound.bench.channel_utilisation import Figures
from timebound.errors import TimeboundError

TINY = channel.Plan(events=3, speed_events=500, step_s=0.1)
SPREAD = spread_of([1_000, 2_000, 9_000])


def example() -> ChannelResults:
    good, late = Laxity(5, 1.0, 2.0, 3.0, 0), Laxity(5, -1.0, 0.5, 1.0, 2)
    steps = [UtilisationStep(0.9, 0.9, good, good), UtilisationStep(1.0, 0.995, good, late, 2, (7,))]
    return ChannelResults(
        True,
        2,
        "not permitted",
        Speed(0.4, 12.0, SPREAD),
        [LatencyRow("lanes", 1, 5, SPREAD, SPREAD, *COLLOCATED[(1, 5)])],
        [LatencyRow("lanes", 10, 20, SPREAD, SPREAD, *TWO_PROCESSES[(10, 20)])],
        [
            UtilisationRun(False, True, 0.9, 0.8, 0.99, steps, 0.9),
            UtilisationRun(True, True, 0.9, 0.8, 0.96, steps, 0.9),
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


@pytest.mark.parametrize("federated", [False, True])
def test_light_load_misses_no_deadline(federated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if real_time_trouble():
        pytest.skip("SCHED_FIFO is not permitted here, and other programs would decide the outcome")
    monkeypatch.setattr(channel_utilisation, "TARGETS", (0.4,))
    measure = channel_federated.measure_utilisation if federated else channel_utilisation.measure

    run = measure(0.1, real_time=True)

    (light,) = run.steps
    assert light.low.misses == light.high.misses == 0
    assert light.high.runs > light.low.runs > 0
    assert run.reached == light.utilisation == pytest.approx(0.4, abs=0.02)
    assert run.bare == pytest.approx(0.4, abs=0.02)
    assert run.federated is federated


def test_load_is_raised_up_to_the_first_that_misses_at_every_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_utilisation, "PAUSE_S", 0.0)
    tried: list[float] = []

    def burst(target: float) -> tuple[Figures, Figures]:
        tried.append(target)
        late = target >= 0.99 or tried == [0.6, 0.8]
        return Figures(10, [1], int(target * 10)), Figures(10, [-5 if late else 5], 0)

    steps = channel_utilisation.raise_load(burst, 0.1)

    assert tried == [0.6, 0.8, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.99, 0.99]
    assert [step.low.misses for step in steps] == [0] * 6 + [1]
    assert [step.tries for step in steps] == [1, 2, 1, 1, 1, 1, 3]
    assert [step.discarded_misses for step in steps if step.tries > 1] == [(1,), (1, 1)]
    assert channel_utilisation.reached(steps) == 0.9
    # The second load passed only at its second try, and that shows.
    assert channel_utilisation.reached(steps, tries_max=1) == 0.6


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
        "2 of 5",
        "50.0%",
        "12.00",
    ):
        assert expected in shown
    assert channel_report.notes(example()) == [
        "compiled, 2 processors",
        "no real-time priorities: not permitted",
    ]


def test_plots_are_drawn_or_say_what_is_missing(tmp_path: Path) -> None:
    if find_spec("matplotlib") is None:
        with pytest.raises(TimeboundError, match="plots need matplotlib"):
            channel_report.plot(example(), tmp_path)
        return

    paths = channel_report.plot(example(), tmp_path / "new")

    assert [path.name for path in paths] == [
        "utilisation_single.png",
        "utilisation_federated.png",
        "spacing.png",
        "latency_collocated.png",
        "latency_two_processes.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
