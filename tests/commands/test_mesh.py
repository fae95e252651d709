"""`timebound mesh`: the check of configurations, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands.shell import Run

from timebound.commands.mesh import _counted

A = 'node_name = "a"\n[data]\npath = "a"\n[[neighbours]]\nname = "b"\nhost = "127.0.0.1"\nport = {port}\n'
B = 'node_name = "b"\n[[listeners]]\nport = 1884\n[[neighbours]]\nname = "a"\n'


def write(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return [folder / f"{name}.toml" for name in texts]


def test_a_mesh_that_works_is_ok(run: Run, tmp_path: Path) -> None:
    done = run("mesh", "check", *write(tmp_path, a=A.format(port=1884), b=B))

    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok: 2 brokers, 1 link\n", b"")


def test_every_mistake_of_every_file_is_printed_at_once(run: Run, tmp_path: Path) -> None:
    wrong = write(tmp_path, a="colour = 1\n" + A.format(port=1885), b=B + "host = '127.0.0.1'\n")

    done = run("mesh", "check", *wrong, tmp_path / "no.toml")

    assert (done.returncode, done.stdout) == (2, b"")
    lines = done.stderr.decode().replace(f"{tmp_path}/", "").splitlines()
    assert lines.pop(1).startswith("error: a.toml:1: colour: unknown key; ")
    assert lines == [
        "error: no.toml: cannot be read: no such file or directory",
        "error: a.toml:8: neighbours[0].port: 127.0.0.1:1885 is no listener of 'b', "
        "which listens at 127.0.0.1:1884 (b.toml)",
        "note: b.toml:6: neighbours[0].host: both sides open this link, and that of 'a' stays; "
        "`host` here is not needed",
    ]


def test_programs_get_brokers_links_mistakes_and_notices(run: Run, tmp_path: Path) -> None:
    both = write(tmp_path, a=A.format(port=1885), b=B + "host = '127.0.0.1'\n")

    done = run("mesh", "check", *both, "--json")

    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (2, b"")
    assert found["files"] == [str(file) for file in both]
    assert (found["ok"], found["brokers"], found["links"]) == (False, ["a", "b"], [["a", "b"]])
    assert [(row["path"], row["line"], row["key"]) for row in found["mistakes"]] == [
        (str(both[0]), 7, "neighbours[0].port")
    ]
    assert [(row["path"], row["line"], row["key"]) for row in found["notices"]] == [
        (str(both[1]), 6, "neighbours[0].host")
    ]


def test_variables_of_the_environment_are_not_those_of_the_brokers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMEBOUND_CONFIG_NODE_NAME", "here")

    assert run("mesh", "check", *write(tmp_path, a=A.format(port=1884), b=B)).returncode == 0


def test_nouns_are_counted() -> None:
    assert (_counted(1, "link"), _counted(2, "link"), _counted(0, "broker")) == (
        "1 link",
        "2 links",
        "0 brokers",
    )
