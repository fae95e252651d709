"""Short runs of the demo with a real broker, and what is printed and drawn of them.

How much is in time depends on the machine, so only what must hold on any is asserted here.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from timebound.commands.demo import app
from timebound.demo import brokers, plot
from timebound.demo.brokers import Contender, ours
from timebound.demo.overload import Outcome, Setting, run
from timebound.demo.plot import draw
from timebound.demo.report import as_values, notes, over_time, table, warnings
from timebound.demo.way import why_no_interface
from timebound.errors import TimeboundError

RATE = 125_000.0


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    passed: list[float] = []
    found = run(ours("worth"), 2.0, Setting(RATE, 1.0, qos=1, buffer_s=0.2), passed.append)
    assert sum(passed) == pytest.approx(found.setting.run_s, rel=0.2)
    return found


def test_every_message_offered_is_judged(outcome: Outcome) -> None:
    offered = sum(len(traffic.fates) * traffic.kind.frame_bytes for traffic in outcome.traffics)

    assert offered == pytest.approx(2 * RATE * 1.0, rel=0.25)
    for traffic in outcome.traffics:
        arrived = sum(fate.arrived_ns > 0 for fate in traffic.fates)
        assert arrived == traffic.in_time() + traffic.late()
        assert all(fate.arrived_ns >= fate.published_ns for fate in traffic.fates if fate.arrived_ns)
    assert outcome.traffics[0].in_time() > 0


def test_the_account_agrees_with_the_receiver(outcome: Outcome) -> None:
    account = outcome.account
    in_time = sum(traffic.in_time() for traffic in outcome.traffics)
    late = sum(traffic.late() for traffic in outcome.traffics)

    assert account is not None
    # What arrived is acknowledged or on its way back; what was late for the receiver is late here.
    assert account.in_time <= in_time
    assert account.in_time + account.late <= in_time + late
    assert in_time + late - account.in_time - account.late <= account.under_way
    assert "acknowledged" in notes([outcome])[0]


@pytest.mark.skipif(bool(why_no_interface()), reason=why_no_interface() or "possible")
def test_a_real_interface_is_used_and_removed() -> None:
    before = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout

    setting = Setting(RATE, 1.0, qos=1, buffer_s=0.1, wants_interface=True)
    found = run(ours("worth"), 0.5, setting, lambda _: None)

    assert all(traffic.in_time() + traffic.late() for traffic in found.traffics)
    after = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert len(after.split()) <= len(before.split())


def test_drawing_is_checked_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(TimeboundError, match="matplotlib"):
        plot.check_drawing()
    done = CliRunner().invoke(app, ["overload", "--seconds", "600", "--plot", "."])
    assert isinstance(done.exception, TimeboundError)


def test_nothing_earns_more_than_the_best(outcome: Outcome) -> None:
    assert 0 < outcome.value <= outcome.value_best * 1.001
    assert outcome.link_used < 1.05


def test_the_table_shows_each_broker_beside_the_best(outcome: Outcome) -> None:
    text = StringIO()
    Console(file=text, width=110).print(table([outcome]))

    printed = text.getvalue()
    assert all(word in printed for word in ("timebound worth", "best possible", "Link of 1 Mbit/s", "QoS 1"))
    assert all(name in printed for name in ("alerts", "telemetry", "bulk", "late", "99 %", "account"))
    assert "…" not in printed


def test_the_table_fits_80_columns_and_its_rows_add_up(outcome: Outcome) -> None:
    labelled = dataclasses.replace(outcome, contender=ours("remaining-lifetime"))
    text = StringIO()
    Console(file=text, width=80).print(table([labelled]))
    printed = text.getvalue()
    rows = [line.split() for line in printed.splitlines()]
    published = {row[0]: row[1] for row in rows if len(row) > 4 and row[1].isdecimal()}
    brokers_sum = next(row[1] for row in rows if len(row) > 4 and row[0] == "timebound")

    assert "…" not in printed
    assert "bulk: no deadline, so in time whenever it arrives" in " ".join(printed.split())
    classes = [published[name] for name in ("alerts", "telemetry", "bulk")]
    assert sum(map(int, classes)) == int(brokers_sum) == int(next(r[2] for r in rows if r[:1] == ["best"]))


def test_values_for_programs_add_up(outcome: Outcome) -> None:
    values = as_values([outcome])

    [row] = json.loads(json.dumps(values))["runs"]
    assert sum(each["value"] for each in row["classes"]) == pytest.approx(row["value"])
    assert sum(each["value_best"] for each in row["classes"]) == pytest.approx(row["value_best"])


def test_bins_hold_every_message(outcome: Outcome) -> None:
    for traffic in outcome.traffics:
        times, _, values = over_time(outcome, traffic)
        assert times == [0.25, 0.75]
        assert sum(values) * 0.5 == pytest.approx(traffic.in_time() * traffic.kind.price)


def test_a_link_that_was_idle_is_told(outcome: Outcome) -> None:
    starved = Outcome(
        outcome.contender, 2.0, outcome.setting, outcome.started_ns, outcome.traffics, outcome.best, 0.5
    )

    assert "used only 50%" in warnings([starved])[0]


def test_the_picture_is_written(outcome: Outcome, tmp_path: Path) -> None:
    path = draw([outcome], tmp_path / "new")

    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_broker_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "_TIMEBOUND_CONFIG", "nonsense = 1\n")

    with pytest.raises(TimeboundError, match=r"(?s)ended at once.*nonsense"), brokers.running(ours("fifo")):
        pass


@pytest.mark.skipif(brokers.mosquitto_program() is None, reason="mosquitto is not installed")
def test_the_command_prints_json_and_draws(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "timebound", "demo", "overload", "--seconds", "1", "--load", "0.5"]
    done = subprocess.run(
        [*command, "--strategies", "fifo", "--json", "--plot", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    labels = [row["broker"] for row in json.loads(done.stdout)["runs"]]
    assert labels == ["timebound fifo", Contender("mosquitto", "").label]
    assert (tmp_path / "overload.png").exists()


def test_a_wrong_rate_is_refused_by_the_command() -> None:
    command = [sys.executable, "-m", "timebound", "demo", "overload", "--rate", "fast"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)

    assert done.returncode == 2
    assert "is not a rate" in done.stderr
