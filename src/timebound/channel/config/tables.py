"""Tables of a TOML document, read key by key; every mistake is noted with its line and key.

Reading goes on after a mistake, with the default in its place, so that all are found at once. Unknown keys
are noted at the end, with the known key that was probably meant.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from timebound.errors import ConfigError, UnitError
from timebound.toml.lines import KeyPath, key_lines
from timebound.units import parse_duration

# Such files are written by hand; a larger one is probably the wrong file.
FILE_BYTES_MAX: Final = 1024 * 1024
# Long values are cut off in messages.
_SHOWN_LENGTH_MAX: Final = 60
_TOML_PLACE: Final = re.compile(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$")


class Document:
    """One file and its mistakes; `root` is empty when it is not valid TOML."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.mistakes: list[ConfigError] = []
        self._lines: dict[KeyPath, int] = {}
        self.root = Table(self, self._parse(), ())

    def mistake(self, at: KeyPath, message: str) -> ConfigError:
        """Return a mistake at a key, or at the nearest table around it that is in the file."""
        nearest = at
        while nearest and nearest not in self._lines:
            nearest = nearest[:-1]
        line = self._lines.get(nearest, 0)
        return ConfigError(message, path=str(self.path), line=line, key=key_text(at))

    def note(self, at: KeyPath, message: str) -> None:
        self.mistakes.append(self.mistake(at, message))

    def in_order(self) -> list[ConfigError]:
        """Return the mistakes in the order of the file."""
        return sorted(self.mistakes, key=lambda mistake: mistake.line)

    def _parse(self) -> dict[str, Any]:
        try:
            # tomllib reads \r\n as one line end; the lines must be counted alike.
            text = self._read().replace("\r\n", "\n")
            document = tomllib.loads(text)
            self._lines = key_lines(text)
            return document
        except ConfigError as error:
            self.mistakes.append(error)
        except RecursionError:
            self.note((), "values are nested too deeply")
        except tomllib.TOMLDecodeError as error:
            place = _TOML_PLACE.search(str(error))
            line = int(place[1]) if place and place[1] else text.count("\n") + 1
            message = _TOML_PLACE.sub("", str(error))
            message = f"not valid TOML: {message[:1].lower()}{message[1:]}"
            self.mistakes.append(ConfigError(message, path=str(self.path), line=line))
        return {}

    def _read(self) -> str:
        path = str(self.path)
        try:
            with self.path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise ConfigError(f"cannot be read: {reason.lower()}", path=path) from error
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"is larger than {FILE_BYTES_MAX} bytes; is it the right file?", path=path)
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            message = f"is not UTF-8 text: byte 0x{content[error.start]:02x}"
            raise ConfigError(message, path=path, line=line) from error


class Table:
    """One table of the document; `finish` notes the unknown keys."""

    def __init__(self, document: Document, values: dict[str, Any], at: KeyPath) -> None:
        self.document: Final = document
        self.at: Final = at
        self._values = values
        self._known: list[str] = []

    def has(self, key: str) -> bool:
        return key in self._values

    def note(self, key: str, message: str) -> None:
        """Note a mistake at a key of this table; an empty key means the table itself."""
        self.document.note((*self.at, key) if key else self.at, message)

    def take(self, key: str) -> Any:
        """Return a value as it is written; None when it is left out."""
        if key not in self._known:
            self._known.append(key)
        return self._values.get(key)

    def text(self, key: str, default: str = "", choices: Sequence[str] = ()) -> str:
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            self.note(key, f"must be text in quotes, not {shown(value)}")
            return default
        if choices and value not in choices:
            self.note(key, f"must be {_listed(choices)}, not {shown(value)}{_meant(value, choices)}")
            return default
        return value

    def required_text(self, key: str, meaning: str, choices: Sequence[str] = ()) -> str:
        if not self.has(key):
            self.take(key)
            self.note(key, f"is required: {meaning}")
            return ""
        return self.text(key, choices=choices)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(x, str) and x for x in value):
            self.note(key, f'must be a list of texts like ["a", "b"], not {shown(value)}')
            return ()
        return tuple(value)

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.note(key, f"must be a whole number from {least} to {most}, not {shown(value)}")
            return default
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.note(key, f"must be true or false, not {shown(value)}")
            return default
        return value

    def duration(self, key: str) -> int:
        """Return a positive duration in nanoseconds; 0 when it is left out, or wrong."""
        value = self.take(key)
        return 0 if value is None else read_duration(self.document, value, (*self.at, key))

    def table(self, key: str) -> Table | None:
        """Return a table within this one; None when it is left out, or wrong."""
        value = self.take(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            name = key_text((*self.at, key))
            self.note(key, f"must be a table, not {shown(value)}; write its keys under [{name}]")
            return None
        return Table(self.document, value, (*self.at, key))

    def tables(self, key: str) -> list[Table]:
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self.note(key, f"must be a list of tables; write [[{key}]] above the keys of each")
            return []
        return [Table(self.document, entry, (*self.at, key, index)) for index, entry in enumerate(value)]

    def values(self) -> dict[str, Any]:
        """Return all values as they are written, and count all their keys as known."""
        self._known += self._values
        return dict(self._values)

    def finish(self, elsewhere: str = "") -> None:
        """Note each unknown key; `elsewhere` says why, for keys that are known elsewhere."""
        for key in self._values:
            if key not in self._known:
                hint = _meant(key, self._known) or elsewhere or f"; known are {', '.join(self._known)}"
                self.note(key, f"unknown key{hint}")


def read_duration(document: Document, value: object, at: KeyPath) -> int:
    """Read a positive duration; note what is wrong, and return 0 then."""
    if not isinstance(value, str):
        document.note(at, f'must be a duration in quotes like "20ms", not {shown(value)}')
        return 0
    try:
        duration_ns = parse_duration(value)
    except UnitError as error:
        document.note(at, str(error))
        return 0
    if duration_ns == 0:
        document.note(at, 'must be positive, such as "20ms"')
    return duration_ns


def key_text(at: KeyPath) -> str:
    """Write a key as people read it: `operations[0].depends_on`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).lstrip(".")


def shown(value: object) -> str:
    """Return a value as text for a message."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN_LENGTH_MAX else text[:_SHOWN_LENGTH_MAX] + "…"


def _listed(choices: Sequence[str]) -> str:
    quoted = [repr(choice) for choice in choices]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _meant(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
