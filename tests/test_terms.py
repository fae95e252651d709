from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.terms import DEFAULT_TERMS, TERM_PROPERTIES, TermArguments, Terms, with_name

ROOT = Path(__file__).parent.parent


def test_terms_are_frozen_and_compare_by_value() -> None:
    terms = Terms(where="a = 1", deadline_ns=5)

    with pytest.raises(FrozenInstanceError):
        terms.where = "b = 1"  # type: ignore[misc]  # what is tested

    assert terms == Terms(where="a = 1", deadline_ns=5)
    assert terms != DEFAULT_TERMS
    assert hash(terms) == hash(Terms(where="a = 1", deadline_ns=5))


def test_terms_are_given_by_name_only() -> None:
    with pytest.raises(TypeError):
        Terms("a = 1")  # type: ignore[misc]  # what is tested


def test_each_field_is_one_property_and_one_argument_of_the_client() -> None:
    assert [one.attribute for one in TERM_PROPERTIES.values()] == [one.name for one in fields(Terms)]
    assert list(TERM_PROPERTIES) == list(TermArguments.__annotations__)


def test_each_property_is_in_the_reference_of_the_wire() -> None:
    text = (ROOT / "docs" / "wire.md").read_text()

    missing = [name for name in TERM_PROPERTIES if f"| SUBSCRIBE | `{name}` |" not in text]

    assert missing == []


@given(st.text(st.characters(exclude_characters="\0")), st.text(st.characters(exclude_characters="\0")))
def test_a_key_tells_every_text_and_name_apart(text: str, name: str) -> None:
    key = with_name(text, name)

    assert key.split("\0") == ([text, name] if name else [text])
