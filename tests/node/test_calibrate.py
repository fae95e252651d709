"""Calibration: a quantum measured on this machine, from the whole way of real messages."""

from __future__ import annotations

import pytest

from timebound.node import calibrate
from timebound.node.calibrate import BATCH, Calibration
from timebound.units import MILLISECOND, SECOND


def test_a_quantum_is_at_least_the_median_and_below_a_second_per_batch() -> None:
    found = calibrate.calibrate(20 * MILLISECOND)

    assert found.batches >= 2
    assert 0 < found.median_ns <= found.quantum_ns
    assert found.quantum_ns * BATCH < SECOND


def test_two_batches_are_measured_however_short_the_time() -> None:
    assert calibrate.calibrate(0).batches == 2


def test_a_longer_time_measures_more_batches() -> None:
    assert calibrate.calibrate(200 * MILLISECOND).batches > calibrate.calibrate(0).batches


def test_the_start_value_has_its_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "calibrate", lambda duration_ns: Calibration(9, 2_000, 7_000))

    assert calibrate.start_quantum_ns() == 6_000


def test_results_are_told_in_microseconds_and_messages_per_second() -> None:
    assert Calibration(9, 2_000, 4_000).as_json() == {
        "quantum_us": 4.0,
        "median_us": 2.0,
        "service_rate": 250_000.0,
        "batches": 9,
    }
