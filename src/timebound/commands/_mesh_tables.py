"""The map of a mesh, and ways through it, as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from timebound.commands._screen import cell, printer
from timebound.units import SECOND, format_duration

if TYPE_CHECKING:
    from timebound.commands._mesh_ways import Way

UNKNOWN = "-"


def print_map(document: dict[str, Any]) -> None:
    """Print the brokers and the links of a mesh."""
    printer().print(_brokers_table(document))
    up = {one["name"] for one in document["brokers"] if one["state"] == "up"}
    printer().print(_links_table(document["links"], up))


def _brokers_table(document: dict[str, Any]) -> Table:
    table = Table(
        "broker", "state", title=f"mesh as {cell(document['broker'])} sees it", title_justify="left"
    )
    table.add_column("subscriptions", justify="right")
    for one in document["brokers"]:
        state = one["state"]
        if "since_s" in one:
            state += f" for {format_duration(one['since_s'] * SECOND)}"
        style = None if one["state"] == "up" else "yellow"
        own = "its own" if one["name"] == document["broker"] else UNKNOWN
        table.add_row(cell(one["name"]), state, str(one.get("subscriptions", own)), style=style)
    return table


def _links_table(links: list[dict[str, Any]], up: set[str]) -> Table:
    """Return a row per link; what a broker that is not up said last is dim."""
    table = Table("from", "to")
    for name in ("rate", "ms per KB", "latency", "waiting", "waits", "lost"):
        table.add_column(name, justify="right")
    for one in links:
        table.add_row(
            cell(one["from"]),
            cell(one["to"]),
            _rate(one["ms_per_kb"]),
            f"{one['ms_per_kb']:.3g} ± {one['deviation_ms_per_kb']:.2g}",
            _milliseconds(one.get("latency_ms")),
            str(one.get("waiting", UNKNOWN)),
            _milliseconds(one.get("queue_delay_ms")),
            f"{100 * one['lost_share']:.1f} %" if "lost_share" in one else UNKNOWN,
            style=None if one["from"] in up else "dim",
        )
    return table


def print_ways(ways: list[Way], *, has_deadline: bool) -> None:
    """Print ways, the likeliest first."""
    table = Table("way")
    for name in ("time", "of it waiting", *(("chance to be in time",) if has_deadline else ())):
        table.add_column(name, justify="right")
    for way in ways:
        chance = (f"{100 * way.chance:.2f} %",) if has_deadline else ()
        time = f"{way.time_ms:.3g} ± {way.deviation_ms:.2g} ms"
        table.add_row(cell(" > ".join(way.brokers)), time, _milliseconds(way.queue_delay_ms), *chance)
    if ways:
        printer().print(table)


def _rate(ms_per_kb: float) -> str:
    """Write a speed as people do: 1.2 MB/s."""
    speed = 1_024_000 / ms_per_kb if ms_per_kb else 0.0
    for unit in ("B/s", "KB/s", "MB/s"):
        if speed < 1_024:
            return f"{speed:.3g} {unit}"
        speed /= 1_024
    return f"{speed:.3g} GB/s"


def _milliseconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g} ms"
