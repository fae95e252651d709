from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.brokers import JournalBroker

pytest.importorskip("pyspark", reason="pyspark is not installed")
from pyspark.sql.types import StringType, StructField, StructType
from tests.pipeline.stream_job import start_job

from timebound.errors import ConfigError, JournalError
from timebound.node.flight.publish import CHUNK_ROWS
from timebound.pipeline.datasource.flight import FlightClient, Range
from timebound.pipeline.datasource.options import Options
from timebound.pipeline.datasource.sink import Staged, StreamWriter, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A call that is interrupted breaks the connection to Spark for all tests behind it.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]


def schema_of(*names: str) -> StructType:
    """A schema of these columns; the sink looks at names, the broker at types."""
    return StructType([StructField(name, StringType()) for name in names])


MESSAGE = schema_of("topic", "payload")
KILLS = 1  # at a random moment; each takes the start of a Spark
WAIT_S = 120.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[JournalBroker]:
    process = JournalBroker(tmp_path / "broker")
    yield process
    process.kill()
    assert "Traceback" not in process.log()


def published(broker: JournalBroker, topic: str) -> list[str]:
    """Topics that the journal has, in order."""
    with FlightClient(broker.server, Options((broker.server,), topic=topic)) as client:
        state = client.find()
        wanted = Range(state.server, state.journal, state.identity, state.first, state.next, state.node)
        return [
            name for batch in client.read(wanted, ["topic"]) for name in batch.column("topic").to_pylist()
        ]


# --- without Spark -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "servers", "expected"),
    [
        (["topic"], "a:1", "column 'payload' is missing; present are topic"),
        (["topic", "payload", "colour"], "a:1", "unknown column 'colour'"),
        (["topic", "payload"], "a:1,b:1", "rows are published through one server"),
    ],
)
def test_a_frame_that_cannot_be_published_is_refused_first(
    schema: list[str], servers: str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        StreamWriter(Options(tuple(servers.split(","))), schema_of(*schema))


def test_messages_cannot_be_overwritten() -> None:
    with pytest.raises(ConfigError, match="messages cannot be replaced"):
        Writer(Options(("a:1",)), MESSAGE, overwrite=True)


def test_tasks_of_no_streaming_query_are_refused() -> None:
    writer = StreamWriter(Options(("a:1",)), MESSAGE)

    with pytest.raises(JournalError, match="carry no id of their streaming query"):
        writer.commit([Staged("0" * 32, "", 0)], 0)


def test_a_failed_job_publishes_nothing_and_leaves_nothing(broker: JournalBroker) -> None:
    import pyarrow as pa

    writer = Writer(Options((broker.server,)), MESSAGE, overwrite=False)
    staged = writer.write(iter([pa.record_batch({"topic": ["a"], "payload": [b""]})]))

    writer.abort([staged, None])

    assert not list((broker.data / "flight").glob("*.arrow"))
    assert published(broker, "#") == []


# --- with Spark ----------------------------------------------------------------------------


def test_a_frame_is_published_in_the_order_of_its_partitions(
    spark: SparkSession, broker: JournalBroker
) -> None:
    frame = spark.range(0, 500, 1, 4).selectExpr(
        "concat('out/', id) as topic", "cast(id as string) as payload", "'5s' as timeout"
    )

    frame.write.format("timebound").option("servers", broker.server).mode("append").save()

    assert published(broker, "out/#") == [f"out/{number}" for number in range(500)]


def test_a_row_that_is_refused_fails_the_job_with_the_reason(
    spark: SparkSession, broker: JournalBroker
) -> None:
    frame = spark.sql("select 'a/#' as topic, 'x' as payload")

    with pytest.raises(Exception, match="row 0: topic 'a/#' has a wildcard"):
        frame.write.format("timebound").option("servers", broker.server).mode("append").save()

    assert published(broker, "#") == []


class Driver:
    """The job in a process group of its own, which dies as a whole."""

    def __init__(self, broker: JournalBroker, checkpoint: Path, rows_per_batch: int) -> None:
        with checkpoint.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.pipeline.stream_job"),
                    *(broker.server, str(checkpoint), str(rows_per_batch)),
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT_S)


def wait_published(broker: JournalBroker, count: int) -> None:
    """Wait for so many rows, counted once; they are read only when there is something new."""
    end_s = time.monotonic() + WAIT_S
    seen = 0
    with FlightClient(broker.server, Options((broker.server,))) as client:
        while True:
            held = client.find().next
            if held != seen and len(set(published(broker, "out/#"))) >= count:
                return
            seen = held
            assert time.monotonic() < end_s, f"{count} rows were not published in {WAIT_S} s"
            time.sleep(0.05)


def test_nothing_is_lost_or_repeated_when_the_driver_is_killed(
    spark: SparkSession, broker: JournalBroker, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    rows, done = 1500, 0
    checkpoint = tmp_path / "checkpoint"
    broker.publish(f"in/{number}" for number in range(rows))

    for _ in range(KILLS):
        with Driver(broker, checkpoint, 75):
            wait_published(broker, done + 1)
            time.sleep(rng.uniform(0.0, 2.0))  # the moment of death, not a wait for something
        done = len(published(broker, "out/#"))
    assert done < rows, "the driver was killed too late to show anything"
    # The session of all tests is the next driver, in another process than the one that died.
    query = start_job(spark, broker.server, str(checkpoint), rows, availableNow=True)
    assert query.awaitTermination(WAIT_S)

    assert query.exception() is None
    assert published(broker, "out/#") == [f"out/{number}" for number in range(rows)]


def test_a_stream_goes_on_when_the_broker_is_killed_and_comes_back(
    spark: SparkSession, broker: JournalBroker, tmp_path: Path
) -> None:
    rows = 600
    broker.publish(f"in/{number}" for number in range(rows))
    query = start_job(spark, broker.server, str(tmp_path / "checkpoint"), 100)
    try:
        wait_published(broker, 1)
        broker.kill()
        again = broker.again()
        try:
            wait_published(again, rows)
            found = published(again, "out/#")
        finally:
            query.stop()
            again.kill()
    finally:
        query.stop()

    assert set(found) == {f"out/{number}" for number in range(rows)}
    # Only a batch that was being published at that moment may have come twice.
    assert len(found) - rows <= min(CHUNK_ROWS, 100)
