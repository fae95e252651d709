"""The driver of a streaming query, as a process that a test can kill: topics in/# become out/#.

python -m tests.pipeline.stream_job SERVER CHECKPOINT ROWS_PER_BATCH [now]
"""

from __future__ import annotations

import sys

from tests.pipeline.conftest import FEW_ROWS

from timebound.pipeline.session import spark_session


def main() -> None:
    server, checkpoint, rows_per_batch = sys.argv[1:4]
    spark = spark_session(master="local[2]", options=FEW_ROWS)
    stream = (
        spark.readStream.format("timebound")
        .option("servers", server)
        .option("topic", "in/#")
        .option("maxRowsPerBatch", rows_per_batch)
        .option("rowsPerPartition", str(int(rows_per_batch) // 3))
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
    if sys.argv[4:] == ["now"]:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    print("started", flush=True)
    query.awaitTermination()
    spark.stop()


main()
