"""`timebound bounds`: of a few options, of a file, and of a running broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands.shell import Run
from tests.conftest import BrokerProcess
from tests.peer import join

from timebound.commands import bounds
from timebound.wire.packets import Ack

INLINE = ("--weights", "4,3,2", "--clients", "6", "--quantum", "51.2us", "--order", "paper")
FLOW = ("--flow", "topic=1,rate=723.4,burst=2")
PLANT = """
quantum = "10us"
[[topic]]
name = "[red]a"
weight = 2
[[client]]
name = "c"
publishes = ["[red]a"]
"""


def test_bounds_of_a_few_options(run: Run) -> None:
    done = run("bounds", *INLINE, *FLOW, "--json")

    row = json.loads(done.stdout)["rows"][0]
    assert row["topic"] == 1
    assert row["share"] == pytest.approx(4 / 9)
    assert row["bound_printed_ms"] < row["bound_ms"] == row["bound_tight_ms"]


def test_a_table_for_people_has_a_line_for_each_topic_and_client(run: Run) -> None:
    done = run("bounds", *INLINE, *FLOW)

    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert lines[1] == ["1", "4", "44.4%", "723.4", "2", "0.922", "1.894", "1.894", "other", "topics"]
    assert [line[0] for line in lines[1:4]] == ["1", "2", "3"]
    assert lines[-1] == ["each", "of", "6", "16.7%"]


def test_a_file_describes_topics_and_clients(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plant.toml"
    file.write_text(PLANT)

    done = run("bounds", file)

    assert done.returncode == 0
    assert done.stdout.decode().splitlines()[1].startswith("[red]a ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plant.toml", "--weights", "1"), "give a file or --weights, not both"),
        (("--weights", "1"), "--weights needs --quantum"),
        (("--quantum", "1us"), "--quantum and --flow require --weights"),
        (("no-such.toml",), "no-such.toml: cannot be read"),
        (("--weights", "x", "--quantum", "1us"), "weights: 'x' is not a whole number"),
    ],
)
def test_a_wrong_call_is_explained(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)

    done = run("bounds", *words)

    assert done.returncode == 2
    assert said in done.said


def test_a_running_broker_tells_its_weights_and_flows(run: Run, controlled: BrokerProcess) -> None:
    with join(controlled.port, "press") as peer:
        terms = [("period", "10ms"), ("delay", "50ms")]
        peer.publish("$timebound/advertise/alarm/1", b"", 1, user_properties=terms)
        assert peer.expect(Ack).reason_code == 0

        shown = run("bounds", "--port", str(controlled.port))
        told = json.loads(run("bounds", "--json", "--port", str(controlled.port)).stdout)

    assert shown.stdout.startswith(b"quantum 100.0 us, round ")
    (row,) = told["rows"]
    assert (row["topic"], row["client"], row["delay_ms"], row["kept"]) == ("alarm/1", "press", 50, True)
    flow = next(line.split() for line in shown.stdout.decode().splitlines() if "press" in line)
    assert flow[:5] == ["alarm/1", "press", "100", "1", "50"]
    assert flow[5] == f"{row['bound_ms']:.3f}"


def test_a_broker_that_is_not_there_is_a_failure(run: Run) -> None:
    done = run("bounds", "--port", "1")

    assert done.returncode == 1
    assert "127.0.0.1:1 cannot be reached" in done.said


def test_help_shows_its_examples(run: Run) -> None:
    assert bounds.EXAMPLES.split("  ")[1].encode() in run("bounds", "--help").stdout
