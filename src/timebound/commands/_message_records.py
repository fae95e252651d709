"""The records of one message, or of one W3C trace, in the trace files of one or several brokers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from timebound.errors import ConfigError, TimeboundError
from timebound.packages import FOR_TRACES, require
from timebound.records import (
    MESSAGE_NAME_FORM,
    TRACE_FIELD_COUNTS,
    TRACE_FIELDS,
    TRACEPARENT,
    message_name,
    parse_message_name,
)

# The columns of the name, which are in the files since this version of the schema.
NAMED_VERSION: Final = 3
_NAME: Final = tuple(name for name, _ in TRACE_FIELDS[TRACE_FIELD_COUNTS[NAMED_VERSION - 1] :])
_COLUMNS: Final = tuple(name for name, _ in TRACE_FIELDS)


_TRACE_ID: Final = re.compile(r"(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?")


@dataclass(frozen=True, slots=True)
class Found:
    """Records in the order of hops and times, and what to know about the files."""

    records: list[dict[str, Any]]
    warnings: list[str] = field(default_factory=list)


def find_records(name: str, folders: list[Path]) -> Found:
    """Return what traces have about a message, or about the sampled messages of a trace id.

    Raises:
        ConfigError: the name is malformed, or a folder has no trace files.
        TimeboundError: no record has this name.
    """
    is_wanted = _parse(name)
    require("explain", *FOR_TRACES)
    records: list[dict[str, Any]] = []
    older = unreadable = 0
    files = _files(folders)
    for file in files:
        try:
            rows = _read(file, is_wanted)
        except (OSError, ValueError):  # of pyarrow: a file that was cut off
            unreadable += 1
            continue
        if rows is None:
            older += 1
        else:
            records += rows
    warnings = []
    if older:
        warnings.append(f"{older} of {len(files)} files are older than names of messages, and were skipped")
    if unreadable:
        warnings.append(f"{unreadable} of {len(files)} files cannot be read, and were skipped")
    if not records:
        text = f"no record of {name} in {len(files)} trace files"
        raise TimeboundError("; ".join([text, *warnings]))
    records.sort(key=lambda row: (row["hop"], row["time_ns"], row["node"], row["subscriber"]))
    return Found(records, warnings)


def _parse(name: str) -> Callable[[], Any]:
    """Return what makes the condition for rows of a message's name, or of a trace id or `traceparent`."""
    traced = _TRACE_ID.fullmatch(name)
    if traced is not None:
        return lambda: _of_trace(traced[1])
    try:
        named = parse_message_name(name)
    except ValueError as error:
        raise ConfigError(
            f"{name!r} is neither the name of a message ({MESSAGE_NAME_FORM}) "
            "nor a trace id of 32 hexadecimal digits"
        ) from error
    return lambda: _of_name(*named)


def _of_trace(trace_id: str) -> Any:
    import pyarrow.compute as pc

    return pc.match_substring(pc.field(TRACEPARENT), f"-{trace_id}-")


def _of_name(origin: str, started_ns: int, number: int) -> Any:
    import pyarrow.compute as pc

    return (
        (pc.field("number") == number)
        & (pc.field("started_ns") == started_ns)
        & (pc.field("origin") == origin)
    )


def _files(folders: list[Path]) -> list[Path]:
    found = []
    for folder in folders:
        files = sorted(folder.glob("date=*/node=*/part-*.parquet"))
        if not files:
            raise ConfigError(f"no trace files in '{folder}' (expected date=*/node=*/part-*.parquet)")
        found += files
    return found


def _read(file: Path, is_wanted: Callable[[], Any]) -> list[dict[str, Any]] | None:
    """Return the wanted records of a file; None if it has no names."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        if any(column not in opened.schema_arrow.names for column in _NAME):
            return None
    table = pq.read_table(file, columns=list(_COLUMNS), filters=is_wanted(), partitioning=None)
    node = file.parent.name.removeprefix("node=")
    return [_shown(node, row) for row in table.to_pylist()]


def _shown(node: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return a record as it is shown: with the message's name in place of its parts, and its age."""
    name = message_name(row.pop("origin"), row.pop("started_ns"), row.pop("number"))
    return {"node": node, "message": name, **row, "age_ns": row["time_ns"] - row["published_ns"]}
