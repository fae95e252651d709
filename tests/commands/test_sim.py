"""`timebound sim`: runs of scenarios and papers, for people and programs, and wrong calls."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from timebound.commands.sim import _numbers, app
from timebound.records import TRACE_FIELDS

PLAIN = """\
duration = "1m"
[topology]
kind = "ring"
brokers = 4
[links]
ms_per_kb = 10
[[publishers]]
brokers = ["b1"]
rate_per_minute = 60
size_bytes = 2048
[[subscriptions]]
brokers = ["b3"]
terms = [{ deadline = "2s", price = 2, penalty = 1 }]
"""


def write(folder: Path, text: str = PLAIN) -> Path:
    path = folder / "scenario.toml"
    path.write_text(text)
    return path


def test_run_writes_the_same_trace_twice_in_the_schema_of_the_broker(tmp_path: Path) -> None:
    path = write(tmp_path)
    traces = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]

    for trace in traces:
        result = CliRunner().invoke(app, ["run", str(path), "--json", "--trace", str(trace)])
        assert result.exit_code == 0, result.output

    lines = traces[0].read_bytes().splitlines()
    assert traces[0].read_bytes() == traces[1].read_bytes()
    assert list(json.loads(lines[0])) == [name for name, _ in TRACE_FIELDS]
    runs = json.loads(result.stdout)["runs"]
    assert runs[0]["matched"] == len(lines)


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_a_parquet_trace_has_the_schema_of_the_node_and_the_same_bytes_for_the_same_seed(
    tmp_path: Path,
) -> None:
    import pyarrow.parquet as parquet

    from timebound.node.trace.columns import trace_schema

    path = write(tmp_path)
    traces = [tmp_path / "one.parquet", tmp_path / "two.parquet", tmp_path / "other.parquet"]
    lines = tmp_path / "one.jsonl"
    for trace, seed in zip([*traces, lines], ["3", "3", "4", "3"], strict=True):
        result = CliRunner().invoke(app, ["run", str(path), "--seeds", seed, "--trace", str(trace)])
        assert result.exit_code == 0, result.output

    table = parquet.read_table(traces[0])
    assert table.schema.equals(trace_schema(), check_metadata=True)
    assert table.to_pylist() == [json.loads(line) for line in lines.read_text().splitlines()]
    assert traces[0].read_bytes() == traces[1].read_bytes()
    assert traces[0].read_bytes() != traces[2].read_bytes()


def test_run_prints_a_table_for_people(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", str(write(tmp_path)), "--seeds", "1,2"])

    assert result.exit_code == 0, result.output
    assert "strategy worth" in result.stdout


def test_paper_prints_rows_for_programs() -> None:
    arguments = "paper 002 --figure 6 --rates 15 --strategies eb,fifo --seeds 1..2 --minutes 0.5 --json"

    result = CliRunner().invoke(app, [*arguments.split(), "--workers", "1"])

    rows = json.loads(result.stdout)
    assert [(one["strategy"], one["seed"]) for one in rows] == [
        ("eb", 1),
        ("eb", 2),
        ("fifo", 1),
        ("fifo", 2),
    ]
    wanted = {"figure", "scenario", "rate", "strategy", "seed", "delivery_rate", "earning", "traffic"}
    assert wanted <= set(rows[0])


def test_paper_prints_tables_for_people() -> None:
    arguments = "paper 001 --figure 7 --strategies mtep,fcfs --seeds 1 --minutes 0.5 --workers 1"

    result = CliRunner().invoke(app, arguments.split())

    assert result.exit_code == 0, result.output
    assert "printed values" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("paper 009", "choose from 000, 001, 002, 004"),
        ("paper 002 --reading sideways", "unknown"),
        ("paper 002 --seeds many", "list of numbers"),
        ("paper 002 --figure 7", "no figure 7"),
    ],
)
def test_wrong_calls_are_explained(arguments: str, message: str) -> None:
    result = CliRunner().invoke(app, arguments.split(), env={"COLUMNS": "200"})

    assert result.exit_code == 2
    assert message in result.output


def test_paper_000_has_a_row_for_each_second(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["paper", "000", "--seeds", "3", "--json"])

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)


def test_an_old_name_in_a_scenario_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, 'strategy = "ebpc"\nweight = 0.25\n' + PLAIN)

    result = CliRunner().invoke(app, ["run", str(path), "--json"])

    assert result.exit_code == 0
    assert result.stderr.startswith(f"note: {path}:2: weight: is now called 'mix'")


@pytest.mark.parametrize(
    ("text", "numbers"), [("7", (7,)), ("1..3", (1, 2, 3)), ("1, 2,5", (1, 2, 5)), ("4..4", (4,))]
)
def test_seeds_are_read_as_people_write_them(text: str, numbers: tuple[int, ...]) -> None:
    assert _numbers(text, "--seeds") == numbers


@pytest.mark.parametrize("text", ["", "3..1", "1..2..3", "x", "1..10000000000000"])
def test_what_are_no_seeds_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        _numbers(text, "--seeds")
