"""Jobs on the live stream: link models and alarms, published to topics that brokers use.

    $timebound/link/<client>          retained: mean and variance of the seconds per KB, as JSON
    $timebound/alarm/<node>/<link>    a window with too few deliveries in time, or with an exceeded bound

Two queries read the brokers' trace journals. One sums windows with a watermark; the other sums the links
of each micro-batch as the batch job does, keeps these sums by batch number, and computes the model from
the latest ones together. So a batch that is repeated after a restart replaces itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from timebound.errors import TimeboundError
from timebound.pipeline.jobs import links, quality, windows
from timebound.pipeline.schema import COLUMNS, normalise, trace_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

LINK_TOPIC: Final = "$timebound/link/"
ALARM_TOPIC: Final = "$timebound/alarm/"
# Number of latest micro-batches whose samples make the model of a link.
BATCHES_KEPT: Final = 30
TRIGGER: Final = "2 seconds"
STARTS_MAX: Final = 4
WORKER_IS_LATE: Final = "failed to connect back"

MESSAGE_FIELDS: Final = "topic string, payload binary, retain boolean"

# Publishes the rows of a static table of MESSAGE_FIELDS.
Publish = Callable[["DataFrame"], None]


def read_live(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Stream the trace records of brokers in the columns of trace rows, without gaps."""
    from pyspark.sql import functions as F

    read = spark.readStream.format("timebound").options(**options, kind="trace", gaps="row").load()
    whole = read.where(F.col("gap").isNull())
    date = F.date_format(F.timestamp_seconds((F.col("time_ns") / 1_000_000_000).cast("long")), "yyyy-MM-dd")
    placed = whole.withColumn("date", date)
    return normalise(placed.select(*COLUMNS))


def publisher(options: dict[str, str]) -> Publish:
    """Return a function that publishes through the brokers' journal service."""

    def publish(rows: DataFrame) -> None:
        rows.write.format("timebound").options(**options).mode("append").save()

    return publish


def start_alarms(rows: DataFrame, checkpoint: Path, publish: Publish, **trigger: Any) -> StreamingQuery:
    """Sum windows as rows arrive, and publish the alarms among those that changed."""
    timed = windows.with_time(quality.good(quality.with_faults(rows)))
    watched = windows.delivery_windows(timed.withWatermark("time", windows.LATENESS))

    def handle(changed: DataFrame, _batch: int) -> None:
        _publish_some(alarm_messages(windows.alarms(changed)), publish)

    writer = watched.writeStream.outputMode("update").queryName("timebound-alarms").foreachBatch(handle)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def start_links(rows: DataFrame, checkpoint: Path, publish: Publish, **trigger: Any) -> StreamingQuery:
    """Keep the models of links up to date, and publish those with new measurements."""
    good = quality.good(quality.with_faults(rows))
    kept = SampleStore(checkpoint.with_name(checkpoint.name + "-samples"))

    def handle(batch: DataFrame, number: int) -> None:
        kept.write(links.samples(links.slots(batch)), number)
        _publish_some(link_messages(links.links(kept.read(batch.sparkSession))), publish)

    writer = good.writeStream.queryName("timebound-links").foreachBatch(handle)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


class Restarted:
    """A query that is restarted, a few times, after Spark gave up on its Python worker.

    Spark allows such a worker 10 s to call back, which no option changes and a busy machine exceeds.
    Nothing is lost: the query continues from its checkpoint.
    """

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        """Start the query.

        Raises:
            TimeboundError: the query does not start.
        """
        self._start = start
        self._starts_left = STARTS_MAX
        self.query = self._begin()

    def check(self) -> None:
        """Restart the query if it failed for a temporary reason.

        Raises:
            TimeboundError: it failed for another reason, or too often.
        """
        failure = self.query.exception()
        if failure is not None:
            self._refuse(failure)
            self.query = self._begin()

    def _begin(self) -> StreamingQuery:
        from pyspark.errors import PySparkException

        while True:
            self._starts_left -= 1
            try:
                return self._start()
            except PySparkException as error:
                self._refuse(error)

    def _refuse(self, failure: Exception) -> None:
        if not self._starts_left or WORKER_IS_LATE not in str(failure):
            lines = str(failure).splitlines()
            raise TimeboundError(f"a live query failed: {lines[0] if lines else failure!r}") from failure


def _publish_some(messages: DataFrame, publish: Publish) -> None:
    """Publish messages if there are any: starting a writer takes seconds, and most batches are empty.

    All are collected, since the state of a query is written only if the whole batch was used.
    """
    found = messages.collect()
    if found:
        publish(messages.sparkSession.createDataFrame(found, MESSAGE_FIELDS))


class SampleStore:
    """Link samples of the latest micro-batches, one folder each."""

    def __init__(self, folder: Path, batches_kept: int = BATCHES_KEPT) -> None:
        self._folder = folder
        self._batches_kept = batches_kept
        self._schema: StructType | None = None  # cached: asking Spark takes hundreds of calls

    def write(self, samples: DataFrame, number: int) -> None:
        """Write the samples of a batch, replacing its earlier ones; remove the oldest batches."""
        self._schema = self._schema or samples.schema
        hidden = self._folder / f"_{number}"
        final = self._folder / f"batch={number}"
        samples.write.mode("overwrite").parquet(str(hidden))
        shutil.rmtree(final, ignore_errors=True)
        hidden.rename(final)
        for path in self._folder.glob("batch=*"):
            if int(path.name.removeprefix("batch=")) <= number - self._batches_kept:
                shutil.rmtree(path)

    def read(self, spark: SparkSession) -> DataFrame:
        """Read all samples that are kept."""
        if self._schema is None:
            self._schema = links.samples(links.slots(spark.createDataFrame([], trace_schema()))).schema
        return spark.read.schema(self._schema).parquet(str(self._folder))


def link_messages(measured: DataFrame) -> DataFrame:
    """Return the model of each link, from its latest window with enough samples, as messages to publish."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    latest = Window.partitionBy("node", "link").orderBy(F.col("window").desc())
    # A topic cannot have wildcards: no model for clients with one in their name.
    is_usable = (F.col("samples") >= links.SAMPLES_MIN) & ~F.col("link").rlike("[+#]|^$")
    trusted = measured.where(is_usable)
    newest = trusted.withColumn("_age", F.row_number().over(latest)).where(F.col("_age") == 1)
    fields = ["mean_s_per_kb", "variance", "samples", "is_drift", "node", "window"]
    return newest.select(
        F.concat(F.lit(LINK_TOPIC), F.col("link")).alias("topic"),
        F.to_json(F.struct(*fields)).cast("binary").alias("payload"),
        F.lit(True).alias("retain"),
    )


def alarm_messages(found: DataFrame) -> DataFrame:
    """Return alarms as messages to publish."""
    from pyspark.sql import functions as F

    fields = ["reason", "window", "matched", "in_time", "violations"]
    # Characters that a topic level cannot have are replaced: servers and clients have any name.
    place = F.concat_ws("/", *[F.regexp_replace(name, "[/+#]", "_") for name in ("node", "link")])
    return found.select(
        F.concat(F.lit(ALARM_TOPIC), place).alias("topic"),
        F.to_json(F.struct(*fields)).cast("binary").alias("payload"),
        F.lit(False).alias("retain"),
    )


def describe(query: StreamingQuery) -> dict[str, Any]:
    """Return the latest progress of a query, in brief."""
    last = query.lastProgress
    if last is None:
        return {"batch": None, "rows": 0}
    return {"batch": last.batchId, "rows": last.numInputRows}
