"""Whole runs over made traces: incremental, repeatable, exact, and unmoved by bad input."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.traces import MS, SPARK_TIMEOUT_S, START, dropped, row, write_file

from timebound.core.account.account import Account
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.errors import ConfigError
from timebound.node.trace.columns import to_table
from timebound.pipeline import batch
from timebound.pipeline.batch import BatchSummary, last_summary, prepare, run
from timebound.pipeline.io import read_trace
from timebound.pipeline.jobs.cube import cube
from timebound.pipeline.jobs.earnings import bills
from timebound.pipeline.jobs.quality import good, with_faults
from timebound.records import Reason
from timebound.terms import Terms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


def read(out: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table, in an order that does not depend on how they were written."""
    rows: list[dict[str, Any]] = pq.read_table(out / table).to_pylist()
    return sorted(rows, key=lambda one: str(sorted(one.items())))


def tables(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: read(out, name) for name in batch.TABLES}


def contents(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def run_all(spark: SparkSession, trace: Path, out: Path) -> BatchSummary:
    return run(spark, prepare(trace, out))


class Story:
    """One output folder through several runs, and what each of them said."""

    def __init__(self, folder: Path) -> None:
        self.trace, self.out = folder / "trace", folder / "out"
        self.whole = folder / "whole"  # the trace with the file that is removed between the runs
        self.first = BatchSummary()
        self.second = BatchSummary()


def die(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A trace of two versions with a bad row and a torn file, and a run that dies; then more files come."""
    story = Story(tmp_path_factory.mktemp("story"))
    trace = story.trace
    bad = row(4, outcome="lost")
    write_file(trace, [row(1), row(2, price_micro=5), dropped(3, penalty_micro=7), bad])
    write_file(trace, [row(5), row(6, qos=1)], name="part-2-000001.parquet", version=1)
    torn = write_file(trace, [row(7)], name="part-3-000001.parquet")
    torn.write_bytes(torn.read_bytes()[:-9])
    oldest = write_file(trace, [row(8, promised_ns=MS)], node="n2")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch, "_make_results", die)
        with pytest.raises(KeyboardInterrupt):
            run_all(spark, trace, story.out)
    assert (story.out / "partial" / "cube").exists()
    assert not (story.out / "manifest.json").exists()
    story.first = run_all(spark, trace, story.out)
    # Message 2 has another subscriber, told in the next file: it is published once.
    write_file(trace, [row(2, subscriber="u"), row(9, outcome="lost")], name="part-4-000001.parquet")
    write_file(trace, [row(10)], date="2027-01-16")
    write_file(trace, [row(11)], name="part-2-000001.parquet", node="n2")
    work = [
        (one.partition.date, one.partition.node, len(one.increment.files))
        for one in prepare(trace, story.out).work
    ]
    assert work == [("2027-01-15", "n1", 3), ("2027-01-15", "n2", 2), ("2027-01-16", "n1", 1)]
    shutil.copytree(trace, story.whole)
    oldest.unlink()
    story.second = run_all(spark, trace, story.out)
    return story


def test_old_files_bad_rows_and_torn_files_are_told_apart(story: Story) -> None:
    summary = story.first

    assert (summary.files_new, summary.rows, summary.quarantined) == (3, 7, 1)
    [(bad_name, fault)] = summary.bad_files.items()
    assert bad_name.endswith("part-3-000001.parquet")
    assert fault.startswith("unreadable")
    figures = summary.figures
    assert (figures["in_time"], figures["dropped"], figures["published"]) == (5, 1, 6)
    assert (figures["earned_micro"], figures["paid_micro"], figures["violations"]) == (4_000_005, 7, 1)


def test_new_files_are_added_to_what_is_there(story: Story) -> None:
    summary = story.second

    assert (summary.files_new, summary.rows, summary.quarantined) == (3, 11, 2)
    assert (summary.figures["published"], summary.figures["in_time"]) == (8, 8)
    refused = {(one["message_id"], one["fault"]) for one in read(story.out, "quarantine")}
    assert refused == {(4, "outcome is unknown"), (9, "outcome is unknown")}
    quality = {(one["date"], one["node"], one["fault"]): one["rows"] for one in read(story.out, "quality")}
    assert quality == {
        ("2027-01-15", "n1", ""): 6,
        ("2027-01-15", "n1", "outcome is unknown"): 2,
        ("2027-01-15", "n2", ""): 2,
        ("2027-01-16", "n1", ""): 1,
    }
    assert [one["message_id"] for one in read(story.out, "violations")] == [8]
    assert all(Path(path).parent == story.out for path in summary.tables.values())


def test_without_new_files_nothing_is_to_be_done(story: Story) -> None:
    before = contents(story.out)

    assert prepare(story.trace, story.out).work == []
    assert last_summary(story.out) == story.second
    assert contents(story.out) == before


def test_what_was_added_up_of_removed_files_stays(story: Story) -> None:
    parts = pq.read_table(story.out / "partial" / "cube").to_pylist()

    assert {one["part"] for one in parts if one["node"] == "n2"} == {1, 2}


def test_small_steps_a_death_and_a_removed_file_change_nothing(
    spark: SparkSession, story: Story, tmp_path: Path
) -> None:
    summary = run_all(spark, story.whole, tmp_path)

    assert summary.figures == story.second.figures
    assert tables(tmp_path) == tables(story.out)
    assert not (tmp_path / "_new").exists()


def test_an_empty_trace_gives_empty_tables(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()

    summary = run_all(spark, tmp_path / "trace", tmp_path / "out")

    assert (summary.rows, summary.figures["earned_micro"]) == (0, 0)
    assert all(rows == [] for rows in tables(tmp_path / "out").values())
    assert "amount_micro" in pq.read_table(tmp_path / "out" / "bills").column_names


def test_two_runs_do_not_share_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    plan = prepare(tmp_path / "trace", tmp_path / "out")
    (tmp_path / "out").mkdir()

    with batch._locked(tmp_path / "out"), pytest.raises(ConfigError, match="another run is using"):
        run(spark, plan)


SUBSCRIPTIONS = [
    Subscription(client_id="s", topic_filter="t/#", terms=Terms(price=1.25, penalty=0.000_001)),
    Subscription(client_id="u", topic_filter="t/#", terms=Terms(price=0.1, penalty=3.0, deadline_ns=2 * MS)),
    Subscription(client_id="v", topic_filter="#", terms=Terms(price=0.0, penalty=0.3, deadline_ns=5 * MS)),
]
PAIRS = st.lists(
    st.tuples(
        st.sampled_from(SUBSCRIPTIONS),
        st.integers(0, 10 * MS),
        st.sampled_from([None, None, *Reason]),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=400,
)


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PAIRS)
def test_bills_equal_the_counters_of_the_broker(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, pairs: list[Any]
) -> None:
    account = Account()
    account.is_tracing = True
    for number, (subscription, took_ns, reason, qos) in enumerate(pairs):
        published_ns = START + number * 3_000 * MS
        message = Message("t/1", b"x" * (number % 7), qos, False, published_ns, "p", sequence=number)
        delivery = Delivery(message, qos, False, subscription=subscription, offered_ns=published_ns)
        if reason is None:
            delivery.sent_ns = published_ns + took_ns
            account.delivered(subscription.client_id, delivery, delivery.sent_ns)
        else:
            account.drop(subscription.client_id, delivery, reason, published_ns + took_ns)
    place = tmp_path_factory.mktemp("bills") / "date=2027-01-15" / "node=n"
    place.mkdir(parents=True)
    pq.write_table(to_table(account.trace.take()), place / "part-1.parquet")

    judged = with_faults(read_trace(spark, place, ["part-1.parquet"]))
    lines = bills(cube(good(judged))).collect()

    assert sum(line["price_micro"] for line in lines) == account.earned_micro
    assert sum(line["penalty_micro"] for line in lines) == account.paid_micro
    assert sum(line["in_time"] for line in lines) == account.in_time
    assert sum(line["late"] for line in lines) == account.late
    assert sum(line["dropped"] for line in lines) == sum(account.dropped.values())
