"""`timebound mesh`: the check of configurations, the map of running brokers, and the ways through it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands.shell import Run
from tests.conftest import BrokerProcess
from tests.node.mesh.live_mesh import Mesh

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


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Three brokers in a line; from b to c a link of 20 KB/s."""
    slow = "link_bytes_per_second = 20480\n"
    mesh = Mesh(tmp_path_factory.mktemp("line"), {("a", "b"): "", ("b", "c"): slow})
    yield mesh
    mesh.end()


def test_the_map_of_a_running_mesh_is_a_table_a_document_and_a_picture(
    run: Run, line: Mesh, tmp_path: Path
) -> None:
    svg = tmp_path / "mesh.svg"
    done = run("mesh", "--port", line.ports["a"], "--json", "--svg", svg)
    document = json.loads(done.stdout)

    assert (done.returncode, document["broker"], document["routing"]) == (0, "a", "late")
    assert [one["name"] for one in document["brokers"]] == ["a", "b", "c"]
    speeds = {(one["from"], one["to"]): one["ms_per_kb"] for one in document["links"]}
    assert set(speeds) == {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}
    assert speeds["b", "c"] == pytest.approx(50.0)
    assert "<svg" in svg.read_text()
    assert b"picture" in done.stderr

    table = run("mesh", "--port", line.ports["c"])
    assert table.returncode == 0
    assert b"mesh as c sees it" in table.stdout
    assert b"20 KB/s" in table.stdout


def test_ways_through_a_running_mesh_and_their_chances(run: Run, line: Mesh) -> None:
    where = ("--port", line.ports["b"])
    done = run("mesh", "path", "a", "c", "--deadline", "60ms", "--size", "1KB", *where, "--json")

    [way] = json.loads(done.stdout)
    assert way["brokers"] == ["a", "b", "c"]
    assert way["time_ms"] > 50
    assert 0 < way["chance"] < 1

    assert b"a > b > c" in run("mesh", "path", "a", "c", *where).stdout
    unknown = run("mesh", "path", "a", "z", *where)
    assert (unknown.returncode, unknown.stdout) == (2, b"")
    assert b"no broker 'z'; it has a, b, c" in unknown.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--size", "2x"), "'2x' is not a size"),
        (("--deadline", "soon"), "soon"),
    ],
)
def test_a_wrong_size_or_deadline_is_named(run: Run, arguments: tuple[str, str], said: str) -> None:
    done = run("mesh", "path", "a", "b", *arguments)

    assert done.returncode == 2
    assert said in done.stderr.decode()


def test_options_before_a_command_are_refused(run: Run) -> None:
    done = run("mesh", "--json", "path", "a", "b")

    assert done.returncode == 2
    assert b"write it after the command" in done.stderr


def test_a_broker_outside_any_mesh_says_so(run: Run, broker: BrokerProcess) -> None:
    done = run("mesh", "--port", broker.port)

    assert done.returncode == 1
    assert b"no [[neighbours]]" in done.stderr
