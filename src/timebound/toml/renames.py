"""Keys of TOML files that were renamed: the old name is still read, and its use is noticed.

One table says what became of each old name, for the configuration and for scenarios. A file that has
both names of a key is refused: it is ambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from timebound.toml.lines import KeyPath


@dataclass(frozen=True, slots=True)
class Renamed:
    """A key of one table (`""` is the top of the file), or a table itself, with its old and new name."""

    table: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class OldName:
    """An old name in a document: where it stands, what it is called now, and whether both are there."""

    at: KeyPath
    new: str
    is_double: bool

    @property
    def message(self) -> str:
        if self.is_double:
            return f"is the old name of {self.new!r}, which is given too; keep {self.new!r} alone"
        return f"is now called {self.new!r}; the old name is still read"


def rename(document: dict[str, Any], lines: dict[KeyPath, int], renamed: Sequence[Renamed]) -> list[OldName]:
    """Put new names in the place of old ones, in a document and in the lines of its keys.

    Tables come before the keys in them: a key is looked for under the new name of its table. Where both
    names are given the new one stays.
    """
    found: list[OldName] = []
    for one in renamed:
        for table, at in occurrences(document, one.table):
            if one.old not in table:
                continue
            is_double = one.new in table
            found.append(OldName((*at, one.old), one.new, is_double))
            value = table.pop(one.old)
            if not is_double:
                table[one.new] = value
                _move_lines(lines, (*at, one.old), (*at, one.new))
    return found


def occurrences(document: dict[str, Any], name: str) -> list[tuple[dict[str, Any], KeyPath]]:
    """Return every table of this name that the document has, arrays of tables included."""
    found: list[tuple[object, KeyPath]] = [(document, ())]
    for part in name.split(".") if name else []:
        inner: list[tuple[object, KeyPath]] = []
        for table, at in found:
            value = table.get(part) if isinstance(table, dict) else None
            if isinstance(value, list):
                inner += [(entry, (*at, part, index)) for index, entry in enumerate(value)]
            else:
                inner.append((value, (*at, part)))
        found = inner
    return [(table, at) for table, at in found if isinstance(table, dict)]


def _move_lines(lines: dict[KeyPath, int], old: KeyPath, new: KeyPath) -> None:
    """Copy line numbers from the old name to the new; notices still need those of the old one."""
    for at, line in list(lines.items()):
        if at[: len(old)] == old:
            lines[new + at[len(old) :]] = line
