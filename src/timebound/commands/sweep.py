"""`timebound sweep`: run a scenario with varied parameters on Spark."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

from timebound.commands._screen import printer, screen, show_notices
from timebound.commands._spark import Master, Remote, run_plan, show_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from timebound.pipeline.sweep.results import Point, SweepInfo

EXAMPLES: Final = (
    "Examples:  timebound sweep scenarios/quick.toml --vary rate=1..15 --vary strategy=eb,fifo --seeds 20"
    "  ·  timebound sweep scenarios/quick.toml --vary load=0.5..4:0.5 --out results --master spark://host:7077"
)
RUN_ROW: Final = "timebound.sim.scenario.variation:open_runs"
MEASURES: Final = ("delivery_rate", "earning", "traffic")

Tasks = Annotated[int, typer.Option(min=0, help="Spark tasks; 0 = four for each core.")]


def sweep(
    scenario: Annotated[Path, typer.Argument(help="A scenario file; see docs/simulation.md.")],
    vary: Annotated[
        list[str] | None,
        typer.Option(help="A key and its values, such as rate=1..15, loss=0..0.2:0.05 or strategy=eb,fifo."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Number of seeds, such as 20, or a list: 5..10 or 1,2,5.")] = "",
    master: Master = None,
    remote: Remote = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the results; sweep-NAME by default.")] = None,
    tasks: Tasks = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON row per run.")] = False,
) -> None:
    """Run a scenario with varied parameters, and collect all runs in one table."""
    from timebound.errors import ConfigError
    from timebound.pipeline.spark.session import check_spark
    from timebound.pipeline.sweep.results import default_figures, write_results
    from timebound.pipeline.sweep.sweep import SweepPlan, check_plan
    from timebound.sim.scenario.scenario import load_scenario
    from timebound.sim.scenario.variation import KEYS, RESULTS, pack, parse_variation

    check_spark(master, remote)
    loaded = load_scenario(scenario)
    if loaded.fidelity != "mesh":
        raise ConfigError("sweeps simulate fidelity 'mesh'; use `timebound sim run`", path=str(scenario))
    show_notices(loaded.notices)
    variations = {one.key: one.values for one in map(parse_variation, vary or ())}
    rows = combinations({**variations, "seed": read_seeds(seeds, loaded.seeds)})
    plan = SweepPlan(rows, RUN_ROW, pack(loaded.setting), RESULTS)
    check_plan(plan)
    table, wall_s, cores = run_plan(plan, f"sweep {loaded.name}", master, remote, tasks)
    info = describe(f"Sweep of {loaded.name}", tuple(variations), MEASURES, table, wall_s, cores)
    labels = {key: KEYS[key].meaning for key in variations}
    info = _with_figures(info, default_figures(table, labels, MEASURES))
    folder = out or Path(f"sweep-{scenario.stem}")
    write_results(folder, table, info)
    show(table, info, as_json=as_json)
    screen.print(f"results: {folder}   write a page: timebound report {folder}")
    if info.failed == info.runs:
        raise typer.Exit(1)


def describe(
    title: str, keys: tuple[str, ...], measures: tuple[str, ...], table: pa.Table, wall_s: float, cores: int
) -> SweepInfo:
    """Describe a table of runs: title, varied keys, failures, time."""
    from timebound.pipeline.sweep.results import SweepInfo

    failed = sum(1 for error in table["error"].to_pylist() if error)
    cpu_s = math.fsum(table["cpu_s"].to_pylist())
    return SweepInfo(title, keys, measures, table.num_rows, failed, wall_s, cpu_s, cores)


def show(table: pa.Table, info: SweepInfo, *, as_json: bool) -> None:
    """Print the rows as JSON or a summary as a table, then the failures."""
    from timebound.pipeline.sweep.results import summarise

    if as_json:
        typer.echo(json.dumps(table.to_pylist(), indent=2))
    else:
        points = summarise(table, info.keys, info.measures)
        printer().print(_table(info, points))
    show_errors(table)


def combinations(values: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return every combination of the values, the last key changing fastest."""
    rows: list[dict[str, Any]] = [{}]
    for key, choices in values.items():
        rows = [{**row, key: choice} for row in rows for choice in choices]
    return rows


def read_seeds(text: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Read `20` as seeds 1 to 20, `5..10` and `1,2,5` as they stand."""
    if not text:
        return default
    try:
        if text.isdecimal():
            found = tuple(range(1, int(text) + 1))
        elif ".." in text:
            first, last = text.split("..")
            found = tuple(range(int(first), int(last) + 1))
        else:
            found = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a list of seeds; write 20, 5..10 or 1,2,5", param_hint="--seeds"
        ) from error
    if not found:
        raise typer.BadParameter(f"{text!r} has no seeds", param_hint="--seeds")
    return found


def _with_figures(info: SweepInfo, figures: tuple[Any, ...]) -> SweepInfo:
    import msgspec

    return msgspec.structs.replace(info, figures=figures)


def _table(info: SweepInfo, points: list[Point]) -> Table:
    shown = Table(title=f"{info.title}: mean ± standard deviation over seeds", title_justify="left")
    for key in info.keys:
        shown.add_column(key)
    shown.add_column("runs", justify="right")
    for measure in info.measures:
        shown.add_column(measure.replace("_", " "), justify="right")
    for point in points:
        cells = [_cell(measure, point.means[measure], point.deviations[measure]) for measure in info.measures]
        keys = [value if isinstance(value, str) else f"{value:g}" for value in point.values.values()]
        shown.add_row(*keys, str(point.runs), *cells)
    return shown


def _cell(measure: str, mean: float, deviation: float) -> str:
    if measure.endswith("_rate"):
        return f"{100 * mean:.2f} ± {100 * deviation:.2f} %"
    return f"{mean:,.0f} ± {deviation:,.0f}"
