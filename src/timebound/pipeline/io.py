"""All that the pipeline reads and writes on disk.

    <out>/manifest.json                         what has been processed
    <out>/partial/<name>/date=/node=/part=      sums of one part, to be merged
    <out>/<table>/...                           results, over everything
    <out>/quarantine, <out>/violations          rows, by date, node and part

Everything is written under a hidden name and renamed into place, one directory for each writer: Spark's
appends to one directory lose rows, and files seen half written do, too. The folders must be seen by the
driver and by the executors under the same path.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from timebound.errors import ConfigError
from timebound.pipeline.manifest import Place, Work
from timebound.pipeline.schema import missing_columns, normalise, trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

HIDDEN: Final = "_new"  # Spark and we ignore what begins with an underscore or a dot
# Row tables and partial sums: written for each part, never as a whole.
QUARANTINE: Final = "quarantine"
VIOLATIONS: Final = "violations"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One file of a trace and what its end says."""

    name: str  # relative to the trace
    rows: int
    fault: str  # empty if it can be read


def trace_files(trace: Path) -> dict[Place, list[str]]:
    """The complete files of a trace by day and node.

    Raises:
        ConfigError: there is no such folder.
    """
    if not trace.is_dir():
        raise ConfigError(f"trace folder {str(trace)!r} does not exist; it is [trace] path of the broker")
    found: dict[Place, list[str]] = {}
    for path in sorted(trace.glob("date=*/node=*/*.parquet")):
        if path.name[0] in "._":
            continue
        date, node = path.parent.parent.name, path.parent.name
        place = Place(unquote(date.removeprefix("date=")), unquote(node.removeprefix("node=")))
        found.setdefault(place, []).append(path.relative_to(trace).as_posix())
    return found


def inspect(trace: Path, names: Iterable[str]) -> list[TraceFile]:
    """Read the ends of files: how many rows they have, and whether their columns are those of a trace."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = []
    for name in names:
        try:
            with pq.ParquetFile(trace / name) as file:
                found.append(
                    TraceFile(name, file.metadata.num_rows, missing_columns(file.schema_arrow.names))
                )
        except (OSError, pa.ArrowException) as error:
            found.append(TraceFile(name, 0, f"unreadable: {str(error).splitlines()[0]}"))
    return found


def read_trace(spark: SparkSession, trace: Path, names: list[str]) -> DataFrame:
    """The rows of trace files, of any version, as those of this one."""
    reader = spark.read.schema(trace_schema()).option("basePath", str(trace.resolve()))
    if not names:
        return normalise(spark.createDataFrame([], trace_schema()))
    return normalise(reader.parquet(*[str(trace.resolve() / name) for name in names]))


class Output:
    """The folder of results, and what of a run is not in its place yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._staged = folder / HIDDEN

    def stage_parts(self, rows: DataFrame, name: str) -> None:
        """Write rows by date and node, out of sight until `place_parts`."""
        rows.write.partitionBy("date", "node").mode("overwrite").parquet(str(self._staged / name))

    def place_parts(self, name: str, work: list[Work]) -> None:
        """Put what was staged in the place of the parts of this run, and of nothing else."""
        for one in work:
            earlier = _find(self.folder / name, one.place)
            if earlier is not None:
                shutil.rmtree(earlier / one.part.folder(), ignore_errors=True)
            found = _find(self._staged / name, one.place)
            if found is not None:
                place = self.folder / name / found.parent.name / found.name
                place.mkdir(parents=True, exist_ok=True)
                found.rename(place / one.part.folder())

    def has_staged(self, name: str) -> bool:
        """Whether any row was staged under a name."""
        return any((self._staged / name).glob("date=*/node=*/*.parquet"))

    def has_staged_positive(self, name: str, column: str) -> bool:
        """Whether any row was staged that has more than 0 in a column; the ends of files mostly tell."""
        import pyarrow.dataset as ds

        if not self.has_staged(name):
            return False
        found = ds.dataset(self._staged / name, format="parquet").scanner(filter=ds.field(column) > 0)
        return bool(found.head(1).num_rows)

    def read_staged(self, spark: SparkSession, name: str, schema: StructType) -> DataFrame:
        """What was staged under a name; nothing, with the same columns, if no row was."""
        if not self.has_staged(name):
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(str(self._staged / name))

    def read_parts(self, spark: SparkSession, name: str, schema: StructType) -> DataFrame:
        """All parts of a table; nothing, with the same columns, if there are none."""
        folder = self.folder / name
        if not any(folder.glob("date=*/node=*/part=*/*.parquet")):
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(str(folder))

    def write_table(self, rows: DataFrame, name: str) -> None:
        """Write a result in one file and put it in the place of the earlier one."""
        staged = self._staged / name
        rows.coalesce(1).write.mode("overwrite").parquet(str(staged))
        final = self.folder / name
        earlier = self._staged / f"{name}.earlier"
        if final.exists():
            final.rename(earlier)
        staged.rename(final)
        shutil.rmtree(earlier, ignore_errors=True)

    def read_table(self, spark: SparkSession, name: str) -> DataFrame:
        return spark.read.parquet(str(self.folder / name))

    def values(self, name: str, *columns: str) -> dict[str, list[Any]]:
        """Columns of a finished table, without Spark."""
        import pyarrow.parquet as pq

        found: dict[str, list[Any]] = pq.read_table(self.folder / name, columns=list(columns)).to_pydict()
        return found

    def sweep(self) -> None:
        """Remove what was staged."""
        shutil.rmtree(self._staged, ignore_errors=True)


def _find(staged: Path, place: Place) -> Path | None:
    """The folder that Spark wrote for a place; it writes some characters of a name as %XX."""
    for path in staged.glob("date=*/node=*"):
        date, node = path.parent.name.removeprefix("date="), path.name.removeprefix("node=")
        if (unquote(date), unquote(node)) == (place.date, place.node):
            return path
    return None
