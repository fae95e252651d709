"""Trace records on their way from the event loop to the threads that write them.

They stay packed numbers as made by the broker's log (`core/account/trace_log.py`), which numpy reads in
place. As objects they would be read one by one, and the event loop would stall for that time, because only
one thread has the interpreter's lock.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter

from timebound.core.account.trace_log import TraceBatch
from timebound.core.values.trace_columns import MessageColumns, ReceiverColumns

PACK_BYTES: Final = 1 << 21  # size at which the next pack begins: 130,000 records that all differ
SPARE_MAX: Final = 8


class TracePack:
    """Batches one behind the other, all with columns of the same tables."""

    __slots__ = ("_rows", "_runs", "count", "message_columns", "receiver_columns", "size_bytes")

    def __init__(
        self, message_columns: list[MessageColumns], receiver_columns: list[ReceiverColumns]
    ) -> None:
        self.count = 0  # of records
        self.size_bytes = 0
        self.message_columns = message_columns
        self.receiver_columns = receiver_columns
        self._runs = BytesWriter()
        self._rows = BytesWriter()

    def add(self, batch: TraceBatch) -> None:
        self.count += batch.count
        self.size_bytes += batch.size_bytes()
        self._runs.write(batch.runs)
        self._rows.write(batch.rows)

    def batch(self) -> TraceBatch:
        """Return all records as one batch, which no longer changes."""
        runs, rows = self._runs.getvalue(), self._rows.getvalue()
        return TraceBatch(self.count, self.message_columns, self.receiver_columns, runs, rows)

    def clear(self, message_columns: list[MessageColumns], receiver_columns: list[ReceiverColumns]) -> None:
        """Begin again with the same memory."""
        self.count = 0
        self.size_bytes = 0
        self.message_columns = message_columns
        self.receiver_columns = receiver_columns
        self._runs.truncate(0)
        self._rows.truncate(0)


class TracePacks:
    """Packs that wait to be written, and written ones for reuse of their memory.

    New memory costs the event loop more than filling it: the system allocates it page by page, and each
    page takes as long as several messages.
    """

    __slots__ = ("_spare", "packs")

    def __init__(self) -> None:
        self.packs: list[TracePack] = []
        self._spare: list[TracePack] = []

    def add(self, batch: TraceBatch) -> None:
        """Append a batch; to a new pack if the last is large or has other tables."""
        if batch.count == 0:
            return  # all records were retracted
        packs = self.packs
        if (
            not packs
            or packs[-1].message_columns is not batch.message_columns
            or packs[-1].size_bytes >= PACK_BYTES
        ):
            if self._spare:
                pack = self._spare.pop()
                pack.clear(batch.message_columns, batch.receiver_columns)
            else:
                pack = TracePack(batch.message_columns, batch.receiver_columns)
            packs.append(pack)
        packs[-1].add(batch)

    def take(self) -> list[TracePack]:
        """Take the packs that wait now."""
        packs = self.packs
        self.packs = []
        return packs

    def recycle(self, pack: TracePack) -> None:
        """Reuse the memory of a written pack; nothing may refer to it any longer."""
        if len(self._spare) < SPARE_MAX:
            self._spare.append(pack)
