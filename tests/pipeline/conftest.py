"""One Spark session for all tests that use Spark.

Such a test file has `pytestmark = pytest.mark.xdist_group("spark")`, so that one worker runs them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real Spark on this machine; it starts once in a run."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from timebound.pipeline.session import spark_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        session = spark_session(master="local[2]", app="timebound tests")
    yield session
    session.stop()
