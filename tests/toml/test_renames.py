"""Old names of keys are read as the new ones, with their lines; both at once are a mistake."""

from __future__ import annotations

import tomllib
from typing import Any

from timebound.toml.lines import KeyPath, key_lines
from timebound.toml.renames import OldName, Renamed, occurrences, rename

TABLE = (Renamed("", "neighbour", "neighbours"), Renamed("neighbours", "rate", "speed"))


def renamed(text: str) -> tuple[dict[str, Any], dict[KeyPath, int], list[OldName]]:
    document, lines = tomllib.loads(text), key_lines(text)
    found = rename(document, lines, TABLE)
    return document, lines, found


def test_a_document_of_new_names_is_left_alone() -> None:
    text = "[[neighbours]]\nname = 'a'\nspeed = 5\n"

    document, _, found = renamed(text)

    assert document == tomllib.loads(text)
    assert found == []


def test_tables_and_keys_in_them_get_their_new_names_and_keep_their_lines() -> None:
    document, lines, found = renamed("[[neighbour]]\nname = 'a'\n[[neighbour]]\nname = 'b'\nrate = 5\n")

    assert document == {"neighbours": [{"name": "a"}, {"name": "b", "speed": 5}]}
    assert lines["neighbours", 1, "speed"] == 5
    assert [(one.at, one.new, one.is_double) for one in found] == [
        (("neighbour",), "neighbours", False),
        (("neighbours", 1, "rate"), "speed", False),
    ]
    assert [lines[one.at] for one in found] == [1, 5]
    assert found[1].message == "is now called 'speed'; the old name is still read"


def test_both_names_are_a_mistake_and_the_new_one_stays() -> None:
    document, _, found = renamed("[[neighbours]]\nrate = 5\nspeed = 6\n")

    assert document == {"neighbours": [{"speed": 6}]}
    assert [one.is_double for one in found] == [True]
    assert found[0].message == "is the old name of 'speed', which is given too; keep 'speed' alone"


def test_what_is_not_a_table_is_left_to_the_reader() -> None:
    document, _, found = renamed("neighbours = 5\n")

    assert (document, found) == ({"neighbours": 5}, [])


def test_occurrences_are_tables_at_any_depth() -> None:
    document = {"a": [{"tls": {"x": 1}}, {"tls": {"x": 2}}, {"tls": 3}]}

    assert occurrences(document, "a.tls") == [({"x": 1}, ("a", 0, "tls")), ({"x": 2}, ("a", 1, "tls"))]
    assert occurrences(document, "") == [(document, ())]
