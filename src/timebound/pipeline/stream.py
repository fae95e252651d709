"""The jobs on the live stream: link models and alarms, published back to topics that brokers use.

    $timebound/link/<client>          retained: mean and variance of the seconds per KB, as JSON
    $timebound/alarm/<node>/<link>    a window in which too little came in time, or a promise was broken

Two queries read the brokers' trace journals. One adds up windows with a watermark; the other sums up
the links of each micro-batch as the batch job does, keeps these sums by number of the batch, and takes
the model from the latest ones together. So after a restart a batch that is done again replaces itself.
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
# Micro-batches whose samples count for the model of a link.
BATCHES_KEPT: Final = 30
TRIGGER: Final = "2 seconds"
STARTS_MAX: Final = 4
WORKER_IS_LATE: Final = "failed to connect back"

MESSAGE_FIELDS: Final = "topic string, payload binary, retain boolean"

# Publishes the rows of a static table of MESSAGE_FIELDS.
Publish = Callable[["DataFrame"], None]


def read_live(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """The trace records of brokers as they come, in the columns of trace rows; gaps are left out."""
    from pyspark.sql import functions as F

    read = spark.readStream.format("timebound").options(**options, kind="trace", gaps="row").load()
    whole = read.where(F.col("gap").isNull())
    date = F.date_format(F.timestamp_seconds((F.col("time_ns") / 1_000_000_000).cast("long")), "yyyy-MM-dd")
    placed = whole.withColumns({"date": date, "node": F.col("server")})
    return normalise(placed.select(*COLUMNS))


def publisher(options: dict[str, str]) -> Publish:
    """Publish through the brokers' journal service."""

    def publish(rows: DataFrame) -> None:
        rows.write.format("timebound").options(**options).mode("append").save()

    return publish


def start_alarms(rows: DataFrame, checkpoint: Path, publish: Publish, **trigger: Any) -> StreamingQuery:
    """Add up windows as rows come, and publish the alarms among those that have changed."""
    timed = windows.with_time(quality.good(quality.with_faults(rows)))
    watched = windows.delivery_windows(timed.withWatermark("time", windows.LATENESS))

    def handle(changed: DataFrame, _batch: int) -> None:
        _publish_some(alarm_messages(windows.alarms(changed)), publish)

    writer = watched.writeStream.outputMode("update").queryName("timebound-alarms").foreachBatch(handle)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def start_links(rows: DataFrame, checkpoint: Path, publish: Publish, **trigger: Any) -> StreamingQuery:
    """Keep the models of links up to date, and publish those that were measured anew."""
    good = quality.good(quality.with_faults(rows))
    kept = SampleStore(checkpoint.with_name(checkpoint.name + "-samples"))

    def handle(batch: DataFrame, number: int) -> None:
        kept.write(links.samples(links.slots(batch)), number)
        _publish_some(link_messages(links.links(kept.read(batch.sparkSession))), publish)

    writer = good.writeStream.queryName("timebound-links").foreachBatch(handle)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


class Restarted:
    """A query that is started again, a few times, where Spark gave up on its Python worker.

    Spark gives such a worker 10 s to call back, which no option changes and a busy machine exceeds.
    Nothing is lost: the query goes on from its checkpoint.
    """

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        """Start the query.

        Raises:
            TimeboundError: it does not start.
        """
        self._start = start
        self._starts_left = STARTS_MAX
        self.query = self._begin()

    def check(self) -> None:
        """Start the query again if it has failed for a reason that may have passed.

        Raises:
            TimeboundError: it has failed otherwise.
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
    """Publish if there is anything: starting a writer takes seconds, and most batches have nothing to say.

    All is collected, since the state of a query is written only if the whole batch was used.
    """
    found = messages.collect()
    if found:
        publish(messages.sparkSession.createDataFrame(found, MESSAGE_FIELDS))


class SampleStore:
    """Samples of links of the latest micro-batches, one folder for each."""

    def __init__(self, folder: Path, batches_kept: int = BATCHES_KEPT) -> None:
        self._folder = folder
        self._batches_kept = batches_kept
        self._schema: StructType | None = None  # asked of Spark once: each time takes hundreds of its calls

    def write(self, samples: DataFrame, number: int) -> None:
        """Put the samples of a batch in the place of those that it had before; the oldest batches go."""
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
        """All samples that are kept."""
        if self._schema is None:
            self._schema = links.samples(links.slots(spark.createDataFrame([], trace_schema()))).schema
        return spark.read.schema(self._schema).parquet(str(self._folder))


def link_messages(measured: DataFrame) -> DataFrame:
    """The model of each link from its latest window with enough samples, as messages to be published."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    latest = Window.partitionBy("node", "link").orderBy(F.col("window").desc())
    # A topic cannot have wildcards; a client that has one in its name goes without.
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
    """Alarms as messages to be published."""
    from pyspark.sql import functions as F

    fields = ["reason", "window", "matched", "in_time", "violations"]
    # What a topic may not have in a level is replaced: servers and clients are named freely.
    place = F.concat_ws("/", *[F.regexp_replace(name, "[/+#]", "_") for name in ("node", "link")])
    return found.select(
        F.concat(F.lit(ALARM_TOPIC), place).alias("topic"),
        F.to_json(F.struct(*fields)).cast("binary").alias("payload"),
        F.lit(False).alias("retain"),
    )


def describe(query: StreamingQuery) -> dict[str, Any]:
    """The latest progress of a query, in few words."""
    last = query.lastProgress
    if last is None:
        return {"batch": None, "rows": 0}
    return {"batch": last.batchId, "rows": last.numInputRows}
