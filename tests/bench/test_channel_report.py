"""What is shown of the channel's experiments, beside what was published."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from timebound.bench import channel_report
from timebound.bench.channel_published import COLLOCATED, TWO_PROCESSES
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
        "every deadline kept in most bursts, except for misses that stalls explain: 90.00%",
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
