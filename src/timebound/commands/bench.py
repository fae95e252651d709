"""`timebound bench`: put load on any MQTT broker, and measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from timebound.packages import FOR_PLOTS, require

if TYPE_CHECKING:
    from timebound.bench.options import LoadOptions

app = typer.Typer(
    invoke_without_command=True,
    epilog="Examples:  timebound bench  ·  timebound bench --subscribers 10 --size 1000  ·  "
    "timebound bench --rate 1000 --json  ·  timebound bench --self-test",
)


@app.callback()
def bench(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The broker's address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The broker's port.")] = 1883,
    publishers: Annotated[int, typer.Option(min=1, help="Clients that publish.")] = 1,
    subscribers: Annotated[int, typer.Option(min=0, help="Clients that subscribe.")] = 1,
    topics: Annotated[int, typer.Option(min=1, help="Topics, spread over both.")] = 1,
    size: Annotated[int, typer.Option(min=0, help="Bytes of each payload.")] = 64,
    qos: Annotated[int, typer.Option(min=0, max=2, help="QoS to publish and subscribe with.")] = 0,
    subscribe_qos: Annotated[int | None, typer.Option(min=0, max=2, help="QoS to subscribe with.")] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages per second of all publishers; 0 as fast as possible.")
    ] = 0.0,
    duration: Annotated[str, typer.Option(help="How long to measure, such as 5s.")] = "5s",
    warmup: Annotated[str, typer.Option(help="How long to run before measuring.")] = "1s",
    window: Annotated[int, typer.Option(min=1, max=65535, help="Unacknowledged messages, QoS 1, 2.")] = 1000,
    mqtt: Annotated[int, typer.Option("--mqtt", help="5, or 4 for MQTT 3.1.1.")] = 5,
    username: Annotated[str | None, typer.Option(help="User name.")] = None,
    password: Annotated[
        str | None, typer.Option(envvar="TIMEBOUND_PASSWORD", help="Password, better given by environment.")
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Connect with TLS.")] = False,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust, in PEM.")] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Measure the generator itself, without a broker.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Measure throughput and latency of any MQTT broker."""
    if context.invoked_subcommand is not None:
        return
    from timebound.bench.options import LoadOptions
    from timebound.units import SECOND, parse_duration

    try:
        options = LoadOptions(
            host=host,
            port=port,
            publishers=publishers,
            subscribers=subscribers,
            topics=topics,
            size=size,
            qos=qos,
            subscribe_qos=subscribe_qos,
            rate=rate,
            duration_s=parse_duration(duration) / SECOND,
            warmup_s=parse_duration(warmup) / SECOND,
            window=window,
            mqtt_version=mqtt,
            username=username,
            password=password,
            tls=tls,
            ca_file=str(ca_file) if ca_file else None,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _measure(options, self_test=self_test, as_json=as_json)


def _measure(options: LoadOptions, *, self_test: bool, as_json: bool) -> None:
    """Run the load, or the generator alone, and print what was found."""
    from timebound.bench.load import run_load
    from timebound.bench.report import describe, load_json, load_table, warnings
    from timebound.bench.selftest import self_test as find_ceiling

    screen = Console(stderr=True)
    with screen.status(f"{'the generator alone: ' if self_test else ''}{describe(options)}"):
        result = find_ceiling(options) if self_test else run_load(options)
    if as_json:
        typer.echo(load_json(result))
        return
    Console().print(load_table(result))
    for warning in warnings(result):
        screen.print(f"[yellow]note:[/yellow] {warning}")


@app.command(
    epilog="Examples:  timebound bench channel  ·  timebound bench channel --only speed --json  ·  "
    "timebound bench channel --plot plots"
)
def channel(
    only: Annotated[
        str,
        typer.Option(
            help="Experiments, by commas: speed, collocated, two-processes, utilisation, federated, spacing."
        ),
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Measure briefly: a try, no result.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write pictures into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Repeat the published experiments of the event channel on this machine."""
    from timebound.bench import channel as experiments
    from timebound.bench import channel_report
    from timebound.commands.sweep import printer

    if plot is not None:
        require("--plot", *FOR_PLOTS)
    chosen = [name.strip() for name in only.split(",")] if only else list(experiments.EXPERIMENTS)
    screen = Console(stderr=True)
    try:
        with screen.status("event channel") as status:
            results = experiments.run(
                chosen,
                lengths=experiments.QUICK if quick else experiments.RunLengths(),
                progress=lambda name: status.update(f"event channel: {name}"),
            )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        typer.echo(channel_report.to_json(results))
    else:
        for table in channel_report.tables(results):
            printer().print(table)
        for note in channel_report.notes(results):
            screen.print(f"[dim]{note}[/dim]")
    if plot is not None:
        for path in channel_report.plot(results, plot):
            screen.print(f"wrote {path}", markup=False)
    for name, reason in results.failed.items():
        screen.print(f"[red]error:[/red] {name} failed: {escape(reason)}", highlight=False)
    if results.failed:
        raise typer.Exit(1)
