"""Names of keys and tables: how a key is written, and which one was probably meant."""

from __future__ import annotations

import difflib
from typing import Final

from timebound.config.values import TABLES
from timebound.toml.lines import KeyPath
from timebound.toml.setting import settings_of

# Tables of which a file may have several.
ARRAYS: Final = frozenset({"listeners", "acl", "weights", "journals", "neighbours"})


def key_text(at: KeyPath) -> str:
    """Write a key like `listeners[0].tls.key`."""
    text = ""
    for part in at:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def tables_under(name: str) -> list[str]:
    """Return the tables directly inside a table; `""` is the top of the file."""
    prefix = f"{name}." if name else ""
    return [
        other.removeprefix(prefix)
        for other, _ in TABLES
        if other and other.startswith(prefix) and "." not in other.removeprefix(prefix)
    ]


def suggestion(key: str, known: list[str], table: str) -> str:
    """Return what was probably meant by an unknown key, as the end of a message."""
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    for name, other in TABLES:
        if key in settings_of(other):
            where = f"[[{name}]]" if name in ARRAYS else f"[{name}]" if name else "the top"
            return f"; it belongs to {where}"
    here = f"[{table}]" if table else "the top"
    return f"; {here} has {', '.join(known)}"
