"""Dependencies as MQTT clients write them: `all(a/+, b/c)`, `any(x, all(y, "z, with comma"))`.

The leaves are topic filters, kept as text; whether one is a valid filter is checked where filters are
read. A filter that contains a comma, a parenthesis, a quote or outer spaces stands in double quotes,
where a backslash keeps the character after it.
"""

from __future__ import annotations

from typing import Final

from timebound.core.correlation.expression import DEPTH_MAX, SIGNALS_MAX, AllOf, AnyOf, Dependency, Leaf
from timebound.errors import FilterError

# A filter may have 65,535 bytes, a correlation holds a few of them; a longer text is an attack.
TEXT_LENGTH_MAX: Final = 65_535
_DELIMITERS: Final = ',()"'


def parse_correlation(text: str, within_ns: int = 0) -> Dependency:
    """Read a correlation; `within_ns` is the window of every `all` in it, 0 for none.

    Raises:
        FilterError: the text cannot be read; `position` says where.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise FilterError(f"correlation has {len(text)} characters; at most {TEXT_LENGTH_MAX} are read")
    reader = _Reader(text, within_ns)
    dependency = reader.read_part(0)
    reader.skip_spaces()
    if reader.position < len(text):
        raise reader.error(f"correlation has unexpected text after its end: {text[reader.position :][:20]!r}")
    return dependency


class _Reader:
    __slots__ = ("leaves", "position", "text", "within_ns")

    def __init__(self, text: str, within_ns: int) -> None:
        self.text = text
        self.within_ns = within_ns
        self.position = 0
        self.leaves = 0

    def error(self, message: str) -> FilterError:
        return FilterError(f"{message} (position {self.position})", position=self.position)

    def skip_spaces(self) -> None:
        while self.position < len(self.text) and self.text[self.position] == " ":
            self.position += 1

    def read_part(self, depth: int) -> Dependency:
        if depth > DEPTH_MAX:
            raise self.error(f"correlation is nested more than {DEPTH_MAX} deep")
        self.skip_spaces()
        for word in ("all", "any"):
            end = self.position + len(word)
            if self.text[self.position : end] == word and self.text[end : end + 1] == "(":
                self.position = end + 1
                parts = self.read_parts(depth)
                return AllOf(parts, self.within_ns) if word == "all" else AnyOf(parts)
        return self.read_leaf()

    def read_parts(self, depth: int) -> list[Dependency]:
        parts = [self.read_part(depth + 1)]
        while True:
            self.skip_spaces()
            mark = self.text[self.position : self.position + 1]
            if mark not in (",", ")"):
                raise self.error("correlation lacks a closing parenthesis" if not mark else "expected , or )")
            self.position += 1
            if mark == ")":
                return parts
            parts.append(self.read_part(depth + 1))

    def read_leaf(self) -> Dependency:
        self.leaves += 1
        if self.leaves > SIGNALS_MAX:
            raise self.error(f"correlation has more than {SIGNALS_MAX} topic filters")
        if self.text[self.position : self.position + 1] == '"':
            return Leaf(self.read_quoted())
        start = self.position
        while self.position < len(self.text) and self.text[self.position] not in _DELIMITERS:
            self.position += 1
        topic_filter = self.text[start : self.position].rstrip(" ")
        if not topic_filter:
            raise self.error("expected a topic filter, all(...) or any(...)")
        return Leaf(topic_filter)

    def read_quoted(self) -> str:
        self.position += 1
        characters: list[str] = []
        while self.position < len(self.text):
            character = self.text[self.position]
            self.position += 1
            if character == '"':
                if not characters:
                    raise self.error("quoted topic filter is empty")
                return "".join(characters)
            if character == "\\":
                character = self.text[self.position : self.position + 1]
                self.position += 1
            characters.append(character)
        raise self.error("quoted topic filter lacks its closing quote")
