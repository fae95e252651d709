from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from timebound.bench.latency import Latency
from timebound.bench.options import LoadOptions, LoadResult
from timebound.bench.report import describe, format_latency, load_json, load_table

RESULT = LoadResult(
    options=LoadOptions(username="anna", password="secret"),
    sent=2000,
    expected=2000,
    received=1990,
    refused=0,
    measured_s=1.0,
    sent_per_s=1000.0,
    received_per_s=995.0,
    latency=Latency(10, 80_000, 120_000, 1_500_000, 25_000_000, 2_000_000_000, 3_000_000_000),
    generator_cpu=0.25,
    lost_connections=0,
    lost_reason="",
)


def rendered(result: LoadResult) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(load_table(result))
    return captured.get()


def test_table_shows_rates_loss_and_percentiles() -> None:
    text = rendered(RESULT)

    for part in ("995 msg/s", "0.500% of 2,000", "120 µs", "1.50 ms", "25.0 ms", "2.00 s", "25% of one core"):
        assert part in text
    assert "warning" not in text


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        (replace(RESULT, generator_cpu=0.97), "the generator was busy all the time"),
        (replace(RESULT, refused=3), "refused 3 messages"),
        (
            replace(RESULT, lost_connections=2, lost_reason="s1: closed"),
            "2 connections were lost, first s1: closed",
        ),
    ],
)
def test_table_warns_of_what_spoils_a_result(changed: LoadResult, part: str) -> None:
    assert part in rendered(changed)


def test_table_without_latency_has_no_latency_rows() -> None:
    assert "latency" not in rendered(replace(RESULT, latency=None))


def test_json_has_all_values_but_the_password() -> None:
    values = json.loads(load_json(RESULT))

    assert values["loss"] == pytest.approx(0.005)
    assert values["latency"]["p99_ns"] == 25_000_000
    assert values["options"]["username"] == "anna"
    assert "secret" not in load_json(RESULT)


def test_several_results_are_a_json_array() -> None:
    assert len(json.loads(load_json([RESULT, RESULT]))) == 2


@pytest.mark.parametrize(
    ("latency_ns", "text"),
    [
        (950, "0.95 µs"),
        (123_456, "123 µs"),
        (999_999, "1000 µs"),
        (1_234_567, "1.23 ms"),
        (12 * 10**9, "12.0 s"),
    ],
)
def test_latencies_have_three_digits(latency_ns: int, text: str) -> None:
    assert format_latency(latency_ns) == text


def test_work_is_described_in_one_line() -> None:
    options = LoadOptions(publishers=4, subscribers=4, topics=4, rate=1000.0, mqtt_version=4)

    assert describe(options) == "4→4 on 4 topics, 64 bytes, QoS 0, 1,000 msg/s, MQTT 3.1.1"
