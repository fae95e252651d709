"""Made traces: rows in order unless a test says otherwise, and files as brokers write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from timebound.records import TRACE_FIELD_COUNTS, TRACE_FIELDS, TRACE_SCHEMA_VERSION

# Interrupted between two words with Java, a session is lost for all tests: better to wait.
SPARK_TIMEOUT_S = 300
MS = 1_000_000
SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
START = 1_800_000_000 * SECOND  # 2027-01-15 08:00 UTC
KILOBYTE = 1_024


def row(number: int = 1, /, **values: Any) -> dict[str, Any]:
    """A message delivered 3 ms after publication, of which 1 ms in the queue."""
    published_ns = values.get("published_ns", START + number * SECOND)
    made = {
        "time_ns": published_ns + 3 * MS,
        "message_id": number,
        "topic": "t/1",
        "publisher": "p",
        "subscriber": "s",
        "topic_filter": "t/#",
        "qos": 0,
        "size_bytes": 1_024,
        "published_ns": published_ns,
        "queued_ns": MS,
        "allowed_ns": 0,
        "outcome": "in_time",
        "reason": "",
        "price_micro": 1_000_000,
        "penalty_micro": 0,
        "hop": 0,
        "link": "s",
        "sent_ns": published_ns + 3 * MS,
        "promised_ns": 0,
        "origin": "n1",
        "started_ns": 1,
        "number": number,
        "traceparent": "",
        "date": "2027-01-15",
        "node": "n1",
    }
    assert set(values) <= set(made)
    return made | values


def dropped(number: int = 1, /, reason: str = "queue_full", **values: Any) -> dict[str, Any]:
    return row(number, **{"outcome": "dropped", "reason": reason, "sent_ns": 0, **values})


def write_file(
    trace: Path,
    rows: list[dict[str, Any]],
    *,
    name: str = "part-1-000001.parquet",
    version: int = TRACE_SCHEMA_VERSION,
    date: str = "2027-01-15",
    node: str = "n1",
) -> Path:
    """Write one trace file of some version; date and node of the rows are those of its folder."""
    fields = TRACE_FIELDS[: TRACE_FIELD_COUNTS[version]]
    schema = pa.schema(
        [(field, getattr(pa, kind)()) for field, kind in fields],
        metadata={"timebound.trace.version": str(version)},
    )
    folder = trace / f"date={date}" / f"node={node}"
    folder.mkdir(parents=True, exist_ok=True)
    columns = {field: [one[field] for one in rows] for field, _ in fields}
    pq.write_table(pa.table(columns, schema=schema), folder / name)
    return folder / name
