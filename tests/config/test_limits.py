"""`[limits]`: the defaults are those of the core, and what has to fit in fits."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from tests.config.doubles import PATH, mistakes_of

from timebound.config.limits import Limits, core_limits
from timebound.core.values.limits import MQTT_PACKET_BYTES_MAX, BrokerLimits
from timebound.node.config import parse_config


def test_limits_that_nobody_set_are_those_of_the_core() -> None:
    configured, own = core_limits(Limits()), BrokerLimits()
    shared = [field.name for field in fields(Limits) if hasattr(own, field.name)]

    assert len(shared) == 12
    for name in shared:
        assert getattr(configured, name) == getattr(own, name), name


def test_the_largest_packet_is_that_of_mqtt(tmp_path: Path) -> None:
    # Four bytes of seven bits each for the length, and the first byte of the header.
    assert MQTT_PACKET_BYTES_MAX == (1 << 28) - 1 + 5

    largest = f"[limits]\npacket_size_max = {MQTT_PACKET_BYTES_MAX}\nqueue_bytes_per_client_max = '512MiB'\n"
    too_large = largest.replace(str(MQTT_PACKET_BYTES_MAX), str(MQTT_PACKET_BYTES_MAX + 1))

    assert parse_config(largest, PATH).limits.packet_size_max == MQTT_PACKET_BYTES_MAX
    assert mistakes_of(too_large, tmp_path) == [
        f"t.toml:2: limits.packet_size_max: must be from 128 to {MQTT_PACKET_BYTES_MAX}, "
        f"not {MQTT_PACKET_BYTES_MAX + 1}"
    ]


def test_defaults_fit_into_each_other() -> None:
    limits = Limits()

    assert limits.packet_size_max <= limits.queue_bytes_per_client_max <= limits.queue_bytes_total_max
    assert limits.topic_length_max < limits.packet_size_max
    assert limits.filter_cost_per_client_max <= limits.filter_cost_total_max
