"""The cube: what it adds up, and that cubes of parts can be added up again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.jobs.small_trace import ROWS
from tests.pipeline.traces import MS, SPARK_TIMEOUT_S, dropped, row

from timebound.pipeline.jobs.cube import (
    DIMENSIONS,
    cube,
    ended_ns,
    input_ns,
    is_violated,
    latency_ns,
)
from timebound.pipeline.jobs.deliveries import deliveries
from timebound.pipeline.jobs.earnings import bills
from timebound.pipeline.schema import trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEASURES = [
    "pairs",
    "bytes",
    "latency_ns_sum",
    "latency_ns_max",
    "queued_ns_sum",
    "queued_ns_max",
    "earned_micro",
    "paid_micro",
    "size_bytes_max",
    "promised_ns_min",
    "promised_ns_max",
    "input_ns_max",
    "violations",
]

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def test_cubes_of_parts_add_up_to_that_of_all(spark: SparkSession, cubed: DataFrame) -> None:
    halves = [
        spark.createDataFrame(ROWS[:5], trace_schema()),
        spark.createDataFrame(ROWS[5:], trace_schema()),
    ]
    parts = cube(halves[0], ("date", "node")).unionByName(cube(halves[1], ("date", "node"))).cache()

    assert sorted(deliveries(parts).collect()) == sorted(deliveries(cubed).collect())
    assert sorted(bills(parts).collect()) == sorted(bills(cubed).collect())


def test_a_cube_has_its_keys_dimensions_and_measures_and_every_pair_once(cubed: DataFrame) -> None:
    assert cubed.columns == ["date", "node", *DIMENSIONS, *MEASURES]

    counted: Counter[tuple[str, str, str]] = Counter()
    for one in cubed.collect():
        counted[one["node"], one["subscriber"], one["outcome"]] += one["pairs"]

    assert counted == Counter((one["node"], one["subscriber"], one["outcome"]) for one in ROWS)


def test_times_of_a_row_are_told_by_what_is_known_of_it(spark: SparkSession) -> None:
    rows = [
        row(1, promised_ns=2 * MS - 1),
        row(
            2, published_ns=10 * MS, time_ns=30 * MS, sent_ns=0, queued_ns=5 * MS
        ),  # when it was sent is unknown
        dropped(3, published_ns=10 * MS, time_ns=40 * MS),
    ]
    found = spark.createDataFrame(rows, trace_schema()).select(
        "message_id",
        latency_ns().alias("latency"),
        ended_ns().alias("ended"),
        input_ns().alias("input"),
        is_violated().alias("is_violated"),
    )

    first, second, third = found.orderBy("message_id").collect()

    assert (first["latency"], first["input"], first["is_violated"]) == (3 * MS, 2 * MS, True)
    assert (second["latency"], second["ended"], second["input"]) == (20 * MS, 30 * MS, 15 * MS)
    assert (third["latency"], third["ended"], third["is_violated"]) == (None, 40 * MS, False)
