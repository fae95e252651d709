"""Records of one message, found in trace files by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.traces import row, write_file

from timebound.commands._message_records import find_records
from timebound.errors import ConfigError, TimeboundError


def test_records_are_sorted_by_hop_then_by_time(tmp_path: Path) -> None:
    late = {"origin": "n1", "started_ns": 1, "number": 3}
    rows = [row(9, hop=1, **late), row(8, **late), row(7, **late), row(6, number=4)]
    write_file(tmp_path, rows)

    found = find_records("n1:1.3", [tmp_path])

    assert [(one["hop"], one["message_id"]) for one in found.records] == [(0, 7), (0, 8), (1, 9)]
    assert found.warnings == []


def test_what_cannot_be_found_says_why(tmp_path: Path) -> None:
    write_file(tmp_path, [row(1)], version=1)

    with pytest.raises(ConfigError, match="is neither the name of a message"):
        find_records("n1", [tmp_path])
    with pytest.raises(ConfigError, match="no trace files"):
        find_records("n1:1.1", [tmp_path / "other"])
    with pytest.raises(TimeboundError, match="1 of 1 files are older than names"):
        find_records("n1:1.1", [tmp_path])


def test_a_trace_id_finds_what_its_publisher_sampled_at_all_brokers(tmp_path: Path) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    sampled = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
    write_file(tmp_path / "a", [row(1, **sampled), row(2), row(3, **sampled)])
    write_file(tmp_path / "b", [row(9, number=1, hop=1, node="n2", **sampled)])

    for asked in (trace_id, sampled["traceparent"]):
        found = find_records(asked, [tmp_path / "a", tmp_path / "b"])
        assert [(one["message"], one["hop"]) for one in found.records] == [
            ("n1:1.1", 0),
            ("n1:1.3", 0),
            ("n1:1.1", 1),
        ]
    with pytest.raises(TimeboundError, match="no record"):
        find_records("0" * 31 + "1", [tmp_path / "a"])
