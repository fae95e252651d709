"""The figures of the paper on IndiQoS as lists of runs, for processes or for a sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from timebound.sim.papers.paper004.experiment import FINDERS, RunOutcome, run_once
from timebound.sim.papers.paper004.network import NETWORKS
from timebound.sim.papers.paper004.readings import LITERAL, assumptions

FIGURES: Final = (5, 6, 7, 8, 9)
TYPES: Final = (1, 2, 4, 8, 16, 32)
REPLICAS: Final = (1, 2, 3, 4, 5, 6, 7, 8)
# Of the comparison: the finders, with the replicas of those that have some.
COMPARED: Final = (("fns", 1), ("fr", 1), ("indiqos", 1), ("indiqos", 3), ("crankback", 1))
COMPARED_TYPES: Final = 32
# Columns that a run adds in a sweep, with their Arrow types.
RESULTS: Final = (
    ("accepted", "int64"),
    ("refused", "int64"),
    ("utilisation", "float64"),
    ("latency_ms", "float64"),
    ("messages_per_accepted", "float64"),
    ("messages_all_per_accepted", "float64"),
)


@dataclass(frozen=True, slots=True)
class PathJob:
    """One run of a figure."""

    figure: int
    finder: str
    replicas: int
    types: int
    network: str
    seed: int
    reading: str = LITERAL


@dataclass(frozen=True, slots=True)
class PathRow:
    """The results of one run."""

    figure: int
    finder: str
    replicas: int
    types: int
    network: str
    seed: int
    reading: str
    accepted: int
    refused: int
    utilisation: float
    latency_ms: float
    messages_per_accepted: float
    messages_all_per_accepted: float


def jobs(
    *,
    figures: tuple[int, ...] = (),
    finders: tuple[str, ...] = (),
    networks: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (1,),
    reading: str = LITERAL,
) -> list[PathJob]:
    """List the runs of figures; empty arguments mean all.

    Raises:
        ValueError: a figure, finder, network or reading is unknown, or no run is left.
    """
    _check("figure", figures, FIGURES)
    _check("finder", finders, FINDERS)
    _check("network", networks, NETWORKS)
    if assumptions(reading).capacity == "both" and "crankback" in finders:
        raise ValueError("crankback reserves each direction of a link by itself: leave out shared-directions")
    wanted = [
        PathJob(figure, finder, replicas, types, network, seed, reading)
        for figure in figures or FIGURES
        for finder, replicas, types in _plan(figure)
        if not finders or finder in finders
        for network in networks or NETWORKS
        for seed in seeds
    ]
    if not wanted:
        raise ValueError(f"figures {figures} have no runs of {', '.join(finders)}; figure 9 has all finders")
    return wanted


def _check(what: str, wanted: tuple[Any, ...], known: tuple[Any, ...]) -> None:
    for one in wanted:
        if one not in known:
            choices = ", ".join(map(str, known))
            raise ValueError(f"paper 004 has no {what} {one!r}; choose from {choices}")


def _plan(figure: int) -> list[tuple[str, int, int]]:
    """Return finder, replicas and types of each point of a figure."""
    if figure == 5:
        return [("indiqos", 1, types) for types in TYPES]
    if figure == 9:
        return [(finder, replicas, COMPARED_TYPES) for finder, replicas in COMPARED]
    return [("indiqos", replicas, 1) for replicas in REPLICAS]


def run_job(job: PathJob) -> PathRow:
    """Carry out one run."""
    outcome = run_once(job.finder, job.network, job.types, job.replicas, assumptions(job.reading), job.seed)
    return _row(job, outcome)


def run_all(wanted: list[PathJob], workers: int = 0) -> Iterator[PathRow]:
    """Carry out runs, in order; `workers` 0 uses all cores, 1 only this process.

    Figures 6 to 8 show the same runs, which are carried out once.
    """
    once = list(dict.fromkeys(replace(job, figure=0) for job in wanted))
    count = min(workers or os.cpu_count() or 1, len(once))
    if count == 1:
        yield from _shared(wanted, map(run_job, once))
        return
    with ProcessPoolExecutor(max_workers=count) as pool:
        yield from _shared(wanted, pool.map(run_job, once))


def _shared(wanted: list[PathJob], rows: Iterator[PathRow]) -> Iterator[PathRow]:
    """Give each job the row of its run, as soon as that is there."""
    known: dict[PathJob, PathRow] = {}
    for job in wanted:
        key = replace(job, figure=0)
        while key not in known:
            row = next(rows)
            known[_job_of(row)] = row
        yield replace(known[key], figure=job.figure)


def _job_of(row: PathRow) -> PathJob:
    return PathJob(row.figure, row.finder, row.replicas, row.types, row.network, row.seed, row.reading)


def open_runs(context: bytes) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return the function that a sweep calls with the fields of each job; the context is empty."""
    assert not context, "jobs carry all parameters themselves"

    def run_row(values: Mapping[str, Any]) -> dict[str, Any]:
        row = asdict(run_job(PathJob(**values)))
        return {name: row[name] for name, _ in RESULTS}

    return run_row


def row_of(values: Mapping[str, Any]) -> PathRow:
    """Make a row from one of a sweep's table, which has more columns."""
    return PathRow(**{name: values[name] for name in PathRow.__dataclass_fields__})


def _row(job: PathJob, outcome: RunOutcome) -> PathRow:
    return PathRow(**asdict(job), **asdict(outcome))
