"""`timebound calibrate`: a measurement for people and programs."""

from __future__ import annotations

import json
import re

import pytest
from tests.commands.shell import Run

from timebound.commands import calibrate


def test_programs_get_the_quantum_and_the_service_rate(run: Run) -> None:
    done = run("calibrate", "--duration", "50ms", "--json")

    result = json.loads(done.stdout)
    assert 0 < result["median_us"] <= result["quantum_us"]
    assert result["service_rate"] == pytest.approx(1e6 / result["quantum_us"])


def test_people_are_told_what_to_write_into_the_configuration(run: Run) -> None:
    quantum, rate, advice = run("calibrate", "--duration", "50ms").stdout.decode().splitlines()

    assert re.fullmatch(r"quantum +[\d.]+ us \(median [\d.]+ us\)", quantum)
    assert re.fullmatch(r"service rate +[\d,]+ messages/s", rate)
    assert advice == f'to fix it, write quantum_time = "{quantum.split()[1]}us" under [input]'


def test_duration_that_cannot_be_read_is_a_wrong_call(run: Run) -> None:
    done = run("calibrate", "--duration", "soon")

    assert done.returncode == 2
    assert "'soon' is not a duration" in done.said


def test_help_shows_its_example(run: Run) -> None:
    assert calibrate.EXAMPLES.split("  ")[1].encode() in run("calibrate", "--help").stdout
