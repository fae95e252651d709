"""The page about live traces: every part with its numbers, and none without rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from tests.pipeline.report.made_results import bill, choice, read, trace_tables, write_tables

from timebound.pipeline.report.page import render
from timebound.pipeline.report.trace import GAIN_MIN, ReportTables, money, trace_page


def test_a_trace_page_has_every_part_with_its_numbers(tmp_path: Path) -> None:
    write_tables(tmp_path, trace_tables())

    text = read(render(trace_page(tmp_path)))

    expected = [
        "Deliveries of 2026-03-01",
        "Of 110 deliveries that subscribers asked for, 81.8 % arrived in time.",
        "They earned 165.50; penalties cost 10.00, which leaves 155.50.",
        "In the busiest interval of n1 the strategy ebpc, mix 0.75 could have earned 25 % more.",
        "The least punctual is a/b with 80.0 % in time.",
        "20 deliveries were dropped",
        "<bert>",
        "radio changed rate",
        "1 of 1 flows exceeded their delay bound.",
        "110 trace records were used; 3 were quarantined.",
        "qos is not 0, 1 or 2",
    ]
    assert [one for one in expected if one not in text] == []


def test_a_trace_without_anything_still_has_a_page(tmp_path: Path) -> None:
    write_tables(tmp_path, {"bills": [bill("anna", 1, 0, 1.0, 0.0)]})
    empty = pq.read_table(tmp_path / "bills").slice(0, 0)
    pq.write_table(empty, tmp_path / "bills" / "part-0.parquet")

    assert "The trace has no deliveries." in read(render(trace_page(tmp_path)))


def test_only_parts_that_exist_are_shown(tmp_path: Path) -> None:
    write_tables(tmp_path, {"bills": [bill("anna", 9, 1, 9.0, 1.0)]})

    text = read(render(trace_page(tmp_path)))

    assert "Bills" in text
    assert "Links" not in text
    assert "strategy" not in text


def test_a_gain_that_is_too_small_is_not_advised(tmp_path: Path) -> None:
    tables = trace_tables()
    tables["tuning"] = [choice("ebpc", 0.75, 100.0 * (1 + 0.9 * GAIN_MIN), True)]
    write_tables(tmp_path, tables)

    text = read(render(trace_page(tmp_path)))

    assert "could have earned" not in text
    assert "No other strategy would have done clearly better" in text


def test_bounds_that_were_all_kept_are_told_in_a_sentence(tmp_path: Path) -> None:
    tables = trace_tables()
    tables["bounds"] = [{**one, "violations": 0, "is_kept": True} for one in tables["bounds"]]
    write_tables(tmp_path, tables)

    text = read(render(trace_page(tmp_path)))

    assert "flows with a" in text
    assert "kept it" in text


def test_bills_of_several_days_are_named_from_first_to_last(tmp_path: Path) -> None:
    first, second = bill("anna", 9, 1, 9.0, 1.0), bill("anna", 9, 1, 9.0, 0.0)
    second["day"] = second["day"].replace(day=3)
    write_tables(tmp_path, {"bills": [second, first]})

    assert "Deliveries from 2026-03-01 to 2026-03-03" in read(render(trace_page(tmp_path)))


def test_a_table_that_is_not_there_is_empty(tmp_path: Path) -> None:
    write_tables(tmp_path, {"traffic": [{"node": "n1", "published": 75}]})
    tables = ReportTables(tmp_path)

    assert tables.rows("traffic") == [{"node": "n1", "published": 75}]
    assert tables.rows("bills") == []


def test_money_has_two_decimals_and_groups() -> None:
    assert money(1_234_567_890_000) == "1,234,567.89"
