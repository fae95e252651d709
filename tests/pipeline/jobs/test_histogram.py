"""Percentiles from buckets are within 1 % of the real ones, for any split of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F
from tests.pipeline.traces import SPARK_TIMEOUT_S

from timebound.pipeline.jobs.histogram import bucket_of, percentiles, value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def test_percentiles_are_within_one_percent(spark: SparkSession) -> None:
    draws = np.random.default_rng(1)
    values = {"a": draws.lognormal(13, 2, 5_000), "b": draws.uniform(1, 1e9, 3_000), "c": np.array([7.0])}
    rows = [(key, float(value)) for key in values for value in values[key]]
    counts = spark.createDataFrame(rows, "key string, value double").select(
        "key", bucket_of(F.col("value")).alias("bucket"), F.lit(1).alias("pairs"), "value"
    )

    wanted = {"half": 0.5, "most": 0.99, "all": 1.0}
    found = percentiles(counts, ["key"], wanted, bucket="bucket", count="pairs", largest="value").collect()

    assert {one["key"] for one in found} == set(values)
    for one in found:
        exact = np.sort(values[one["key"]])
        for name, part in wanted.items():
            rank = int(np.ceil(part * len(exact))) - 1
            assert one[name] == pytest.approx(exact[rank], rel=0.0101)
            assert one[name] <= exact[-1]


def test_values_below_one_unit_share_a_bucket(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(0.0,), (0.5,), (1.0,), (1.01,)], "value double")

    found = rows.select(bucket_of(F.col("value")).alias("b")).select("b", value_of(F.col("b")).alias("v"))

    assert [one["b"] for one in found.collect()] == [0, 0, 0, 1]
    assert [round(one["v"], 2) for one in found.collect()] == [1.0, 1.0, 1.0, 1.01]
