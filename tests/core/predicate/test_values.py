"""Reading numbers and date-times, comparing values, and arithmetic at its edges."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.predicate.values import (
    AFTER,
    BEFORE,
    SAME,
    UNLIKE,
    Moment,
    Property,
    calculate,
    order,
    read_moment,
    read_number,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("-7", -7), ("+7", 7), ("007", 7), ("7.", 7.0), (".5", 0.5), ("1e3", 1000.0), ("1E-1", 0.1)],
)
def test_decimal_texts_are_numbers(text: str, number: float) -> None:
    found = read_number(text)

    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize(
    "text", ["", " 7", "7 ", "1_000", "0x10", "inf", "nan", "1e999", "seven", "٧", "1e", ".", "-", "9" * 65]
)
def test_other_texts_are_no_numbers(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("text", "epoch_ns"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01 00:00:00.000000001z", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T22:30:00-0130", 0),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000_000_000),
    ],
)
def test_date_times_are_read_as_utc(text: str, epoch_ns: int) -> None:
    assert read_moment(text) == Moment(epoch_ns)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026",
        "2026-02-30",
        "0000-01-01",
        "2026-01-01T24:00:00",
        "2026-01-01T00:60:00",
        "2026-01-01T00:00:60",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T",
        "2026-01-01Z",
        "20260101",
        "2026-W01-1",
        "2026-01-01T00:00:00.0000000001",
        "2026-01-01T00:00:00" + " " * 40,
    ],
)
def test_other_texts_are_no_date_times(text: str) -> None:
    assert read_moment(text) is None


@given(st.datetimes(), st.integers(-1439, 1439))
def test_date_times_are_read_as_the_standard_library_reads_them(naive: datetime, offset: int) -> None:
    text = naive.replace(tzinfo=timezone(timedelta(minutes=offset))).isoformat()
    since = naive - timedelta(minutes=offset) - datetime(1970, 1, 1) if 1 < naive.year < 9999 else None

    moment = read_moment(text)

    assert moment is not None
    if since is not None:
        assert moment.epoch_ns == (since // timedelta(microseconds=1)) * 1000


def test_integers_and_doubles_compare_without_rounding() -> None:
    assert order(2**53 + 1, float(2**53)) == AFTER
    assert order(2**53, float(2**53)) == SAME
    assert order(10**400, 1.7e308) == AFTER
    assert order(Property("9007199254740993"), float(2**53)) == AFTER


def test_two_properties_compare_as_numbers_only_if_both_are() -> None:
    assert order(Property("9"), Property("10")) == BEFORE
    assert order(Property("9"), Property("10x")) == AFTER
    assert order(Property("1.0"), Property("1")) == SAME


def test_true_is_not_one() -> None:
    assert order(True, 1) == UNLIKE
    assert order(1.0, True) == UNLIKE
    assert order(frozenset([1]), True) == UNLIKE


@pytest.mark.parametrize(
    ("operator", "left", "right", "result"),
    [
        ("/", 7, 2, 3),
        ("/", -7, 2, -3),
        ("/", 7, -2, -3),
        ("/", 7, 2.0, 3.5),
        ("/", 1, 0, None),
        ("/", 1.0, 0.0, None),
        ("*", 1e300, 1e300, None),
        ("*", 10**400, 1.5, None),
        ("*", 10**400, 10, None),
        ("+", 2**63 - 1, 1, float(2**63)),
        ("-", 0, 2**63 - 1, -(2**63) + 1),
    ],
)
def test_arithmetic(operator: str, left: float, right: float, result: float | None) -> None:
    assert calculate(operator, left, right) == result


@given(st.sampled_from("+-*/"), st.integers() | st.floats(), st.integers() | st.floats(allow_nan=False))
def test_arithmetic_never_raises_and_stays_finite(operator: str, left: float, right: float) -> None:
    result = calculate(operator, left, right)

    assert result is None or abs(result) < float("inf")
