"""Seconds per KB of made links: exact where nothing is odd, unmoved where something is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.traces import KILOBYTE, MS, SECOND, SPARK_TIMEOUT_S, START, dropped, row

from timebound.pipeline.jobs.links import links, samples, slots
from timebound.pipeline.schema import trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def sent(number: int, at_ns: int, *, waited_ns: int, size: int = KILOBYTE, **values: Any) -> dict[str, Any]:
    return row(
        number,
        published_ns=START,
        time_ns=START + at_ns,
        sent_ns=START + at_ns,
        queued_ns=waited_ns,
        size_bytes=size,
        **values,
    )


def busy(count: int, gap_ns: int, *, start_ns: int = 0, **values: Any) -> list[dict[str, Any]]:
    """A link that always has something waiting: one send every `gap_ns`."""
    return [sent(n, start_ns + n * gap_ns, waited_ns=2 * gap_ns, **values) for n in range(count)]


# The sends of each link that a test looks at. Links know nothing of each other: one pass is as good as many.
ROWS = {
    # 2 KB every 40 ms, from START on; 100 sends fill 4 s of one window.
    "steady": busy(100, 40 * MS, size=2 * KILOBYTE, link="steady"),
    "idle": [
        sent(1, 0, waited_ns=0, link="idle"),
        sent(2, 500 * MS, waited_ns=0, link="idle"),
        sent(3, 530 * MS, waited_ns=30 * MS, link="idle"),
        dropped(4, published_ns=START, time_ns=START + 600 * MS, queued_ns=600 * MS, link="idle"),
    ],
    "batches": [
        sent(10 * n + i, n * 50 * MS, waited_ns=100 * MS, link="batches") for n in range(3) for i in range(5)
    ],
    "stalled": [
        *busy(50, 40 * MS, link="stalled"),
        *[
            one | {"queued_ns": 10 * SECOND}
            for one in busy(50, 40 * MS, start_ns=50 * 40 * MS + 3 * SECOND, link="stalled")
        ],
    ],
    "slowing": busy(200, 40 * MS, link="slowing") + busy(100, 80 * MS, start_ns=10 * SECOND, link="slowing"),
    "even": busy(200, 40 * MS, link="even"),
    "few": busy(200, 40 * MS, link="few") + busy(6, 200 * MS, start_ns=12 * SECOND, link="few"),
}


def sampled(spark: SparkSession, names: list[str]) -> DataFrame:
    rows = [one for name in names for one in ROWS[name]]
    return samples(slots(spark.createDataFrame(rows, trace_schema())))


@pytest.fixture(scope="module")
def measured(spark: SparkSession) -> dict[str, list[Any]]:
    """The windows of each link, in order."""
    found = sorted(links(sampled(spark, list(ROWS))).collect())
    return {name: [one for one in found if one["link"] == name] for name in ROWS}


def test_a_steady_busy_link_has_its_rate_and_no_variance(measured: dict[str, list[Any]]) -> None:
    [found] = measured["steady"]

    assert (found["samples"], found["kb"]) == (99, 198.0)
    assert found["mean_s_per_kb"] == pytest.approx(0.020)
    assert found["variance"] == pytest.approx(0.0, abs=1e-12)
    assert found["rate_bytes_per_s"] == pytest.approx(51_200)
    assert not found["is_drift"]


def test_time_in_which_nothing_waited_is_no_time_of_the_link(measured: dict[str, list[Any]]) -> None:
    [found] = measured["idle"]

    # Only the third was waiting when the one before it was sent.
    assert (found["samples"], found["kb"]) == (1, 1.0)
    assert found["mean_s_per_kb"] == pytest.approx(0.030)


def test_sends_of_one_batch_count_as_one(measured: dict[str, list[Any]]) -> None:
    [found] = measured["batches"]

    assert (found["samples"], found["kb"]) == (2, 10.0)
    assert found["mean_s_per_kb"] == pytest.approx(0.010)


def test_a_stall_does_not_pass_for_a_slow_link(measured: dict[str, list[Any]]) -> None:
    [found] = measured["stalled"]

    assert found["samples"] == 99
    assert found["mean_plain_s_per_kb"] == pytest.approx((98 * 0.040 + 3.040) / 99)
    assert found["mean_s_per_kb"] == pytest.approx(0.040, rel=0.02)
    assert found["variance"] == pytest.approx(0.0, abs=1e-6)


def test_a_link_that_slows_down_is_flagged_and_no_other(measured: dict[str, list[Any]]) -> None:
    before, after = measured["slowing"]

    assert (before["window"].second, before["is_drift"]) == (0, False)
    assert (after["window"].second, after["is_drift"]) == (10, True)
    assert after["mean_s_per_kb"] == pytest.approx(0.080)
    assert after["earlier_s_per_kb"] == pytest.approx(0.040, rel=0.02)
    assert [(one["window"].second, one["is_drift"]) for one in measured["even"]] == [(0, False)]


def test_windows_with_few_samples_are_never_called_a_drift(measured: dict[str, list[Any]]) -> None:
    assert [one["is_drift"] for one in measured["few"]] == [False, False]


def test_samples_of_parts_add_up(spark: SparkSession, measured: dict[str, list[Any]]) -> None:
    parts = sampled(spark, list(ROWS)[::2]).unionByName(sampled(spark, list(ROWS)[1::2]))

    found = sorted(links(parts).collect())

    assert found == sorted(one for windows in measured.values() for one in windows)
