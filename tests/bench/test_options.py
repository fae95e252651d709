from __future__ import annotations

from typing import Any

import pytest

from timebound.bench.options import LoadOptions


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"publishers": 0}, r"publishers 0 is out of range \(1 to 60000\)"),
        ({"qos": 3}, "qos 3 is out of range"),
        ({"subscribe_qos": 3}, "subscribe_qos 3 is out of range"),
        ({"size": -1}, "size -1 is out of range"),
        ({"rate": -1.0}, "rate -1 is out of range"),
        ({"duration_s": 0.0}, "duration 0 is out of range"),
        ({"window": 70_000}, "window 70000 is out of range"),
        ({"mqtt_version": 3}, "mqtt version 3 is unknown"),
        ({"rate": 1.0, "rate_per_publisher": 1.0}, "exclude each other"),
    ],
)
def test_options_out_of_range_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoadOptions(**wrong)


def test_rate_per_publisher_adds_up() -> None:
    assert LoadOptions(publishers=4, rate_per_publisher=250.0).total_rate == 1000.0


def test_delivery_qos_is_the_published_one_unless_asked_for() -> None:
    assert LoadOptions(qos=2).delivery_qos == 2
    assert LoadOptions(qos=2, subscribe_qos=0).delivery_qos == 0
