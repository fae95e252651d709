"""Many runs of one function as Spark tasks: a table of parameters in, the same table with results out.

The function is named by text, `package.module:function`, and looked up where it runs, so this module
does not depend on the simulator. It is called with `context` once per task and returns the function
for a single run. A run that fails becomes a row with its error; the others continue.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from timebound.errors import ConfigError, TimeboundError
from timebound.pipeline.spark.progress import watched
from timebound.pipeline.spark.session import cores_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Value = int | float | str
Row = Mapping[str, Value]
RunRow = Callable[[Row], Mapping[str, Value]]
Progress = Callable[[float], None]

# Enough that no core idles for long at the end; each task costs about 50 ms of overhead.
TASKS_PER_CORE: Final = 4
RUNS_MAX: Final = 1_000_000
ERROR_LENGTH_MAX: Final = 500
# Columns of every table of runs besides parameters and results.
OWN_COLUMNS: Final = (("error", "string"), ("cpu_s", "float64"))
_RUN: Final = "run"


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep to run: rows of parameters, the function, and its result columns."""

    rows: Sequence[Row]
    function: str  # package.module:function
    context: bytes
    results: tuple[tuple[str, str], ...]  # name and Arrow type

    def parameter_columns(self) -> tuple[tuple[str, str], ...]:
        """Return name and Arrow type of each parameter; whole numbers among floats become floats."""
        return tuple((name, _kind(name, [row[name] for row in self.rows])) for name in self.rows[0])

    def columns(self) -> tuple[tuple[str, str], ...]:
        return ((_RUN, "int64"), *self.parameter_columns(), *self.results, *OWN_COLUMNS)


class RunBatches:
    """Runs the rows of one task; Spark sends it to the executors."""

    def __init__(self, plan: SweepPlan) -> None:
        self._function = plan.function
        self._context = plan.context
        self._parameters = [name for name, _ in plan.parameter_columns()]
        self._results = plan.results
        self._columns = plan.columns()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run_row: RunRow | None = None
        for batch in batches:
            if run_row is None:
                run_row = resolve(self._function)(self._context)
            # One row at a time: results are sent while the next run is in progress.
            for row in batch.to_pylist():
                yield self._batch(row | self._run(run_row, row))

    def _run(self, run_row: RunRow, row: dict[str, Value]) -> dict[str, Value | None]:
        started_s = time.process_time()
        values: dict[str, Value | None] = dict.fromkeys(name for name, _ in self._results)
        error = ""
        try:
            values.update(run_row({name: row[name] for name in self._parameters}))
        except Exception as caught:  # any error is the result of this run
            error = f"{type(caught).__name__}: {caught}"[:ERROR_LENGTH_MAX]
        return {**values, "error": error, "cpu_s": time.process_time() - started_s}

    def _batch(self, row: Mapping[str, Value | None]) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = [pa.array([row[name]], arrow_type(kind)) for name, kind in self._columns]
        return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in self._columns])


def check_plan(plan: SweepPlan) -> None:
    """Check a sweep before Spark is started.

    Raises:
        ConfigError: no runs or too many, two columns of one name, or an unknown function.
    """
    if not plan.rows:
        raise ConfigError("the sweep has no runs")
    if len(plan.rows) > RUNS_MAX:
        raise ConfigError(f"the sweep has {len(plan.rows)} runs, at most {RUNS_MAX} are allowed")
    names = [name for name, _ in plan.columns()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"the columns {', '.join(twice)} exist twice; rename the parameter")
    resolve(plan.function)


def run_sweep(
    spark: SparkSession, plan: SweepPlan, *, tasks: int = 0, progress: Progress | None = None
) -> pa.Table:
    """Carry out all runs; return one row each, in the order of the plan.

    `tasks` 0 means four per core. `progress` is called with the share that is done, from a thread.

    Raises:
        TimeboundError: the executors could not run anything.
    """
    import pyarrow as pa
    from pyspark.errors import PySparkException

    check_plan(plan)
    count = min(tasks or TASKS_PER_CORE * cores_of(spark), len(plan.rows))
    frame = spark.createDataFrame(_parameter_table(plan))
    # Neighbouring runs take about equally long: distributed round-robin, so do all tasks.
    spread = frame.repartitionById(count, (frame[_RUN] % count).cast("int"))
    done = spread.mapInArrow(RunBatches(plan), _ddl(plan.columns()))
    try:
        # Without `progress`, the caller may be watching: jobs stay in its group.
        watch = nullcontext() if progress is None else watched(spark, "timebound sweep", progress)
        with watch:
            table: pa.Table = done.toArrow()
    except PySparkException as error:
        raise TimeboundError(_explain(error)) from error
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in plan.columns()])
    return table.sort_by(_RUN).cast(schema).combine_chunks()


def run_here(plan: SweepPlan, progress: Progress | None = None) -> pa.Table:
    """Make the same table without Spark, one run after the other in this process."""
    import pyarrow as pa

    check_plan(plan)
    rows = _parameter_table(plan)
    found = []
    for number, batch in enumerate(RunBatches(plan)(iter(rows.to_batches())), 1):
        found.append(batch)
        if progress is not None:
            progress(number / len(plan.rows))
    return pa.Table.from_batches(found).combine_chunks()


def resolve(function: str) -> Callable[[bytes], RunRow]:
    """Look up the function that `package.module:function` names.

    Raises:
        ConfigError: it does not exist.
    """
    module, _, name = function.partition(":")
    try:
        found: Callable[[bytes], RunRow] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"function {function!r} cannot be found: {error}") from error
    return found


def arrow_type(kind: str) -> Any:
    """Return the Arrow type of a kind: `int64`, `float64` or `string`."""
    import pyarrow as pa

    return getattr(pa, kind)()


def _explain(error: Exception) -> str:
    """Reduce an error of Spark to one line: the last of the worker's traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1] if lines else type(error).__name__
    if "No module named 'timebound'" in str(error):
        return "the executors have no timebound: install the same version where they run"
    return f"Spark could not carry out the sweep: {said}"


def _kind(name: str, values: list[Value]) -> str:
    if all(isinstance(value, str) for value in values):
        return "string"
    if any(isinstance(value, str) or not math.isfinite(value) for value in values):
        raise ConfigError(f"parameter {name!r} has both texts and numbers, or one that is not finite")
    return "int64" if all(isinstance(value, int) for value in values) else "float64"


def _parameter_table(plan: SweepPlan) -> pa.Table:
    import pyarrow as pa

    columns = {_RUN: pa.array(range(len(plan.rows)), pa.int64())}
    for name, kind in plan.parameter_columns():
        columns[name] = pa.array([row[name] for row in plan.rows], arrow_type(kind))
    return pa.table(columns)


def _ddl(columns: tuple[tuple[str, str], ...]) -> str:
    names = {"int64": "bigint", "float64": "double", "string": "string"}
    return ", ".join(f"`{name}` {names[kind]}" for name, kind in columns)
