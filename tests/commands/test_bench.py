"""`timebound bench`: a short load, calls that are wrong, and the experiments of the channel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands.shell import Run
from tests.conftest import BrokerProcess
from typer.testing import CliRunner

from timebound.bench import channel
from timebound.bench.channel_results import Speed
from timebound.cli import app
from timebound.commands import bench

# Beside each other they would delay each other, at the same priorities of one processor.
pytestmark = pytest.mark.xdist_group("real-time")
SHORT = ("--duration", "200ms", "--warmup", "50ms")


def test_programs_get_what_was_measured(run: Run, broker: BrokerProcess) -> None:
    done = run("bench", *SHORT, "--rate", "200", "--qos", "1", "--json", "--port", str(broker.port))

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["received"] > 0


def test_people_get_a_table(run: Run, broker: BrokerProcess) -> None:
    done = run("bench", *SHORT, "--rate", "200", "--port", str(broker.port))

    assert done.returncode == 0, done.stderr
    assert "latency" in done.stdout.decode().lower()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--duration", "soon"), "'soon' is not a duration"),
        (("--url", "mqtt://a", "--host", "b"), "both --url and --host"),
        (("--qos", "3"), "--qos"),
        (("channel", "--only", "nonsense"), "choose from speed, collocated"),
    ],
)
def test_a_wrong_call_is_explained(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run("bench", *words)

    assert done.returncode == 2
    assert said in done.said


def test_the_user_of_a_url_logs_in_unless_an_option_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(bench, "_measure", lambda options, **_: found.append(options))

    for more in ([], ["--user", "bob", "--password", "other"]):
        CliRunner().invoke(app, ["bench", "--url", "mqtts://ann:secret@server:99", *more])

    assert [(one.username, one.password) for one in found] == [("ann", "secret"), ("bob", "other")]
    assert {(one.host, one.port, one.tls) for one in found} == {("server", 99, True)}


def test_experiment_that_fails_is_reported_and_the_others_keep_their_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(lengths: channel.RunLengths) -> Speed:
        raise TimeoutError("events were not delivered within 60 s")

    monkeypatch.setattr(channel, "measure_speed", fail)
    monkeypatch.setattr(channel, "SPACINGS_NS", (100_000,))
    plots = tmp_path / "plots"

    done = CliRunner().invoke(
        app, ["bench", "channel", "--only", "speed,spacing", "--json", "--plot", str(plots)]
    )

    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["failed"] == {"speed": "events were not delivered within 60 s"}
    assert [step["dispatching"] for step in found["spacing"]] == ["reactive", "lanes"]
    assert (plots / "spacing.png").exists()
    assert "error: speed failed: events were not delivered within 60 s" in " ".join(done.stderr.split())
