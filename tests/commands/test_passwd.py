"""`timebound passwd`: users of a file, with passwords from standard input or a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from timebound.cli import app
from timebound.commands import passwd
from timebound.node.login.passwords import PasswordFile


def call(*words: str | Path, given: str | bytes = "") -> Result:
    return CliRunner().invoke(app, ["passwd", *map(str, words)], input=given, env={"COLUMNS": "200"})


def test_a_user_is_set_changed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "users"

    for password in ("apple", "pear"):
        done = call(path, "eve", given=f"{password}\n")
        assert (done.exit_code, done.stdout) == (0, f"{path}: set eve\n")
        assert PasswordFile.load(path).check("eve", password.encode())
    assert not PasswordFile.load(path).check("eve", b"apple")

    done = call(path, "eve", "--delete")
    assert (done.exit_code, done.stdout) == (0, f"{path}: removed eve\n")
    again = call(path, "eve", "--delete")
    assert (again.exit_code, again.stderr) == (1, f"error: user 'eve' is not in {path}\n")


@pytest.mark.parametrize(
    ("user", "password", "said"),
    [
        ("anna", "\n", "password is empty"),
        ("anna", "", "password is empty"),
        ("anna", b"\xff\n", "the password is not text in utf-8"),
        ("a:b", "secret\n", "user name 'a:b' begins with '#', or has ':'"),
        ("", "secret\n", "user name is empty"),
        ("*", "secret\n", "choose another name"),
    ],
)
def test_what_cannot_be_used_is_refused_and_writes_nothing(
    user: str, password: str | bytes, said: str, tmp_path: Path
) -> None:
    done = call(tmp_path / "users", user, given=password)

    complaint = " ".join(done.stderr.split())
    assert (done.exit_code, complaint.startswith("error: ")) == (2, True), complaint
    assert said in complaint
    assert list(tmp_path.iterdir()) == []


def test_help_shows_its_examples() -> None:
    assert passwd.EXAMPLES.split("  ")[1] in call("--help").stdout
