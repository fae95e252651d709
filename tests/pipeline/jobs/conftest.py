"""The small trace as a table, and its cube."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pipeline.jobs.small_trace import ROWS

from timebound.pipeline.jobs.cube import cube
from timebound.pipeline.schema import trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, trace_schema())


@pytest.fixture(scope="module")
def cubed(rows: DataFrame) -> DataFrame:
    return cube(rows, ("date", "node")).cache()
