"""Freshness under overload in virtual time, over many seeds, with 95 % intervals (decision 22).

    python benchmarks/fresh_links.py mesh  [--first 100] [--seeds 20] [--seconds 12]
    python benchmarks/fresh_links.py mixed [--first 100] [--seeds 20] [--seconds 12]

`mesh`: a link of 1 Mbit/s between two brokers, behind a buffer that nobody sees. `mixed`: a receiver behind
the same, with QoS 1 for alerts and QoS 0 for the rest. Everything before the link is what runs in a node,
pacing included. Seeds below 100 are for choosing constants, those from 100 on for what is reported.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.core.link.hidden_link import CLASSES
from tests.linking.hidden_mesh import HiddenMesh
from tests.node.links.hidden_receiver import HiddenReceiver

MIXED = (replace(CLASSES[0], qos_min=1), *CLASSES[1:])
LOADS = (1.2, 1.5, 2.0, 3.0, 5.0)
BUFFERS = (0, 20_000, 100_000)


def mesh(hidden_bytes: int, load: float, seconds: float, seed: int) -> list[float]:
    link = HiddenMesh(hidden_bytes)
    outcome = link.run(load, seconds, seed)
    ages = outcome.of("alerts").delays_ns()
    return [
        outcome.share_in_time("alerts"),
        outcome.share_of_best(),
        outcome.late_share(),
        outcome.link_used,
        ages[len(ages) // 2] / 1e6,
    ]


def mixed(hidden_bytes: int, load: float, seconds: float, seed: int) -> list[float]:
    link = HiddenReceiver(hidden_bytes, classes=MIXED)
    outcome = link.run(load, seconds, seed)
    ages = outcome.of("alerts").delays_ns()
    return [
        outcome.share_in_time("alerts"),
        outcome.share_of_possible("telemetry"),
        outcome.late_share(),
        link.link_used,
        ages[len(ages) // 2] / 1e6,
    ]


STUDIES: dict[str, tuple[Callable[[int, float, float, int], list[float]], str]] = {
    "mesh": (mesh, "value of the best"),
    "mixed": (mixed, "telemetry of the possible"),
}


def interval(values: Sequence[float]) -> str:
    """Return the mean and the half width of its 95 % interval, by Student's t."""
    degrees = len(values) - 1
    if not degrees:
        return f"{values[0]:.4f}"
    z = statistics.NormalDist().inv_cdf(0.975)
    # The expansion of Student's quantile in the normal one: exact to 0.001 from nine degrees of freedom on.
    t = z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):.4f} ± {half:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--first", type=int, default=100, help="The first seed.")
    parser.add_argument("--seeds", type=int, default=20, help="Number of seeds.")
    parser.add_argument("--seconds", type=float, default=12.0, help="Seconds of publishing in each run.")
    parser.add_argument("--buffers", type=int, nargs="+", default=BUFFERS, help="Hidden buffers, in bytes.")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="Loads, in the link's rate.")
    parser.add_argument("--jobs", type=int, default=1, help="Processes.")
    options = parser.parse_args()
    run, figure = STUDIES[options.study]
    print(f"| buffer | load | alerts in time | least | {figure} | late | link used | alerts' age, ms |")
    print("|---|---|---|---|---|---|---|---|")
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs) as pool:
        for hidden_bytes in options.buffers:
            for load in options.loads:
                rows = list(pool.map(partial(run, hidden_bytes, load, options.seconds), seeds))
                alerts, value, late, used, age_ms = (list(column) for column in zip(*rows, strict=True))
                print(
                    f"| {hidden_bytes // 1_000} KB | {load:g} × | {interval(alerts)} | {min(alerts):.4f} "
                    f"| {interval(value)} | {interval(late)} | {interval(used)} | {interval(age_ms)} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
