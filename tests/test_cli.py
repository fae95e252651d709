"""The command line as a whole: help, version, exit codes, and commands that pay for nobody else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from timebound import cli
from timebound.cli import INTERRUPTED, app, main
from timebound.errors import ConfigError, StorageError, UnitError
from timebound.version import VERSION

# What only some commands need: each costs a tenth of a second or more.
HEAVY = ("asyncio", "numpy", "pyarrow", "pyspark", "matplotlib", "uvloop", "msgspec")
PANELS = (
    "Run a broker",
    "Publish and subscribe",
    "Delay bounds and scheduling",
    "Measure, simulate, analyse",
)


def all_commands() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []

    def walk(command: Any, path: str) -> None:
        found.append((path, command))
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{path} {name}")

    walk(typer.main.get_command(app), "timebound")
    return found


def test_help_lists_every_command_in_its_panel() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).output

    places = [shown.index(panel) for panel in PANELS]
    assert places == sorted(places)
    names = [path.split()[1] for path, _ in all_commands() if path.count(" ") == 1]
    assert len(names) == 18
    assert all(f"│ {name} " in shown for name in names)


@pytest.mark.parametrize(("path", "command"), all_commands()[1:], ids=lambda value: str(value))
def test_every_command_has_a_sentence_of_help_that_begins_with_a_verb(path: str, command: Any) -> None:
    first = (command.help or "").splitlines()[0]

    assert first.endswith((".", ";", ":")), f"{path}: {first!r}"
    assert first[0].isupper()
    assert first.split()[0] not in ("What", "How", "The", "A", "An")


@pytest.mark.parametrize(
    ("path", "command"),
    [(path, command) for path, command in all_commands() if not getattr(command, "commands", None)],
    ids=lambda value: str(value),
)
def test_every_option_has_help(path: str, command: Any) -> None:
    silent = [one.name for one in command.params if one.name != "help" and not one.help]

    assert silent == [], path


def test_version_is_printed_with_how_it_was_built() -> None:
    shown = CliRunner().invoke(app, ["--version"]).output

    assert shown in (f"timebound {VERSION} (compiled)\n", f"timebound {VERSION} (plain Python)\n")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("no such key", key="limits"), 2, "error: limits: no such key\n"),
        (UnitError("'5' is not a duration"), 2, "error: '5' is not a duration\n"),
        (StorageError("disk full"), 1, "error: disk full\n"),
        (OSError("cannot listen"), 1, "error: cannot listen\n"),
        (KeyboardInterrupt(), INTERRUPTED, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_becomes_one_line_and_an_exit_code(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)

    with pytest.raises(SystemExit) as ended:
        main()

    assert (ended.value.code, capsys.readouterr().err) == (code, said)


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "app", fail)

    with pytest.raises(ZeroDivisionError):
        main()


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    code = f"import sys, timebound.cli; print([name for name in {HEAVY!r} if name in sys.modules])"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "[]\n"
