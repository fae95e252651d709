"""Trace files are found and looked at before Spark reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.traces import row, write_file

from timebound.errors import ConfigError
from timebound.pipeline.io import inspect, trace_files
from timebound.pipeline.manifest import Partition


def test_files_are_found_by_day_and_node_and_unfinished_ones_are_not(tmp_path: Path) -> None:
    write_file(tmp_path, [row()], name="part-2-000001.parquet")
    write_file(tmp_path, [row()], name="part-1-000001.parquet")
    write_file(tmp_path, [row()], date="2027-01-16", node="n2")
    write_file(tmp_path, [row()], name=".part-3-000001.parquet")
    (tmp_path / "date=2027-01-15" / "node=n1" / ".part-4.parquet.tmp").write_bytes(b"half")

    found = trace_files(tmp_path)

    folder = "date=2027-01-15/node=n1"
    assert found == {
        Partition("2027-01-15", "n1"): [f"{folder}/part-1-000001.parquet", f"{folder}/part-2-000001.parquet"],
        Partition("2027-01-16", "n2"): ["date=2027-01-16/node=n2/part-1-000001.parquet"],
    }


def test_a_missing_trace_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    assert trace_files(tmp_path) == {}
    with pytest.raises(ConfigError, match=r"trace folder .*nowhere.* does not exist"):
        trace_files(tmp_path / "nowhere")


def test_files_of_all_versions_pass_and_others_have_a_fault(tmp_path: Path) -> None:
    for version in (1, 2):
        write_file(tmp_path, [row(1), row(2)], name=f"v{version}.parquet", version=version)
    folder = tmp_path / "date=2027-01-15" / "node=n1"
    (folder / "torn.parquet").write_bytes((folder / "v1.parquet").read_bytes()[:-10])
    pq.write_table(pa.table({"topic": ["t"]}), folder / "other.parquet")

    found = inspect(folder, ["v1.parquet", "v2.parquet", "torn.parquet", "other.parquet", "gone.parquet"])

    assert [(file.rows, file.fault) for file in found[:2]] == [(2, ""), (2, "")]
    assert found[2].fault.startswith("unreadable: ")
    assert found[3].fault.startswith("missing columns: time_ns, message_id, publisher")
    assert found[3].fault.endswith("present: topic")
    assert found[4].fault.startswith("unreadable: ")
