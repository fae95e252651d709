"""The results of the overload demo, as a table for people and as values for programs."""

from __future__ import annotations

import dataclasses
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
LINK_USED_MIN: Final = 0.85
# Of a class of which the best would send next to nothing, a share of the best says nothing.
SHARE_SHOWN_MIN: Final = 0.05


def table(outcomes: Sequence[Outcome]) -> Table:
    """What came of each class by each broker, beside the best possible and the broker's own account."""
    setting = outcomes[0].setting
    way = "interface" if setting.wants_interface else "relay"
    shown = Table(
        title=f"Link of {format_rate(setting.rate_bytes_per_s)} ({way}, buffer {setting.buffer_s * 1_000:g} "
        f"ms), QoS {setting.qos}, {setting.seconds:g} s each; judged by the receiver\n"
        + "; ".join(_limits(traffic) for traffic in outcomes[0].traffics),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for heading in ("broker", "class"):
        shown.add_column(heading, no_wrap=True)
    for heading in (
        "in\ntime",
        "late",
        "age, ms\nmedian",
        "\n99 %",
        "value",
        "of the\nbest",
        "account:\nin time",
        "late",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    for load in sorted({outcome.load for outcome in outcomes}):
        shown.add_row(f"[bold]load {load:g}x[/bold]")
        rows = [outcome for outcome in outcomes if outcome.load == load]
        for outcome in rows:
            for traffic, best in zip(outcome.traffics, outcome.best, strict=True):
                shown.add_row(outcome.contender.label, *_class_cells(traffic, best))
            shown.add_row(outcome.contender.label, *_sum_cells(outcome), style="bold")
            shown.add_section()
        for traffic, best in zip(rows[0].traffics, rows[0].best, strict=True):
            share = best.messages / max(len(traffic.fates), 1)
            value = f"{best.value:,.0f}"
            shown.add_row("best possible", traffic.kind.name, f"{share:.1%}", "", "", "", value, style="dim")
        shown.add_section()
    return shown


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """How to read the last columns."""
    if not any(outcome.account for outcome in outcomes):
        return []
    if outcomes[0].setting.qos:
        return [
            "the account counts what was acknowledged, and by when; what was on its way at the end "
            "is in neither of its columns"
        ]
    return [
        "with QoS 0 nothing tells a broker when a message arrives: the account counts what was sent in time"
    ]


def _class_cells(traffic: Traffic, best: Best) -> list[str]:
    in_time = traffic.in_time()
    value = in_time * traffic.kind.price
    return [
        traffic.kind.name,
        f"{in_time / max(len(traffic.fates), 1):.1%}",
        f"{traffic.late():,}",
        _age(traffic, 0.5),
        _age(traffic, 0.99),
        f"{value:,.0f}",
        f"{value / best.value:.1%}" if best.messages >= SHARE_SHOWN_MIN * len(traffic.fates) > 0 else "",
    ]


def _sum_cells(outcome: Outcome) -> list[str]:
    in_time = sum(traffic.in_time() for traffic in outcome.traffics)
    late = sum(traffic.late() for traffic in outcome.traffics)
    account = outcome.account
    return [
        *(
            "all",
            f"{in_time:,}",
            f"{late:,}",
            "",
            "",
            f"{outcome.value:,.0f}",
            f"{outcome.share_of_best:.1%}",
        ),
        *((f"{account.in_time:,}", f"{account.late:,}") if account is not None else ("", "")),
    ]


def _age(traffic: Traffic, part: float) -> str:
    age_ms = age_ms_at(traffic, part)
    return f"{age_ms:,.0f}" if age_ms is not None else ""


def age_ms_at(traffic: Traffic, part: float) -> float | None:
    """The age on arrival that this part of what arrived did not exceed; None if nothing did."""
    ages_ns = traffic.delays_ns()
    if not ages_ns:
        return None
    return ages_ns[min(int(len(ages_ns) * part), len(ages_ns) - 1)] / MILLISECOND


def as_values(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything as plain values for JSON."""
    setting = outcomes[0].setting
    return {
        "rate_bytes_per_s": setting.rate_bytes_per_s,
        "seconds": setting.seconds,
        "seed": setting.seed,
        "qos": setting.qos,
        "buffer_ms": setting.buffer_s * 1_000,
        "way": "interface" if setting.wants_interface else "relay",
        "runs": [
            {
                "broker": outcome.contender.label,
                "strategy": outcome.contender.strategy,
                "load": outcome.load,
                "value": outcome.value,
                "value_best": outcome.value_best,
                "share_of_best": outcome.share_of_best,
                "link_used": outcome.link_used,
                "account": dataclasses.asdict(outcome.account) if outcome.account is not None else None,
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


def _limits(traffic: Traffic) -> str:
    kind = traffic.kind
    limit = format_duration(kind.deadline_ns) if kind.deadline_ns else "no deadline"
    return f"{kind.name}: {limit}, worth {kind.price:g}"


def _class_values(traffic: Traffic, best: Best) -> dict[str, Any]:
    kind = traffic.kind
    offered = max(len(traffic.fates), 1)
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
        "delay_ms_median": age_ms_at(traffic, 0.5),
        "delay_ms_99": age_ms_at(traffic, 0.99),
        "delay_ms_max": age_ms_at(traffic, 1.0),
    }
