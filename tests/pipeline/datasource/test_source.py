from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.brokers import JournalBroker

pytest.importorskip("pyspark", reason="pyspark is not installed")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from timebound.errors import ConfigError, JournalError
from timebound.pipeline.datasource.options import Options
from timebound.pipeline.datasource.source import (
    PushingReader,
    RangePartition,
    Reader,
    StreamReader,
    advance,
    source_schema,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A call that is interrupted breaks the connection to Spark for all tests behind it.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(240)]

ROWS = 1000
SERVERS = ("a:1", "b:1", "c:1")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JournalBroker]:
    process = JournalBroker(tmp_path_factory.mktemp("source"))
    process.publish(f"plant/{number % 4}/{number}" for number in range(ROWS))
    yield process
    process.check()
    process.kill()


def schema_of(*names: str) -> StructType:
    """A schema of these columns; the source looks at names, Spark at types."""
    return StructType([StructField(name, StringType()) for name in names])


def rows_of(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition in partitions:
        for batch in reader.read(partition):
            found += batch.to_pylist()
    return found


def entry(offset: int, identity: str = "id") -> dict[str, Any]:
    return {"journal": "all", "identity": identity, "offset": offset}


# --- without Spark -------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=3), st.integers(1, 60)
)
def test_a_stream_reaches_the_latest_offsets_in_batches_within_the_limit(
    ways: list[tuple[int, int]], rows_max: int
) -> None:
    start = {SERVERS[number]: entry(first) for number, (first, _) in enumerate(ways)}
    latest = {SERVERS[number]: entry(first + way) for number, (first, way) in enumerate(ways)}
    total = sum(way for _, way in ways)

    batches = 0
    offset = start
    while offset != latest:
        ahead = advance(offset, latest, ReadMaxRows(rows_max))
        taken = sum(ahead[server]["offset"] - offset[server]["offset"] for server in latest)
        assert 0 < taken <= rows_max
        assert all(
            offset[server]["offset"] <= ahead[server]["offset"] <= latest[server]["offset"]
            for server in latest
        )
        offset = ahead
        batches += 1

    assert batches == -(-total // rows_max)
    assert advance(start, latest, ReadAllAvailable()) == latest
    assert advance(latest, latest, ReadMaxRows(rows_max)) == latest


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(10)])
def test_a_new_server_begins_at_its_start_and_one_that_left_stays(limit: ReadLimit) -> None:
    offset = advance({"old:1": entry(7)}, {"new:1": entry(3)}, limit)

    assert offset == {"old:1": entry(7), "new:1": entry(3)}


def test_a_journal_that_was_begun_anew_is_an_error() -> None:
    with pytest.raises(JournalError, match=r"is not the one this query has read.*new checkpoint"):
        advance({"a:1": entry(5)}, {"a:1": entry(9, "other")}, ReadAllAvailable())


def test_a_journal_that_lost_rows_already_read_is_an_error() -> None:
    with pytest.raises(JournalError, match="ends at 3, before offset 5"):
        advance({"a:1": entry(5)}, {"a:1": entry(3)}, ReadAllAvailable())


def test_partitions_cover_the_range_evenly(broker: JournalBroker) -> None:
    options = Options((broker.server,), rows_per_partition=300)

    partitions = Reader(options, schema_of("offset")).partitions()

    ranges = [one.range for one in partitions if isinstance(one, RangePartition)]
    assert [(one.start, one.end) for one in ranges] == [(0, 250), (250, 500), (500, 750), (750, 1000)]


def test_only_the_columns_of_the_schema_are_read(broker: JournalBroker) -> None:
    reader = Reader(Options((broker.server,), topic="plant/3/+"), schema_of("server", "node", "topic"))

    rows = rows_of(reader, reader.partitions())

    assert len(rows) == ROWS // 4
    assert rows[0] == {"server": broker.server, "node": "timebound", "topic": "plant/3/3"}


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        ("colour", {}, "unknown column 'colour'; expected server, node, journal, offset, topic"),
        ("topic", {"gaps": "row"}, 'gaps as rows require the column "gap"'),
    ],
)
def test_a_schema_that_cannot_be_served_is_explained(
    names: str, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        Reader(Options(("a:1",), **options), schema_of(names))


@pytest.mark.parametrize("name", ["starting", "ending"])
def test_offsets_beyond_the_journal_are_an_error(broker: JournalBroker, name: str) -> None:
    options = Options((broker.server,), **{name: {broker.server: ROWS + 1}})  # type: ignore[arg-type]  # by name

    with pytest.raises(JournalError, match=f"{name}Offsets name offset 1001 of {broker.server}"):
        Reader(options, schema_of("topic")).partitions()


def test_latest_means_the_same_both_times_it_is_asked(broker: JournalBroker) -> None:
    reader = StreamReader(Options((broker.server,), starting="latest"), schema_of("topic"))

    first = reader.initialOffset()

    assert reader.initialOffset() is first
    assert first[broker.server]["offset"] == ROWS


def test_offsets_of_a_stream_keep_the_name_of_the_broker(broker: JournalBroker) -> None:
    reader = StreamReader(Options((broker.server,)), schema_of("node"))
    start = reader.initialOffset()
    end = advance(start, reader.reportLatestOffset(), ReadMaxRows(2))

    assert (start[broker.server]["node"], end[broker.server]["node"]) == ("timebound", "timebound")
    assert rows_of(reader, reader.partitions(start, end)) == [{"node": "timebound"}] * 2


def test_a_checkpoint_without_the_name_of_the_broker_is_continued(broker: JournalBroker) -> None:
    reader = StreamReader(Options((broker.server,)), schema_of("node"))
    latest = reader.reportLatestOffset()
    identity = latest[broker.server]["identity"]
    start = {broker.server: entry(0, identity)}

    # A batch that was planned before is repeated as it was.
    planned = reader.partitions(start, {broker.server: entry(2, identity)})
    end = advance({broker.server: entry(2, identity)}, latest, ReadMaxRows(3))
    following = reader.partitions({broker.server: entry(2, identity)}, end)

    assert rows_of(reader, planned) == [{"node": broker.server}] * 2
    assert rows_of(reader, following) == [{"node": "timebound"}] * 3


def test_pushed_comparisons_narrow_what_is_read(broker: JournalBroker) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, IsNotNull, LessThan

    reader = PushingReader(Options((broker.server,)), schema_of("offset", "topic"))
    filters = [
        IsNotNull(("topic",)),
        GreaterThanOrEqual(("offset",), 10),
        LessThan(("offset",), 20),
        EqualTo(("topic",), "plant/0/12"),
    ]

    left = list(reader.pushFilters(filters))
    partitions = reader.partitions()

    assert left == filters  # Spark applies them again, to gap rows as well
    assert [(one.range.start, one.range.end) for one in partitions if isinstance(one, RangePartition)] == [
        (10, 20)
    ]
    assert rows_of(reader, partitions) == [{"offset": 12, "topic": "plant/0/12"}]


@pytest.fixture(scope="module")
def gappy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A journal that no longer holds its beginning."""
    broker = JournalBroker(tmp_path_factory.mktemp("gaps"), 'bytes_max = "1MiB"\n')
    # Random payloads are not made small by compression.
    broker.publish([f"t/{number}" for number in range(40)], payload=os.urandom(40_000).hex())
    broker.wait_logged("removed offsets 0 to", 30.0)
    yield broker.server
    broker.kill()


def test_gaps_are_errors_by_default(gappy_server: str) -> None:
    options = Options((gappy_server,), starting={gappy_server: 0})
    reader = Reader(options, schema_of("offset"))

    with pytest.raises(JournalError, match=r"no longer holds [0-9]+ rows from offset 0 on"):
        rows_of(reader, reader.partitions())


def test_gaps_are_rows_where_asked_and_every_offset_is_accounted_for(gappy_server: str) -> None:
    options = Options((gappy_server,), starting={gappy_server: 0}, gaps="row")
    reader = Reader(options, schema_of("offset", "topic", "gap"))

    gap, *held = rows_of(reader, reader.partitions())

    assert (gap["offset"], gap["topic"]) == (0, None)
    assert [row["offset"] for row in held] == list(range(gap["gap"], 40))
    assert all(row["gap"] is None for row in held)


def test_earliest_begins_behind_a_gap(gappy_server: str) -> None:
    reader = Reader(Options((gappy_server,)), schema_of("offset"))

    rows = rows_of(reader, reader.partitions())

    assert 0 < rows[0]["offset"] < rows[-1]["offset"] == 39


# --- with Spark ----------------------------------------------------------------------------


def load(spark: SparkSession, broker: JournalBroker, **options: str) -> DataFrame:
    return spark.read.format("timebound").option("servers", broker.server).options(**options).load()


def test_a_batch_is_read_in_parallel_with_types_and_times(spark: SparkSession, broker: JournalBroker) -> None:
    frame = load(spark, broker, topic="plant/+/+", rowsPerPartition="400")

    rows = frame.selectExpr(
        "count(*) n", "count(distinct topic) topics", "min(offset) low", "max(offset) high"
    ).first()

    assert frame.schema == StructType.fromDDL(source_schema("messages"))
    assert rows is not None
    assert (rows.n, rows.topics, rows.low, rows.high) == (ROWS, ROWS, 0, ROWS - 1)
    assert frame.where("published = timestamp_micros(published_ns div 1000)").count() == ROWS


def test_a_filter_is_pushed_to_the_broker_where_asked(spark: SparkSession, broker: JournalBroker) -> None:
    frame = load(spark, broker, pushFilters="true").where("offset >= 10 and offset < 12")

    assert [row.offset for row in frame.orderBy("offset").collect()] == [10, 11]


def test_a_wrong_option_fails_with_its_explanation(spark: SparkSession, broker: JournalBroker) -> None:
    with pytest.raises(Exception, match="must be one of error, row, not 'skip'"):
        load(spark, broker, gaps="skip").count()


def test_a_stream_reads_everything_in_batches_of_the_size_asked_for(
    spark: SparkSession, broker: JournalBroker, tmp_path: Path
) -> None:
    stream = (
        spark.readStream.format("timebound")
        .option("servers", broker.server)
        .option("where", "$topic LIKE 'plant/1/%'")
        .option("maxRowsPerBatch", "600")
        .load()
    )
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)

    rows = spark.read.parquet(str(tmp_path / "out"))
    assert query.exception() is None
    assert sorted(row.offset for row in rows.collect()) == list(range(1, ROWS, 4))
    assert len(query.recentProgress) == 2
