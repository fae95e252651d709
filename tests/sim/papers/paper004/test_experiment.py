"""Runs of paper 004: the shapes of its figures, and crankback against the others on the same requests."""

from __future__ import annotations

import pytest

from timebound.sim.papers.paper004.experiment import FINDERS, run_once
from timebound.sim.papers.paper004.readings import ALTERNATIVES, assumptions


@pytest.mark.parametrize("finder", FINDERS)
def test_a_seed_gives_the_same_run(finder: str) -> None:
    runs = [run_once(finder, "single", 2, 2, assumptions("literal"), 7) for _ in range(2)]

    assert runs[0] == runs[1]
    assert runs[0] != run_once(finder, "single", 2, 2, assumptions("literal"), 8)


def test_more_types_and_more_replicas_use_the_network_better() -> None:
    literal = assumptions("literal")
    by_types = [run_once("indiqos", "single", types, 1, literal, 1).utilisation for types in (1, 4, 16)]
    by_replicas = [run_once("indiqos", "single", 1, replicas, literal, 1) for replicas in (1, 3, 8)]

    assert by_types == sorted(by_types)
    assert by_types[2] > 2 * by_types[0]
    assert by_replicas[0].utilisation < by_replicas[2].utilisation
    assert by_replicas[1].latency_ms < by_replicas[0].latency_ms
    assert by_replicas[2].messages_per_accepted > 4 * by_replicas[0].messages_per_accepted


@pytest.mark.parametrize(("network", "least"), [("single", 0.98), ("multi", 0.97)])
def test_crankback_accepts_as_much_as_full_knowledge_with_few_messages(network: str, least: float) -> None:
    ours, full, theirs = (
        run_once(finder, network, 8, 3, assumptions("literal"), 2)
        for finder in ("crankback", "fns", "indiqos")
    )

    assert ours.accepted >= least * full.accepted
    assert ours.latency_ms <= 1.03 * full.latency_ms
    assert ours.messages_all_per_accepted <= full.messages_all_per_accepted / 8
    assert ours.accepted > 1.2 * theirs.accepted
    assert ours.latency_ms < theirs.latency_ms


@pytest.mark.parametrize("finder", FINDERS)
def test_with_departures_room_comes_back(finder: str) -> None:
    outcome = run_once(finder, "single", 4, 1, assumptions("departures"), 1)

    assert outcome.accepted + outcome.refused == 3_000
    assert outcome.accepted > run_once(finder, "single", 4, 1, assumptions("literal"), 1).accepted


def test_offered_is_every_pair_once() -> None:
    outcome = run_once("fns", "single", 4, 1, assumptions("offered"), 1)

    assert outcome.accepted + outcome.refused == 4 * round(0.3 * 252)


@pytest.mark.parametrize("reading", ALTERNATIVES)
def test_every_reading_changes_a_run(reading: str) -> None:
    finder = "fr" if reading.startswith("fr") else "fns" if reading.startswith("floods") else "indiqos"

    assert run_once(finder, "single", 2, 2, assumptions(reading), 1) != run_once(
        finder, "single", 2, 2, assumptions("literal"), 1
    )
