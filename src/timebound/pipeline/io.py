"""Everything that the pipeline reads and writes on disk.

    <out>/manifest.json                         what has been processed
    <out>/partial/<name>/date=/node=/part=      sums of one increment, to be merged
    <out>/<table>/...                           results, over everything
    <out>/quarantine, <out>/violations          rows, by date, node and increment (part=)

Everything is written under a hidden name and renamed into place, one directory per writer: appending with
Spark to one directory loses rows, and so do files that are read half written. Driver and executors must
see the folders under the same path.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from timebound.errors import ConfigError
from timebound.pipeline.manifest import Partition, Work
from timebound.pipeline.schema import missing_columns, normalise, trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

HIDDEN: Final = "_new"  # Spark ignores names that begin with an underscore or a dot, and so do we
# Tables of rows: written per increment, never as a whole.
QUARANTINE: Final = "quarantine"
VIOLATIONS: Final = "violations"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One file of a trace, as described by its footer."""

    name: str  # relative to the trace
    rows: int
    fault: str  # empty if it can be read


def trace_files(trace: Path) -> dict[Partition, list[str]]:
    """List the complete files of a trace by partition.

    Raises:
        ConfigError: the folder does not exist.
    """
    if not trace.is_dir():
        raise ConfigError(f"trace folder {str(trace)!r} does not exist; it is [trace] path of the broker")
    found: dict[Partition, list[str]] = {}
    for path in sorted(trace.glob("date=*/node=*/*.parquet")):
        if path.name[0] in "._":
            continue
        date, node = path.parent.parent.name, path.parent.name
        partition = Partition(unquote(date.removeprefix("date=")), unquote(node.removeprefix("node=")))
        found.setdefault(partition, []).append(path.relative_to(trace).as_posix())
    return found


def inspect(trace: Path, names: Iterable[str]) -> list[TraceFile]:
    """Read the footers of files: their number of rows, and whether they have the columns of a trace."""
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
    """Read the rows of trace files of any version, in the columns of this one."""
    reader = spark.read.schema(trace_schema()).option("basePath", str(trace.resolve()))
    if not names:
        return normalise(spark.createDataFrame([], trace_schema()))
    return normalise(reader.parquet(*[str(trace.resolve() / name) for name in names]))


class Output:
    """The folder of results, with staged results of the current run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._staged = folder / HIDDEN

    def stage_increments(self, rows: DataFrame, name: str) -> None:
        """Write rows by partition, hidden until `put_increments`."""
        rows.write.partitionBy("date", "node").mode("overwrite").parquet(str(self._staged / name))

    def put_increments(self, name: str, work: list[Work]) -> None:
        """Replace the increments of this run, and no others, by what was staged."""
        for one in work:
            earlier = _find(self.folder / name, one.partition)
            if earlier is not None:
                shutil.rmtree(earlier / one.increment.folder(), ignore_errors=True)
            found = _find(self._staged / name, one.partition)
            if found is not None:
                target = self.folder / name / found.parent.name / found.name
                target.mkdir(parents=True, exist_ok=True)
                found.rename(target / one.increment.folder())

    def has_staged(self, name: str) -> bool:
        """Whether any row was staged under a name."""
        return any((self._staged / name).glob("date=*/node=*/*.parquet"))

    def has_staged_positive(self, name: str, column: str) -> bool:
        """Whether any staged row is above 0 in a column; footers usually decide that."""
        import pyarrow.dataset as ds

        if not self.has_staged(name):
            return False
        found = ds.dataset(self._staged / name, format="parquet").scanner(filter=ds.field(column) > 0)
        return bool(found.head(1).num_rows)

    def read_staged(self, spark: SparkSession, name: str, schema: StructType) -> DataFrame:
        """Read what was staged under a name; an empty table with the same columns if no row was."""
        if not self.has_staged(name):
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(str(self._staged / name))

    def read_increments(self, spark: SparkSession, name: str, schema: StructType) -> DataFrame:
        """Read all increments of a table; an empty table with the same columns if there are none."""
        folder = self.folder / name
        if not any(folder.glob("date=*/node=*/part=*/*.parquet")):
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(str(folder))

    def write_table(self, rows: DataFrame, name: str) -> None:
        """Write a result as one file, replacing the earlier one."""
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
        """Read columns of a finished table, without Spark."""
        import pyarrow.parquet as pq

        found: dict[str, list[Any]] = pq.read_table(self.folder / name, columns=list(columns)).to_pydict()
        return found

    def sweep(self) -> None:
        """Remove what was staged."""
        shutil.rmtree(self._staged, ignore_errors=True)


def _find(staged: Path, partition: Partition) -> Path | None:
    """Find the folder that Spark wrote for a partition; it escapes some characters as %XX."""
    for path in staged.glob("date=*/node=*"):
        date, node = path.parent.name.removeprefix("date="), path.name.removeprefix("node=")
        if (unquote(date), unquote(node)) == (partition.date, partition.node):
            return path
    return None
