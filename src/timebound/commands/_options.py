"""Options that several commands have, and how their texts are read."""

from __future__ import annotations

from typing import Annotated

import typer

Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Quality of service.")]
Property = Annotated[
    list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="User property; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def parse_properties(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Read `name=value` texts in order; a value may hold `=` itself."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"property {text!r} is not written as NAME=VALUE")
        pairs.append((name, value))
    return pairs
