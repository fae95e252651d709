"""Durations and numbers as people write them."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from timebound.errors import UnitError
from timebound.units import DURATION_NS_MAX, format_duration, parse_count, parse_duration, parse_number


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
        ("10 s", 10_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1.9999999999999999999999999999999999999s", 1_999_999_999),
    ],
)
def test_parse_duration_reads_what_people_write(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ms",
        "5",
        "1e3s",
        "9e99999999s",
        "-1s",
        "-0s",
        "+1s",
        "1_0s",
        "NaNs",
        "infs",
        "0x10s",
        "1.2.3s",
        ".s",
        " 1s",
        "1s ",
        "1s\n",
        "1\ts",
        "1\u00a0s",
        "200y",
        "40000d",
        "٣s",
        "１s",
        "²s",
        "1" * 41 + "ns",
        " 0",
        "+0",
    ],
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


@pytest.mark.parametrize(("text", "value"), [("3", 3.0), ("0.25", 0.25), (".5", 0.5), ("007", 7.0)])
def test_parse_number_reads_decimals(text: str, value: float) -> None:
    assert parse_number(text) == value


# What a reader that is too kind takes for a number. Some of it Python does: int("٣"), float(" 1_0 ").
ODD = [
    "", " ", ".", "-", "+1", "-1", "-0", " 1", "1\n", "1_000", "1,5", "1e3", "1e400", "nan", "inf", "0x10",
    "٣", "१२", "１", "²", "½", "Ⅷ", "1٣", "1.٣", "1.2.3", "1" * 41, "9" * 5_000, "0b1", "1L", "\x001", "１e3",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_odd_numbers_are_refused_by_every_reader(text: str) -> None:
    for parse in (parse_number, parse_duration, lambda text: parse_count(text, 0, 1 << 200)):
        with pytest.raises(UnitError) as caught:
            parse(text)
        assert repr(text) in str(caught.value)
    with pytest.raises(UnitError):
        parse_duration(text + "s")


@pytest.mark.parametrize("text", ["0", "11", "1" * 40])
def test_parse_count_names_the_range(text: str) -> None:
    with pytest.raises(UnitError, match="from 1 to 10"):
        parse_count(text, 1, 10)


def test_parse_count_reads_whole_numbers() -> None:
    assert [parse_count(text, 0, 10) for text in ("0", "7", "010")] == [0, 7, 10]


texts = st.one_of(
    st.text("0123456789.", max_size=42),
    st.text("01.+-_ eExnaif٣１²\n\u00a0", max_size=6),
    st.text(max_size=5),
    st.sampled_from(ODD),
)


@given(texts, st.sampled_from(["ns", "us", "µs", "ms", "s", "m", "h", "d"]))
def test_readers_agree_with_a_grammar_and_exact_arithmetic(text: str, unit: str) -> None:
    assume(not text.endswith(("n", "u", "µ", "m")))  # with an "s" behind it, it were another unit
    factor = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}
    factor |= {"h": 3_600 * 10**9, "d": 86_400 * 10**9}
    is_whole = is_number(text) and "." not in text
    number = text.rstrip(" ")
    duration_ns = math.floor(Fraction(number) * factor[unit]) if is_number(number) else -1

    assert read(parse_number, text) == (float(text) if is_number(text) else None)
    assert read(count_up_to_a_million, text) == (int(text) if is_whole and int(text) <= 10**6 else None)
    assert read(parse_duration, text + unit) == (duration_ns if 0 <= duration_ns <= DURATION_NS_MAX else None)


def is_number(text: str) -> bool:
    return len(text) <= 40 and re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", text) is not None


def count_up_to_a_million(text: str) -> int:
    return parse_count(text, 0, 10**6)


def read(parse: Callable[[str], float], text: str) -> float | None:
    try:
        return parse(text)
    except UnitError:
        return None
