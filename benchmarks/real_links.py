"""Deadlines over a real slow interface: rates, buffers and loads, with Mosquitto beside it.

    python benchmarks/real_links.py [--seconds 8] [--quick]

A broker, a publisher beside it and a receiver behind a link are processes of their own, in network
namespaces that are joined by a pair of virtual devices; the kernel shapes what goes to the receiver
(`tc tbf`). The receiver judges. Alerts are due in 500 ms, telemetry in 2 s, bulk in 8 s; all grow with the
load. It needs root and iproute2.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import replace

from timebound.demo.brokers import mosquitto_program
from timebound.demo.interface import why_not
from timebound.demo.interface_run import Case, InterfaceResult, run

HEADER = (
    "| link | buffer | load | | alerts in time | age, median | 99 % | telemetry in time | late | value "
    "| on the way, median | unsent, most |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def line(result: InterfaceResult) -> str:
    case = result.case
    kind = "Mosquitto" if case.is_mosquitto else "between brokers" if case.is_mesh else case.wire
    if case.falls_to != 1.0:
        kind += f", falls to {case.falls_to:g}"
    return (
        f"| {case.wire_bytes_per_s * 8 / 1e6:g} Mbit/s | {case.buffer_s * 1e3:.0f} ms "
        f"| {case.load:g}× | {kind} "
        f"| {result.in_time_share('alerts'):.1%} | {result.age_s('alerts') * 1e3:.0f} ms "
        f"| {result.age_s('alerts', 0.99) * 1e3:.0f} ms | {result.in_time_share('telemetry'):.1%} "
        f"| {result.late_share('telemetry'):.1%} | {result.share_of_best:.3f} "
        f"| {result.held_median:.0f} | {result.unsent_max} |"
    )


def cases(seconds: float, *, is_quick: bool) -> list[Case]:
    rates = (1e6,) if is_quick else (256e3, 1e6, 3e6, 10e6)
    buffers = (0.05, 0.4) if is_quick else (0.02, 0.05, 0.4, 1.0)
    loads = (2.0,) if is_quick else (1.5, 2.0, 3.0, 5.0)
    found: list[Case] = []
    for rate, buffer_s, load in itertools.product(rates, buffers, loads):
        case = Case(rate / 8, buffer_s, load, seconds)
        found.append(case)
        if load == 2.0 and mosquitto_program() is not None:
            found.append(replace(case, is_mosquitto=True))
    plain = Case(1e6 / 8, 0.4, 2.0, seconds)
    found += [replace(plain, wire="websocket"), replace(plain, is_mesh=True), replace(plain, qos=1)]
    found.append(replace(plain, load=1.2, falls_to=0.25))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Deadlines over a real slow interface.")
    parser.add_argument("--seconds", type=float, default=8.0, help="Seconds of publishing in each case.")
    parser.add_argument("--quick", action="store_true", help="A few cases instead of the whole grid.")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"error: no real slow interface can be made here: {reason}", file=sys.stderr)
        return 1
    print(HEADER, flush=True)
    for case in cases(options.seconds, is_quick=options.quick):
        print(line(run(case)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
