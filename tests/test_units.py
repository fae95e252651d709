"""Durations and numbers as people write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.errors import UnitError
from timebound.units import DURATION_NS_MAX, format_duration, parse_duration, parse_number


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("250ms", 250_000_000),
        ("1.5s", 1_500_000_000),
        ("2m", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("51.2us", 51_200),
        ("51.2µs", 51_200),
        ("7ns", 7),
        ("0", 0),
        (" 10 s ", 10_000_000_000),
    ],
)
def test_parse_duration_reads_what_people_write(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(
    "text", ["", "ms", "5", "1e3s", "9e99999999s", "-1s", "1_0s", "NaNs", "infs", "1.2.3s", "200y", "40000d"]
)
def test_parse_duration_refuses_anything_else_and_names_it(text: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


@given(st.integers(0, DURATION_NS_MAX))
def test_a_formatted_duration_reads_back_as_itself(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns


@given(st.text(max_size=60))
def test_no_text_raises_anything_but_unit_errors(text: str) -> None:
    for parse in (parse_duration, parse_number):
        with contextlib.suppress(UnitError):
            parse(text)


@pytest.mark.parametrize(("text", "value"), [("3", 3.0), ("0.25", 0.25), ("-1.5", -1.5)])
def test_parse_number_reads_decimals(text: str, value: float) -> None:
    assert parse_number(text) == value
