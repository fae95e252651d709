"""Every figure of the two papers as a list of runs, for processes or for a sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from timebound.core.link.strategy.registry import STRATEGY_NAMES, kind_named
from timebound.sim.mesh.experiment import RunResult, run
from timebound.sim.mesh.setting import MeshSetting
from timebound.sim.papers.readings import read_as
from timebound.sim.papers.settings import paper_001, paper_002, product

# The papers' names of strategies and ours; `timebound` is the broker's default: late binding with
# `worth`. The names before it add its ideas one by one; `timebound-eb` has all but the strategy.
STRATEGIES: Final = {
    **{name: name for name in STRATEGY_NAMES},
    "fcfs": "fifo",
    "rl": "remaining-lifetime",
    "lrt": "remaining-lifetime",
    "fix": "fixed",
    "eb-late": "eb",
    "worth-late": "worth",
    "worth-late-epsilon": "worth",
    "worth-late-preference": "worth",
    "worth-late-waits": "worth",
    "timebound-eb": "eb",
    "timebound": "worth",
}
RATES_002: Final = (1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0)
RATES_001: Final = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
WEIGHTS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
FIGURES: Final = {"001": (7, 8, 9), "002": (4, 5, 6)}
# Measures of each figure, by scenario.
MEASURES_OF_FIGURE: Final = {
    (4, "ssd"): ("earning",),
    (4, "psd"): ("delivery_rate",),
    (5, "ssd"): ("earning", "traffic"),
    (6, "psd"): ("delivery_rate", "traffic"),
    (7, "net"): ("earning", "delivery_rate"),
    (8, "net"): ("earning", "delivery_rate"),
    (9, "net"): ("earning", "delivery_rate"),
}
# Columns that a run adds in a sweep, with their Arrow types.
RESULTS: Final = (
    ("delivery_rate", "float64"),
    ("earning", "float64"),
    ("traffic", "int64"),
    ("matched", "int64"),
    ("in_time", "int64"),
    ("events", "int64"),
    ("seconds", "float64"),
)


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a figure. `weight` is r of EBPC or w of MTEP, -1 = the strategy has none."""

    paper: str
    figure: int
    scenario: str
    rate: float
    strategy: str
    weight: float
    seed: int
    reading: str = "literal"
    minutes: float = 120.0

    def setting(self) -> MeshSetting:
        name = STRATEGIES[self.strategy]
        if self.paper == "002":
            setting = paper_002(self.scenario, self.rate, name, self.weight)
        else:
            setting = paper_001(self.rate, name, self.weight)
        setting = read_as(setting, self.reading)
        setting = _with_ideas(setting, self.strategy)
        return replace(setting, duration_ns=int(self.minutes * 60_000_000_000))


def _with_ideas(setting: MeshSetting, strategy: str) -> MeshSetting:
    """Apply what the name of a strategy implies beyond the order in queues."""
    whole = product(setting)
    if strategy == "timebound":
        return whole
    if strategy == "timebound-eb":
        return replace(whole, strategy="eb")
    if "-late" not in strategy:
        return setting
    late = replace(setting, reading=whole.reading)
    if strategy.endswith(("-epsilon", "-preference", "-waits")):
        late = replace(late, epsilon=whole.epsilon)
    if strategy.endswith(("-preference", "-waits")):
        late = replace(late, preference=whole.preference)
    if strategy.endswith("-waits"):
        late = replace(late, waiting_share=whole.waiting_share)
    return late


@dataclass(frozen=True, slots=True)
class GridRow:
    """The results of one run."""

    paper: str
    figure: int
    scenario: str
    rate: float
    strategy: str
    weight: float
    seed: int
    reading: str
    delivery_rate: float
    earning: float
    traffic: int
    matched: int
    in_time: int
    events: int
    seconds: float


def jobs(
    paper: str,
    *,
    figures: tuple[int, ...] = (),
    scenarios: tuple[str, ...] = (),
    rates: tuple[float, ...] = (),
    strategies: tuple[str, ...] = (),
    weights: tuple[float, ...] = (),
    seeds: tuple[int, ...] = (1,),
    reading: str = "literal",
    minutes: float = 120.0,
) -> list[Job]:
    """List the runs of a paper's figures; empty arguments mean the paper's own values.

    Raises:
        ValueError: the paper has no such figure or scenario, or the strategy is unknown.
    """
    for figure in figures:
        if figure not in FIGURES[paper]:
            raise ValueError(f"paper {paper} has no figure {figure}; choose one of {FIGURES[paper]}")
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy {strategy!r} is unknown; choose one of {', '.join(STRATEGIES)}")
    for scenario in scenarios:
        if scenario not in _SCENARIOS[paper]:
            raise ValueError(f"paper {paper} has no scenario {scenario!r}; choose one of {_SCENARIOS[paper]}")
    wanted: list[Job] = []
    for figure in figures or FIGURES[paper]:
        plan = _PLANS[figure]
        for scenario in plan.scenarios:
            if scenarios and scenario not in scenarios:
                continue
            for rate in rates or plan.rates:
                for strategy in strategies or plan.strategies:
                    for weight in _weights(strategy, weights or plan.weights):
                        wanted += [
                            Job(paper, figure, scenario, rate, strategy, weight, seed, reading, minutes)
                            for seed in seeds
                        ]
    return wanted


@dataclass(frozen=True, slots=True)
class _Plan:
    scenarios: tuple[str, ...]
    rates: tuple[float, ...]
    strategies: tuple[str, ...]
    weights: tuple[float, ...]


_SCENARIOS: Final = {"001": ("net",), "002": ("psd", "ssd")}
_PLANS: Final = {
    4: _Plan(("ssd", "psd"), (10.0,), ("eb", "pc", "ebpc"), WEIGHTS),
    5: _Plan(("ssd",), RATES_002, ("eb", "pc", "rl", "fifo"), ()),
    6: _Plan(("psd",), RATES_002, ("eb", "pc", "rl", "fifo"), ()),
    7: _Plan(("net",), (1.0,), ("mtep", "fix", "lrt", "fcfs"), (0.4,)),
    8: _Plan(("net",), RATES_001, ("mtep", "fix", "lrt", "fcfs"), (0.4,)),
    9: _Plan(("net",), (1.0,), ("mtep",), WEIGHTS),
}


def _weights(strategy: str, weights: tuple[float, ...]) -> tuple[float, ...]:
    return weights if weights and kind_named(STRATEGIES[strategy]).takes_mix else (-1.0,)


def run_job(job: Job) -> GridRow:
    """Carry out one run."""
    return _row(job, run(job.setting(), job.seed))


def run_all(wanted: list[Job], workers: int = 0) -> Iterator[GridRow]:
    """Carry out runs, in order; `workers` 0 uses all cores, 1 only this process."""
    count = workers or os.cpu_count() or 1
    if count == 1 or len(wanted) == 1:
        for job in wanted:
            yield run_job(job)
        return
    with ProcessPoolExecutor(max_workers=min(count, len(wanted))) as pool:
        yield from pool.map(run_job, wanted)


def open_runs(context: bytes) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return the function that a sweep calls with the fields of each job; the context is empty."""
    assert not context, "jobs carry all parameters themselves"

    def run_row(values: Mapping[str, Any]) -> dict[str, Any]:
        row = asdict(run_job(Job(**values)))
        return {name: row[name] for name, _ in RESULTS}

    return run_row


def row_of(values: Mapping[str, Any]) -> GridRow:
    """Make a row from one of a sweep's table, which has more columns."""
    return GridRow(**{name: values[name] for name in GridRow.__dataclass_fields__})


def _row(job: Job, result: RunResult) -> GridRow:
    return GridRow(
        paper=job.paper,
        figure=job.figure,
        scenario=job.scenario,
        rate=job.rate,
        strategy=job.strategy,
        weight=job.weight,
        seed=job.seed,
        reading=job.reading,
        delivery_rate=result.delivery_rate,
        earning=result.earning,
        traffic=result.traffic,
        matched=result.matched,
        in_time=result.in_time,
        events=result.events,
        seconds=round(result.seconds, 3),
    )
