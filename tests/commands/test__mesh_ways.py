"""Ways through a mesh: those that brokers would take, and the chance to be in time."""

from __future__ import annotations

from typing import Any

import pytest

from timebound.commands._mesh_ways import WAYS_MAX, ways_between
from timebound.core.mesh.member import COPY_BYTES
from timebound.errors import TimeboundError

SIZE = 2_048 - COPY_BYTES  # 2 KB on a link


def document(routing: str, **links: float) -> dict[str, Any]:
    """A map with links in both directions; `ab=3` takes 3 ms per KB."""
    rows = [
        {
            "from": source,
            "to": target,
            "ms_per_kb": ms_per_kb,
            "deviation_ms_per_kb": ms_per_kb / 10,
            "jitter_ms": 0.0,
        }
        for ends, ms_per_kb in links.items()
        for source, target in (ends, ends[::-1])
    ]
    return {"broker": "a", "routing": routing, "brokers": [], "links": rows}


DIAMOND = {"ab": 5.0, "bd": 5.0, "ac": 6.0, "cd": 5.0}


def test_late_binding_has_every_way_that_leads_nearer_the_likeliest_first() -> None:
    ways = ways_between(document("late", **DIAMOND), "a", "d", SIZE, 21.0)

    assert [way.brokers for way in ways] == [("a", "b", "d"), ("a", "c", "d")]
    assert [way.time_ms for way in ways] == pytest.approx([20.0, 22.0])
    assert [way.deviation_ms for way in ways] == pytest.approx([2**0.5, (1.2**2 + 1) ** 0.5])
    assert ways[0].chance == pytest.approx(0.7602, abs=1e-3)
    assert ways[1].chance == pytest.approx(0.2611, abs=1e-3)


def test_single_path_routing_has_one_way() -> None:
    ways = ways_between(document("single-path", **DIAMOND), "a", "d", SIZE, 0.0)

    assert [(way.brokers, way.chance) for way in ways] == [(("a", "b", "d"), 1.0)]


def test_a_queue_on_the_way_counts() -> None:
    found = document("late", **DIAMOND)
    found["links"][0] |= {"queue_delay_ms": 50.0, "latency_ms": 1.0, "waiting": 9, "lost_share": 0.0}

    ways = ways_between(found, "a", "d", SIZE, 40.0)

    assert [way.brokers for way in ways] == [("a", "c", "d"), ("a", "b", "d")]
    assert (ways[1].time_ms, ways[1].queue_delay_ms) == (pytest.approx(71.0), 50.0)
    assert ways[1].as_json()["brokers"] == ["a", "b", "d"]


def test_no_way_leads_to_another_part_of_the_mesh() -> None:
    for routing in ("late", "single-path"):
        assert ways_between(document(routing, ab=1.0, cd=1.0), "a", "d", 100, 0.0) == []


def test_a_broker_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(TimeboundError, match="no broker 'x'; it has a, b"):
        ways_between(document("late", ab=1.0), "a", "x", 100, 0.0)


def test_a_dense_mesh_has_an_end() -> None:
    names = "abcdefghijklmnop"
    links = {first + second: 1.0 for i, first in enumerate(names) for second in names[i + 1 :]}

    assert [way.brokers for way in ways_between(document("late", **links), "a", "p", 100, 0.0)] == [
        ("a", "p")
    ]
    layers = {f"{x}{y}": 1.0 for x, y in zip("aaaabbbbcccc", "bcdebcdebcde", strict=True) if x != y}
    assert len(ways_between(document("late", **layers), "a", "e", 100, 0.0)) <= WAYS_MAX
