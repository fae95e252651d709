"""Packed runs: numbers and kinds come out as they went in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.message import Delivery, Message
from timebound.core.subscription import Subscription
from timebound.core.trace_run import TraceKind, TraceRun
from timebound.node.trace_columns import by_run
from timebound.node.trace_pack import RunPack, pack_runs

TIME_MAX = (1 << 62) - 1
times = st.integers(0, TIME_MAX)


def kind_of(name: str) -> TraceKind:
    wanted = Subscription(name, "t")
    delivery = Delivery(Message("t", b"x", 0, False, 0, "p"), 0, False, subscription=wanted)
    return TraceKind(name, delivery, wanted, "in_time", "")


KINDS = [kind_of(name) for name in "abc"]
some_runs = st.lists(
    st.builds(
        TraceRun,
        st.sampled_from(KINDS),
        time_ns=times,
        published_ns=times,
        offered_ns=times,
        sent_ns=st.one_of(st.just(0), times),
        message_id=times,
        count=st.integers(1, 1_000),
    ),
    max_size=20,
)


@settings(max_examples=50, deadline=None)
@given(batches=st.lists(some_runs, max_size=4))
def test_what_comes_out_is_what_was_added(batches: list[list[TraceRun]]) -> None:
    runs = [run for batch in batches for run in batch]
    pack = RunPack()
    for batch in batches:
        pack.add(batch)

    numbers, kinds = by_run(pack)

    assert (pack.runs, pack.rows) == (len(runs), sum(run.count for run in runs))
    assert [kinds[number] for number in numbers["kind"]] == [run.kind for run in runs]
    for name in ("count", "time_ns", "message_id", "published_ns", "sent_ns"):
        assert numbers[name].tolist() == [getattr(run, name) for run in runs]
    assert numbers["queued_ns"].tolist() == [run.queued_ns() for run in runs]


def test_a_kind_stands_once_however_often_others_come_between() -> None:
    runs = [TraceRun(kind, 4, 1, 2, 3, number, 1) for number in range(9) for kind in KINDS]

    pack = pack_runs(runs)

    assert list(pack.kinds) == KINDS
