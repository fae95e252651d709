"""A channel described by a file, and changed by another one while it runs.

`channel.toml` names the modules, the gateway and the operations; the program only says what each
operation does. The second file differs in two places, and only those are swapped.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from timebound.channel import ChannelBuilder, ChannelFileError, Event

FILE = Path(__file__).with_name("channel.toml")


def main() -> None:
    with ChannelBuilder.from_file(FILE).build() as channel:
        fused = channel.operation_supplier("fuse")

        def fuse(event: Event) -> None:
            fused.push("fused", [part.payload for part in event.parts])

        channel.connect_operation("fuse", fuse)
        shown = channel.pull_consumer("fused")
        gps = channel.operation_supplier("gps")

        gps.push("position", (52.5, 13.4))
        gps.push("speed", 13)
        print("fused", payload_of(shown.pull("10s")))

        with TemporaryDirectory() as folder:
            changed = Path(folder, "channel.toml")
            text = FILE.read_text(encoding="utf-8")
            changed.write_text(
                text.replace('"lanes"  ', '"lane"  ').replace("criticality = 1", "critical = 2")
            )
            try:
                channel.reconfigure(changed)
            except ChannelFileError as error:
                for mistake in error.mistakes:
                    print(f"line {mistake.line} has a mistake: {mistake.key}")

            changed.write_text(
                text.replace("threads = 2", "threads = 1").replace('cost = "3ms"', 'cost = "2ms"')
            )
            channel.reconfigure(changed)

        gps.push("position", (52.6, 13.5))
        gps.push("speed", 14)
        print("fused", payload_of(shown.pull("10s")))
        for report in channel.scheduler.report():
            print(f"{report.name}: {report.cost_ns_stated / 1e6:.0f} ms each {report.period_ns / 1e6:.0f} ms")


def payload_of(event: Event | None) -> object:
    return None if event is None else event.payload


if __name__ == "__main__":
    main()
