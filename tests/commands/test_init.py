"""`timebound init`: what it asks and writes, and that it replaces nothing unasked."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from timebound.cli import app
from timebound.commands import init as command
from timebound.commands.init import InitAnswers, configuration
from timebound.node.config import load_config
from timebound.node.login.passwords import PasswordFile


def init(folder: Path, *words: str, said: str = "") -> Result:
    return CliRunner().invoke(app, ["init", str(folder), *words], input=said)


def test_without_questions_it_writes_a_broker_for_this_machine(tmp_path: Path) -> None:
    done = init(tmp_path / "new" / "folder", "--yes")

    file = tmp_path / "new" / "folder" / "timebound.toml"
    assert done.exit_code == 0
    assert done.stdout == f"wrote {file}\nstart it with: timebound serve --config {file}\n"
    config = load_config(file)
    assert [(listener.host, listener.port) for listener in config.listeners] == [("127.0.0.1", 1883)]
    assert (config.metrics.host, config.metrics.port) == ("127.0.0.1", 9464)
    assert [path.name for path in file.parent.iterdir()] == ["timebound.toml"]


def test_answers_are_written(tmp_path: Path) -> None:
    done = init(tmp_path, said="y\n1884\n8083\n0\n")

    assert done.exit_code == 0
    assert f"timebound passwd {tmp_path / 'users'} NAME" in done.stdout
    config = load_config(tmp_path / "timebound.toml")
    assert [(listener.kind, listener.host, listener.port) for listener in config.listeners] == [
        ("tcp", "0.0.0.0", 1884),
        ("websocket", "0.0.0.0", 8083),
    ]
    assert config.metrics.port == 0
    assert config.security.password_file == tmp_path / "users"
    assert (tmp_path / "users").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("answers", itertools.product((False, True), (1883, 0), (0, 8083), (0, 9464)))
def test_every_combination_of_answers_passes_check(
    answers: tuple[bool, int, int, int], tmp_path: Path
) -> None:
    (tmp_path / "users").write_text("")
    (tmp_path / "timebound.toml").write_text(configuration(InitAnswers(*answers)))

    done = CliRunner().invoke(app, ["check", str(tmp_path / "timebound.toml")])

    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("answers", [InitAnswers(), InitAnswers(is_on_network=True, ws_port=8083)])
def test_every_commented_key_can_be_used_as_it_stands(answers: InitAnswers, tmp_path: Path) -> None:
    lines = configuration(answers).splitlines()
    keys = [line.removeprefix("# ") if re.match(r"# (\w+ = |\[)", line) else line for line in lines]
    # Certificates and packages are not there to be looked at.
    used = [
        line for line in keys if not line.startswith(("certificate", "key", "[listeners.tls]", "enabled"))
    ]
    (tmp_path / "users").write_text("")
    (tmp_path / "timebound.toml").write_text("\n".join(used))

    load_config(tmp_path / "timebound.toml")


def test_a_file_is_replaced_only_if_that_is_answered(tmp_path: Path) -> None:
    file = tmp_path / "timebound.toml"
    file.write_text("# mine\n")

    unasked, refused = init(tmp_path, "--yes"), init(tmp_path, said="n\n")
    ended = init(tmp_path, said="")

    assert unasked.exit_code == refused.exit_code == ended.exit_code == 1
    assert f"error: {file} exists, nothing was written" in unasked.stderr
    assert file.read_text() == "# mine\n"
    assert init(tmp_path, said="y\nn\n1883\n0\n0\n").exit_code == 0
    assert load_config(file).metrics.port == 0


def test_users_that_are_there_are_kept(tmp_path: Path) -> None:
    users = PasswordFile(tmp_path / "users")
    users.set("anna", "secret")
    users.save()
    before = (tmp_path / "users").read_text()

    assert init(tmp_path, said="y\n\n\n\n").exit_code == 0
    assert (tmp_path / "users").read_text() == before


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("n\n1883\n1883\n0\n", "listeners[1].port: 127.0.0.1:1883 is used by listener 0"),
        ("n\n99999\n0\n0\n", "listeners[0].port: must be from 0 to 65535, not 99999"),
    ],
)
def test_answers_that_make_no_configuration_are_refused_before_anything_is_written(
    said: str, expected: str, tmp_path: Path
) -> None:
    done = init(tmp_path / "new", said=said)

    assert done.exit_code == 2
    assert done.stderr == f"error: {expected}\n"
    assert not (tmp_path / "new").exists()


def test_help_shows_its_examples() -> None:
    assert command.EXAMPLES.split("  ")[1] in CliRunner().invoke(app, ["init", "--help"]).stdout
