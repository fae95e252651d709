"""TOML values by key, each taken once; mistakes are reported with file, line and key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from timebound.errors import ConfigError, UnitError
from timebound.sim.kernel.draws import KINDS, Draw
from timebound.toml.lines import KeyPath, key_lines
from timebound.toml.renames import Renamed, rename
from timebound.units import parse_duration

# Line of a syntax error; the parser names none at the end of the document.
_TOML_LINE: Final = re.compile(r"at line (\d+)")


def read_document(path: Path, renamed: Sequence[Renamed] = ()) -> ScenarioTable:
    """Read a TOML file; `notices` of the table says which old names of keys it has.

    Raises:
        ConfigError: it cannot be read, is not TOML, or has both names of a key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"scenario cannot be read: {error}", path=str(path)) from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_LINE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise ConfigError(f"not valid TOML: {error}", path=str(path), line=line) from error
    lines = key_lines(text)
    old_names = rename(values, lines, renamed)
    table = ScenarioTable(values, path, lines, ())
    for one in old_names:
        if one.is_double:
            table.fail(str(one.at[-1]), one.message)
        table.notices.append(f"{path}:{lines[one.at]}: {one.at[-1]}: {one.message}")
    return table


class ScenarioTable:
    """One table of the document; `finish` refuses keys that were not taken."""

    def __init__(self, values: dict[str, Any], path: Path, lines: dict[KeyPath, int], at: KeyPath) -> None:
        self._values = values
        self._path = path
        self._lines = lines
        self._at = at
        self._known: list[str] = []
        self.notices: list[str] = []

    def fail(self, key: str, message: str) -> NoReturn:
        """Raise ConfigError about a key of this table; an empty key means the table itself."""
        at = (*self._at, key) if key else self._at
        line = self._lines.get(at, self._lines.get(self._at, 1))
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).lstrip(".")
        raise ConfigError(message, path=str(self._path), line=line, key=name)

    def has(self, key: str) -> bool:
        return key in self._values

    def may_have(self, key: str) -> bool:
        """Whether the key is there; it is known from now on."""
        self._known.append(key)
        return key in self._values

    def text(self, key: str, default: str | None = None, choices: tuple[str, ...] = ()) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            self.fail(key, f"{value!r} is not a text")
        if choices and value not in choices:
            self.fail(key, f"{value!r} is unknown; choose one of {', '.join(choices)}")
        return value

    def whole(self, key: str, default: int | None = None, least: int = 0, most: float = float("inf")) -> int:
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(key, f"{value!r} is not a whole number")
        if value < least:
            self.fail(key, f"{value} is too small; expected at least {least}")
        if value > most:
            self.fail(key, f"{value} is too large; expected at most {most:g}")
        return value

    def number(
        self, key: str, default: float | None = None, least: float = 0.0, most: float = float("inf")
    ) -> float:
        value = self._take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.fail(key, f"{value!r} is not a number")
        if not least <= value <= most:
            limits = (
                f"expected {least:g} to {most:g}" if most < float("inf") else f"expected at least {least:g}"
            )
            self.fail(key, f"{value:g} is out of range; {limits}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"{value!r} is neither true nor false")
        return value

    def duration(self, key: str, default: str | None = None) -> int:
        text = self.text(key, default)
        try:
            return parse_duration(text)
        except UnitError as error:
            self.fail(key, str(error))

    def whole_list(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = self._take(key, list(default))
        if not isinstance(value, list) or not value or not all(type(item) is int for item in value):
            self.fail(key, f"{value!r} is not a list of whole numbers")
        if min(value) < 1:
            self.fail(key, f"{min(value)} is too small; expected at least 1")
        return tuple(value)

    def text_list(self, key: str) -> tuple[str, ...]:
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(key, f"{value!r} is not a list of texts")
        return tuple(value)

    def draw(self, key: str, default: float | None = None, least: float = 0.0) -> Draw:
        """Take a number, or a table with one distribution (`kernel/draws.py`)."""
        value = self._take(key, default)
        try:
            draw = _draw(value)
        except ValueError as error:
            self.fail(key, str(error))
        if draw.lowest() < least:
            self.fail(key, f"{value!r} can be below {least:g}; set min")
        return draw

    def draws(self, key: str) -> tuple[tuple[str, Draw], ...]:
        """Take a table of distributions by name."""
        table = self.table(key)
        names = list(table._values)
        found = tuple((name, table.draw(name, least=-float("inf"))) for name in names)
        table.finish()
        return found

    def plain_texts(self) -> tuple[tuple[str, str], ...]:
        """Take everything in this table as texts, numbers as they are written."""
        found = []
        for key in self._values:
            value = self._take(key, None)
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                self.fail(key, f"{value!r} is neither a text nor a number")
            found.append((key, str(value)))
        return tuple(found)

    def table(self, key: str) -> ScenarioTable:
        """Take a table; empty if the document has none."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            self.fail(key, f"{value!r} is not a table")
        return ScenarioTable(value, self._path, self._lines, (*self._at, key))

    def tables(self, key: str, is_needed: bool = False) -> list[ScenarioTable]:
        """Take an array of tables."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.fail(key, f"{value!r} is not an array of tables; write [[{key}]]")
        if is_needed and not value:
            self.fail("", f"[[{key}]] is missing; expected at least one")
        return [
            ScenarioTable(item, self._path, self._lines, (*self._at, key, index))
            for index, item in enumerate(value)
        ]

    def finish(self) -> None:
        """Refuse keys that are unknown here."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(self._known)}"
                self.fail(key, f"unknown key{hint}")

    def checked(self, key: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returns; report its ValueError under this key."""
        try:
            return make()
        except ValueError as error:
            self.fail(key, str(error))

    def _take(self, key: str, default: Any) -> Any:
        self._known.append(key)
        if key in self._values:
            return self._values[key]
        if default is None:
            self.fail("", f"key {key!r} is missing")
        return default


def _draw(value: Any) -> Draw:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Draw("fixed", (float(value),))
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is neither a number nor a distribution")
    rest = dict(value)
    least = rest.pop("min", -float("inf"))
    if len(rest) != 1:
        raise ValueError(f"{value!r} names {len(rest)} distributions; expected one of {', '.join(KINDS)}")
    kind, numbers = next(iter(rest.items()))
    listed = numbers if isinstance(numbers, list) else [numbers]
    if not all(isinstance(number, int | float) for number in [*listed, least]):
        raise ValueError(f"{value!r} contains a value that is not a number")
    return Draw(kind, tuple(float(number) for number in listed), float(least))
