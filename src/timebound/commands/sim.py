"""`timebound sim`: simulate a deployment before it is built, and repeat the papers' experiments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from timebound.commands._paper_004 import path_jobs, run_paths
from timebound.commands._paper_grid import run_grid, write_paper
from timebound.commands._renamed import renamed
from timebound.commands._screen import printer, progress_bar, screen, show_notices
from timebound.commands._spark import Master, Remote
from timebound.packages import FOR_PLOTS, FOR_TRACES, require

if TYPE_CHECKING:
    from rich.progress import TaskID

    from timebound.sim.mesh.experiment import RunResult
    from timebound.sim.papers.grid import GridRow, Job

app = typer.Typer(
    no_args_is_help=True,
    help="Simulate brokers under virtual time: their own decisions, or whole brokers with their clients.",
    epilog="Examples:  timebound sim run scenarios/quick.toml  ·  "
    "timebound sim paper 002 --figure 6 --rates 15  ·  timebound sim swarm --seeds 1..100",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]
Seeds = Annotated[str, typer.Option("--seeds", "--seed", help="Seeds, such as 7, 1..10 or 1,2,5.")]
_GRID: Final = frozenset(
    {"figure", "rates", "strategies", "mixes", "reading", "minutes", "workers", "master"}
)
_SPREAD: Final = frozenset({"remote", "out"})
# The options of `paper` that have a meaning for a paper, beside seeds, plot and JSON.
PAPER_OPTIONS: Final = {
    "000": frozenset[str](),
    "001": _GRID | _SPREAD,
    "002": _GRID | _SPREAD | {"scenario"},
    "004": frozenset({"figure", "reading", "finder", "network", "workers", "master", "remote"}),
}
# Numbers of one option; each is a run. A slip such as 1..10000000000 must not fill the memory.
NUMBERS_MAX: Final = 1_000_000


@app.command()
def run(
    scenario: Annotated[Path, typer.Argument(help="A scenario file; see docs/simulation.md.")],
    seeds: Seeds = "",
    trace: Annotated[
        Path | None, typer.Option(help="Write one record per message and subscription: .parquet or .jsonl.")
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(help="Simulate the broker of this configuration file; repeat it for each broker."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate a scenario and print what became of its messages."""
    from dataclasses import replace

    from timebound.commands._whole import loaded_with
    from timebound.sim.mesh.trace import check_trace_name, write_trace

    if trace is not None:
        check_trace_name(trace)
    loaded, simulate = loaded_with(scenario, config or [])
    show_notices(loaded.notices)
    wanted = _numbers(seeds, "--seeds") if seeds else loaded.seeds
    setting = replace(loaded.setting, is_tracing=trace is not None)
    results: list[RunResult] = []
    with progress_bar(screen) as bar:
        for seed in wanted:
            task = bar.add_task(f"seed {seed}", total=100)

            def show(share: float, task: TaskID = task) -> None:
                bar.update(task, completed=int(100 * share))

            results.append(simulate(setting, seed, show))
    if trace is not None:
        write_trace([row for result in results for row in result.rows], trace)
        screen.print(f"trace: {trace}")
    if as_json:
        typer.echo(
            json.dumps({"scenario": loaded.name, "runs": [_run_json(one) for one in results]}, indent=2)
        )
    else:
        strategy = "" if config else loaded.setting.strategy  # configurations have their own
        printer().print(_run_table(loaded.name, strategy, results))
        for result in results:
            if result.refused:
                told = ", ".join(f"{what} {count:,}" for what, count in result.refused.items())
                typer.echo(f"seed {result.seed}: refused by brokers: {told}")


@app.command()
def swarm(
    seeds: Seeds = "1..100",
    keep: Annotated[
        str, typer.Option(help="Only the actions at these places of the seed's script, such as 3,8.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Run random deployments of whole brokers with faults, and check what brokers promise."""
    from timebound.commands._swarm import run_swarm

    run_swarm(_numbers(seeds, "--seeds"), _numbers(keep, "--keep") if keep else (), is_json=as_json)


@app.command()
@renamed({"mixes": ("--weights",)})
def paper(
    context: typer.Context,
    number: Annotated[str, typer.Argument(help="000, 001, 002 or 004.")],
    figure: Annotated[list[int] | None, typer.Option(help="Only this figure; may be repeated.")] = None,
    scenario: Annotated[str, typer.Option(help="Scenario of 002: psd or ssd.")] = "",
    rates: Annotated[str, typer.Option(help="Messages per minute and publisher, such as 10,15.")] = "",
    strategies: Annotated[str, typer.Option(help="Strategies, such as eb,fifo,timebound.")] = "",
    mixes: Annotated[str, typer.Option(help="Mixes of EBPC and MTEP, 0 to 1, such as 0.2,0.4.")] = "",
    seeds: Seeds = "1..10",
    reading: Annotated[
        str, typer.Option(help="How to read what the paper leaves open; join several with +.")
    ] = "literal",
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes to simulate; the papers use 120.")] = 120.0,
    finder: Annotated[
        str, typer.Option(help="Of 004: indiqos, crankback, fns, fr; several with commas.")
    ] = "",
    network: Annotated[str, typer.Option(help="Of 004: single or multi (homed).")] = "",
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Number of local processes to use instead of Spark; 0 = all cores."),
    ] = None,
    master: Master = None,
    remote: Remote = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the rows, for `timebound report`.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the figures into this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Repeat a paper's experiments and show them beside what was published."""
    _refuse_foreign(context, number)
    if plot is not None:
        require("--plot", *FOR_PLOTS)
    if out is not None:
        require("--out", *FOR_TRACES)
    if number == "000":
        _paper_000(_numbers(seeds, "--seeds")[0], plot, as_json)
        return
    if number == "004":
        wanted = path_jobs(
            tuple(figure or ()),
            tuple(_words(finder)),
            tuple(_words(network)),
            _numbers(seeds, "--seeds"),
            reading,
        )
        run_paths(wanted, workers, master, remote, plot, as_json=as_json)
        return
    jobs = _bounded_delay_jobs(number, figure, scenario, rates, strategies, mixes, seeds, reading, minutes)
    from timebound.sim.papers import grid

    rows, wall_s, cores = run_grid(grid, jobs, f"paper {number}", workers, master, remote)
    _show_rows(rows, plot, as_json)
    if out is not None:
        write_paper(out, number, rows, minutes, wall_s, cores)
        screen.print(f"results: {out}   write a page: timebound report {out}")


def _refuse_foreign(context: typer.Context, number: str) -> None:
    """Refuse what was given and has no meaning for this paper."""
    if number not in PAPER_OPTIONS:
        known = ", ".join(PAPER_OPTIONS)
        raise typer.BadParameter(f"paper {number!r} is unknown; choose from {known}", param_hint="NUMBER")
    for name in {name for names in PAPER_OPTIONS.values() for name in names} - PAPER_OPTIONS[number]:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            papers = [paper for paper, names in PAPER_OPTIONS.items() if name in names]
            text = f"has no meaning for paper {number}; it is for {', '.join(papers)}"
            raise typer.BadParameter(text, param_hint=f"--{name}")


def _bounded_delay_jobs(
    number: str,
    figure: list[int] | None,
    scenario: str,
    rates: str,
    strategies: str,
    mixes: str,
    seeds: str,
    reading: str,
    minutes: float,
) -> list[Job]:
    """List the runs of papers 001 and 002, or refuse the call."""
    from timebound.sim.papers import grid
    from timebound.sim.papers.readings import READINGS

    for name in reading.split("+"):
        if name not in READINGS:
            raise typer.BadParameter(
                f"reading {name!r} is unknown; choose from {', '.join(READINGS)}", param_hint="--reading"
            )
    try:
        return grid.jobs(
            number,
            figures=tuple(figure or ()),
            scenarios=tuple(_words(scenario)),
            rates=tuple(float(rate) for rate in _words(rates)),
            strategies=tuple(_words(strategies)),
            weights=tuple(float(mix) for mix in _words(mixes)),
            seeds=_numbers(seeds, "--seeds"),
            reading=reading,
            minutes=minutes,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _show_rows(rows: list[GridRow], folder: Path | None, as_json: bool) -> None:
    from dataclasses import asdict

    from timebound.sim.papers.plots import plot
    from timebound.sim.papers.published import compare, summarise

    summaries = summarise(rows)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        table = Table(title="mean ± standard deviation over seeds")
        for name in ("figure", "scenario", "rate", "strategy", "weight", "seeds"):
            table.add_column(name)
        for name in ("delivery rate", "earning", "traffic"):
            table.add_column(name, justify="right")
        for one in summaries:
            table.add_row(
                str(one.figure),
                one.scenario,
                f"{one.rate:g}",
                one.strategy,
                f"{one.weight:g}" if one.weight >= 0 else "",
                str(one.seeds),
                f"{100 * one.delivery_rate:.2f} ± {100 * one.delivery_rate_deviation:.2f} %",
                f"{one.earning:,.0f} ± {one.earning_deviation:,.0f}",
                f"{one.traffic:,.0f} ± {one.traffic_deviation:,.0f}",
            )
        printer().print(table)
        compared = compare(summaries)
        if compared:
            beside = Table(title="beside the printed values")
            for name in ("figure", "what", "printed", "simulated"):
                beside.add_column(name)
            for printed, value in compared:
                what = f"{printed.measure.replace('_', ' ')} of {printed.strategy}"
                if printed.versus:
                    what += f" / that of {printed.versus}"
                beside.add_row(str(printed.figure), what, f"{printed.value:g}", f"{value:.4g}")
            printer().print(beside)
    if folder is not None:
        for path in plot(summaries, folder):
            screen.print(f"figure: {path}")


def _paper_000(seed: int, folder: Path | None, as_json: bool) -> None:
    from timebound.sim.papers import paper000

    result = paper000.run(seed)
    if as_json:
        typer.echo(json.dumps(result.as_json(), indent=2))
    else:
        table = Table(title="paper 000, Table I: client 1, delays in ms")
        for name in (
            "layer",
            "broker",
            "second",
            "share %",
            "mean",
            "longest",
            "bound",
            "bound as printed",
            "printed mean",
            "printed longest",
        ):
            table.add_column(name, justify="right")
        for row in result.rows():
            printed = paper000.PUBLISHED[row.second] if row.second < len(paper000.PUBLISHED) else (0, 0, 0)
            table.add_row(
                row.layer,
                row.broker,
                str(row.second),
                f"{row.share_percent:.2f}",
                f"{row.delay_ms_mean:.4f}",
                f"{row.delay_ms_max:.4f}",
                "none" if row.bound_ms is None else f"{row.bound_ms:.4f}",
                f"{row.bound_printed_ms:.4f}",
                f"{printed[1]:.4f}",
                f"{printed[2]:.4f}",
            )
        printer().print(table)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for path in paper000.plot(result, folder):
            screen.print(f"figure: {path}")


def _run_json(result: RunResult) -> dict[str, object]:
    return {
        "seed": result.seed,
        "published": result.published,
        "matched": result.matched,
        "in_time": result.in_time,
        "late": result.late,
        "dropped": result.dropped,
        "delivery_rate": result.delivery_rate,
        "earning": result.earning,
        "traffic": result.traffic,
        "events": result.events,
        "refused": result.refused,
    }


def _run_table(name: str, strategy: str, results: list[RunResult]) -> Table:
    table = Table(title=f"{name}: strategy {strategy}" if strategy else name)
    names = ("seed", "published", "matched", "in time", "late", "dropped", "earning", "traffic", "events/s")
    for name in names:
        table.add_column(name, justify="right")
    for one in results:
        table.add_row(
            str(one.seed),
            f"{one.published:,}",
            f"{one.matched:,}",
            f"{one.in_time:,} ({100 * one.delivery_rate:.1f} %)",
            f"{one.late:,}",
            ", ".join(f"{reason} {count:,}" for reason, count in one.dropped.items()) or "0",
            f"{one.earning:,.1f}",
            f"{one.traffic:,}",
            f"{one.events / max(one.seconds, 1e-9):,.0f}",
        )
    return table


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str, option: str) -> tuple[int, ...]:
    """Read `1..10` or `1,2,5`."""
    try:
        if ".." in text:
            first, last = text.split("..")
            wanted = range(int(first), int(last) + 1)
            numbers = tuple(wanted[: NUMBERS_MAX + 1])
        else:
            numbers = tuple(int(word) for word in _words(text))
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a list of numbers like 1..10", param_hint=option
        ) from error
    if not numbers:
        raise typer.BadParameter(f"{text!r} has no numbers", param_hint=option)
    if len(numbers) > NUMBERS_MAX:
        raise typer.BadParameter(f"{text!r} has more than {NUMBERS_MAX} numbers", param_hint=option)
    return numbers
