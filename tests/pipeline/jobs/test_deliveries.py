"""Deliveries and traffic of one small trace, computed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.traces import SPARK_TIMEOUT_S

from timebound.pipeline.jobs.deliveries import deliveries, traffic
from timebound.pipeline.jobs.flows import flow_segments, flows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


@pytest.fixture(scope="module")
def found(cubed: DataFrame) -> dict[tuple[str, str, str], Any]:
    """Deliveries by node, view and name."""
    return {(one["node"], one["view"], one["name"]): one for one in deliveries(cubed).collect()}


def test_deliveries_are_counted_by_outcome_and_reason_in_every_view(found: dict[Any, Any]) -> None:
    everything = found["n1", "all", ""]
    assert (everything["matched"], everything["in_time"], everything["late"]) == (10, 7, 1)
    assert (everything["dropped"], everything["dropped_queue_full"], everything["dropped_hopeless"]) == (
        2,
        1,
        1,
    )
    assert everything["dropped_quota"] == 0
    assert everything["in_time_share"] == 0.7
    assert everything["bytes_sent"] == 7 * 1_024 + 2_048
    assert found["n1", "topic", "t/2"]["late"] == 1
    assert found["n1", "topic", "t/1"]["matched"] == 9
    assert found["n1", "subscriber", "u"]["matched"] == found["n1", "link", "u"]["matched"] == 1
    assert found["n1", "hop", "2"]["dropped"] == 1
    assert found["n2", "all", ""]["matched"] == 1


def test_latency_runs_from_publication_until_it_was_sent(found: dict[Any, Any]) -> None:
    everything = found["n1", "all", ""]
    assert (everything["latency_mean_ms"], everything["latency_max_ms"]) == (3.0, 3.0)
    assert everything["latency_p50_ms"] == pytest.approx(3.0, rel=0.01)
    assert everything["latency_p999_ms"] == pytest.approx(3.0, rel=0.01)
    assert (everything["queued_mean_ms"], everything["queued_max_ms"]) == (1.0, 1.0)
    # Nothing of it was sent: there is no latency.
    assert found["n1", "hop", "2"]["latency_mean_ms"] is None
    assert found["n1", "hop", "2"]["latency_p50_ms"] is None


def test_a_message_for_two_subscribers_is_published_once(rows: DataFrame, cubed: DataFrame) -> None:
    found = flows(flow_segments(rows, cubed, ("date", "node")))

    by_node = {one["node"]: one for one in traffic(cubed, found).collect()}

    assert (by_node["n1"]["published"], by_node["n1"]["matched"], by_node["n1"]["copies_sent"]) == (9, 10, 8)
    assert by_node["n1"]["broker_receipts"] == 9 + 2
    assert by_node["n2"]["published"] == 1
