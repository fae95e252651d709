"""A streaming query, topics in/# become out/#, and a driver of it that a test can kill.

python -m tests.pipeline.stream_job SERVER CHECKPOINT ROWS_PER_BATCH
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from timebound.pipeline.spark.session import Scale, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start_job(
    spark: SparkSession, server: str, checkpoint: str, rows_per_batch: int, **trigger: Any
) -> StreamingQuery:
    """Start the query; each batch is read and published by three tasks."""
    stream = (
        spark.readStream.format("timebound")
        .option("servers", server)
        .option("topic", "in/#")
        .option("maxRowsPerBatch", str(rows_per_batch))
        .option("rowsPerPartition", str(rows_per_batch // 3))
        .load()
    )
    writer = (
        stream.selectExpr(
            "concat('out', substring(topic, 3)) as topic", "payload", "cast(1 as tinyint) as qos"
        )
        .writeStream.format("timebound")
        .option("servers", server)
        .option("checkpointLocation", checkpoint)
    )
    return (writer.trigger(**trigger) if trigger else writer).start()


def main() -> None:
    server, checkpoint, rows_per_batch = sys.argv[1:]
    spark = spark_session(master="local[2]", scale=Scale.FEW_ROWS)
    start_job(spark, server, checkpoint, int(rows_per_batch)).awaitTermination()


if __name__ == "__main__":
    main()
