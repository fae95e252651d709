"""The tables of a mesh: every broker, link and way, with units, and what is unknown as such."""

from __future__ import annotations

from typing import Any

import pytest

from timebound.commands._mesh_tables import print_map, print_ways
from timebound.commands._mesh_ways import Way

FIGURES = {"latency_ms": 1.5, "queue_delay_ms": 12.0, "waiting": 34, "lost_share": 0.125}


def link(source: str, target: str, ms_per_kb: float, **more: Any) -> dict[str, Any]:
    return {"from": source, "to": target, "ms_per_kb": ms_per_kb, "deviation_ms_per_kb": 0.5, **more}


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The cells of all rows that were printed."""
    rows = [line.strip("│┃ ").replace("┃", "│").split("│") for line in capsys.readouterr().out.splitlines()]
    return [[one.strip() for one in row] for row in rows if len(row) > 1]


def test_brokers_and_links_have_a_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = [
        {"name": "a", "state": "up"},
        {"name": "b[x]", "state": "up", "subscriptions": 7},
        {"name": "c", "state": "cut off", "since_s": 90, "subscriptions": 0},
    ]
    print_map(
        {
            "broker": "a",
            "brokers": brokers,
            "links": [link("a", "b[x]", 2.0, **FIGURES), link("b[x]", "a", 1_024)],
        }
    )

    rows = lines(capsys)
    assert rows[1:4] == [["a", "up", "its own"], ["b[x]", "up", "7"], ["c", "cut off for 90s", "0"]]
    assert rows[5:] == [
        ["a", "b[x]", "500 KB/s", "2 ± 0.5", "1.5 ms", "34", "12 ms", "12.5 %"],
        ["b[x]", "a", "1e+03 B/s", "1.02e+03 ± 0.5", "-", "-", "-", "-"],
    ]


def test_ways_have_a_chance_only_with_a_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    ways = [Way(("a", "b", "c"), 12.34, 1.0, 2.5, 0.98765)]

    print_ways(ways, has_deadline=True)
    assert lines(capsys)[1] == ["a > b > c", "12.3 ± 1 ms", "2.5 ms", "98.77 %"]

    print_ways(ways, has_deadline=False)
    assert lines(capsys)[1] == ["a > b > c", "12.3 ± 1 ms", "2.5 ms"]

    print_ways([], has_deadline=False)
    assert capsys.readouterr().out == ""
