"""One Spark session for all tests that use Spark.

Such a test file has `pytestmark = pytest.mark.xdist_group("spark")`, so that one worker runs them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For a handful of rows, making and compiling Java code takes longer than doing without: whole runs of the
# pipeline took 79 s of processor time instead of 110. Tests that start commands run with the compiled code.
FEW_ROWS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real Spark on this machine; it starts once in a run."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from timebound.pipeline.session import spark_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        session = spark_session(master="local[2]", app="timebound tests", options=FEW_ROWS)
    yield session
    session.stop()
