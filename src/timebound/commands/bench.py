"""`timebound bench`: put load on any MQTT broker, and measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from timebound.commands._connection import WAY, Connecting, connects_by
from timebound.commands._screen import printer
from timebound.packages import FOR_PLOTS, require

if TYPE_CHECKING:
    from timebound.bench.options import LoadOptions

app = typer.Typer(
    invoke_without_command=True,
    epilog="Examples:  timebound bench  ·  timebound bench --subscribers 10 --size 1000  ·  "
    "timebound bench --rate 1000 --json  ·  timebound bench --self-test",
)


@app.callback()
@connects_by(*WAY, "mqtt_version")
def bench(
    context: typer.Context,
    publishers: Annotated[int, typer.Option(min=1, help="Clients that publish.")] = 1,
    subscribers: Annotated[int, typer.Option(min=0, help="Clients that subscribe.")] = 1,
    topics: Annotated[int, typer.Option(min=1, help="Topics, spread over both.")] = 1,
    size: Annotated[int, typer.Option(min=0, help="Bytes of each payload.")] = 64,
    qos: Annotated[int, typer.Option(min=0, max=2, help="QoS to publish and subscribe with.")] = 0,
    subscribe_qos: Annotated[
        int | None, typer.Option(min=0, max=2, help="QoS to subscribe with, if another.")
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages per second of all publishers; 0 = as fast as possible.")
    ] = 0.0,
    duration: Annotated[str, typer.Option(help="How long to measure, such as 5s.")] = "5s",
    warmup: Annotated[str, typer.Option(help="How long to run before measuring.")] = "1s",
    window: Annotated[
        int, typer.Option(min=1, max=65535, help="Unacknowledged messages of a publisher, QoS 1 and 2.")
    ] = 1000,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Measure the generator itself, without a broker.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
    *,
    connecting: Connecting,
) -> None:
    """Measure throughput and latency of any MQTT broker."""
    if context.invoked_subcommand is not None:
        return
    from timebound.bench.options import LoadOptions
    from timebound.units import SECOND, parse_duration

    try:
        address = connecting.address()
        password = connecting.read_password()
        options = LoadOptions(
            host=address.host,
            port=address.port,
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
            mqtt_version=connecting.mqtt_version,
            username=address.username if connecting.user is None else connecting.user,
            password=address.password if password is None else password,
            tls=address.is_tls,
            ca_file=_name(connecting.ca_file),
            certificate_file=_name(connecting.cert_file),
            key_file=_name(connecting.key_file),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _measure(options, self_test=self_test, as_json=as_json)


def _name(path: Path | None) -> str | None:
    return None if path is None else str(path)


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
            help="Any of speed, collocated, two-processes, utilisation, federated, spacing; with commas."
        ),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure briefly: for a trial, not for results.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Write figures into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Repeat the published experiments of the event channel on this machine."""
    from timebound.bench import channel as experiments
    from timebound.bench import channel_report

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
