"""Tables, values for programs and warnings of the overload demo, from a result that is known."""

from __future__ import annotations

import dataclasses
import json
from io import StringIO

import pytest
from rich.console import Console
from tests.demo.doubles import example_result

from timebound.demo.brokers import ours
from timebound.demo.overload import OverloadResult
from timebound.demo.report import age_ms_at, as_values, format_rate, notes, over_time, table, warnings
from timebound.demo.traffic import Traffic


@pytest.fixture(scope="module")
def outcome() -> OverloadResult:
    return example_result()


def test_the_table_shows_each_broker_beside_the_best(outcome: OverloadResult) -> None:
    text = StringIO()
    Console(file=text, width=110).print(table([outcome]))

    printed = text.getvalue()
    assert all(word in printed for word in ("timebound worth", "best possible", "Link of 1 Mbit/s", "QoS 1"))
    assert all(name in printed for name in ("alerts", "telemetry", "bulk", "late", "99 %", "account"))
    assert "…" not in printed


def test_the_table_fits_80_columns_and_its_rows_add_up(outcome: OverloadResult) -> None:
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


def test_values_for_programs_add_up(outcome: OverloadResult) -> None:
    values = as_values([outcome])

    [row] = json.loads(json.dumps(values))["runs"]
    assert sum(each["value"] for each in row["classes"]) == pytest.approx(row["value"])
    assert sum(each["value_best"] for each in row["classes"]) == pytest.approx(row["value_best"])


def test_bins_hold_every_message(outcome: OverloadResult) -> None:
    for traffic in outcome.traffics:
        times, _, values = over_time(outcome, traffic)
        assert times == [0.25, 0.75]
        assert sum(values) * 0.5 == pytest.approx(traffic.in_time() * traffic.kind.price)


def test_a_link_that_was_idle_is_told(outcome: OverloadResult) -> None:
    starved = OverloadResult(
        outcome.contender, 2.0, outcome.setting, outcome.started_ns, outcome.traffics, outcome.best, 0.5
    )

    assert "used only 50%" in warnings([starved])[0]


def test_each_class_is_counted_by_what_its_receiver_saw(outcome: OverloadResult) -> None:
    values = as_values([outcome])

    assert values["way"] == "relay"
    [row] = values["runs"]
    assert row["account"] == {"in_time": 20, "late": 5, "under_way": 2}
    for each, traffic in zip(row["classes"], outcome.traffics, strict=True):
        offered = len(traffic.fates)
        late = sum(number % 3 == 2 for number in range(offered)) if traffic.kind.deadline_ns else 0
        arrived = sum(number % 3 > 0 for number in range(offered))
        assert (each["offered"], each["late"], each["in_time"]) == (offered, late, arrived - late)


def test_age_is_that_of_what_arrived(outcome: OverloadResult) -> None:
    alerts = outcome.traffics[0]

    assert age_ms_at(alerts, 0.0) == pytest.approx(250 * 2 / 3, abs=0.001)
    assert age_ms_at(alerts, 1.0) == pytest.approx(250 * 4 / 3, abs=0.001)
    assert age_ms_at(Traffic(alerts.kind), 0.5) is None


@pytest.mark.parametrize(("qos", "text"), [(0, "messages sent in time"), (1, "acknowledged messages")])
def test_note_explains_the_account_of_each_qos(outcome: OverloadResult, qos: int, text: str) -> None:
    setting = dataclasses.replace(outcome.setting, qos=qos)

    [note] = notes([dataclasses.replace(outcome, setting=setting)])

    assert text in note
    assert notes([dataclasses.replace(outcome, account=None)]) == []


@pytest.mark.parametrize(("rate", "text"), [(125_000.0, "1 Mbit/s"), (32_000.0, "256 kbit/s")])
def test_rates_are_written_in_bits(rate: float, text: str) -> None:
    assert format_rate(rate) == text
