"""Results of the overload demo, as a table for people and as values for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from rich import box
from rich.table import Table

from timebound.demo.best import Best
from timebound.demo.overload import OverloadResult
from timebound.demo.traffic import Traffic
from timebound.units import MILLISECOND, SECOND, format_duration

# Width of a bin in the picture.
BIN_S: Final = 0.5
# An overloaded link is always busy, unless a process waits for a processor.
LINK_USED_MIN: Final = 0.85
# For the longest strategy name; its label wraps before the name on 80 columns.
LABEL_WIDTH: Final = 18


def table(outcomes: Sequence[OverloadResult]) -> Table:
    """Return the results by broker and class, with the best possible and the broker's own account.

    A broker's row has the sums of the classes below it. The table fits 80 columns; only a long label wraps.
    """
    shown = Table(
        title=_title(outcomes[0]),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 0),
    )
    shown.add_column("broker\n  class", min_width=LABEL_WIDTH)
    for heading in (
        "\npublished",
        "\nin time",
        "\n%",
        "\nlate",
        "age, ms\nmedian",
        "\n99 %",
        "\nvalue",
        "of the\nbest",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    for load in sorted({outcome.load for outcome in outcomes}):
        shown.add_row(f"[bold]load {load:g}x[/bold]")
        rows = [outcome for outcome in outcomes if outcome.load == load]
        for outcome in rows:
            _add_broker(shown, outcome)
        _add_best(shown, rows[0])
    return shown


def _title(outcome: OverloadResult) -> str:
    setting = outcome.setting
    way = "interface" if setting.wants_interface else "relay"
    return (
        f"Link of {format_rate(setting.rate_bytes_per_s)} ({way}, buffer {setting.buffer_s * 1_000:g} ms), "
        f"QoS {setting.qos}, {setting.seconds:g} s each; judged by the receiver\n"
        + "; ".join(_limits(traffic) for traffic in outcome.traffics)
    )


def _add_broker(shown: Table, outcome: OverloadResult) -> None:
    published = sum(len(traffic.fates) for traffic in outcome.traffics)
    in_time = sum(traffic.in_time() for traffic in outcome.traffics)
    late = sum(traffic.late() for traffic in outcome.traffics)
    shown.add_row(
        outcome.contender.label,
        *_counts(published, in_time),
        f"{late:,}",
        "",
        "",
        f"{outcome.value:,.0f}",
        f"{outcome.share_of_best:.1%}",
        style="bold",
    )
    for traffic in outcome.traffics:
        shown.add_row(
            f"  {traffic.kind.name}",
            *_counts(len(traffic.fates), traffic.in_time()),
            f"{traffic.late():,}",
            _age(traffic, 0.5),
            _age(traffic, 0.99),
            f"{traffic.in_time() * traffic.kind.price:,.0f}",
        )
    account = outcome.account
    if account is not None:
        shown.add_row("  its account", "", f"{account.in_time:,}", "", f"{account.late:,}", style="dim")
    shown.add_section()


def _add_best(shown: Table, outcome: OverloadResult) -> None:
    published = sum(len(traffic.fates) for traffic in outcome.traffics)
    messages = sum(best.messages for best in outcome.best)
    value = f"{outcome.value_best:,.0f}"
    shown.add_row("best possible", *_counts(published, messages), "", "", "", value, "100.0%", style="bold")
    for traffic, best in zip(outcome.traffics, outcome.best, strict=True):
        counts = _counts(len(traffic.fates), best.messages)
        shown.add_row(f"  {traffic.kind.name}", *counts, "", "", "", f"{best.value:,.0f}")
    shown.add_section()


def _counts(published: int, in_time: float) -> tuple[str, str, str]:
    return f"{published:,}", f"{in_time:,.0f}", f"{in_time / max(published, 1):.1%}"


def notes(outcomes: Sequence[OverloadResult]) -> list[str]:
    """Return how to read the rows of the account."""
    if not any(outcome.account for outcome in outcomes):
        return []
    if outcomes[0].setting.qos:
        return [
            "a broker's own account counts acknowledged messages, by the time of the acknowledgement; what "
            "is in transit at the end is in neither column"
        ]
    return [
        "with QoS 0 a broker does not learn when a message arrives: its own account counts messages sent in "
        "time"
    ]


def _age(traffic: Traffic, part: float) -> str:
    age_ms = age_ms_at(traffic, part)
    return f"{age_ms:,.0f}" if age_ms is not None else ""


def age_ms_at(traffic: Traffic, part: float) -> float | None:
    """Return the age on arrival not exceeded by this share of the arrivals; None without arrivals."""
    ages_ns = traffic.delays_ns()
    if not ages_ns:
        return None
    return ages_ns[min(int(len(ages_ns) * part), len(ages_ns) - 1)] / MILLISECOND


def as_values(outcomes: Sequence[OverloadResult]) -> dict[str, Any]:
    """Return all results as plain values for JSON."""
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


def warnings(outcomes: Sequence[OverloadResult]) -> list[str]:
    """Return what makes the results doubtful."""
    found = []
    for outcome in outcomes:
        if outcome.load >= 1 and outcome.link_used < LINK_USED_MIN:
            found.append(
                f"{outcome.contender.label} at {outcome.load:g}x used only {outcome.link_used:.0%} of the "
                "link: this machine is busy with something else"
            )
    return found


def over_time(outcome: OverloadResult, traffic: Traffic) -> tuple[list[float], list[float], list[float]]:
    """Return bins by time of publication: middle, share in time, value per second."""
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
    if not kind.deadline_ns:
        return f"{kind.name}: no deadline, so in time whenever it arrives, worth {kind.price:g} each"
    return f"{kind.name}: due within {format_duration(kind.deadline_ns)}, worth {kind.price:g} each"


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
