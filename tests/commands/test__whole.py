"""`timebound sim run` with the configuration files of live brokers."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from timebound.commands._whole import live_config
from timebound.commands.sim import app

PLANTS = Path(__file__).parents[2] / "scenarios" / "plants"
NAMES = ("control", "plant-1", "plant-2")
FILES = [word for name in NAMES for word in ("--config", str(PLANTS / f"{name}.toml"))]


def test_example_is_simulated_from_its_configuration_files() -> None:
    result = CliRunner().invoke(app, ["run", *FILES, str(PLANTS / "scenario.toml"), "--seeds", "1", "--json"])

    assert result.exit_code == 0, result.output
    [run] = json.loads(result.stdout)["runs"]
    assert run["published"] > 1_000
    assert run["dropped"]["disconnected"] > 10, "the link was cut"
    assert run["delivery_rate"] > 0.9


def test_trace_has_a_record_for_each_pair(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    words = ["run", *FILES, str(PLANTS / "scenario.toml"), "--seeds", "1", "--trace", str(trace), "--json"]

    result = CliRunner().invoke(app, words)

    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    assert len(rows) == json.loads(result.stdout)["runs"][0]["matched"]
    assert {row["origin"] for row in rows} == {"plant-1", "plant-2"}


def test_table_names_no_strategy_as_each_configuration_has_its_own() -> None:
    result = CliRunner().invoke(app, ["run", *FILES, str(PLANTS / "scenario.toml"), "--seeds", "1"])

    assert result.exit_code == 0, result.output
    assert "plants" in result.stdout
    assert "strategy" not in result.stdout


def test_alarms_of_the_example_keep_their_deadline_in_a_flood(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    words = ["run", *FILES, str(PLANTS / "flows.toml"), "--seeds", "1", "--trace", str(trace), "--json"]

    result = CliRunner().invoke(app, words)

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["runs"][0]["refused"] == {}  # every flow was admitted
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    alarms = [row["outcome"] for row in rows if row["topic"] == "press/alarm"]
    assert len(alarms) == 6 * 60
    assert set(alarms) == {"in_time"}
    assert {row["reason"] for row in rows if row["outcome"] == "dropped"} >= {"replaced"}


def test_what_brokers_refuse_and_a_network_would_is_told(tmp_path: Path) -> None:
    broker, scenario = tmp_path / "near.toml", tmp_path / "scenario.toml"
    broker.write_text(
        'node_name = "near"\n[security]\npassword_file = "users"\n[limits]\ntopic_length_max = 2\n'
        '[[listeners]]\nhost = "0.0.0.0"\n'
    )
    scenario.write_text(
        'duration = "10s"\n[links]\nms_per_kb = 1\n'
        '[[publishers]]\nbrokers = ["near"]\nrate_per_minute = 60\nsize_bytes = 100\nqos = 1\n'
        '[[subscriptions]]\nbrokers = ["near"]\n'
    )

    result = CliRunner().invoke(app, ["run", "--config", str(broker), str(scenario)])
    as_json = CliRunner().invoke(app, ["run", "--config", str(broker), str(scenario), "--json"])

    assert result.exit_code == 0, result.output
    [run] = json.loads(as_json.stdout)["runs"]
    assert run["refused"]["publish"] > 3
    assert result.stdout.endswith(f"seed 1: refused by brokers: publish {run['refused']['publish']}\n")
    assert "note: listener 'tcp 0.0.0.0:1883' of 'near' requires a user name" in result.stderr


def test_missing_configuration_of_a_neighbour_is_named() -> None:
    result = CliRunner().invoke(app, ["run", *FILES[:4], str(PLANTS / "scenario.toml")])

    assert result.exit_code != 0
    assert "'plant-2' of 'control' is not among the configurations" in str(result.exception)


def test_access_rules_are_read_and_other_files_need_not_be_there(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("allow user anna subscribe a/#\n")
    path = tmp_path / "broker.toml"
    path.write_text('[security]\npassword_file = "users"\nacl_file = "acl"\n')

    config = live_config(path)

    assert config.security.acl_file is None
    assert [(rule.user, rule.topic_filter) for rule in config.security.rules] == [("anna", "a/#")]
