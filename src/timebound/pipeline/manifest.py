"""Which trace files have been processed: the memory of an incremental run.

A part is a set of files of one day and node whose rows were added up together. New files of a day and
node lead to a new part that replaces the last one, so a message whose rows are in two files counts once.
Where a broker has removed files meanwhile to save disk, what was added up of them stays as it is, and
the new ones become a part beside it. The manifest is written last: what a crash leaves half done
is done again.
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
class Place:
    """One day of one node."""

    date: str
    node: str


@dataclass(slots=True)
class Part:
    """Files that were added up together; `number` counts up within a place."""

    number: int
    files: list[str]

    def folder(self) -> str:
        return f"part={self.number}"


@dataclass(slots=True)
class Work:
    """A part to be computed now, in place of what it was before."""

    place: Place
    part: Part


@dataclass(slots=True)
class Manifest:
    """What was processed so far."""

    parts: dict[Place, list[Part]] = field(default_factory=dict)
    bad_files: dict[str, str] = field(default_factory=dict)  # with the reason

    def plan(self, present: dict[Place, list[str]]) -> list[Work]:
        """What there is to do, given the files that are there now; in the order of places."""
        work: list[Work] = []
        for place in sorted(present):
            files = present[place]
            parts = self.parts.get(place, [])
            known = {name for part in parts for name in part.files}
            new = [name for name in files if name not in known and name not in self.bad_files]
            if not new:
                continue
            last = parts[-1] if parts else Part(1, [])
            if set(last.files) <= set(files):
                work.append(Work(place, Part(last.number, sorted([*last.files, *new]))))
            else:
                work.append(Work(place, Part(last.number + 1, sorted(new))))
        return work

    def done(self, work: list[Work]) -> None:
        """Take note of parts that have been computed."""
        for one in work:
            parts = self.parts.setdefault(one.place, [])
            if parts and parts[-1].number == one.part.number:
                parts[-1] = one.part
            else:
                parts.append(one.part)

    def save(self, folder: Path) -> None:
        """Write it under a hidden name, then rename it into place."""
        value = {
            "version": VERSION,
            "bad_files": self.bad_files,
            "parts": [
                {"date": place.date, "node": place.node, "number": part.number, "files": part.files}
                for place in sorted(self.parts)
                for part in self.parts[place]
            ],
        }
        hidden = folder / f".{NAME}.tmp"
        with hidden.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(folder / NAME)


def load_manifest(folder: Path) -> Manifest:
    """Read what earlier runs have done; nothing if there were none.

    Raises:
        ConfigError: there is a manifest, and it cannot be read.
    """
    path = folder / NAME
    if not path.exists():
        return Manifest()
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["version"] != VERSION:
            raise ConfigError(
                f"manifest has version {value['version']}, not {VERSION}; give another --out", path=str(path)
            )
        manifest = Manifest(bad_files=dict(value["bad_files"]))
        for part in value["parts"]:
            place = Place(part["date"], part["node"])
            manifest.parts.setdefault(place, []).append(Part(int(part["number"]), list(part["files"])))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"manifest cannot be read: {error}; give another --out", path=str(path)) from error
    return manifest
