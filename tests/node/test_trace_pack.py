"""Packed runs: numbers and kinds come out as they went in."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.message import Delivery, Message
from timebound.core.subscription import Subscription
from timebound.core.trace_run import TraceKind, TraceRun
from timebound.node.parquet_runs import RunsFile
from timebound.node.trace import to_columns, to_table
from timebound.node.trace_columns import by_run
from timebound.node.trace_pack import RunPack, pack_runs
from timebound.records import TRACE_FIELDS

TIME_MAX = (1 << 61) - 1
times = st.integers(0, TIME_MAX)


def kind_of(name: str) -> TraceKind:
    wanted = Subscription(name, "t")
    delivery = Delivery(Message("t", b"x", 0, False, 0, "p"), 0, False, subscription=wanted)
    return TraceKind(name, delivery, wanted, "in_time", "")


KINDS = [kind_of(name) for name in "abc"]


@st.composite
def a_run(draw: st.DrawFn) -> TraceRun:
    kinds = draw(st.one_of(st.none(), st.lists(st.sampled_from(KINDS), min_size=2, max_size=9)))
    run = TraceRun(
        draw(st.sampled_from(KINDS)),
        time_ns=draw(times),
        published_ns=draw(times),
        offered_ns=draw(times),
        sent_ns=draw(st.one_of(st.just(0), times)),
        message_id=draw(times),
        count=len(kinds) if kinds else draw(st.integers(1, 50)),
    )
    run.kinds = kinds
    return run


some_runs = st.lists(a_run(), max_size=10)


@settings(max_examples=50, deadline=None)
@given(batches=st.lists(some_runs, max_size=4))
def test_what_comes_out_is_what_was_added(batches: list[list[TraceRun]]) -> None:
    runs = [run for batch in batches for run in batch]
    pack = RunPack()
    sizes = [pack.add(batch) for batch in batches]

    numbers, kinds = by_run(pack)

    assert pack.size_bytes == sum(sizes) == len(pack.numbers) + len(pack.mixed)
    assert (pack.runs, pack.rows) == (len(runs), sum(run.count for run in runs))
    assert [kinds[number] for number in np.repeat(numbers["kind"], numbers["kind_count"])] == [
        run.kind_at(offset) for run in runs for offset in range(run.count)
    ]
    for name in ("count", "time_ns", "message_id", "published_ns", "sent_ns"):
        assert numbers[name].tolist() == [getattr(run, name) for run in runs]
    assert numbers["queued_ns"].tolist() == [run.queued_ns() for run in runs]


def test_a_kind_stands_once_however_often_others_come_between() -> None:
    runs = [TraceRun(kind, 4, 1, 2, 3, number, 1) for number in range(9) for kind in KINDS]

    pack = pack_runs(runs)

    assert list(pack.kinds) == KINDS


@settings(max_examples=30, deadline=None)
@given(runs=some_runs.filter(bool))
def test_a_file_and_a_table_of_runs_hold_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, runs: list[TraceRun]
) -> None:
    path = tmp_path_factory.mktemp("pack") / "a.parquet"
    file = RunsFile(path, TRACE_FIELDS, {}, "timebound version 1")
    counts, columns = to_columns(pack_runs(runs))
    file.write_group(counts, columns)
    file.finish()

    rows = pq.ParquetFile(path).read().to_pylist()

    assert rows == to_table(runs).to_pylist()
    assert [(row["message_id"], row["subscriber"], row["time_ns"]) for row in rows] == [
        (run.message_id + offset, run.kind_at(offset).client_id, run.time_ns)
        for run in runs
        for offset in range(run.count)
    ]
