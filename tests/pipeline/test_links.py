"""Seconds per KB of made links: exact where nothing is odd, unmoved where something is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.traces import KILOBYTE, MS, SECOND, SPARK_TIMEOUT_S, START, dropped, row

from timebound.pipeline.links import links, samples, slots
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


def measured(spark: SparkSession, rows: list[dict[str, Any]]) -> list[Any]:
    frame: DataFrame = spark.createDataFrame(rows, trace_schema())
    return sorted(links(samples(slots(frame))).collect())


def test_a_steady_busy_link_has_its_rate_and_no_variance(spark: SparkSession) -> None:
    # 2 KB every 40 ms, from START on; 100 sends fill 4 s of one window.
    [found] = measured(spark, busy(100, 40 * MS, size=2 * KILOBYTE))

    assert (found["link"], found["samples"], found["kb"]) == ("s", 99, 198.0)
    assert found["mean_s_per_kb"] == pytest.approx(0.020)
    assert found["variance"] == pytest.approx(0.0, abs=1e-12)
    assert found["rate_bytes_per_s"] == pytest.approx(51_200)
    assert not found["is_drift"]


def test_time_in_which_nothing_waited_is_no_time_of_the_link(spark: SparkSession) -> None:
    rows = [sent(1, 0, waited_ns=0), sent(2, 500 * MS, waited_ns=0), sent(3, 530 * MS, waited_ns=30 * MS)]
    rows += [dropped(4, published_ns=START, time_ns=START + 600 * MS, queued_ns=600 * MS)]

    [found] = measured(spark, rows)

    # Only the third was waiting when the one before it was sent.
    assert (found["samples"], found["kb"]) == (1, 1.0)
    assert found["mean_s_per_kb"] == pytest.approx(0.030)


def test_sends_of_one_batch_count_as_one(spark: SparkSession) -> None:
    batches = [[sent(10 * n + i, n * 50 * MS, waited_ns=100 * MS) for i in range(5)] for n in range(3)]

    [found] = measured(spark, [one for batch in batches for one in batch])

    assert (found["samples"], found["kb"]) == (2, 10.0)
    assert found["mean_s_per_kb"] == pytest.approx(0.010)


def test_a_stall_does_not_pass_for_a_slow_link(spark: SparkSession) -> None:
    before = busy(50, 40 * MS)
    after = busy(50, 40 * MS, start_ns=50 * 40 * MS + 3 * SECOND)
    after = [one | {"queued_ns": 10 * SECOND} for one in after]

    [found] = measured(spark, before + after)

    assert found["samples"] == 99
    assert found["mean_plain_s_per_kb"] == pytest.approx((98 * 0.040 + 3.040) / 99)
    assert found["mean_s_per_kb"] == pytest.approx(0.040, rel=0.02)
    assert found["variance"] == pytest.approx(0.0, abs=1e-6)


def test_a_link_that_slows_down_is_flagged(spark: SparkSession) -> None:
    rows = busy(200, 40 * MS) + busy(100, 80 * MS, start_ns=10 * SECOND)
    other = busy(200, 40 * MS, link="v", subscriber="v")

    found = measured(spark, rows + other)

    flags = [(one["link"], one["window"].second, one["is_drift"]) for one in found]
    assert flags == [("s", 0, False), ("s", 10, True), ("v", 0, False)]
    assert found[1]["mean_s_per_kb"] == pytest.approx(0.080)
    assert found[1]["earlier_s_per_kb"] == pytest.approx(0.040, rel=0.02)


def test_windows_with_few_samples_are_never_called_a_drift(spark: SparkSession) -> None:
    rows = busy(200, 40 * MS) + busy(6, 200 * MS, start_ns=12 * SECOND)

    found = measured(spark, rows)

    assert [one["is_drift"] for one in found] == [False, False]


def test_samples_of_parts_add_up(spark: SparkSession) -> None:
    rows = busy(60, 40 * MS) + busy(60, 40 * MS, link="v", subscriber="v")
    frames = [spark.createDataFrame(part, trace_schema()) for part in (rows[:60], rows[60:])]

    parts = samples(slots(frames[0])).unionByName(samples(slots(frames[1])))

    assert sorted(links(parts).collect()) == measured(spark, rows)
