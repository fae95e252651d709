"""Job 7, tuning: the strategy that would have earned most from the observed load.

The busiest interval of each broker's trace is replayed under every choice, as a sweep: the same arrivals,
sizes, limits and prices over links of the measured rates. The simulator that replays it is named by text
and passed in, as are the choices.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from timebound.pipeline.jobs.cube import ended_ns
from timebound.pipeline.sweep.results import Point, summarise
from timebound.pipeline.sweep.sweep import Progress, SweepPlan, run_sweep
from timebound.records import Outcome, Reason
from timebound.units import SECOND

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# Maximum of trace rows to replay per broker: some seconds per run.
ROWS_MAX: Final = 20_000
SEEDS: Final = (1, 2, 3)
# Rate of links on which nothing ever waited, so that they were not measured: 50 MB/s.
FAST_MS_PER_KB: Final = 0.02
MICRO: Final = 1_000_000
# Messages sent at the end of an interval must arrive in the replay, too.
_REST_NS: Final = SECOND
_ROUNDING: Final = 1e-9
# Reasons for which a message could not be sent under any strategy: its receiver or its place was gone.
_GONE: Final = (Reason.DISCONNECTED.value, Reason.SESSION_EXPIRED.value, Reason.REPLACED.value)
TUNING_FIELDS: Final = (
    "node string, strategy string, weight double, runs bigint, in_time_share double, earning double, "
    "earning_deviation double, is_best boolean, observed_in_time_share double, observed_earning double, "
    "rows bigint, begin timestamp, seconds double"
)
_PAIR: Final = (
    "message_id",
    "link",
    "subscriber",
    "arrival_ns",
    "size_bytes",
    "allowed_ns",
    "price_micro",
    "penalty_micro",
)


class Replay(NamedTuple):
    """A function that replays a load: its path, its result columns, and every (strategy, mix) to try."""

    function: str
    results: tuple[tuple[str, str], ...]
    choices: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval of a broker's trace to replay: [begin, end) in seconds since the epoch."""

    node: str
    begin_s: int
    end_s: int


def tune(
    spark: SparkSession,
    trace: DataFrame,
    links: DataFrame,
    replay: Replay,
    *,
    rows_max: int = ROWS_MAX,
    progress: Progress | None = None,
) -> DataFrame:
    """Return one row of TUNING_FIELDS per node and choice; `is_best` marks the one to use.

    `trace` has valid rows only, `links` is the table of job 4.
    """
    intervals = busiest(arrivals_per_second(trace), rows_max)
    rates = link_rates(links)
    loads = {
        one.node: _load(observed(trace, one).toArrow(), rates.get(one.node, {}), one) for one in intervals
    }
    if not loads:
        return spark.createDataFrame([], TUNING_FIELDS)
    rows = [
        {"node": node, "strategy": strategy, "weight": weight, "seed": seed}
        for node in loads
        for strategy, weight in replay.choices
        for seed in SEEDS
    ]
    contexts = pickle.dumps({node: load.fields for node, load in loads.items()})
    table = run_sweep(spark, SweepPlan(rows, replay.function, contexts, replay.results), progress=progress)
    return spark.createDataFrame(_judged(table, loads), TUNING_FIELDS)


def arrivals_per_second(trace: DataFrame) -> DataFrame:
    """Return the pairs that arrived in each second at each node, and their total time in queues."""
    from pyspark.sql import functions as F

    second = F.floor((ended_ns() - F.col("queued_ns")) / SECOND)
    timed = trace.select("node", second.alias("second"), F.col("queued_ns").cast("double").alias("queued_ns"))
    return timed.groupBy("node", "second").agg(
        F.count("*").alias("rows"), F.sum("queued_ns").alias("queued_ns")
    )


def busiest(per_second: DataFrame, rows_max: int) -> list[Interval]:
    """Return for each node the interval of at most `rows_max` rows in which messages waited longest."""
    by_node: dict[str, list[tuple[int, int, float]]] = {}
    for row in per_second.orderBy("node", "second").collect():
        by_node.setdefault(row["node"], []).append((row["second"], row["rows"], row["queued_ns"]))
    return [_busiest(node, seconds, rows_max) for node, seconds in by_node.items()]


def observed(trace: DataFrame, interval: Interval) -> DataFrame:
    """Return the pairs that arrived in an interval: when, for whom, and with how much time left."""
    from pyspark.sql import functions as F

    arrival_ns = ended_ns() - F.col("queued_ns")
    left_ns = F.col("allowed_ns") - (arrival_ns - F.col("published_ns"))
    gone_ns = F.when(F.col("reason").isin(*_GONE), F.col("time_ns") - arrival_ns)
    limited_ns = F.least(F.when(F.col("allowed_ns") > 0, left_ns), gone_ns)  # skips nulls
    # A message that arrived too late still counts: with one nanosecond left, it is never in time.
    limit_ns = F.coalesce(F.greatest(limited_ns, F.when(limited_ns.isNotNull(), F.lit(1))), F.lit(0))
    since_ns = arrival_ns - F.lit(interval.begin_s * SECOND)
    inside = (arrival_ns >= interval.begin_s * SECOND) & (arrival_ns < interval.end_s * SECOND)
    chosen = trace.where((F.col("node") == interval.node) & inside)
    timed = chosen.withColumns(
        {
            "arrival_ns": since_ns,
            "allowed_ns": limit_ns,
            "until_ns": F.greatest(since_ns + F.col("queued_ns"), since_ns + limit_ns),
        }
    )
    return timed.select(*_PAIR, "until_ns", "outcome").orderBy("arrival_ns", "message_id", "subscriber")


def link_rates(links: DataFrame) -> dict[str, dict[str, tuple[float, float]]]:
    """Return mean and deviation in ms per KB of each node's links, over all windows."""
    from pyspark.sql import functions as F

    kb, mean = F.col("kb"), F.col("mean_s_per_kb")
    merged = links.groupBy("node", "link").agg(
        (F.sum(kb * mean) / F.sum(kb)).alias("mean"),
        (F.sum(kb * (F.col("variance") + mean * mean)) / F.sum(kb)).alias("squares"),
    )
    rates: dict[str, dict[str, tuple[float, float]]] = {}
    for row in merged.collect():
        deviation = max(row["squares"] - row["mean"] ** 2, 0.0) ** 0.5
        rates.setdefault(row["node"], {})[row["link"]] = (1_000 * row["mean"], 1_000 * deviation)
    return rates


@dataclass(frozen=True, slots=True)
class _Load:
    """A load in the form that is replayed, and its real outcome."""

    interval: Interval
    fields: dict[str, Any]
    in_time_share: float
    earning: float


def _load(pairs: pa.Table, rates: dict[str, tuple[float, float]], interval: Interval) -> _Load:
    columns: dict[str, Any] = {name: pairs[name].to_pylist() for name in _PAIR}
    links = {name: rates.get(name, (FAST_MS_PER_KB, 0.0)) for name in dict.fromkeys(columns["link"])}
    until_ns = max(pairs["until_ns"].to_pylist()) + _REST_NS
    outcomes = pairs["outcome"].to_pylist()
    in_time = [outcome == Outcome.IN_TIME.value for outcome in outcomes]
    money = zip(in_time, columns["price_micro"], columns["penalty_micro"], strict=True)
    earned = sum(price if good else -penalty for good, price, penalty in money)
    fields = {"links": links, "until_ns": until_ns, **columns}
    return _Load(interval, fields, sum(in_time) / len(in_time), earned / MICRO)


def _busiest(node: str, seconds: list[tuple[int, int, float]], rows_max: int) -> Interval:
    """Slide a window over the seconds, as wide as `rows_max` allows; a single second always fits."""
    best = (-1.0, 0)  # time in queues and rows, of the interval below
    found = (0, 0)
    begin = rows = 0
    queued = 0.0
    for end, (_, count, waited) in enumerate(seconds):
        rows += count
        queued += waited
        while rows > rows_max and begin < end:
            rows -= seconds[begin][1]
            queued -= seconds[begin][2]
            begin += 1
        # Of intervals with equal times, up to rounding, take the one with more rows.
        waited_more = queued > best[0] * (1 + _ROUNDING)
        if waited_more or (queued >= best[0] * (1 - _ROUNDING) and rows > best[1]):
            best = (queued, rows)
            found = (begin, end)
    return Interval(node, seconds[found[0]][0], seconds[found[1]][0] + 1)


def _judged(table: pa.Table, loads: dict[str, _Load]) -> list[dict[str, Any]]:
    points = summarise(table, ("node", "strategy", "weight"), ("matched", "in_time", "earning"))
    best: dict[str, Point] = {}
    for point in points:
        node = str(point.values["node"])
        if node not in best or point.means["earning"] > best[node].means["earning"]:
            best[node] = point
    return [
        _judgement(point, loads[str(point.values["node"])], best[str(point.values["node"])] is point)
        for point in points
    ]


def _judgement(point: Point, load: _Load, is_best: bool) -> dict[str, Any]:
    from datetime import UTC, datetime

    weight = float(point.values["weight"])
    return {
        "node": load.interval.node,
        "strategy": point.values["strategy"],
        "weight": weight if weight >= 0 else None,
        "runs": point.runs,
        "in_time_share": point.means["in_time"] / max(point.means["matched"], 1.0),
        "earning": point.means["earning"],
        "earning_deviation": point.deviations["earning"],
        "is_best": is_best,
        "observed_in_time_share": load.in_time_share,
        "observed_earning": load.earning,
        "rows": len(load.fields["link"]),
        "begin": datetime.fromtimestamp(load.interval.begin_s, UTC),
        "seconds": float(load.interval.end_s - load.interval.begin_s),
    }
