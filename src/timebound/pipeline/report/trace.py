"""The page about live traces: results of the batch jobs, for those who pay and those in charge."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from timebound.pipeline.report import page as html
from timebound.pipeline.report.chart import Axes, Bar, Line, bar_chart, legend, line_chart, number
from timebound.pipeline.report.page import Page

MICRO: Final = 1_000_000
# Lines of one chart that can be told apart, and bars that fit on a screen.
LINES_MAX: Final = 8
BARS_MAX: Final = 12
# A replay is accurate to a few per cent; a smaller gain is not worth a change.
GAIN_MIN: Final = 0.05
# A chart over time needs at least two points.
_POINTS_MIN: Final = 2
# Unit, its seconds, and the shortest span that is shown in it.
_UNITS: Final = (("hours", 3_600, 5 * 3_600), ("minutes", 60, 5 * 60), ("seconds", 1, 0))

_DROPPED: Final = "dropped_"

Rows = list[dict[str, Any]]


class ReportTables:
    """The tables of an output folder by name; a missing one is empty."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self, name: str) -> Rows:
        import pyarrow.parquet as pq

        path = self._folder / name
        if not any(path.rglob("*.parquet")):
            return []
        found: Rows = pq.read_table(path).to_pylist()
        return found


def trace_page(folder: Path) -> Page:
    """Make the page about the output of `timebound pipeline run`."""
    tables = ReportTables(folder)
    bills = tables.rows("bills")
    deliveries = tables.rows("deliveries")
    page = Page("delivery report", _title(bills), _lead(bills, tables.rows("tuning")))
    page.tiles = _tiles(bills, tables)
    sections = [
        _deliveries(deliveries),
        _reasons(deliveries),
        _earnings(tables.rows("earnings")),
        _bills(bills),
        _links(tables.rows("links")),
        _flows(tables.rows("flows"), tables.rows("advice")),
        _bounds(tables.rows("bounds")),
        _tuning(tables.rows("tuning")),
        _quality(tables.rows("quality")),
    ]
    page.sections = [one for one in sections if one]
    page.footer = "Made from the traces of the brokers; its tables are Parquet files in the same folder."
    return page


def money(micro: float) -> str:
    return f"{micro / MICRO:,.2f}"


def _title(bills: Rows) -> str:
    days = sorted({str(row["day"]) for row in bills})
    if not days:
        return "Nothing was delivered"
    return f"Deliveries of {days[0]}" if len(days) == 1 else f"Deliveries from {days[0]} to {days[-1]}"


def _lead(bills: Rows, tuning: Rows) -> str:
    total = sum(row["in_time"] + row["late"] + row["dropped"] for row in bills)
    if not total:
        return "The trace has no deliveries."
    in_time = sum(row["in_time"] for row in bills)
    earned = sum(row["price_micro"] for row in bills)
    paid = sum(row["penalty_micro"] for row in bills)
    said = (
        f"Of {total:,} deliveries that subscribers asked for, {100 * in_time / total:.1f} % arrived in time. "
        f"They earned {money(earned)}; "
    )
    if paid:
        said += f"penalties cost {money(paid)}, which leaves {money(earned - paid)}."
    else:
        said += "no penalties were due."
    for row in tuning:
        if row["is_best"] and _gain(row) > GAIN_MIN:
            said += (
                f" In the busiest interval of {row['node']} the strategy {_choice(row)} could have earned "
                f"{100 * _gain(row):.0f} % more."
            )
    return said


def _gain(row: dict[str, Any]) -> float:
    """Return the gain of a choice over the observed earning, as a share of it."""
    observed = row["observed_earning"]
    return float(row["earning"] / observed - 1) if observed > 0 else 0.0


def _tiles(bills: Rows, tables: ReportTables) -> list[tuple[str, str]]:
    total = sum(row["in_time"] + row["late"] + row["dropped"] for row in bills)
    in_time = sum(row["in_time"] for row in bills)
    net = sum(row["amount_micro"] for row in bills)
    published = sum(row["published"] or 0 for row in tables.rows("traffic"))
    violations = sum(row["violations"] for row in tables.rows("bounds"))
    tiles = [
        (f"{100 * in_time / total:.1f} %" if total else "–", "in time"),
        (money(net), "earned, less penalties"),
        (f"{published:,}", "messages published"),
        (f"{len({row['subscriber'] for row in bills}):,}", "subscribers"),
    ]
    if tables.rows("bounds"):
        tiles.append((f"{violations:,}", "delay bounds exceeded"))
    return tiles


def _deliveries(rows: Rows) -> str:
    topics = sorted((row for row in rows if row["view"] == "topic"), key=lambda row: -row["matched"])
    if not topics:
        return ""
    bars = [
        Bar(
            row["name"],
            ((row["in_time"], "good"), (row["late"], "late"), (row["dropped"], "bad")),
            f"{100 * row['in_time_share']:.1f} % of {row['matched']:,}",
        )
        for row in topics[:BARS_MAX]
    ]
    columns = ["topic", "wanted", "in time", "late", "dropped", "median", "99 %", "longest"]
    body = [
        [
            row["name"],
            *[f"{row[name]:,}" for name in ("matched", "in_time", "late", "dropped")],
            *[_milliseconds(row[name]) for name in ("latency_p50_ms", "latency_p99_ms", "latency_max_ms")],
        ]
        for row in topics
    ]
    worst = min(topics, key=lambda row: row["in_time_share"])
    text = (
        f"Outcome of every delivery, by topic. The least punctual is {worst['name']} with "
        f"{100 * worst['in_time_share']:.1f} % in time."
    )
    return html.section(
        "Deliveries",
        text,
        html.colour_key((("good", "in time"), ("late", "late"), ("bad", "dropped"))),
        html.figure("Deliveries by topic", bar_chart(bars, "deliveries by topic")),
        html.table(columns, body, where="deliveries"),
        html.note("Times run from publication until the message was handed to its subscriber's link."),
    )


def _reasons(rows: Rows) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        for column, count in row.items() if row["view"] == "all" else ():
            if column.startswith(_DROPPED):
                reason = column.removeprefix(_DROPPED)
                counts[reason] = counts.get(reason, 0) + count
    found = sorted(((count, name) for name, count in counts.items() if count), reverse=True)
    if not found:
        return ""
    total = sum(count for count, _ in found)
    bars = [
        Bar(
            _MEANINGS.get(name, name.replace("_", " ")),
            ((count, "bad"),),
            f"{count:,} ({100 * count / total:.0f} %)",
        )
        for count, name in found
    ]
    text = f"{total:,} deliveries were dropped, for these reasons."
    return html.section("Reasons for drops", text, bar_chart(bars, "reasons for drops"))


_MEANINGS: Final = {
    "timed_out": "time was up",
    "hopeless": "could not arrive in time",
    "queue_full": "queue was full",
    "quota": "quota reached",
    "session_expired": "session had ended",
    "expired": "message had expired",
    "too_large": "too large for the receiver",
    "disconnected": "receiver not connected",
    "replaced": "replaced by a newer one",
}


def _earnings(rows: Rows) -> str:
    hours = sorted({row["hour"] for row in rows})
    if len(hours) < _POINTS_MIN:
        return ""
    first = hours[0]
    subscribers = _largest(rows, "subscriber", "net_micro")
    lines = []
    for name in subscribers:
        sums: dict[Any, float] = dict.fromkeys(hours, 0.0)
        for row in rows:
            if row["subscriber"] == name:
                sums[row["hour"]] += row["net_micro"] / MICRO
        points = [((hour - first).total_seconds() / 3_600, value, 0.0) for hour, value in sums.items()]
        lines.append(Line(name, points))
    axes = Axes(f"hours since {first:%Y-%m-%d %H:%M} UTC", "earned, less penalties", names=subscribers)
    text = f"Earnings by hour over {len(hours)} hours, of the {len(subscribers)} largest subscribers."
    chart = html.panels([html.figure("Earned by hour", line_chart(lines, axes))])
    return html.section("Earnings over time", text, legend(subscribers), chart)


def _bills(rows: Rows) -> str:
    if not rows:
        return ""
    ordered = sorted(rows, key=lambda row: (-row["amount_micro"], row["subscriber"], str(row["day"])))
    columns = ["subscriber", "day", "in time", "late", "dropped", "price", "penalty", "amount"]
    body = [
        [
            row["subscriber"],
            str(row["day"]),
            *[f"{row[name]:,}" for name in ("in_time", "late", "dropped")],
            *[money(row[name]) for name in ("price_micro", "penalty_micro", "amount_micro")],
        ]
        for row in ordered
    ]
    total = sum(row["amount_micro"] for row in rows)
    text = (
        f"What each subscriber owes per day; in total {money(total)}. Amounts are exact: "
        "they are the brokers' own counters."
    )
    return html.section("Bills", text, html.table(columns, body, texts=2, where="bills"))


def _links(rows: Rows) -> str:
    if not rows:
        return ""
    names = _largest(rows, "link", "kb")
    first = min(row["window"] for row in rows)
    passed_s = (max(row["window"] for row in rows) - first).total_seconds()
    unit, unit_s = next((name, length_s) for name, length_s, least_s in _UNITS if passed_s >= least_s)
    lines = []
    body = []
    for name in names:
        own = sorted((row for row in rows if row["link"] == name), key=lambda row: row["window"])
        kb = sum(row["kb"] for row in own)
        mean = sum(row["mean_s_per_kb"] * row["kb"] for row in own) / kb
        variance = sum((row["variance"] + row["mean_s_per_kb"] ** 2) * row["kb"] for row in own) / kb
        drifts = sum(row["is_drift"] for row in own)
        points = [
            ((row["window"] - first).total_seconds() / unit_s, row["rate_bytes_per_s"] / 1_000, 0.0)
            for row in own
        ]
        lines.append(Line(name, points))
        deviation = max(variance - mean * mean, 0.0) ** 0.5
        body.append(
            [name, number(1.024 / mean), number(1_000 * mean), number(1_000 * deviation), f"{drifts}"]
        )
    drifted = sorted({row["link"] for row in rows if row["is_drift"]})
    count = len({row["link"] for row in rows})
    text = "Measured rate of the link" if count == 1 else f"Measured rates of {count:,} links"
    text += " while messages waited for it. " if count == 1 else " while messages waited for them. "
    text += f"{', '.join(drifted[:3])} changed rate." if drifted else "No rate changed."
    columns = ["link", "kB/s", "ms per KB", "deviation, ms", "changes of rate"]
    chart = ""
    if any(len(line.points) >= _POINTS_MIN for line in lines):
        axes = Axes(f"{unit} since {first:%Y-%m-%d %H:%M:%S} UTC", "kB/s", names=names)
        chart = legend(names) + html.panels([html.figure("Measured rate, kB/s", line_chart(lines, axes))])
    return html.section("Links", text, chart, html.table(columns, body, where="links"))


def _flows(rows: Rows, advice: Rows) -> str:
    if not rows:
        return ""
    advised = {(row["node"], row["publisher"], row["topic"]): row for row in advice}
    ordered = sorted(rows, key=lambda row: -row["messages"])
    columns = ["publisher", "topic", "messages", "per second", "advertise at", "burst", "weight", "bound"]
    body = []
    for row in ordered:
        one = advised.get((row["node"], row["publisher"], row["topic"]), {})
        body.append(
            [
                row["publisher"] or "–",
                row["topic"],
                f"{row['messages']:,}",
                number(row["mean_rate_per_s"]) if row["mean_rate_per_s"] else "–",
                f"{number(row['rate_per_s'])}/s",
                f"{row['burst']:,}",
                f"{one['weight']}" if one.get("weight") else "–",
                _milliseconds(one.get("bound_ms")),
            ]
        )
    text = (
        "Rate and burstiness of publishers, and the contract with which each flow could be "
        "advertised to get a delay bound."
    )
    return html.section("Flows", text, html.table(columns, body, texts=2, where="flows"))


def _bounds(rows: Rows) -> str:
    if not rows:
        return ""
    broken = [row for row in rows if not row["is_kept"]]
    columns = ["publisher", "topic", "deliveries", "bound", "longest", "exceeded"]
    body = [
        [
            row["publisher"],
            row["topic"],
            f"{row['pairs']:,}",
            _milliseconds(row["promised_min_ms"]),
            _milliseconds(row["worst_ms"]),
            f"{row['violations']:,}",
        ]
        for row in sorted(rows, key=lambda row: (-row["violations"], row["topic"]))
    ]
    text = (
        f"{len(broken)} of {len(rows)} flows exceeded their delay bound."
        if broken
        else f"All {len(rows)} flows with a delay bound kept it."
    )
    return html.section("Delay bounds", text, html.table(columns, body, texts=2, where="bounds"))


def _tuning(rows: Rows) -> str:
    best = [row for row in rows if row["is_best"]]
    if not best:
        return ""
    pieces = []
    for one in best:
        own = sorted((row for row in rows if row["node"] == one["node"]), key=lambda row: -row["earning"])
        bars = [
            Bar(_choice(row), ((row["earning"], "accent" if row["is_best"] else "plain"),), _value(row))
            for row in own[:BARS_MAX]
        ]
        bars.append(Bar("observed", ((one["observed_earning"], "good"),), _observed(one)))
        pieces.append(html.figure(f"Broker {one['node']}", bar_chart(bars, "earning by strategy")))
    first = max(best, key=_gain)
    text = (
        f"The busiest {first['seconds']:,.0f} s were replayed under every strategy: "
        f"the same {first['rows']:,} "
        f"deliveries over links of the measured rates. The strategy {_choice(first)} would earn most, "
        f"{first['earning']:,.0f}; observed were {first['observed_earning']:,.0f}. "
    )
    if _gain(first) > GAIN_MIN:
        text += f"That is {100 * _gain(first):.0f} % more: worth a try."
    else:
        text += "No other strategy would have done clearly better than the one in use."
    return html.section("Strategies for this load", text, *pieces)


def _quality(rows: Rows) -> str:
    if not rows:
        return ""
    used = sum(row["rows"] for row in rows if not row["fault"])
    bad = [row for row in rows if row["fault"]]
    text = f"{used:,} trace records were used; {sum(row['rows'] for row in bad):,} were quarantined."
    body = [[row["fault"], row["node"], str(row["date"]), f"{row['rows']:,}"] for row in bad]
    shown = html.table(["fault", "broker", "day", "records"], body, texts=3, where="quality") if bad else ""
    return html.section("Quality of the records", text, shown)


def _choice(row: dict[str, Any]) -> str:
    return row["strategy"] if row["weight"] is None else f"{row['strategy']}, mix {row['weight']:g}"


def _value(row: dict[str, Any]) -> str:
    return f"{row['earning']:,.1f} · {100 * row['in_time_share']:.1f} % in time"


def _observed(row: dict[str, Any]) -> str:
    return f"{row['observed_earning']:,.1f} · {100 * row['observed_in_time_share']:.1f} % in time"


def _largest(rows: Rows, key: str, measure: str) -> list[str]:
    sums: dict[str, float] = {}
    for row in rows:
        sums[row[key]] = sums.get(row[key], 0.0) + row[measure]
    return sorted(sums, key=lambda name: (-sums[name], name))[:LINES_MAX]


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1_000:.3g} s" if value >= 1_000 else f"{value:.3g} ms"
