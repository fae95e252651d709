"""The results of the overload demo, as a table for people and as values for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich import box
from rich.table import Table

from timebound.demo.best import Best
from timebound.demo.overload import Outcome
from timebound.demo.traffic import Traffic
from timebound.units import MILLISECOND, SECOND, format_duration

# Width of a bin of the picture.
BIN_S: Final = 0.5
# With more offered than it carries a link is always busy, unless somebody did not get a processor.
LINK_USED_MIN: Final = 0.9


def table(outcomes: Sequence[Outcome]) -> Table:
    """One row for each broker and load, and the best possible beside them."""
    setting = outcomes[0].setting
    shown = Table(
        title=f"Link of {format_rate(setting.rate_bytes_per_s)}, {setting.seconds:g} s each; "
        "in time and value earned, judged by the receiver",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    shown.add_column("load", justify="right")
    shown.add_column("broker", no_wrap=True)
    for traffic in outcomes[0].traffics:
        shown.add_column(_heading(traffic), justify="right", no_wrap=True)
    shown.add_column("value\nearned", justify="right")
    shown.add_column("of the\nbest", justify="right")
    for load in sorted({outcome.load for outcome in outcomes}):
        rows = [outcome for outcome in outcomes if outcome.load == load]
        for outcome in rows:
            cells = [
                _cell(traffic.in_time() / max(len(traffic.fates), 1), traffic.in_time() * traffic.kind.price)
                for traffic in outcome.traffics
            ]
            shown.add_row(
                f"{load:g}x",
                outcome.contender.label,
                *cells,
                f"{outcome.value:,.0f}",
                f"{outcome.share_of_best:.1%}",
            )
        first = rows[0]
        best = [
            _cell(best.messages / max(len(traffic.fates), 1), best.value)
            for best, traffic in zip(first.best, first.traffics, strict=True)
        ]
        shown.add_row(f"{load:g}x", "best possible", *best, f"{first.value_best:,.0f}", "100.0%", style="dim")
        shown.add_section()
    return shown


def as_values(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything as plain values for JSON."""
    setting = outcomes[0].setting
    return {
        "rate_bytes_per_s": setting.rate_bytes_per_s,
        "seconds": setting.seconds,
        "seed": setting.seed,
        "runs": [
            {
                "broker": outcome.contender.label,
                "strategy": outcome.contender.strategy,
                "load": outcome.load,
                "value": outcome.value,
                "value_best": outcome.value_best,
                "share_of_best": outcome.share_of_best,
                "link_used": outcome.link_used,
                "classes": [
                    _class_values(traffic, best)
                    for traffic, best in zip(outcome.traffics, outcome.best, strict=True)
                ],
            }
            for outcome in outcomes
        ],
    }


def warnings(outcomes: Sequence[Outcome]) -> list[str]:
    """What to be careful about."""
    found = []
    for outcome in outcomes:
        if outcome.load >= 1 and outcome.link_used < LINK_USED_MIN:
            found.append(
                f"{outcome.contender.label} at {outcome.load:g}x used only {outcome.link_used:.0%} of the "
                "link: this machine is busy with something else"
            )
    return found


def over_time(outcome: Outcome, traffic: Traffic) -> tuple[list[float], list[float], list[float]]:
    """By time of publication: the middle of each bin, the share in time, the value per second."""
    bins = max(1, round(outcome.setting.seconds / BIN_S))
    offered = [0] * bins
    in_time = [0] * bins
    for fate in traffic.fates:
        index = min(int((fate.published_ns - outcome.started_ns) / SECOND / BIN_S), bins - 1)
        offered[index] += 1
        in_time[index] += traffic.is_in_time(fate)
    middles = [(index + 0.5) * BIN_S for index in range(bins)]
    shares = [good / count if count else float("nan") for good, count in zip(in_time, offered, strict=True)]
    return middles, shares, [good * traffic.kind.price / BIN_S for good in in_time]


def format_rate(bytes_per_s: float) -> str:
    bits = bytes_per_s * 8
    return f"{bits / 1e6:g} Mbit/s" if bits >= 1e6 else f"{bits / 1e3:g} kbit/s"


def _heading(traffic: Traffic) -> str:
    kind = traffic.kind
    limit = format_duration(kind.deadline_ns) if kind.deadline_ns else "no deadline"
    return f"{kind.name}\n{limit}\nworth {kind.price:g}"


def _cell(share: float, value: float) -> str:
    return f"{share:.1%} {value:,.0f}"


def _class_values(traffic: Traffic, best: Best) -> dict[str, Any]:
    kind = traffic.kind
    offered = max(len(traffic.fates), 1)
    delays_ns = traffic.delays_ns()
    return {
        "class": kind.name,
        "deadline_ms": kind.deadline_ns / MILLISECOND if kind.deadline_ns else None,
        "price": kind.price,
        "offered": len(traffic.fates),
        "in_time": traffic.in_time(),
        "late": traffic.late(),
        "share_in_time": traffic.in_time() / offered,
        "value": traffic.in_time() * kind.price,
        "share_best": best.messages / offered,
        "value_best": best.value,
        "delay_ms_median": delays_ns[len(delays_ns) // 2] / MILLISECOND if delays_ns else None,
        "delay_ms_max": delays_ns[-1] / MILLISECOND if delays_ns else None,
    }
