"""Text of others on a terminal: what would steer it is written out instead of being sent to it.

Payloads, topics, client ids and reason strings come from anybody who may publish. An escape sequence in
one could rename the window, hide lines or type for the reader. What goes to a file or a pipe stays as it is.
"""

from __future__ import annotations

import unicodedata
from typing import Final

# Control characters, halves of surrogate pairs, and separators of lines and paragraphs.
_STEERING: Final = ("Cc", "Cs", "Zl", "Zp")
# These change the direction of what follows, so that a line reads as another one.
_DIRECTIONS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
# A payload may have several lines; a topic, a name or a message of the log may not.
LINES: Final = "\n\t"


def safe(text: str, *, keep: str = "") -> str:
    """Write out, as `\\x1b`, every character that would steer a terminal, but for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(_written(char) if char not in keep and _is_steering(char) else char for char in text)


def safe_bytes(data: bytes) -> str:
    """Bytes as text for a terminal; those that are no UTF-8 are written out, too."""
    return safe(data.decode("utf-8", "backslashreplace"), keep=LINES)


def _is_steering(char: str) -> bool:
    return unicodedata.category(char) in _STEERING or char in _DIRECTIONS


def _written(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
