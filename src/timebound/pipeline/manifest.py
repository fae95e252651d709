"""The manifest of an incremental run: which trace files have been processed.

A partition is one day of one node; an increment is a set of its files whose rows were summed together. New
files lead to a new version of the last increment, so a message whose rows are in two files counts once.
Where a broker has removed files to save disk, the sums of the increment stay, and new files become a
further increment. The manifest is written last: what a crash leaves unfinished is repeated.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from timebound.errors import ConfigError

NAME: Final = "manifest.json"
VERSION: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One day of one node."""

    date: str
    node: str


@dataclass(slots=True)
class Increment:
    """Files that were summed together; `number` counts up within a partition."""

    number: int
    files: list[str]

    def folder(self) -> str:
        return f"part={self.number}"


@dataclass(slots=True)
class Work:
    """An increment to compute now, replacing its earlier version."""

    partition: Partition
    increment: Increment


@dataclass(slots=True)
class Manifest:
    """What has been processed so far."""

    increments: dict[Partition, list[Increment]] = field(default_factory=dict)
    bad_files: dict[str, str] = field(default_factory=dict)  # with the reason

    def plan(self, present: dict[Partition, list[str]]) -> list[Work]:
        """Return the increments to compute, given the files present now; ordered by partition."""
        work: list[Work] = []
        for partition in sorted(present):
            files = present[partition]
            increments = self.increments.get(partition, [])
            known = {name for increment in increments for name in increment.files}
            new = [name for name in files if name not in known and name not in self.bad_files]
            if not new:
                continue
            last = increments[-1] if increments else Increment(1, [])
            if set(last.files) <= set(files):
                work.append(Work(partition, Increment(last.number, sorted([*last.files, *new]))))
            else:
                work.append(Work(partition, Increment(last.number + 1, sorted(new))))
        return work

    def done(self, work: list[Work]) -> None:
        """Record increments that have been computed."""
        for one in work:
            increments = self.increments.setdefault(one.partition, [])
            if increments and increments[-1].number == one.increment.number:
                increments[-1] = one.increment
            else:
                increments.append(one.increment)

    def save(self, folder: Path) -> None:
        """Write it under a hidden name, then rename it into place."""
        value = {
            "version": VERSION,
            "bad_files": self.bad_files,
            "parts": [
                {
                    "date": partition.date,
                    "node": partition.node,
                    "number": increment.number,
                    "files": increment.files,
                }
                for partition in sorted(self.increments)
                for increment in self.increments[partition]
            ],
        }
        hidden = folder / f".{NAME}.tmp"
        with hidden.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(folder / NAME)


def load_manifest(folder: Path) -> Manifest:
    """Read the manifest of earlier runs; an empty one if there were none.

    Raises:
        ConfigError: the manifest cannot be read.
    """
    path = folder / NAME
    if not path.exists():
        return Manifest()
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["version"] != VERSION:
            raise ConfigError(
                f"manifest has version {value['version']}, not {VERSION}; choose another --out",
                path=str(path),
            )
        manifest = Manifest(bad_files=dict(value["bad_files"]))
        for increment in value["parts"]:
            partition = Partition(increment["date"], increment["node"])
            manifest.increments.setdefault(partition, []).append(
                Increment(int(increment["number"]), list(increment["files"]))
            )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"manifest cannot be read: {error}; choose another --out", path=str(path)
        ) from error
    return manifest
