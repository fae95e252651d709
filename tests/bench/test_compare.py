"""The comparison as people run it: as a command, against brokers that are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conftest import Mosquitto

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "compare.py"


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


def test_comparison_with_itself_is_a_ratio_of_one(mosquitto: Mosquitto) -> None:
    done = compare("--quick", "--duration", "0.2", "--only", "qos1-1to1", "--brokers", "mosquitto", "--json")

    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    run = values["runs"][0]
    assert run["broker"] == "mosquitto"
    assert run["ratio_to_mosquitto"]["received_per_s"] == 1.0
    assert 0 < run["received_per_s"] < values["generator_alone"]["qos1-1to1"]
    assert run["cpu_us_per_message"] > 0
    assert values["memory_bytes"]["mosquitto"]["max"] > 1_000_000


def test_unknown_work_is_refused_by_name() -> None:
    done = compare("--only", "qos9")

    assert done.returncode == 2
    assert "work 'qos9' is unknown" in done.stdout


def test_broker_without_the_wanted_version_is_named_and_left_out() -> None:
    done = compare("--brokers", "nats", "--mqtt", "5", "--only", "qos0-1to1", "--quick", "--duration", "0.05")

    assert done.returncode == 0, done.stderr
    assert "nats is left out" in done.stdout
