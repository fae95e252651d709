"""What each configuration of the event channel loads, and how much memory it takes.

    python benchmarks/channel_footprint.py [--runs 5] [--json]

Each configuration is imported, built, started and used once in a fresh process. Modules are those that
were not loaded before; memory is by how much the resident set grew, the median of the runs. The first
line says whether the package is compiled: compiled modules share one library, of which the system loads
the pages that are used.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
from typing import Any

ON_A_LOOP = """
import asyncio
from timebound.channel import AsyncioDispatch, AsyncioTiming, ChannelBuilder
async def main():
    builder = ChannelBuilder("c").filtering().dispatching(AsyncioDispatch()).timers(AsyncioTiming())
    with builder.build() as channel:
        channel.connect(print, "x")
        measure()
asyncio.run(main())
"""
WITH_A_SOCKET = """
import os
from timebound.channel import ChannelBuilder, ListeningGateway
folder = f"/tmp/timebound-footprint-{os.getpid()}"
os.mkdir(folder)
with ChannelBuilder("c").filtering().build() as channel, ListeningGateway(channel, folder + "/x"):
    measure()
os.rmdir(folder)
"""
FROM_A_FILE = """
import os
from timebound.channel import ChannelBuilder
folder = f"/tmp/timebound-footprint-{os.getpid()}"
os.mkdir(folder)
with open(folder + "/channel.toml", "w") as file:
    file.write("[filtering]")
with ChannelBuilder.from_file(folder + "/channel.toml").build() as channel:
    channel.connect(lambda event: None, "x")
    channel.supplier("s", "x").push("x", 1)
    measure()
os.remove(folder + "/channel.toml")
os.rmdir(folder)
"""


def built(configuration: str) -> str:
    return f"""
from timebound.channel import build
with build({configuration!r}) as channel:
    channel.connect(lambda event: None)
    channel.supplier("s", "x").push("x", 1)
    measure()
"""


PROGRAMS = {
    "broadcast": built("broadcast"),
    "broadcast, pulled": """
from timebound.channel import build
with build("broadcast") as channel:
    puller = channel.pull_consumer()
    channel.supplier("s", "x").push("x", 1)
    assert puller.pull() is not None
    measure()
""",
    "reactive with filtering": """
from timebound.channel import ChannelBuilder
with ChannelBuilder().filtering().build() as channel:
    channel.connect(lambda event: None, "x")
    channel.supplier("s", "x").push("x", 1)
    measure()
""",
    "the same from a file": FROM_A_FILE,
    "filtering": built("filtering"),
    "dispatching": built("dispatching"),
    "full": built("full"),
    "full, with an operation": """
from timebound.channel import build
with build("full") as channel:
    operation = channel.scheduler.operation("o", period="20ms", cost="3ms")
    channel.connect(lambda event: None, "x", operation=operation)
    channel.supplier("s", "x").push("x", 1)
    measure()
""",
    "asyncio": ON_A_LOOP,
    "filtering and a socket": WITH_A_SOCKET,
}

# Measures itself without importing anything: `os` and `sys` are there from the start.
CHILD = """
import os, sys
def rss_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def measure():
    grown = rss_bytes() - rss_begin
    new = sorted(set(sys.modules) - loaded)
    file = getattr(sys.modules["timebound.channel.channel"], "__file__")
    print(repr({"grown": grown, "modules": new, "threads": len(os.listdir("/proc/self/task")),
                "compiled": not file.endswith(".py")}))
loaded = set(sys.modules)
rss_bytes()
rss_begin = rss_bytes()
"""


def run(name: str, runs: int) -> dict[str, Any]:
    """Measure one configuration in several fresh processes."""
    found = [run_once(PROGRAMS[name]) for _ in range(runs)]
    modules = found[0]["modules"]
    return {
        "configuration": name,
        "compiled": found[0]["compiled"],
        "timebound_modules": [module for module in modules if module.split(".")[0] == "timebound"],
        "other_modules": [module for module in modules if module.split(".")[0] != "timebound"],
        "memory_bytes": int(statistics.median(one["grown"] for one in found)),
        "threads": found[0]["threads"],
    }


def run_once(program: str) -> dict[str, Any]:
    command = [sys.executable, "-c", CHILD + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise SystemExit(f"a configuration failed:\n{done.stderr}")
    measured: dict[str, Any] = ast.literal_eval(done.stdout.splitlines()[-1])
    return measured


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        f"compiled: {results[0]['compiled']}",
        "",
        "| configuration | modules of timebound | others | memory, MB | threads |",
        "|---|---|---|---|---|",
    ]
    for result in results:
        counts = f"{len(result['timebound_modules'])} | {len(result['other_modules'])}"
        memory = f"{result['memory_bytes'] / 1e6:.1f}"
        lines.append(f"| {result['configuration']} | {counts} | {memory} | {result['threads']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="What each configuration of the event channel loads.")
    parser.add_argument("--runs", type=int, default=5, help="processes for each configuration")
    parser.add_argument("--json", action="store_true", help="print JSON, with the names of the modules")
    options = parser.parse_args()
    results = [run(name, options.runs) for name in PROGRAMS]
    print(json.dumps(results, indent=2) if options.json else table(results))


if __name__ == "__main__":
    main()
