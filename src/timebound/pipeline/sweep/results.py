"""The results of a sweep in a folder: a table of runs, and its description.

`runs.parquet` has one row per run. `sweep.json` names the varied columns, the figures to draw and the
published values, so that a report needs nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from timebound.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

Value = int | float | str

RUNS_FILE: Final = "runs.parquet"
INFO_FILE: Final = "sweep.json"


class Figure(msgspec.Struct, frozen=True):
    """A figure: measures over `x`, one line per value of `series`, of the rows that match `where`."""

    title: str
    x: str
    x_label: str
    series: tuple[str, ...]
    measures: tuple[str, ...]
    where: dict[str, Value] = {}


class Printed(msgspec.Struct, frozen=True):
    """A published number beside the one found here; a ratio if `versus` names another series."""

    figure: str  # title of its figure
    what: str
    measure: str
    series: str
    versus: str
    x: float
    printed: float
    found: float


class SweepInfo(msgspec.Struct, frozen=True):
    """Description of a table of runs."""

    title: str
    keys: tuple[str, ...]  # the varied columns, without the seed
    measures: tuple[str, ...]
    runs: int
    failed: int
    wall_s: float
    cpu_s: float
    cores: int
    note: str = ""  # remarks for readers
    figures: tuple[Figure, ...] = ()
    printed: tuple[Printed, ...] = ()


class Point(msgspec.Struct, frozen=True):
    """Runs that differ only in their seed: mean and standard deviation of each measure."""

    values: dict[str, Value]
    runs: int
    means: dict[str, float]
    deviations: dict[str, float]


def write_results(folder: Path, table: pa.Table, info: SweepInfo) -> None:
    """Write both files; earlier ones stay intact until they are replaced."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{RUNS_FILE}.part"
    pq.write_table(table, hidden, compression="zstd")
    text = msgspec.json.format(msgspec.json.encode(info), indent=2)
    hidden_info = folder / f".{INFO_FILE}.part"
    hidden_info.write_bytes(text + b"\n")
    os.replace(hidden, folder / RUNS_FILE)
    os.replace(hidden_info, folder / INFO_FILE)


def read_results(folder: Path) -> tuple[pa.Table, SweepInfo]:
    """Read what `write_results` wrote.

    Raises:
        ConfigError: a file is missing or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        info = msgspec.json.decode((folder / INFO_FILE).read_bytes(), type=SweepInfo)
        return pq.read_table(folder / RUNS_FILE), info
    except (OSError, msgspec.MsgspecError, pa.ArrowException) as error:
        raise ConfigError(f"results of a sweep cannot be read: {error}", path=str(folder)) from error


def summarise(table: pa.Table, keys: Sequence[str], measures: Sequence[str]) -> list[Point]:
    """Return one point per combination of keys, in order of first appearance; failed runs do not count."""
    points: dict[tuple[Value, ...], list[dict[str, Any]]] = {}
    for row in table.select([*keys, *measures, "error"]).to_pylist():
        if not row["error"]:
            points.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [_point(keys, measures, values, rows) for values, rows in points.items()]


def _point(
    keys: Sequence[str], measures: Sequence[str], values: tuple[Value, ...], rows: list[dict[str, Any]]
) -> Point:
    means = {}
    deviations = {}
    for measure in measures:
        numbers = [float(row[measure]) for row in rows]
        means[measure] = mean = sum(numbers) / len(numbers)
        squares = sum((number - mean) ** 2 for number in numbers)
        deviations[measure] = float((squares / (len(numbers) - 1)) ** 0.5) if len(numbers) > 1 else 0.0
    return Point(dict(zip(keys, values, strict=True)), len(rows), means, deviations)


def default_figures(
    table: pa.Table, labels: Mapping[str, str], measures: Sequence[str]
) -> tuple[Figure, ...]:
    """Choose the figures of a sweep; `labels` has the varied keys and their meaning.

    The x axis is the number with the most values, with one line per combination of the others.
    """
    counts = {
        key: len(set(table[key].to_pylist()))
        for key in labels
        if str(table.schema.field(key).type) != "string"
    }
    along = max(counts, key=lambda key: counts[key], default="")
    if not along or counts[along] < 2:
        return ()
    series = tuple(key for key in labels if key != along)
    return (Figure("", along, labels[along], series, tuple(measures)),)
