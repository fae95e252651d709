"""`timebound check`: mistakes and notices, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from timebound.cli import app
from timebound.commands import check as command

OLD = '[input]\nstop_allowance = "5ms"\n'


def check(path: Path, text: str, *words: str) -> Result:
    path.write_text(text)
    return CliRunner().invoke(app, ["check", str(path), *words])


def test_a_file_without_mistakes_is_ok(tmp_path: Path) -> None:
    done = check(tmp_path / "t.toml", 'node_name = "a"\n')

    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{tmp_path}/t.toml: ok\n", "")


def test_an_old_name_is_noticed_and_no_mistake(tmp_path: Path) -> None:
    done = check(tmp_path / "t.toml", OLD)

    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/t.toml: ok\n")
    assert done.stderr == (
        f"note: {tmp_path}/t.toml:2: input.stop_allowance: is now called 'stall_allowance'; "
        "the old name is still read\n"
    )


def test_programs_get_mistakes_and_notices(tmp_path: Path) -> None:
    done = check(tmp_path / "t.toml", OLD + "colour = 1\n", "--json")

    found = json.loads(done.stdout)
    assert done.exit_code == 2
    assert found["ok"] is False
    assert [row["key"] for row in found["mistakes"]] == ["input.colour"]
    assert [(row["key"], row["line"]) for row in found["notices"]] == [("input.stop_allowance", 2)]


def test_a_file_that_is_not_there_is_a_mistake_of_the_call(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(tmp_path / "no.toml")])

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {tmp_path}/no.toml: ")


def test_variables_are_checked_with_the_file_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = CliRunner().invoke(app, ["check"])
    monkeypatch.setenv("TIMEBOUND_CONFIG_METRICS_PORT", "1883")
    monkeypatch.setenv("TIMEBOUND_CONFIG_METRICS_PROT", "1")

    without = CliRunner().invoke(app, ["check"])
    with_file = check(tmp_path / "t.toml", "[[listeners]]\nport = 1884\n", "--json")

    assert (alone.exit_code, alone.stdout) == (0, "the environment: ok\n")
    assert without.exit_code == 2
    assert sorted(without.stderr.splitlines()) == [
        "error: TIMEBOUND_CONFIG_METRICS_PORT: 127.0.0.1:1883 is used by listener 0",
        "error: TIMEBOUND_CONFIG_METRICS_PROT: unknown key; did you mean TIMEBOUND_CONFIG_METRICS_PORT?",
    ]
    rows = json.loads(with_file.stdout)["mistakes"]
    assert [(row["key"], row["path"]) for row in rows] == [("TIMEBOUND_CONFIG_METRICS_PROT", "")]


def test_help_shows_its_example() -> None:
    assert command.EXAMPLES.split("  ")[1] in CliRunner().invoke(app, ["check", "--help"]).stdout
