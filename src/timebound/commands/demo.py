"""`timebound demo`: experiments with real brokers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from timebound.demo.brokers import Contender
    from timebound.demo.overload import OverloadResult, OverloadSetting

# Of a table that is written to a file or a pipe.
FILE_WIDTH = 110

app = typer.Typer(help="Run experiments with real brokers on this machine.", no_args_is_help=True)


@app.callback()
def _demo() -> None:
    """Run experiments with real brokers on this machine."""


@app.command(
    epilog="Examples:  timebound demo overload  ·  timebound demo overload --plot .  ·  "
    "timebound demo overload --rate 256kbit/s --load 2 --strategies fifo,eb,worth --json"
)
def overload(
    seconds: Annotated[float, typer.Option(min=1, max=600, help="How long each run publishes.")] = 6.0,
    rate: Annotated[str, typer.Option(help="Speed of the link, such as 1Mbit/s.")] = "1Mbit/s",
    load: Annotated[
        str, typer.Option(help="Offered load, as a multiple of the speed of the link.")
    ] = "1.5,3",
    strategies: Annotated[
        str,
        typer.Option(
            help="Strategies to compare, separated by commas.", show_default="fifo and the broker's default"
        ),
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the publishing times.")] = 1,
    qos: Annotated[int, typer.Option(min=0, max=1, help="QoS of the messages.")] = 1,
    buffer: Annotated[
        str, typer.Option(help="Size of the link's own buffer, as a duration; the broker cannot see it.")
    ] = "200ms",
    relay: Annotated[
        bool, typer.Option("--relay", help="Use a relay even where a real interface is possible.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write a figure into this folder; needs matplotlib.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Overload a slow link and compare what arrives in time, and what it is worth.

    Alerts, telemetry and bulk go through a real broker to a subscriber behind a slow link, by each
    strategy in turn, and by Mosquitto where it is installed. The link is a real interface between network
    namespaces where this machine permits (as root), else a relay.
    """
    from timebound.demo.options import DEFAULT_STRATEGIES, contenders, parse_buffer, parse_loads, parse_rate
    from timebound.demo.overload import OverloadSetting
    from timebound.demo.plot import check_drawing, draw
    from timebound.demo.slow_link import why_no_interface

    if plot is not None:
        check_drawing()
    missing = "it was asked for" if relay else why_no_interface()
    try:
        setting = OverloadSetting(parse_rate(rate), seconds, seed, qos, parse_buffer(buffer), not missing)
        loads = parse_loads(load)
        brokers, note = contenders(strategies or DEFAULT_STRATEGIES)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    screen = Console(stderr=True, highlight=False)
    for each in (note, f"the link is a relay, not a real interface: {missing}" if missing else ""):
        if each:
            screen.print(f"[yellow]note:[/yellow] {each}")
    outcomes = _run_all(brokers, loads, setting, screen)
    _print_outcomes(outcomes, screen, as_json=as_json)
    if plot is not None:
        screen.print(f"picture: {draw(outcomes, plot)}")


def _run_all(
    brokers: Sequence[Contender], loads: Sequence[float], setting: OverloadSetting, screen: Console
) -> list[OverloadResult]:
    """Run every broker under every load, one after the other, and show how far it is."""
    from rich.progress import Progress

    from timebound.demo.overload import run

    outcomes = []
    with Progress(console=screen, transient=True) as progress:
        task = progress.add_task("", total=setting.run_s * len(loads) * len(brokers))
        for times in loads:
            for broker in brokers:
                progress.update(task, description=f"{broker.label} at {times:g}x")
                outcomes.append(
                    run(broker, times, setting, lambda passed_s: progress.advance(task, passed_s))
                )
    return outcomes


def _print_outcomes(outcomes: list[OverloadResult], screen: Console, *, as_json: bool) -> None:
    from timebound.demo.report import as_values, notes, table, warnings

    if as_json:
        typer.echo(json.dumps(as_values(outcomes), indent=2))
        return
    paper = Console()
    Console(width=None if paper.is_terminal else FILE_WIDTH).print(table(outcomes))
    for warning in [*notes(outcomes), *warnings(outcomes)]:
        screen.print(f"[yellow]note:[/yellow] {warning}")


@app.command(epilog="Examples:  timebound demo story  ·  timebound demo story --seconds 60 --strategy fifo")
def story(
    seconds: Annotated[float, typer.Option(min=1, max=600, help="How long to publish.")] = 20.0,
    rate: Annotated[str, typer.Option(help="Speed of the link, such as 1Mbit/s.")] = "1Mbit/s",
    load: Annotated[
        float, typer.Option(min=0.1, max=10, help="Offered load, as a multiple of the speed of the link.")
    ] = 2.0,
    strategy: Annotated[
        str, typer.Option(help="The broker's strategy.", show_default="the broker's default")
    ] = "",
    master: Annotated[str | None, typer.Option(help="Spark master; this machine by default.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of trace, results and report.")] = Path("demo-story"),
) -> None:
    """Overload a broker, analyse its trace with Spark, and write a report; needs pyspark."""
    from rich.progress import Progress

    from timebound.core.link.scheduling import DEFAULT_SCHEDULING
    from timebound.demo import story as steps
    from timebound.demo.options import parse_rate
    from timebound.demo.report import format_rate
    from timebound.pipeline.spark.session import check_spark

    check_spark(master)
    chosen = strategy or DEFAULT_SCHEDULING.name
    try:
        setting = steps.Drained(parse_rate(rate), seconds, load=load)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    screen = Console(stderr=True, highlight=False)
    speed = format_rate(setting.rate_bytes_per_s)
    screen.print(f"1. a broker ({chosen}) with {load:g} times what its link of {speed} carries")
    with Progress(console=screen, transient=True) as progress:
        task = progress.add_task("publishing, then emptying the queue", total=setting.run_s)
        outcome = steps.overload(out, chosen, setting, lambda passed_s: progress.advance(task, passed_s))
    published = sum(len(traffic.fates) for traffic in outcome.traffics)
    arrived = sum(traffic.in_time() + traffic.late() for traffic in outcome.traffics)
    # Who was in time is for the broker's account to say: measured here, it would differ by a few.
    screen.print(f"   published {published:,}; {arrived:,} reached the subscriber")
    screen.print("2. the pipeline on Spark: tables from the trace, and the load replayed")
    steps.analyse(out, master)
    screen.print("3. the report")
    typer.echo(steps.report(out))
