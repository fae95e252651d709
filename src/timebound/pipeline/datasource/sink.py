"""A PySpark sink that publishes rows of a DataFrame as messages, each batch once.

    df.select("topic", "payload").writeStream.format("timebound").option("servers", "127.0.0.1:8815")

Tasks stage their rows at the broker, which checks and keeps them; when all are staged, the driver
requests their publication, by query and batch. The broker records the progress of each query, so a
batch that Spark repeats after a crash is not published again.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from timebound.errors import ConfigError, JournalError
from timebound.pipeline.datasource.flight import FlightClient
from timebound.pipeline.datasource.options import Options
from timebound.records import PUBLISH_FIELDS

if TYPE_CHECKING:
    import pyarrow as pa

# Spark's task property with the id of the streaming query, which the checkpoint keeps.
_QUERY_ID: Final = "sql.streaming.queryId"
_REQUIRED: Final = ("topic", "payload")


@dataclass
class Staged(WriterCommitMessage):
    """Rows of one task that are staged at the broker; an empty name means no rows."""

    name: str
    query: str
    partition: int


class Writer(DataSourceArrowWriter):
    """Publishes a DataFrame once it is complete, or not at all."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError('messages cannot be replaced; use mode("append")', key="mode")
        self._stage = _Stage(options, schema)
        self._query = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._stage.publish(self._query, 0, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._stage.discard(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes each batch of a streaming query once."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._stage = _Stage(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        queries = {message.query for message in messages if isinstance(message, Staged)}
        if len(queries) > 1 or "" in queries:
            raise JournalError("tasks carry no id of their streaming query")
        for query in queries:
            self._stage.publish(query, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._stage.discard(messages)


class _Stage:
    """The common part of both writers."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if len(options.servers) != 1:
            raise ConfigError("rows are published through one server", key="option 'servers'")
        known = [name for name, _ in PUBLISH_FIELDS]
        for name in _REQUIRED:
            if name not in schema.names:
                raise ConfigError(
                    f"column {name!r} is missing; present are {', '.join(schema.names)}", key="schema"
                )
        for name in schema.names:
            if name not in known:
                raise ConfigError(f"unknown column {name!r}; expected {', '.join(known)}", key="schema")
        self._options = options

    def stage(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = (context.getLocalProperty(_QUERY_ID) or "") if context is not None else ""
        partition = context.partitionId() if context is not None else 0
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return Staged("", query, partition)
        with self._client() as client:
            name = client.stage(itertools.chain([first], batches), first.schema)
        return Staged(name, query, partition)

    def publish(self, query: str, batch: int, messages: list[WriterCommitMessage | None]) -> None:
        names = _names(messages)
        if names:
            with self._client() as client:
                client.publish(query, batch, names)

    def discard(self, messages: list[WriterCommitMessage | None]) -> None:
        names = _names(messages)
        # The broker removes leftovers after some hours; the job failed for another reason.
        with contextlib.suppress(JournalError):
            if names:
                with self._client() as client:
                    client.discard(names)

    def _client(self) -> FlightClient:
        return FlightClient(self._options.servers[0], self._options)


def _names(messages: list[WriterCommitMessage | None]) -> list[str]:
    """Return the names of staged rows, in the order of their partitions."""
    staged = [message for message in messages if isinstance(message, Staged) and message.name]
    return [message.name for message in sorted(staged, key=lambda message: message.partition)]
