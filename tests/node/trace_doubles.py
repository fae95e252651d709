"""What stands under a trace in place of a disk."""

from __future__ import annotations

import errno
import os
from typing import Any

from timebound.node.parquet_runs import RunsFile


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
