"""`timebound pipeline`: analyse traces with Spark, in batches and live."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from timebound.commands._connection import LOGIN, Connecting, connects_by
from timebound.commands._spark import Master, Remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from timebound.pipeline.batch import BatchSummary, Step
    from timebound.pipeline.spark.session import Scale
    from timebound.pipeline.stream import Restarted

MICRO: Final = 1_000_000
# Up to this many rows a run is over before compiled plans pay: with and without, 50,000 took 42 and 44 s of
# a core, 200,000 took 42 and 73. Beyond this many it takes minutes, and Java's second compiler pays, too.
ROWS_FEW_MAX: Final = 20_000
ROWS_LONG: Final = 5_000_000
# How often the progress of the live queries is shown.
FOLLOW_S: Final = 0.5

app = typer.Typer(help="Analyse traces with Spark: deliveries, bills, links, flows and bounds.")
screen = Console(stderr=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


@app.callback()
def _root() -> None:
    """Analyse traces with Spark."""


@app.command(
    epilog="Examples:  timebound pipeline run  ·  timebound pipeline run --trace /var/lib/timebound/trace "
    "--out results  ·  timebound pipeline run --master spark://host:7077"
)
def run(
    trace: Annotated[Path, typer.Option(help="Folder of the brokers' trace files.")] = Path("trace"),
    out: Annotated[Path, typer.Option(help="Folder of the results; each run adds to it.")] = Path("pipeline"),
    master: Master = None,
    remote: Remote = None,
    tuning: Annotated[bool, typer.Option(help="Replay the busiest period under all strategies.")] = True,
    as_json: Json = False,
) -> None:
    """Process what is new in a trace, and bring all results up to date."""
    from timebound.pipeline.spark.session import check_spark

    check_spark(master, remote)
    from timebound.commands._flow_advice import advise
    from timebound.pipeline import batch

    plan = batch.prepare(trace, out)
    summary = batch.last_summary(out)
    if plan.work or summary is None:
        # Results are made anew from all that was ever added up, so that counts, too.
        rows = plan.rows + (summary.rows if summary is not None else 0)
        with _spark(master, remote, "pipeline run", scale=_scale(rows)) as spark:
            tune = _tune if tuning else None
            with _bars(spark) as step:
                summary = batch.run(spark, plan, advise=advise, tune=tune, step=step)
    else:
        summary.files_new = summary.rows_read = 0
    if as_json:
        typer.echo(json.dumps(asdict(summary), indent=2))
    else:
        _print(summary, out)


@app.command(
    epilog="Examples:  timebound pipeline live --servers 127.0.0.1:8815  ·  "
    "timebound pipeline live --servers b1:8815,b2:8815 --once"
)
@connects_by(*LOGIN, "tls", "ca_file")
def live(
    servers: Annotated[
        str,
        typer.Option(
            help="Flight services (host:port, separated by commas) of brokers that journal their traces."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the results and of the offsets read so far.")] = Path(
        "live"
    ),
    master: Master = None,
    remote: Remote = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when everything journalled so far has been read.")
    ] = False,
    *,
    connecting: Connecting,
) -> None:
    """Measure links and watch deliveries as they happen; publish models and alarms to the brokers."""
    from timebound.pipeline.spark.session import Scale, check_spark

    check_spark(master, remote)
    from timebound.pipeline import stream

    options = _source_options(servers, connecting)
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": stream.TRIGGER}
    with _spark(master, remote, "pipeline live", scale=Scale.LONG) as spark:
        publish = stream.publisher(options)
        rows = stream.read_live(spark, options)
        queries = [
            stream.Restarted(lambda: stream.start_alarms(rows, out / "alarms", publish, **trigger)),
            stream.Restarted(lambda: stream.start_links(rows, out / "links", publish, **trigger)),
        ]
        _follow(queries, once=once)


def _source_options(servers: str, connecting: Connecting) -> dict[str, str]:
    """Return the options of the data source: those of this command, as Spark takes them."""
    try:
        password = connecting.read_password()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    given = {
        "servers": servers,
        "user": connecting.user,
        "password": password,
        "tls": "true" if connecting.tls else "",
        "caFile": connecting.ca_file,
    }
    return {name: str(value) for name, value in given.items() if value}


def _follow(queries: list[Restarted], *, once: bool) -> None:
    """Show how far the queries are until they end, or until Ctrl-C."""
    from timebound.pipeline.stream import describe

    with screen.status("reading") as status:
        try:
            while any(one.query.isActive for one in queries):
                time.sleep(FOLLOW_S)
                told = [f"{one.query.name}: batch {describe(one.query)['batch']}" for one in queries]
                status.update(", ".join(told))
                for one in queries:
                    one.check()
        except KeyboardInterrupt:
            screen.print("stopping; the next start goes on from here", style="dim")
        finally:
            for one in queries:
                one.query.stop()
    if once:
        screen.print("everything journalled so far has been read", style="dim")


def _tune(spark: SparkSession, rows: DataFrame, links: DataFrame) -> DataFrame:
    from timebound.pipeline.jobs.tuning import Replay, tune
    from timebound.sim.scenario.replay import REPLAY

    return tune(spark, rows, links, Replay(*REPLAY))


def _scale(rows: int) -> Scale:
    from timebound.pipeline.spark.session import Scale

    if rows <= ROWS_FEW_MAX:
        return Scale.FEW_ROWS
    return Scale.SHORT if rows < ROWS_LONG else Scale.LONG


@contextlib.contextmanager
def _spark(master: str | None, remote: str | None, title: str, *, scale: Scale) -> Iterator[SparkSession]:
    """Start a session and show how long that took: each command pays for it once."""
    from timebound.pipeline.spark.session import cores_of, spark_session

    started_s = time.monotonic()
    with screen.status("starting Spark"):
        spark = spark_session(master, remote, app=f"timebound {title}", scale=scale)
    took_s = time.monotonic() - started_s
    screen.print(f"Spark started in {took_s:.1f} s, {cores_of(spark)} cores", style="dim")
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def _bars(spark: SparkSession) -> Iterator[Step]:
    """Show a bar for each step while it runs, and a line with its time afterwards."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from timebound.pipeline.spark.progress import watched

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn())
    with Progress(*columns, console=screen) as progress:

        @contextlib.contextmanager
        def step(title: str) -> Iterator[None]:
            task = progress.add_task(title, total=1.0)
            with watched(spark, title, lambda share: progress.update(task, completed=share)):
                yield

        yield step


def _print(summary: BatchSummary, out: Path) -> None:
    figures = summary.figures
    pairs = figures["in_time"] + figures["late"] + figures["dropped"]
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in _lines(summary, pairs).items():
        table.add_row(name, value)
    Console(highlight=False).print(table)
    for name, fault in summary.bad_files.items():
        screen.print(f"[yellow]not read:[/yellow] {name}: {fault}", markup=True)
    new = f"{summary.files_new:,} new files, {summary.rows_read:,} rows read"
    screen.print(f"{new if summary.files_new else 'nothing new'}; tables are in {out}", style="dim")
    screen.print(f"write a page: timebound report {out}", style="dim")


def _lines(summary: BatchSummary, pairs: int) -> dict[str, str]:
    figures = summary.figures

    def share(name: str) -> str:
        return f"{figures[name]:,} ({figures[name] / pairs:.2%})" if pairs else "0"

    return {
        "trace rows": f"{summary.rows:,}, {summary.quarantined:,} of them quarantined",
        "messages": f"{figures['published']:,}, for {figures['subscribers']:,} clients",
        "pairs with subscriptions": f"{pairs:,}",
        "in time": share("in_time"),
        "late": share("late"),
        "dropped": share("dropped"),
        "earned": f"{figures['earned_micro'] / MICRO:,.6f}",
        "penalties": f"{figures['paid_micro'] / MICRO:,.6f}",
        "links": f"{figures['links']:,} measured, {figures['drifts']:,} windows drifting",
        "flows": f"{figures['flows']:,}, {figures['promised_flows']:,} of them with a delay bound",
        "bounds violated": f"{figures['violations']:,}",
    }
