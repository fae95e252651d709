"""The session builder: one for three worlds, and errors that say what to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.traces import SPARK_TIMEOUT_S

from timebound.errors import ConfigError
from timebound.pipeline.spark.session import _cores, _errors_to, cores_of, is_remote, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def test_one_worker_has_all_tests_with_a_session(request: pytest.FixtureRequest) -> None:
    # Marks of groups were once ignored by a newer pytest, and every worker paid for a Spark of its own.
    is_spread = "PYTEST_XDIST_WORKER" in os.environ

    assert request.node.nodeid.endswith("@spark") == is_spread


def test_master_and_remote_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="both a master"):
        spark_session(master="local[2]", remote="sc://localhost")


def test_a_missing_pyspark_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(ConfigError, match=r"pip install '\.\[spark\]'"):
        spark_session()


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local[2]", 2),
        ("local[3,4]", 3),
        ("local-cluster[2,3,1024]", 6),
        ("local", os.cpu_count()),
        (None, os.cpu_count()),
    ],
)
def test_the_cores_of_a_local_master_are_read_from_its_name(master: str | None, cores: int) -> None:
    assert _cores(master) == cores


def test_errors_of_child_processes_go_to_the_log_only_inside(tmp_path: Path) -> None:
    log = tmp_path / "log"

    with _errors_to(log):
        os.system("echo inside >&2")
    os.system("true")

    assert log.read_text() == "inside\n"


def test_the_session_is_local_quiet_and_in_utc(spark: SparkSession) -> None:
    assert cores_of(spark) == 2
    assert not is_remote(spark)
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    # One task is enough for few rows.
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"
    assert spark.sparkContext.uiWebUrl is None


def test_a_second_call_gives_the_same_session(spark: SparkSession) -> None:
    assert spark_session(master="local[2]") is spark
