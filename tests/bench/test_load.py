"""Short runs against a real Mosquitto: nothing lost, everything counted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from timebound.bench.load import run_load
from timebound.bench.options import LoadOptions
from timebound.errors import ConnectError

if TYPE_CHECKING:
    from .conftest import Mosquitto

SHORT = LoadOptions(duration_s=0.25, warmup_s=0.05)


@pytest.mark.parametrize("mqtt_version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_fixed_rate_arrives_in_full_and_is_timed(mosquitto: Mosquitto, qos: int, mqtt_version: int) -> None:
    options = replace(SHORT, port=mosquitto.port, qos=qos, rate=1000.0, mqtt_version=mqtt_version)

    result = run_load(options)

    assert result.expected == result.sent > 100
    if (qos, mqtt_version) == (2, 4):
        # Mosquitto 2.0 may stop handing out QoS 2 to a 3.1.1 client under load, whatever it is acknowledged.
        assert 0 < result.received <= result.expected
    else:
        assert result.received == result.expected
        assert result.loss == 0.0
    assert result.latency is not None
    assert result.latency.count > 50
    assert 0 < result.latency.min_ns <= result.latency.median_ns <= result.latency.max_ns
    assert result.lost_connections == 0


@pytest.mark.parametrize(
    "shape",
    [
        LoadOptions(publishers=4, subscribers=4, topics=4),
        LoadOptions(publishers=1, subscribers=10, qos=1),
        LoadOptions(publishers=2, subscribers=3, topics=7, qos=2, all_topics=True),
        LoadOptions(publishers=3, subscribers=2, topics=2, size=50_000, qos=1, subscribe_qos=0),
    ],
    ids=["4 to 4", "1 to 10", "all topics", "large"],
)
def test_full_speed_accounts_for_every_message(mosquitto: Mosquitto, shape: LoadOptions) -> None:
    options = replace(shape, port=mosquitto.port, duration_s=0.25, warmup_s=0.05, window=50)

    result = run_load(options)

    assert result.sent > 0
    # Mosquitto may drop QoS 0 messages that wait too long; no other may be missing, and none come twice.
    if options.delivery_qos:
        assert result.received == result.expected
    else:
        assert 0 < result.received <= result.expected
    assert result.refused == 0
    assert result.lost_connections == 0


def test_tls_carries_the_same_load(mosquitto: Mosquitto) -> None:
    options = replace(SHORT, port=mosquitto.tls_port, tls=True, ca_file=mosquitto.ca_file, qos=1, window=50)

    result = run_load(options)

    assert result.received == result.expected > 0


def test_progress_is_told_shares_that_grow(mosquitto: Mosquitto) -> None:
    shares: list[float] = []

    run_load(replace(SHORT, port=mosquitto.port, rate=100.0), shares.append)

    assert shares == sorted(shares)
    assert len(shares) > 2
    assert 0.0 <= shares[0] <= shares[-1] <= 1.0


def test_nobody_listening_is_a_connect_error() -> None:
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1 cannot be reached"):
        run_load(replace(SHORT, port=1))
