"""Progress of Spark jobs is told while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pipeline.traces import SPARK_TIMEOUT_S

from timebound.pipeline.spark.progress import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def test_the_share_that_is_done_grows_to_one(spark: SparkSession) -> None:
    shares: list[float] = []

    with watched(spark, "counting", shares.append):
        rows = spark.range(0, 40_000, numPartitions=40).selectExpr("sum(hash(id))").collect()

    assert len(rows) == 1
    assert shares[-1] == 1.0
    assert all(0.0 <= share <= 1.0 for share in shares)


def test_a_failing_job_ends_the_watching(spark: SparkSession) -> None:
    shares: list[float] = []

    with pytest.raises(ValueError, match="on purpose"), watched(spark, "failing", shares.append):
        raise ValueError("on purpose")

    assert shares == [1.0]
