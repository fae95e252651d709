"""Trace records on their way from the event loop to the threads that write them.

They stay the numbers that the broker's log has made of them (`core/account/trace_log.py`), which numpy reads
as they lie. As objects they would be read one by one, and the event loop would stand still as long, because
only one thread has the interpreter's lock.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter

from timebound.core.account.trace_log import TraceBatch
from timebound.core.values.trace_columns import MessageColumns, ReceiverColumns

PACK_BYTES: Final = 1 << 21  # from which on the next one begins: 130,000 records that all differ
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
        """All records as one batch, which does not change any more."""
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
    """Packs that wait to be written, and those whose memory waits to be used again.

    Memory that is new each time costs the event loop more than filling it does: the system hands it out page
    by page, and each page takes as long as some messages.
    """

    __slots__ = ("_spare", "packs")

    def __init__(self) -> None:
        self.packs: list[TracePack] = []
        self._spare: list[TracePack] = []

    def add(self, batch: TraceBatch) -> None:
        """Put a batch behind those before it; in another pack if the last is large or has other tables."""
        if batch.count == 0:
            return  # all that came was taken back
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
        """Those that wait now."""
        packs = self.packs
        self.packs = []
        return packs

    def recycle(self, pack: TracePack) -> None:
        """A pack that was written; nothing that was made of it may need its memory any more."""
        if len(self._spare) < SPARE_MAX:
            self._spare.append(pack)
