"""Records for traces, what was written of them, and what stands in place of a disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from timebound.core.account.account import Account
from timebound.core.account.trace_log import TraceBatch
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription
from timebound.node.trace.parquet.runs import RunsFile
from timebound.records import Reason
from timebound.terms import Terms
from timebound.units import MILLISECOND


def batch_of(count: int, *, start: int = 1) -> TraceBatch:
    """Records as the account makes them: some in time, every third dropped."""
    account = Account()
    account.is_tracing = True
    wanted = Subscription(
        client_id="s",
        topic_filter="t/#",
        qos=1,
        terms=Terms(deadline_ns=50 * MILLISECOND, price=2.5, penalty=0.5),
    )
    for number in range(start, start + count):
        message = Message(f"t/{number % 2}", b"x" * 10, 1, False, number * 1_000, "p", sequence=number)
        delivery = Delivery(message, 1, False, subscription=wanted, offered_ns=number * 1_000)
        if number % 3:
            delivery.sent_ns = number * 1_000 + 7
            account.delivered("s", delivery, number * 1_000 + 9)
        else:
            account.drop("s", delivery, Reason.HOPELESS, number * 1_000 + 9)
    return account.trace.take()


def parts(path: Path) -> list[Path]:
    return sorted(path.glob("date=*/node=*/part-*.parquet"))


def read(path: Path) -> list[dict[str, Any]]:
    return [row for part in parts(path) for row in pq.ParquetFile(part).read().to_pylist()]


class FullDisk:
    """A file that takes a few bytes of what it is given and no more, so many times."""

    def __init__(self, file: Any, refusals: int) -> None:
        self._file = file
        self._refusals = refusals
        self._is_full = False

    @classmethod
    def under(cls, file: RunsFile, *, refusals: int) -> None:
        file._file = cls(file._file, refusals)  # type: ignore[assignment]  # what is used of it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, content: memoryview) -> int:
        if not self._refusals:
            return int(self._file.write(content))
        if not self._is_full:
            self._is_full = True
            return int(self._file.write(content[:10]))
        self._is_full = False
        self._refusals -= 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
