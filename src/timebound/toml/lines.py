"""The line of each key of a TOML document.

`tomllib` returns values without lines, and a mistake without its line is hard to find. This scanner
reads a document that `tomllib` has accepted, so it checks nothing: it only follows keys, tables and
brackets, and counts lines.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

# Keys by name and elements of arrays by index: ("listeners", 0, "tls", "key").
KeyPath = tuple[str | int, ...]

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
# A multi-line string may have up to two quotes right before the three that close it.
_STRING: Final = re.compile(
    r'''"""(?:\\.|[^\\])*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:'{0,2})|"(?:\\.|[^"\\])*"|'[^']*\'''', re.DOTALL
)
# Numbers, booleans and dates; a date may contain a space.
_SCALAR: Final = re.compile(r"[^,\]}#\n]+")
_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Map every table, key and array element of a valid TOML document to its line, from 1.

    Raises:
        RecursionError: arrays are nested too deeply.
    """
    scanner = _Scanner(text)
    scanner.read_document()
    return scanner.lines


class _Scanner:
    """One pass over one document; `_at` only moves forward."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._line = 1
        self._line_known_at = 0
        # Number of tables so far of an array of tables, such as [[listeners]].
        self._table_counts: dict[KeyPath, int] = {}

    def read_document(self) -> None:
        table: KeyPath = ()
        self._skip_blank()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._read_header()
            else:
                self._read_pair(table)
            self._skip_blank()

    def _read_header(self) -> KeyPath:
        line = self._current_line()
        brackets = 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        keys = self._read_key()
        self._at += brackets
        table: KeyPath = ()
        for key in keys[:-1]:
            table = self._last_table((*table, key))
            self.lines.setdefault(table, line)
        table = (*table, keys[-1])
        if brackets == 2:
            self.lines.setdefault(table, line)
            index = self._table_counts.get(table, 0)
            self._table_counts[table] = index + 1
            table = (*table, index)
        self.lines[table] = line
        return table

    def _last_table(self, path: KeyPath) -> KeyPath:
        # [listeners.tls] after [[listeners]] belongs to the last listener.
        count = self._table_counts.get(path, 0)
        return (*path, count - 1) if count else path

    def _read_pair(self, table: KeyPath) -> None:
        line = self._current_line()
        path = table
        for key in self._read_key():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._at += 1  # the equals sign
        self._skip_blank()
        self._read_value(path)

    def _read_key(self) -> list[str]:
        """Read a key like `a."b c".d`, and stop behind it."""
        keys: list[str] = []
        while True:
            self._skip_blank()
            bare = _BARE_KEY.match(self._text, self._at)
            if bare:
                keys.append(bare.group())
                self._at = bare.end()
            else:
                start = self._at
                self._pass(_STRING)
                keys.append(tomllib.loads("key = " + self._text[start : self._at])["key"])
            self._skip_blank()
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _read_value(self, path: KeyPath) -> None:
        first = self._text[self._at]
        if first == "[":
            self._read_array(path)
        elif first == "{":
            self._read_inline_table(path)
        elif first in "\"'":
            self._pass(_STRING)
        else:
            self._pass(_SCALAR)

    def _read_array(self, path: KeyPath) -> None:
        index = 0
        while self._next_item("]"):
            element = (*path, index)
            self.lines[element] = self._current_line()
            self._read_value(element)
            index += 1

    def _read_inline_table(self, path: KeyPath) -> None:
        while self._next_item("}"):
            self._read_pair(path)

    def _next_item(self, end: str) -> bool:
        """Step over the bracket or comma to the next item; return False after the closing bracket."""
        self._skip_blank()
        if self._text[self._at] != end:
            self._at += 1
            self._skip_blank()
        if self._text[self._at] != end:
            return True
        self._at += 1
        return False

    def _skip_blank(self) -> None:
        self._pass(_BLANK)

    def _pass(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        assert found is not None, f"not valid TOML at character {self._at}"
        self._at = found.end()

    def _current_line(self) -> int:
        self._line += self._text.count("\n", self._line_known_at, self._at)
        self._line_known_at = self._at
        return self._line
