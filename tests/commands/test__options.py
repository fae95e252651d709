"""Texts of options that several commands have."""

from __future__ import annotations

import pytest

from timebound.commands._options import parse_properties


def test_properties_keep_their_order_and_values_may_hold_an_equals_sign() -> None:
    assert parse_properties(("b=1", "a==", "b=")) == [("b", "1"), ("a", "="), ("b", "")]


@pytest.mark.parametrize("text", ["name", "=value", ""])
def test_a_property_without_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"property {text!r} is not written as NAME=VALUE"):
        parse_properties(("a=1", text))
