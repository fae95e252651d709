"""One spelling of connection options in every command; the old ones still work and are not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from timebound.cli import app
from timebound.commands._connection import _OPTIONS, OLD_SPELLINGS, Connecting, connects_by

# New spelling, old spelling, a value.
SPELLINGS = [
    ("--user", "--username", "ann"),
    ("--ca-file", "--cafile", "ca.pem"),
    ("--ca-file", "--tls-ca", "ca.pem"),
    ("--cert-file", "--cert", "c.pem"),
    ("--key-file", "--key", "k.pem"),
    ("--mqtt-version", "--version", "4"),
    ("--mqtt-version", "--mqtt", "3.1.1"),
]
CONNECTING = [
    ("pub", "t", "x"),
    ("sub", "t"),
    ("bounds",),
    ("bench",),
    ("strategy", "list"),
    ("strategy", "set", "fifo"),
    ("weight", "list"),
    ("weight", "set", "a", "1"),
    ("weight", "remove", "a"),
    ("pipeline", "live", "--servers", "a:1"),
    ("mesh",),
    ("mesh", "path", "a", "b"),
]


def read(*words: str) -> tuple[Connecting | None, str]:
    """What a command with all connection options is given, and what it prints."""
    small = typer.Typer()
    found: list[Connecting] = []

    @small.command()
    @connects_by(*_OPTIONS)
    def command(*, connecting: Connecting) -> None:
        found.append(connecting)

    done = CliRunner().invoke(small, list(words))
    return (found[0] if found else None), done.output


def find(words: tuple[str, ...]) -> tuple[Any, list[str]]:
    """The command that a command line names, and the words that are for it."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", ()):
        command = command.commands[rest.pop(0)]
    return command, rest


def parse(words: tuple[str, ...]) -> None:
    """Read a command line; raises for what the command does not know."""
    command, rest = find(words)
    with command.make_context(words[0], rest):
        pass


def options_of(words: tuple[str, ...]) -> dict[str, bool]:
    """The options of a command, and whether help hides them."""
    command, _ = find(words)
    return {spelling: bool(one.hidden) for one in command.params for spelling in one.opts if "-" in spelling}


def test_every_old_spelling_is_tried_here() -> None:
    assert sorted(old for _, old, _ in SPELLINGS) == sorted(
        spelling for spellings in OLD_SPELLINGS.values() for spelling in spellings
    )


@pytest.mark.parametrize(("new", "old", "value"), SPELLINGS)
def test_an_old_spelling_does_what_the_new_one_does(new: str, old: str, value: str) -> None:
    by_new, _ = read(new, value)
    by_old, _ = read(old, value)

    assert by_old == by_new != Connecting()


@pytest.mark.parametrize(("new", "old", "value"), SPELLINGS)
def test_both_spellings_at_once_are_a_mistake_that_names_both(new: str, old: str, value: str) -> None:
    found, said = read(new, value, old, value)

    assert found is None
    assert f"{new} and {old} are the same option" in " ".join(said.replace("│", " ").split())


@pytest.mark.parametrize("command", CONNECTING, ids=" ".join)
@pytest.mark.parametrize(("new", "old", "value"), SPELLINGS)
def test_every_command_that_connects_has_both_spellings_and_shows_one(
    command: tuple[str, ...], new: str, old: str, value: str
) -> None:
    options = options_of(command)
    if new not in options:
        assert old not in options
        return

    assert (options[new], options[old]) == (False, True)
    parse((*command, old, value))


@pytest.mark.parametrize("command", CONNECTING, ids=" ".join)
def test_every_command_that_connects_can_log_in_and_use_tls(command: tuple[str, ...]) -> None:
    options = options_of(command)

    assert {"--user", "--password", "--password-file", "--tls", "--ca-file"} <= set(options)


def test_commands_that_connect_are_all_listed_here() -> None:
    found: list[tuple[str, ...]] = []

    def walk(command: Any, path: tuple[str, ...]) -> None:
        if any("--ca-file" in one.opts for one in command.params):
            found.append(path)
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*path, name))

    walk(typer.main.get_command(app), ())

    assert sorted(found) == sorted(
        words[: 2 if words[0] in ("strategy", "weight", "pipeline", "mesh") else 1] for words in CONNECTING
    )


def test_a_hidden_option_is_not_in_the_help() -> None:
    for words in (["pub"], ["bench"], ["pipeline", "live"], ["strategy", "set"], ["sim", "paper"]):
        shown = CliRunner().invoke(app, [*words, "--help"]).output
        for old in ("--cafile", "--username", "--tls-ca", "--weight ", "--weights", "--version", "--mqtt "):
            assert old not in shown, (words, old)


@pytest.mark.parametrize(("text", "version"), [("5", 5), ("3.1.1", 4), ("4", 4)])
def test_versions_of_mqtt_are_read_as_people_write_them(text: str, version: int) -> None:
    found, _ = read("--mqtt-version", text)

    assert found is not None
    assert found.mqtt_version == version


def test_another_version_of_mqtt_is_refused() -> None:
    found, said = read("--mqtt-version", "3")

    assert found is None
    assert "'3' is not a supported version; use 5 or 3.1.1" in " ".join(said.replace("│", " ").split())


@pytest.mark.parametrize(
    "old", [("strategy", "set", "ebpc", "--weight", "60"), ("sim", "paper", "002", "--weights", "0.2")]
)
def test_the_mix_of_a_strategy_was_a_weight(old: tuple[str, ...]) -> None:
    options = options_of(old)

    assert (options[old[3]], options["--mix" if old[0] == "strategy" else "--mixes"]) == (True, False)
    parse(old)


def test_the_address_of_a_url_has_its_port_and_user() -> None:
    address = Connecting(url="mqtts://ann:secret@server:99").address()

    assert (address.host, address.port, address.is_tls) == ("server", 99, True)
    assert (address.username, address.password) == ("ann", "secret")


def test_bench_names_a_certificate_file_that_cannot_be_used(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "--ca-file", str(tmp_path / "no.pem")])

    assert done.exit_code == 2
    assert "cannot be used" in " ".join(done.output.replace("│", " ").split())


def test_empty_password_file_is_a_wrong_call(tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.touch()

    with pytest.raises(ValueError, match="is empty"):
        Connecting(password_file=path).client()


def test_the_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "password.txt"
    path.write_text("s3cret\nold\n")

    assert Connecting(password_file=path).read_password() == "s3cret"
    assert Connecting(password="x").read_password() == "x"
    with pytest.raises(ValueError, match="use one of them"):
        Connecting(password="x", password_file=path).read_password()


def test_a_session_that_is_kept_needs_a_client_id() -> None:
    with pytest.raises(ValueError, match="--session-expiry needs --client-id"):
        Connecting().client(session_expiry="1h")


def test_a_file_that_is_not_text_is_a_mistake_of_the_call(tmp_path: Path) -> None:
    path = tmp_path / "password.bin"
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(ValueError, match=r"--password-file .* cannot be used: invalid start byte"):
        Connecting(password_file=path).read_password()
