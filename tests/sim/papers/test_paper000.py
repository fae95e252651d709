"""The paper's evaluation: published shares, delays of the published size, no bound exceeded."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from random import Random

import pytest

from timebound.core.input.cells import EVEN
from timebound.sim.input.link_layers import LINK_LAYERS, SwitchedEthernet
from timebound.sim.papers.paper000 import (
    BROKERS,
    DELTA_TOTAL,
    POLLING,
    PUBLISHED,
    SCHEDULER,
    WEIGHTS,
    Result,
    SecondRow,
    measured_burst,
    memberships,
    plot,
    run,
)
from timebound.units import MILLISECOND


@pytest.fixture(scope="module")
def result() -> Result:
    return run(seed=1)


def rows_of(result: Result, layer: str, broker: str) -> list[SecondRow]:
    return [row for row in result.rows() if (row.layer, row.broker) == (layer, broker)]


def test_each_seconds_weights_add_up_to_the_published_sum() -> None:
    for second in memberships(Random(3)):
        assert [len(topics) for topics in second] == [5] * 6
        assert sum(WEIGHTS[topic] for topics in second for topic in topics) == DELTA_TOTAL


def test_every_layer_and_broker_is_reported_for_every_second(result: Result) -> None:
    seen = [(row.layer, row.broker, row.second) for row in result.rows()]

    assert seen == [(layer.name, broker, s) for layer in LINK_LAYERS for broker in BROKERS for s in range(5)]


def test_shares_of_client_1_are_those_of_table_1(result: Result) -> None:
    for layer in LINK_LAYERS:
        shares = [f"{row.share_percent:.2f}" for row in rows_of(result, layer.name, SCHEDULER)]
        assert shares == [f"{share:.2f}" for share, _, _ in PUBLISHED]


def test_polling_broker_has_delays_of_the_published_size(result: Result) -> None:
    for layer in LINK_LAYERS:
        rows = rows_of(result, layer.name, POLLING)
        for row, (_, mean, _) in zip(rows, PUBLISHED, strict=True):
            assert 0.9 * mean < row.delay_ms_mean < 1.5 * mean
        # The more of the resource client 1 gets, the shorter it waits, as in Table I.
        by_share = sorted(rows, key=lambda row: -row.share_percent)
        means = [row.delay_ms_mean for row in by_share]
        assert means == sorted(means)


def test_scheduler_is_quicker_than_polling_in_every_second(result: Result) -> None:
    for layer in LINK_LAYERS:
        rows = zip(rows_of(result, layer.name, SCHEDULER), rows_of(result, layer.name, POLLING), strict=True)
        for ours, polled in rows:
            assert ours.delay_ms_mean < polled.delay_ms_mean
            assert ours.delay_ms_max < polled.delay_ms_max


def test_no_message_is_later_than_its_flows_bound(result: Result) -> None:
    for layer in result.layers:
        assert layer.messages > 10_000
        assert (layer.lost, layer.over_bound) == (0, 0)
    for row in result.rows():
        assert row.bound_ms is not None
        assert row.delay_ms_max <= row.bound_ms


def test_equation_15_of_the_slowest_topic_is_6_to_34_milliseconds(result: Result) -> None:
    bounds = [row.bound_printed_ms for row in rows_of(result, "CAN", POLLING)]

    assert bounds == pytest.approx([6.264, 34.452, 34.452, 34.452, 34.452])


def test_printed_intervals_ask_light_topics_for_more_than_their_share() -> None:
    result = run(seed=1, interval_ns_max=MILLISECOND, layers=(SwitchedEthernet(),), order=EVEN)

    bounded = [row.bound_ms is not None for row in rows_of(result, "switched Ethernet", SCHEDULER)]
    assert bounded == [True, False, False, False, False]
    assert [layer.over_bound for layer in result.layers] == [0, 0]
    # And their delays are not those of Table I.
    means = [row.delay_ms_mean for row in rows_of(result, "switched Ethernet", POLLING)]
    assert means[2] > 1.5 * PUBLISHED[2][1]


def test_same_seed_gives_the_same_result(result: Result) -> None:
    layers = (SwitchedEthernet(),)

    again, other = run(seed=1, layers=layers), run(seed=2, layers=layers)

    assert again.layers == result.layers[-2:]
    assert other.layers != again.layers


def test_result_can_be_written_as_json(result: Result) -> None:
    written = json.loads(json.dumps(result.as_json()))

    assert written["seed"] == 1
    assert len(written["layers"][0]["rows"]) == 5


def test_figures_have_a_line_per_layer_and_per_client(result: Result) -> None:
    assert [line.name for line in result.figure_9()] == [layer.name for layer in LINK_LAYERS]
    lines = result.figure_10()
    assert [line.name for line in lines] == [f"client {number}" for number in range(1, 7)]
    assert [len(line.delays_ms) for line in lines] == [100] * 6
    longest = max(row.delay_ms_max for row in rows_of(result, "switched Ethernet", POLLING))
    assert max(lines[0].delays_ms) == longest


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_figures_are_drawn(result: Result, tmp_path: Path) -> None:
    paths = plot(result, tmp_path)

    assert [path.name for path in paths] == ["paper000-figure9.png", "paper000-figure10.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)


@pytest.mark.parametrize(
    ("times", "burst"), [([], 1), ([0, 100, 200], 1), ([0, 0, 0], 3), ([0, 99], 2), ([0, 150, 200, 250], 2)]
)
def test_measured_burst_is_the_smallest_that_explains_the_arrivals(times: list[int], burst: int) -> None:
    assert measured_burst(times, 100) == burst
