"""Made results of sweeps and batch jobs, and a reader that checks a page while it reads it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from timebound.pipeline.sweep.results import Figure, Printed, SweepInfo, write_results
from timebound.records import Reason

MICRO = 1_000_000
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Checker(HTMLParser):
    """Notes what a page opens and does not close, its text, and whatever it would fetch."""

    VOID = frozenset({"meta", "br", "link", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        if tag in ("script", "link", "img", "iframe"):
            self.fetched.append(tag)
        self.fetched += [f"{name}={value}" for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(page: str) -> str:
    """The text of a page that is whole and fetches nothing."""
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.fetched == []
    assert "http" not in page
    assert "url(" not in page
    return " ".join(checker.texts)


def write_sweep(folder: Path, *, failed: bool = False) -> None:
    rows = [
        {"rate": rate, "strategy": strategy, "seed": seed, "delivery_rate": share, "earning": 1_000 * share}
        for rate in (5.0, 15.0)
        for strategy, share in (("eb", 0.9 - rate / 50), ("fifo", 0.6 - rate / 50))
        for seed in (1, 2)
    ]
    table = pa.Table.from_pylist([{**row, "error": ""} for row in rows])
    if failed:
        bad = [{**rows[0], "delivery_rate": None, "earning": None, "error": "ValueError: <no> link"}]
        table = pa.concat_tables([table, pa.Table.from_pylist(bad, schema=table.schema)])
    figure = Figure("Figure 6", "rate", "messages", ("strategy",), ("delivery_rate", "earning"))
    printed = (
        Printed("Figure 6", "delivery rate of eb", "delivery_rate", "eb", "", 15.0, 0.401, 0.6),
        Printed("Figure 6", "earning of eb over that of fifo", "earning", "eb", "fifo", 15.0, 5.0, 2.0),
    )
    info = SweepInfo(
        "made sweep",
        ("rate", "strategy"),
        ("delivery_rate", "earning"),
        runs=table.num_rows,
        failed=int(failed),
        wall_s=5.0,
        cpu_s=8.0,
        cores=2,
        note="Only made.",
        figures=(figure,),
        printed=printed,
    )
    write_results(folder, table, info)


def write_tables(folder: Path, tables: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in tables.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / name / "part-0.parquet")


def delivery(view: str, name: str, in_time: int, late: int, dropped: int) -> dict[str, Any]:
    matched = in_time + late + dropped
    return {
        "node": "n1",
        "view": view,
        "name": name,
        "matched": matched,
        "in_time": in_time,
        "late": late,
        "dropped": dropped,
        "in_time_share": in_time / matched,
        **{f"dropped_{reason.value}": 0 for reason in Reason},
        "dropped_hopeless": dropped,
        "latency_p50_ms": 12.5,
        "latency_p99_ms": 250.0,
        "latency_max_ms": 1_500.0,
    }


def bill(subscriber: str, in_time: int, dropped: int, price: float, penalty: float) -> dict[str, Any]:
    return {
        "subscriber": subscriber,
        "day": date(2026, 3, 1),
        "in_time": in_time,
        "late": 0,
        "dropped": dropped,
        "price_micro": int(price * MICRO),
        "penalty_micro": int(penalty * MICRO),
        "amount_micro": int((price - penalty) * MICRO),
    }


def choice(strategy: str, weight: float | None, earning: float, is_best: bool) -> dict[str, Any]:
    return {
        "node": "n1",
        "strategy": strategy,
        "weight": weight,
        "earning": earning,
        "in_time_share": 0.9,
        "is_best": is_best,
        "observed_in_time_share": 0.8,
        "observed_earning": 100.0,
        "rows": 100,
        "seconds": 7.0,
    }


def trace_tables() -> dict[str, list[dict[str, Any]]]:
    hours = [
        {"node": "n1", "hour": START.replace(hour=hour), "subscriber": "anna", "net_micro": hour * MICRO}
        for hour in (12, 13, 14)
    ]
    windows = [
        {
            "node": "n1",
            "link": "radio",
            "window": START.replace(second=second),
            "kb": 50.0,
            "mean_s_per_kb": 0.008,
            "variance": 0.0,
            "rate_bytes_per_s": 128_000.0,
            "is_drift": second == 20,
        }
        for second in (0, 10, 20)
    ]
    flow = {"node": "n1", "publisher": "probe", "topic": "a/b"}
    return {
        "bills": [bill("anna", 80, 20, 160.0, 10.0), bill("<bert>", 10, 0, 5.5, 0.0)],
        "deliveries": [
            delivery("all", "", 90, 0, 20),
            delivery("topic", "a/b", 80, 0, 20),
            delivery("topic", "c", 10, 0, 1),
        ],
        "traffic": [{"node": "n1", "published": 75}],
        "earnings": hours,
        "links": windows,
        "flows": [{**flow, "messages": 75, "mean_rate_per_s": 9.5, "rate_per_s": 12.0, "burst": 4}],
        "advice": [{**flow, "weight": 3, "bound_ms": 12.0}],
        "bounds": [
            {
                **flow,
                "pairs": 75,
                "promised_min_ms": 20.0,
                "worst_ms": 31.0,
                "violations": 2,
                "is_kept": False,
            }
        ],
        "tuning": [choice("fifo", None, 60.0, False), choice("ebpc", 0.75, 125.0, True)],
        "quality": [
            {"date": "2026-03-01", "node": "n1", "fault": "", "rows": 110},
            {"date": "2026-03-01", "node": "n1", "fault": "qos is not 0, 1 or 2", "rows": 3},
        ],
    }
