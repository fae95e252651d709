"""Foreign text on a terminal: control characters are escaped instead of being sent to it.

Payloads, topics, client ids and reason strings come from anybody who may publish. An escape sequence in
one could rename the window, hide lines or type for the reader. Output to files and pipes is not changed.
"""

from __future__ import annotations

import unicodedata
from typing import Final

# Control characters, halves of surrogate pairs, and separators of lines and paragraphs.
_STEERING: Final = ("Cc", "Cs", "Zl", "Zp")
# These change the direction of the following text, so that a line reads as another one.
_DIRECTIONS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
# A payload may have several lines; a topic, a name or a log message may not.
LINES: Final = "\n\t"


def safe(text: str, *, keep: str = "") -> str:
    """Escape, like `\\x1b`, every character that would control a terminal, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(_written(char) if char not in keep and _is_steering(char) else char for char in text)


def safe_bytes(data: bytes) -> str:
    """Return bytes as text for a terminal; bytes that are not UTF-8 are escaped too."""
    return safe(data.decode("utf-8", "backslashreplace"), keep=LINES)


def _is_steering(char: str) -> bool:
    return unicodedata.category(char) in _STEERING or char in _DIRECTIONS


def _written(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
