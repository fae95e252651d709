"""What a journal costs: messages received a second with a journal of all topics against none.

Two brokers take turns under the same load, as in tracing.py. At full speed the journal's thread and the
broker share an interpreter, so this is the worst case; publishers wait rather than lose rows.

    python benchmarks/journal.py [--rounds 3] [--duration 1.5]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from timebound.bench.load import run_load
from timebound.bench.options import LoadOptions
from timebound.version import is_compiled

CONFIG = "[[listeners]]\nport = 0\n"
JOURNAL = '[[journals]]\nname = "all"\n[flight]\nenabled = false\n'


@contextlib.contextmanager
def running(config: str) -> Iterator[int]:
    """A broker with a data directory of its own; gives its port."""
    with tempfile.TemporaryDirectory(prefix="journal-") as name:
        path = Path(name) / "timebound.toml"
        path.write_text(config)
        command = [sys.executable, "-m", "timebound", "serve", "--config", str(path)]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert broker.stdout is not None
            yield next(int(line.rpartition(":")[2]) for line in broker.stdout if "mqtt://" in line)
        finally:
            broker.terminate()
            broker.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration", type=float, default=1.5, help="measured seconds of each load")
    arguments = parser.parse_args()
    base = LoadOptions(duration_s=arguments.duration, warmup_s=0.5, size=64, mqtt_version=4)
    works = {
        "1 to 1, QoS 0": base,
        "1 to 1, QoS 0, 50,000/s": replace(base, rate=50_000.0),
        "1 to 1, QoS 1": replace(base, qos=1),
    }
    print("compiled" if is_compiled() else "plain Python")
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(running(CONFIG))
        kept = stack.enter_context(running(CONFIG + JOURNAL))
        for name, options in works.items():
            rates: dict[int, list[float]] = {plain: [], kept: []}
            for _ in range(arguments.rounds):
                for port, found in rates.items():
                    found.append(run_load(replace(options, port=port)).received_per_s)
            without, with_it = statistics.median(rates[plain]), statistics.median(rates[kept])
            print(f"{name:26} {without:10,.0f} {with_it:10,.0f}  ratio {with_it / without:.2f}")


if __name__ == "__main__":
    main()
