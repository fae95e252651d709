"""The protocol between a broker and the process that writes its trace.

A frame has a head of four numbers: how long its three parts are, and how many records it stands for. The
first part has the columns that were not sent before; the other two are the buffers of a batch as
they are. To each frame there is one answer: what has become of the records so far.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import Final

import msgspec

from timebound.core.account.trace_log import TraceBatch
from timebound.core.values.trace_columns import ColumnsEpoch, MessageColumns, ReceiverColumns

_HEAD: Final = Struct("<4q")
_LENGTH: Final = Struct("<q")


class ColumnTables(msgspec.Struct, array_like=True):
    """Columns of messages and receivers by number, from those on that were sent before."""

    is_new: bool  # nothing that was sent before counts any more
    message_columns: list[tuple[str, str, int, int, int, str, int, str]]
    receiver_columns: list[tuple[str, str, int, int, str, str, int, int, str]]


class Answer(msgspec.Struct, array_like=True):
    """Records since the process started; `kept` are those in complete files. And lines to log."""

    written: int = 0
    kept: int = 0
    lost: int = 0
    logged: list[tuple[int, str]] = []


_READ_TABLES: Final = msgspec.msgpack.Decoder(ColumnTables)
_READ_ANSWER: Final = msgspec.msgpack.Decoder(Answer)


class FrameWriter:
    """The sending side, in the broker."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._message_columns: list[MessageColumns] | None = None
        self._messages_sent = 0
        self._receivers_sent = 0

    def send(self, batch: TraceBatch) -> None:
        """Write a frame; returns when all of it is in the pipe.

        Raises:
            OSError: the process has ended.
        """
        is_new = batch.message_columns is not self._message_columns
        if is_new:
            self._message_columns = batch.message_columns
            self._messages_sent = self._receivers_sent = 0
        # The broker may be adding to both meanwhile.
        message_columns = batch.message_columns[self._messages_sent :]
        receiver_columns = batch.receiver_columns[self._receivers_sent :]
        self._messages_sent += len(message_columns)
        self._receivers_sent += len(receiver_columns)
        tables = msgspec.msgpack.encode(
            ColumnTables(
                is_new,
                [
                    (
                        one.topic,
                        one.publisher,
                        one.timeout_ns,
                        one.promised_ns,
                        one.hops,
                        one.origin,
                        one.started_ns,
                        one.traceparent,
                    )
                    for one in message_columns
                ],
                [
                    (
                        one.client_id,
                        one.topic_filter,
                        one.price_micro,
                        one.penalty_micro,
                        one.outcome,
                        one.reason,
                        one.qos,
                        one.allowed_ns,
                        one.link,
                    )
                    for one in receiver_columns
                ],
            )
        )
        head = _HEAD.pack(len(tables), len(batch.runs), len(batch.rows), batch.count)
        for part in (head + tables, batch.runs, batch.rows):
            _write_all(self._descriptor, part)


class FrameReader:
    """The receiving side, in the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._epoch = ColumnsEpoch()
        self._message_columns: list[MessageColumns] = []
        self._receiver_columns: list[ReceiverColumns] = []

    def read(self) -> TraceBatch | None:
        """Read the next batch; None if the broker has closed the pipe or ended."""
        head = read_exactly(self._descriptor, _HEAD.size)
        if head is None:
            return None
        *lengths, count = _HEAD.unpack(head)
        parts = [read_exactly(self._descriptor, length) for length in lengths]
        tables, runs, rows = parts
        if tables is None or runs is None or rows is None:
            return None
        self._take_over(_READ_TABLES.decode(tables))
        return TraceBatch(count, self._message_columns, self._receiver_columns, runs, rows)

    def _take_over(self, tables: ColumnTables) -> None:
        if tables.is_new:
            self._epoch = ColumnsEpoch()
            self._message_columns = []
            self._receiver_columns = []
        for columns in tables.message_columns:
            self._message_columns.append(MessageColumns(self._epoch, len(self._message_columns), *columns))
        for receiver in tables.receiver_columns:
            self._receiver_columns.append(
                ReceiverColumns(self._epoch, len(self._receiver_columns), *receiver)
            )


def send_answer(descriptor: int, answer: Answer) -> None:
    encoded = msgspec.msgpack.encode(answer)
    _write_all(descriptor, _LENGTH.pack(len(encoded)) + encoded)


def read_answer(descriptor: int) -> Answer | None:
    """Read the next answer; None if there are no more."""
    head = read_exactly(descriptor, _LENGTH.size)
    if head is None:
        return None
    encoded = read_exactly(descriptor, _LENGTH.unpack(head)[0])
    return None if encoded is None else _READ_ANSWER.decode(encoded)


def read_exactly(descriptor: int, length: int) -> bytes | None:
    """Read `length` bytes; None if the pipe is closed before."""
    parts: list[bytes] = []
    while length:
        part = os.read(descriptor, length)
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
