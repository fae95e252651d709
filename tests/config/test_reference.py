"""The example and the reference of the configuration say what the code does."""

from __future__ import annotations

from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

import pytest
from tests.core.values.doubles import parse_access_rules

from timebound.config.values import TABLES
from timebound.core.values.access import AccessList
from timebound.node.config import default_config, load_config
from timebound.toml.setting import KIBIBYTE, NEVER_S, UNLIMITED, KeySpec, format_size, settings_of
from timebound.units import SECOND, format_duration

ROOT = Path(__file__).parents[2]


def test_the_example_can_be_used_and_shows_every_key() -> None:
    path = ROOT / "examples" / "timebound.toml"
    text = path.read_text("utf-8")

    config = load_config(path)

    assert config.limits == default_config().limits
    for _, table in TABLES:
        for key in settings_of(table):
            assert f"\n{key} = " in text or f"\n# {key} = " in text, key


def default_text(known: Field[Any], described: KeySpec) -> str:
    """A default as it would stand in TOML."""
    value = known.default
    if value is MISSING:
        return "required"
    if value is None:
        return "none"
    match described.kind:
        case "switch":
            return f"`{str(value).lower()}`"
        case "seconds" if value and value % 86_400 == 0:
            return f'`"{value // 86_400}d"`'
        case "duration" | "seconds":
            return f'`"{format_duration(round(value * SECOND))}"`'
        case "size" if value >= KIBIBYTE:
            return f'`"{format_size(value)}"`'
        case "texts":
            return f"`{list(value)}`"
        case "text" | "path" | "choice":
            return f'`"{value}"`'
        case _:
            return f"`{value}`"


def unit_text(described: KeySpec) -> str:
    words = {"switch": "true or false", "text": "text", "texts": "list of texts", "path": "path"}
    if described.kind in words:
        return words[described.kind]
    if described.kind == "fraction":
        return f"number, {described.least:g} to {described.most:g}"
    if described.kind == "choice":
        return ", ".join(f"`{choice}`" for choice in described.choices)
    unit = {"size": "bytes", "duration": "duration", "seconds": "whole seconds", "count": "number"}[
        described.kind
    ]
    if described.maximum < UNLIMITED and described.maximum != NEVER_S:
        return f"{unit}, {described.minimum} to {described.maximum}"
    return f"{unit}, at least {described.minimum}" if described.minimum else unit


def reference_of(table: type) -> str:
    """The rows that docs/configuration.md must have for a table."""
    return "\n".join(
        f"| `{key}` | {default_text(known, described)} | {unit_text(described)} | {described.reason} |"
        for key, (known, described) in settings_of(table).items()
    )


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_the_reference_says_what_the_code_does(name: str, table: type) -> None:
    reference = (ROOT / "docs" / "configuration.md").read_text("utf-8")

    assert reference_of(table) in reference, f"put these rows under [{name}]:\n{reference_of(table)}"


def test_the_reference_has_no_row_that_the_code_does_not_know() -> None:
    reference = (ROOT / "docs" / "configuration.md").read_text("utf-8")

    rows = [line for line in reference.split("\n") if line.startswith("| `")]

    # A kind of table that stands in two places is described once.
    assert len(rows) == sum(len(settings_of(table)) for table in {table for _, table in TABLES})


def test_the_rules_shown_in_the_reference_do_what_it_says() -> None:
    reference = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    shown = reference.split("```\n# who ")[1].split("```")[0]

    lines = ("# who " + shown).splitlines()
    in_order = AccessList(parse_access_rules("\n".join(lines)))
    exchanged = AccessList(parse_access_rules("\n".join([lines[0], lines[2], lines[1], *lines[3:]])))

    assert in_order.may_publish("ann", "c", "plant/secret/x")
    assert not exchanged.may_publish("ann", "c", "plant/secret/x")
    assert in_order.may_subscribe("", "c", "public/+")
    assert in_order.may_publish("bob", "d1", "devices/bob/d1/temp")
    assert not in_order.may_publish("bob", "d1", "devices/ann/d1/temp")
