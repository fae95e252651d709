"""One Spark session for all tests that use Spark.

Such a test file has `pytestmark = pytest.mark.xdist_group("spark")`, so that one worker runs them all. What
costs is Java, which loads and compiles Spark anew in every process: whatever can, uses this one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.brokers import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def connect_port() -> int:
    """Where the session serves Spark Connect as well."""
    return free_port()


@pytest.fixture(scope="session")
def spark(connect_port: int) -> Iterator[SparkSession]:
    """A real Spark on this machine; it starts once in a run."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from timebound.pipeline.spark.session import Scale, spark_session

    options = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(connect_port),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        session = spark_session(
            master="local[2]", app="timebound tests", scale=Scale.FEW_ROWS, options=options
        )
    yield session
    session.stop()
