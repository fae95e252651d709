"""Trace rows of this and of older versions have the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pipeline.traces import MS, SPARK_TIMEOUT_S, dropped, row

from timebound.pipeline.schema import COLUMNS, OLDEST_FIELDS, missing_columns, normalise, trace_schema
from timebound.records import TRACE_FIELD_COUNTS, TRACE_FIELDS, TRACE_SCHEMA_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def test_every_version_says_how_many_fields_it_has() -> None:
    assert list(TRACE_FIELD_COUNTS) == list(range(1, TRACE_SCHEMA_VERSION + 1))
    assert TRACE_FIELD_COUNTS[TRACE_SCHEMA_VERSION] == len(TRACE_FIELDS)


def test_the_schema_has_the_fields_of_the_records_and_the_place() -> None:
    assert trace_schema().names == [*[name for name, _ in TRACE_FIELDS], "date", "node"]
    assert trace_schema()["hop"].dataType.simpleString() == "smallint"
    assert trace_schema()["time_ns"].dataType.simpleString() == "bigint"


def test_missing_columns_are_named_with_those_present() -> None:
    present = [name for name in OLDEST_FIELDS if name not in ("qos", "hop")]

    assert missing_columns([*OLDEST_FIELDS, "more"]) == ""
    assert missing_columns(["a"]).endswith("link; present: a")
    assert missing_columns(present).startswith("missing columns: qos, hop; present: time_ns")
    assert missing_columns([]).endswith("present: none")


def test_rows_of_version_1_get_what_follows_from_their_other_fields(spark: SparkSession) -> None:
    old = {"sent_ns": None, "promised_ns": None}
    rows = [row(1, **old), row(2, qos=1, **old), dropped(3, **old), row(4, promised_ns=7)]

    found = normalise(spark.createDataFrame(rows, trace_schema())).orderBy("message_id").collect()

    assert tuple(found[0].asDict()) == COLUMNS
    published = [one["published_ns"] for one in rows]
    # With QoS 1 nobody knows when it was sent, and what was dropped was not.
    assert [one["sent_ns"] for one in found] == [published[0] + 3 * MS, None, None, published[3] + 3 * MS]
    assert [one["promised_ns"] for one in found] == [0, 0, 0, 7]
