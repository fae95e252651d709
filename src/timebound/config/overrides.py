"""Keys that are set outside the file: by environment variables, and by options of `timebound serve`.

They are put into the document before it is read, so they are typed and checked as the file's own keys are.
A mistake names the variable or option. The names of variables are made from the tables: there is no second
list of keys.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from timebound.config.names import ARRAYS, key_text, tables_under
from timebound.config.values import TABLES
from timebound.errors import ConfigError
from timebound.toml.lines import KeyPath
from timebound.toml.setting import KeySpec, settings_of

PREFIX: Final = "TIMEBOUND_CONFIG_"
# Longer numbers are no place in a list that somebody wrote.
_DIGITS_MAX: Final = 4
_TABLES: Final = dict(TABLES)


@dataclass(frozen=True, slots=True)
class Override:
    """One key with its value, and the variable or option that sets it."""

    name: str
    at: KeyPath
    value: object


def variable_name(at: KeyPath) -> str:
    """Return the environment variable of a key."""
    return PREFIX + "_".join(str(part).upper() for part in at)


def from_environment(environment: Mapping[str, str]) -> tuple[list[Override], list[ConfigError]]:
    """Return the keys that variables set, tables in the order of their numbers, and the unknown variables."""
    found: list[Override] = []
    mistakes: list[ConfigError] = []
    for name in sorted(environment):
        if not name.startswith(PREFIX):
            continue
        key = _find(name.removeprefix(PREFIX), "", ())
        if key is None:
            mistakes.append(ConfigError(f"unknown key{_meant(name)}", key=name))
        else:
            at, described = key
            found.append(Override(name, at, _typed(environment[name], described)))
    found.sort(
        key=lambda override: [
            f"{part:0{_DIGITS_MAX}}" if isinstance(part, int) else part for part in override.at
        ]
    )
    return found, mistakes


def lay_over(document: dict[str, Any], overrides: Iterable[Override]) -> list[ConfigError]:
    """Put keys into a document, in place of those that it has; return those that have no place there."""
    mistakes: list[ConfigError] = []
    for override in overrides:
        if override.at[0] == "listeners":
            # Without any in the file there is one, with the defaults.
            document.setdefault("listeners", [{}])
        *tables, key = override.at
        inner: Any = document
        for part, following in zip(tables, override.at[1:], strict=True):
            inner = _step(inner, part, [] if isinstance(following, int) else {})
        if isinstance(inner, dict):
            inner[key] = override.value
        elif inner is _GAP:
            before = key_text((override.at[0], int(override.at[1]) - 1))
            mistakes.append(
                ConfigError(f"there is no {before}; count from 0, without gaps", key=override.name)
            )
        # Else the file has something else in place of a table; that mistake is reported.
    return mistakes


def overridden_under(overrides: Iterable[Override], at: KeyPath) -> list[str]:
    """Return the names of what sets keys inside a table."""
    return [override.name for override in overrides if override.at[: len(at)] == at]


_GAP: Final = object()


def _step(table: Any, part: str | int, empty: Any) -> Any:
    """Return what is inside a table or list, made if it is the next one missing."""
    if isinstance(table, dict):
        return table.setdefault(part, empty)
    if isinstance(table, list) and isinstance(part, int):
        if part == len(table):
            table.append(empty)
        return table[part] if part < len(table) else _GAP
    return table


def _find(words: str, table: str, at: KeyPath) -> tuple[KeyPath, KeySpec] | None:
    """Find the key that the rest of a variable's name means."""
    for key, (_, described) in settings_of(_TABLES[table]).items():
        if words == key.upper():
            return (*at, key), described
    for name in tables_under(table):
        inside, rest = (*at, name), words.removeprefix(f"{name.upper()}_")
        if rest == words:
            continue
        if name in ARRAYS:
            number, _, rest = rest.partition("_")
            if not (number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX):
                continue
            inside = (*inside, int(number))
        found = _find(rest, f"{table}.{name}" if table else name, inside)
        if found is not None:
            return found
    return None


def _typed(text: str, described: KeySpec) -> object:
    """Make the value that TOML would have; what cannot be read stays text, which is refused later."""
    try:
        match described.kind:
            case "switch":
                return {"true": True, "false": False}.get(text, text)
            case "count":
                return int(text)
            case "fraction":
                return float(text)
            case "texts":
                return (
                    tomllib.loads(f"list = {text}")["list"]
                    if text.startswith("[")
                    else [text]
                    if text
                    else []
                )
            case _:
                return text
    except ValueError:
        return text


def _meant(name: str) -> str:
    number = next((part for part in name.split("_") if part.isdigit()), "0")
    known = [variable_name(at).removeprefix(PREFIX) for at in _every_key(number)]
    close = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1)
    return f"; did you mean {PREFIX}{close[0]}?" if close else "; docs/configuration.md lists the keys"


def _every_key(number: str) -> Iterator[KeyPath]:
    """Return every key, with this number for each table that may occur several times."""
    for table, described in TABLES:
        at: list[str] = []
        for part in table.split(".") if table else []:
            at += [part, number] if part in ARRAYS else [part]
        for key in settings_of(described):
            yield (*at, key)
