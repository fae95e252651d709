"""Results of load runs, as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from rich.table import Table

from timebound.bench.latency import Latency
from timebound.bench.options import LoadOptions, LoadResult

_MICROSECOND: Final = 1_000
_MILLISECOND: Final = 1_000_000
_SECOND: Final = 1_000_000_000
_UNITS: Final = (("s", _SECOND), ("ms", _MILLISECOND), ("µs", _MICROSECOND))
_SECRET_OPTIONS: Final = ("password",)
# From this share of one processor on, the generator may limit the result.
_GENERATOR_CPU_HIGH: Final = 0.9


def format_latency(latency_ns: int) -> str:
    """Write a latency with three digits, in a fitting unit."""
    unit, factor = next((each for each in _UNITS if latency_ns >= each[1]), _UNITS[-1])
    value = latency_ns / factor
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{decimals}f} {unit}"


def describe(options: LoadOptions) -> str:
    """Describe the work in one line."""
    version = "5" if options.mqtt_version == 5 else "3.1.1"
    rate = f"{options.total_rate:,.0f} msg/s" if options.total_rate else "full speed"
    topics = "1 topic" if options.topics == 1 else f"{options.topics} topics"
    return (
        f"{options.publishers}→{options.subscribers} on {topics}, "
        f"{options.size} bytes, QoS {options.qos}, {rate}, MQTT {version}"
    )


def load_table(result: LoadResult) -> Table:
    """Return the result of one run as a table of two columns."""
    options = result.options
    table = Table(title=describe(options), title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("broker", f"{options.host}:{options.port}")
    table.add_row("measured", f"{result.measured_s:.2f} s")
    table.add_row("sent", f"{result.sent_per_s:,.0f} msg/s")
    table.add_row("received", f"{result.received_per_s:,.0f} msg/s")
    table.add_row("loss", f"{result.loss:.3%} of {result.expected:,} deliveries")
    for name, value_ns in _latency_rows(result.latency):
        table.add_row(f"latency {name}", format_latency(value_ns))
    table.add_row("generator's processor time", f"{result.generator_cpu:.0%} of one core")
    for warning in warnings(result):
        table.add_row("[yellow]warning[/yellow]", warning)
    return table


def warnings(result: LoadResult) -> list[str]:
    """Return what makes the figures doubtful."""
    found = []
    if result.generator_cpu >= _GENERATOR_CPU_HIGH and not result.options.total_rate:
        found.append("the generator was busy all the time; the broker may be faster")
    if result.refused:
        found.append(f"the broker refused {result.refused:,} messages")
    if result.lost_connections:
        found.append(f"{result.lost_connections} connections were lost, first {result.lost_reason}")
    return found


def _latency_rows(latency: Latency | None) -> list[tuple[str, int]]:
    if latency is None:
        return []
    return [
        ("min", latency.min_ns),
        ("median", latency.median_ns),
        ("90 %", latency.p90_ns),
        ("99 %", latency.p99_ns),
        ("99.9 %", latency.p999_ns),
        ("max", latency.max_ns),
    ]


def load_values(result: LoadResult) -> dict[str, object]:
    """Return the result as plain values, without secrets."""
    values = asdict(result)
    for name in _SECRET_OPTIONS:
        values["options"].pop(name)
    values["loss"] = result.loss
    values["warnings"] = warnings(result)
    return values


def load_json(results: LoadResult | Sequence[LoadResult]) -> str:
    """Return one result as a JSON object, several as a JSON array."""
    if isinstance(results, LoadResult):
        return json.dumps(load_values(results), indent=2)
    return json.dumps([load_values(result) for result in results], indent=2)
