"""The batch jobs over a trace, one after the other, as run by `timebound pipeline run`.

Only new rows are read, and summed by date and node; results are computed from the sums of all rows. So a
second run over the same trace changes nothing, and the next run repairs what a crash left: the manifest,
which lists what is done, is written last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from timebound.errors import ConfigError
from timebound.pipeline.io import QUARANTINE, VIOLATIONS, Output, inspect, read_trace, trace_files
from timebound.pipeline.jobs import bounds_audit, deliveries, earnings, flows, links, quality
from timebound.pipeline.jobs.cube import cube
from timebound.pipeline.manifest import Manifest, Work, load_manifest
from timebound.pipeline.schema import PLACE, trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SUMMARY: Final = "summary.json"
CUBE: Final = "partial/cube"
SAMPLES: Final = "partial/links"
SEGMENTS: Final = "partial/flows"
# Result tables, in the order in which they are made.
TABLES: Final = (
    "quality",
    "deliveries",
    "traffic",
    "earnings",
    "bills",
    "links",
    "flows",
    "envelopes",
    "advice",
    "bounds",
)

TUNING: Final = "tuning"

# Makes the table of job 7 from valid rows and the table of links, by replaying them.
Tune = Callable[["SparkSession", "DataFrame", "DataFrame"], "DataFrame"]
# Shows a step by its title while it runs.
Step = Callable[[str], AbstractContextManager[None]]


@dataclass(slots=True)
class BatchPlan:
    """The work of a run."""

    trace: Path
    out: Path
    manifest: Manifest
    work: list[Work]
    files_new: int
    rows: int  # in the files to read: new ones and those of the same day and node


@dataclass(slots=True)
class BatchSummary:
    """The main figures of everything in the output folder, after a run."""

    files_new: int = 0
    rows_read: int = 0
    rows: int = 0
    quarantined: int = 0
    bad_files: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)


class Schemas(NamedTuple):
    """Columns of what is kept between runs. Cached: asking Spark takes hundreds of calls."""

    bad: StructType
    cube: StructType
    samples: StructType
    segments: StructType


def prepare(trace: Path, out: Path) -> BatchPlan:
    """Find out what is new; needs no Spark.

    Raises:
        ConfigError: the trace does not exist, or the manifest cannot be read.
    """
    manifest = load_manifest(out)
    present = trace_files(trace)
    work = manifest.plan(present)
    new = [name for one in work for name in one.increment.files]
    inspected = {file.name: file for file in inspect(trace, new)}
    for one in work:
        for name in list(one.increment.files):
            if inspected[name].fault:
                manifest.bad_files[name] = inspected[name].fault
                one.increment.files.remove(name)
    known = {name for parts in manifest.increments.values() for part in parts for name in part.files}
    usable = [one for one in work if set(one.increment.files) - known]
    names = [name for one in usable for name in one.increment.files]
    rows = sum(inspected[name].rows for name in names)
    return BatchPlan(trace, out, manifest, usable, len(set(names) - known), rows)


def last_summary(out: Path) -> BatchSummary | None:
    """Return the summary of the last run, if there was one."""
    path = out / SUMMARY
    if not path.exists():
        return None
    return BatchSummary(**json.loads(path.read_text(encoding="utf-8")))


def run(
    spark: SparkSession,
    plan: BatchPlan,
    *,
    advise: flows.Advise | None = None,
    tune: Tune | None = None,
    step: Step = lambda _title: contextlib.nullcontext(),
) -> BatchSummary:
    """Run all jobs; return the new summary.

    Raises:
        ConfigError: another run is using the output folder.
    """
    output = Output(plan.out)
    with _locked(plan.out):
        output.sweep()  # remains of a run that was interrupted
        summary = BatchSummary(plan.files_new, plan.rows, bad_files=plan.manifest.bad_files)
        timed = _Timed(step, summary.seconds)
        schemas = _add_up(spark, plan, output, timed) if plan.work else _empty_schemas(spark)
        _make_results(spark, output, schemas, advise, timed)
        if tune is not None and plan.work:
            with timed("table tuning"):
                rows = _good_rows(spark, plan)
                output.write_table(tune(spark, rows, output.read_table(spark, "links")), TUNING)
        _sum_up(output, summary)
        plan.manifest.done(plan.work)
        _save_summary(plan.out, summary)
        plan.manifest.save(plan.out)
        output.sweep()
    return summary


def _good_rows(spark: SparkSession, plan: BatchPlan) -> DataFrame:
    names = [name for one in plan.work for name in one.increment.files]
    return quality.good(quality.with_faults(read_trace(spark, plan.trace, names)))


def _add_up(spark: SparkSession, plan: BatchPlan, output: Output, step: _Timed) -> Schemas:
    """Read the new increments and put their sums in place; return the columns of all that is kept."""
    names = [name for one in plan.work for name in one.increment.files]
    read = read_trace(spark, plan.trace, names)
    judged = quality.with_faults(read)
    bad = quality.bad(judged)
    with step("quality"):
        output.stage_increments(bad, QUARANTINE)
        has_bad = output.has_staged(QUARANTINE)
    # Checking a row takes all its columns; where none has a fault, jobs read only what they need.
    rows = quality.good(judged) if has_bad else read
    added = cube(rows, PLACE)
    with step("deliveries and earnings"):
        output.stage_increments(added, CUBE)
    cubed = output.read_staged(spark, CUBE, added.schema)
    sampled = links.samples(links.slots(rows, ("date",)), ("date",))
    with step("links"):
        output.stage_increments(sampled, SAMPLES)
    segments = flows.flow_segments(rows, cubed, PLACE)
    with step("flows"):
        output.stage_increments(segments, SEGMENTS)
    with step("bounds"):
        if output.has_staged_positive(CUBE, "violations"):
            output.stage_increments(bounds_audit.violations(rows), VIOLATIONS)
    for name in (QUARANTINE, CUBE, SAMPLES, SEGMENTS, VIOLATIONS):
        output.put_increments(name, plan.work)
    return Schemas(bad.schema, added.schema, sampled.schema, segments.schema)


def _empty_schemas(spark: SparkSession) -> Schemas:
    """Return the same columns where there is nothing to sum."""
    empty = spark.createDataFrame([], trace_schema())
    cubed = cube(empty, PLACE)
    return Schemas(
        quality.bad(quality.with_faults(empty)).schema,
        cubed.schema,
        links.samples(links.slots(empty, ("date",)), ("date",)).schema,
        flows.flow_segments(empty, cubed, PLACE).schema,
    )


def _make_results(
    spark: SparkSession, output: Output, schemas: Schemas, advise: flows.Advise | None, step: _Timed
) -> None:
    cubed = output.read_increments(spark, CUBE, schemas.cube)
    sampled = output.read_increments(spark, SAMPLES, schemas.samples)
    segments = output.read_increments(spark, SEGMENTS, schemas.segments)
    bad = output.read_increments(spark, QUARANTINE, schemas.bad)

    def make(name: str, rows: DataFrame) -> None:
        with step(f"table {name}"):
            output.write_table(rows, name)

    make("quality", _quality(cubed, bad))
    make("deliveries", deliveries.deliveries(cubed))
    make("earnings", earnings.earnings(cubed))
    make("bills", earnings.bills(cubed))
    make("links", links.links(sampled))
    make("flows", flows.flows(segments))
    found = output.read_table(spark, "flows")
    make("traffic", deliveries.traffic(cubed, found))
    make("envelopes", flows.envelopes(found))
    make("advice", _advice(spark, found, advise))
    make("bounds", bounds_audit.bounds_audit(cubed))


def _quality(cubed: DataFrame, bad: DataFrame) -> DataFrame:
    """Count rows by date and node: those used, and those quarantined by fault."""
    from pyspark.sql import functions as F

    used = cubed.groupBy(*PLACE).agg(F.lit("").alias(quality.FAULT), F.sum("pairs").alias("rows"))
    refused = bad.groupBy(*PLACE, quality.FAULT).agg(F.count("*").alias("rows"))
    return used.unionByName(refused).select(*PLACE, quality.FAULT, "rows")


def _advice(spark: SparkSession, found: DataFrame, advise: flows.Advise | None) -> DataFrame:
    if advise is None:
        return spark.createDataFrame([], flows.ADVICE_FIELDS)
    # As many as a broker admits; the busiest first.
    busiest = found.drop("curve").orderBy("mean_rate_per_s", ascending=False).limit(flows.ADVISED_MAX)
    rows = [row.asDict() for row in busiest.collect()]
    return spark.createDataFrame(advise(rows), flows.ADVICE_FIELDS)


def _sum_up(output: Output, summary: BatchSummary) -> None:
    """Fill the summary from the finished tables, which are small."""
    judged = output.values("quality", quality.FAULT, "rows")
    summary.rows = sum(judged["rows"])
    summary.quarantined = sum(
        rows for fault, rows in zip(judged[quality.FAULT], judged["rows"], strict=True) if fault
    )
    bills = output.values("bills", "subscriber", *earnings.PAIRS, "price_micro", "penalty_micro")
    measured = output.values("links", "node", "link", "is_drift")
    audited = output.values("bounds", "violations")
    summary.figures = {
        **{name: sum(bills[name]) for name in earnings.PAIRS},
        "earned_micro": sum(bills["price_micro"]),
        "paid_micro": sum(bills["penalty_micro"]),
        "subscribers": len(set(bills["subscriber"])),
        "published": sum(output.values("traffic", "published")["published"]),
        "links": len(set(zip(measured["node"], measured["link"], strict=True))),
        "drifts": sum(measured["is_drift"]),
        "flows": len(output.values("flows", "topic")["topic"]),
        "promised_flows": len(audited["violations"]),
        "violations": sum(audited["violations"]),
    }
    summary.tables = {name: str(output.folder / name) for name in (*TABLES, QUARANTINE, VIOLATIONS)}


def _save_summary(out: Path, summary: BatchSummary) -> None:
    value = {name: getattr(summary, name) for name in BatchSummary.__slots__}
    hidden = out / f".{SUMMARY}.tmp"
    hidden.write_text(json.dumps(value, indent=1), encoding="utf-8")
    hidden.rename(out / SUMMARY)


class _Timed:
    """Shows steps and records their durations."""

    def __init__(self, step: Step, seconds: dict[str, float]) -> None:
        self._step = step
        self._seconds = seconds

    @contextlib.contextmanager
    def __call__(self, title: str) -> Iterator[None]:
        started = time.monotonic()
        with self._step(title):
            yield
        self._seconds[title] = time.monotonic() - started


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Lock the folder against other runs; the lock is released when the process ends."""
    descriptor = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another run is using {str(out)!r}; wait for it, or choose another --out"
            ) from error
        yield
    finally:
        os.close(descriptor)
