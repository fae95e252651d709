"""Traces of a run, in the records of the live broker.

Parquet requires pyarrow; JSON lines require nothing. Files are renamed into place when complete, and
equal runs give equal bytes.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

from timebound.core.mesh.account import TraceRow
from timebound.errors import ConfigError
from timebound.packages import require
from timebound.records import TRACE_FIELDS, TRACE_SCHEMA_VERSION


def write_trace(rows: list[TraceRow], path: Path) -> None:
    """Write records as Parquet or JSON lines, by the suffix of the file.

    Raises:
        ConfigError: the suffix is another one, or pyarrow is missing.
    """
    check_trace_name(path)
    part = path.with_name(path.name + ".part")
    if path.suffix == ".parquet":
        _write_parquet(rows, part)
    else:
        _write_lines(rows, part)
    os.replace(part, path)


def check_trace_name(path: Path) -> None:
    """Check before a run that its trace can be written.

    Raises:
        ConfigError: the suffix is neither `.parquet` nor `.jsonl`, or pyarrow is missing.
    """
    if path.suffix not in (".parquet", ".jsonl"):
        raise ConfigError(f"trace file {path.name!r} ends in neither .parquet nor .jsonl")
    if path.suffix == ".parquet":
        require("a trace in .parquet (unlike one in .jsonl)", "pyarrow")


def _write_lines(rows: list[TraceRow], path: Path) -> None:
    names = [name for name, _ in TRACE_FIELDS]
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":")) + "\n")


def _write_parquet(rows: list[TraceRow], path: Path) -> None:
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    schema = trace_schema()
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(TRACE_FIELDS)
    arrays = [arrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    parquet.write_table(arrow.Table.from_arrays(arrays, schema=schema), path, compression="zstd")


def trace_schema() -> Any:
    """Return the Arrow schema of a trace, which is that of the live broker."""
    arrow: Any = importlib.import_module("pyarrow")
    fields = [arrow.field(name, getattr(arrow, kind)(), nullable=False) for name, kind in TRACE_FIELDS]
    return arrow.schema(fields, metadata={"timebound.trace.version": str(TRACE_SCHEMA_VERSION)})
