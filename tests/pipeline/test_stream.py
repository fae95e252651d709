"""The same rows as a table and as a stream give the same windows, alarms and links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.traces import MS, SECOND, SPARK_TIMEOUT_S, START, dropped, row, write_file

from timebound.pipeline.io import read_trace
from timebound.pipeline.jobs.links import links, samples, slots
from timebound.pipeline.jobs.quality import good, with_faults
from timebound.pipeline.jobs.windows import delivery_windows, with_time
from timebound.pipeline.schema import normalise, trace_schema
from timebound.pipeline.stream import SampleStore, describe, start_alarms, start_links

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]

WAIT_S = 200


def busy(count: int, start: int, link: str = "s") -> list[dict[str, Any]]:
    """A link that always has something waiting: 1 KB every 40 ms."""
    return [
        row(
            start + n,
            published_ns=START + (start + n) * 40 * MS,
            time_ns=START + (start + n) * 40 * MS + 80 * MS,
            sent_ns=START + (start + n) * 40 * MS + 80 * MS,
            queued_ns=80 * MS,
            link=link,
        )
        for n in range(count)
    ]


# Two files: s is busy, and many of its messages fail in the second; u is quiet, with a violated delay bound.
FILES = [
    [*busy(200, 0), row(500, link="u", published_ns=START), row(501, outcome="lost")],
    busy(200, 400)
    + [dropped(600 + n, penalty_micro=5, published_ns=START + 17 * SECOND) for n in range(90)]
    + [row(700, link="u", promised_ns=MS, published_ns=START + 18 * SECOND)],
]


class Published:
    """Keeps what would be published."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, rows: DataFrame) -> None:
        self.messages += [(one["topic"], json.loads(bytes(one["payload"]))) for one in rows.collect()]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stream") / "trace"
    for number, rows in enumerate(FILES):
        write_file(folder, rows, name=f"part-{number}.parquet")
    return folder


def streamed(spark: SparkSession, trace: Path) -> DataFrame:
    """The files as a stream, one after the other."""
    reader = spark.readStream.schema(trace_schema()).option("maxFilesPerTrigger", 1)
    return normalise(reader.parquet(str(trace)))


def stored(spark: SparkSession, trace: Path) -> DataFrame:
    names = [path.relative_to(trace).as_posix() for path in sorted(trace.rglob("*.parquet"))]
    return read_trace(spark, trace, names)


def test_windows_of_a_stream_equal_those_of_a_table(spark: SparkSession, trace: Path) -> None:
    def windows(rows: DataFrame) -> DataFrame:
        timed = with_time(good(with_faults(rows)))
        return delivery_windows(timed.withWatermark("time", "30 seconds"))

    wanted = sorted(windows(stored(spark, trace)).collect())
    writer = windows(streamed(spark, trace)).writeStream.format("memory").queryName("windows")
    query = writer.outputMode("complete").trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)

    assert sorted(spark.table("windows").collect()) == wanted
    first = wanted[0]
    assert (first["window"].second, first["link"], first["matched"], first["in_time"]) == (0, "s", 200, 200)
    assert sum(one["matched"] for one in wanted) == 492
    assert sum(one["paid_micro"] for one in wanted) == 450
    assert sum(one["violations"] for one in wanted) == 1


def test_the_live_queries_publish_models_and_alarms(spark: SparkSession, trace: Path, tmp_path: Path) -> None:
    alarmed, modelled = Published(), Published()
    rows = streamed(spark, trace)

    queries = [
        start_alarms(rows, tmp_path / "alarms", alarmed, availableNow=True),
        start_links(rows, tmp_path / "links", modelled, availableNow=True),
    ]
    assert all(query.awaitTermination(WAIT_S) for query in queries)

    topics = {topic: message["reason"] for topic, message in alarmed.messages}
    assert topics == {
        "$timebound/alarm/n1/s": "in_time_share",
        "$timebound/alarm/n1/u": "promise_broken",
    }
    topic, model = modelled.messages[-1]
    assert topic == "$timebound/link/s"
    assert model["mean_s_per_kb"] == pytest.approx(0.040)
    assert model["variance"] == pytest.approx(0.0, abs=1e-9)
    assert describe(queries[1])["batch"] == 1
    # Batches keep their sums apart; merged they are what the batch job finds, file by file.
    parts = [samples(slots(good(with_faults(spark.createDataFrame(one, trace_schema()))))) for one in FILES]
    kept = SampleStore(tmp_path / "links-samples").read(spark)
    assert sorted(links(kept).collect()) == sorted(links(parts[0].unionByName(parts[1])).collect())


def test_a_batch_done_again_replaces_itself_and_old_ones_go(spark: SparkSession, tmp_path: Path) -> None:
    store = SampleStore(tmp_path / "store", batches_kept=2)
    sampled = samples(slots(spark.createDataFrame(busy(50, 0), trace_schema())))
    for number in (0, 1, 1, 2):
        store.write(sampled, number)

    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["batch=1", "batch=2"]
    [found] = links(store.read(spark)).collect()
    assert found["samples"] == 2 * 49
