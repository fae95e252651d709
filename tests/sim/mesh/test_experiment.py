"""Whole runs: against a naive model, the same bytes from the same seed, and the account closes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from tests.sim.mesh.naive_mesh import NaiveMesh

from timebound.core.link.strategy.registry import STRATEGY_NAMES
from timebound.sim.mesh.experiment import run
from timebound.sim.mesh.setting import FaultSetting, MeshSetting, TopologySetting
from timebound.sim.papers.settings import paper_001, paper_002, product
from timebound.units import MINUTE, SECOND


def small(setting: MeshSetting, minutes: int = 4) -> MeshSetting:
    """A paper's setting on fewer brokers and for a short time."""
    return replace(setting, topology=TopologySetting(layers=(2, 2, 4, 4)), duration_ns=minutes * MINUTE)


@pytest.mark.parametrize("strategy", ["eb", "pc", "fifo"])
@pytest.mark.parametrize("scenario", ["psd", "ssd"])
def test_the_mesh_agrees_with_a_naive_model(scenario: str, strategy: str) -> None:
    setting = small(paper_002(scenario, 25.0, strategy), minutes=3)

    result = run(setting, 3)

    assert (result.matched, result.in_time, result.traffic) == NaiveMesh(setting, 3).run()
    assert 0 < result.in_time < result.matched


@pytest.mark.parametrize("routing", ["tree", "late"])
def test_the_same_seed_gives_the_same_trace(routing: str) -> None:
    setting = small(paper_002("ssd", 20.0, "worth"))
    if routing == "late":
        setting = product(setting)
    setting = replace(setting, is_tracing=True)

    first, second = (hashlib.sha256(json.dumps(run(setting, 5).rows).encode()) for _ in range(2))
    other = hashlib.sha256(json.dumps(run(setting, 6).rows).encode())

    assert first.digest() == second.digest()
    assert first.digest() != other.digest()


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_every_matched_pair_ends_once(strategy: str) -> None:
    setting = replace(small(paper_001(3.0, strategy)), is_tracing=True)

    for one in (setting, product(setting)):
        result = run(one, 1)

        assert result.matched == result.in_time + result.late + sum(result.dropped.values())
        assert len(result.rows) == result.matched
        pairs = {(row[1], row[4]) for row in result.rows}
        assert len(pairs) == result.matched


def test_earnings_are_prices_less_penalties_of_the_trace() -> None:
    setting = replace(small(product(paper_001(4.0, "mtep"))), is_tracing=True)

    result = run(setting, 2)

    total = sum(row[13] if row[11] == "in_time" else -row[14] for row in result.rows)
    assert result.earning == pytest.approx(total / 1e6)


def test_late_binding_beats_the_path_tree_under_overload() -> None:
    base = replace(paper_002("psd", 15.0, "eb"), duration_ns=4 * MINUTE)

    tree = [run(base, seed).in_time for seed in (1, 2)]
    late = [run(product(base), seed).in_time for seed in (1, 2)]

    assert sum(late) > 1.05 * sum(tree)


def test_what_does_not_earn_the_cost_of_its_way_is_not_sent() -> None:
    free = replace(small(product(paper_001(5.0, "worth")), minutes=5), thrift=0.0)

    plain, thrifty, none = (run(replace(free, send_cost=cost), 2) for cost in (0.0, 1.0, 1e6))

    assert thrifty.traffic < 0.95 * plain.traffic
    assert thrifty.earning > 0.9 * plain.earning
    assert thrifty.matched == thrifty.in_time + thrifty.late + sum(thrifty.dropped.values())
    assert (none.traffic, none.in_time) == (none.published, 0)
    assert none.dropped == {"queue_full": none.matched}


def test_thrift_saves_traffic_under_overload_and_nothing_on_an_idle_mesh() -> None:
    busy = small(product(paper_001(10.0, "worth")), minutes=5)
    idle = small(product(paper_001(0.2, "worth")), minutes=5)

    thrifty, lavish = (run(replace(busy, thrift=thrift), 2) for thrift in (1.0, 0.0))
    calm, unmoved = (run(replace(idle, thrift=thrift), 2) for thrift in (1.0, 0.0))

    assert thrifty.traffic < lavish.traffic
    assert thrifty.earning > 0.95 * lavish.earning
    assert thrifty.matched == thrifty.in_time + thrifty.late + sum(thrifty.dropped.values())
    assert (calm.traffic, calm.in_time) == (unmoved.traffic, unmoved.in_time)


@pytest.mark.parametrize("routing", ["tree", "late"])
def test_faults_lose_messages_but_no_account(routing: str) -> None:
    faults = (
        FaultSetting("crash", 60 * SECOND, 120 * SECOND, broker="b4"),
        FaultSetting("cut", 90 * SECOND, 150 * SECOND, link=("b1", "b3")),
        FaultSetting("slow", 100 * SECOND, 160 * SECOND, link=("b2", "b3"), factor=4.0),
        FaultSetting("crash", 170 * SECOND, 180 * SECOND, broker="b1"),
    )
    setting = replace(small(paper_002("ssd", 10.0, "eb"), minutes=5), faults=faults)
    if routing == "late":
        setting = product(setting)

    result = run(setting, 4)

    assert result.matched == result.in_time + result.late + sum(result.dropped.values())
    assert result.dropped["disconnected"] > 0
    assert result.in_time > 0


def test_measured_links_are_learned_after_they_got_slow() -> None:
    fault = (FaultSetting("slow", 60 * SECOND, link=("b1", "b3"), factor=6.0),)
    setting = replace(small(paper_002("psd", 10.0, "eb"), minutes=8), faults=fault)

    known = run(setting, 1)
    measured = run(replace(setting, estimates="measured"), 1)

    assert measured.matched == known.matched
    assert measured.in_time > 0.7 * known.in_time


def test_progress_is_told_up_to_the_end() -> None:
    shares: list[float] = []

    run(small(paper_002("psd", 5.0, "fifo"), minutes=1), 1, shares.append)

    assert shares == sorted(shares)
    assert shares[-1] == 1.0
