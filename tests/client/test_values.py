from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.client.values import (
    budget_text,
    duration_text,
    number_text,
    priority_text,
    to_ns,
    to_payload,
    to_positive_ns,
    to_user_properties,
    to_whole_seconds,
)
from timebound.errors import UnitError
from timebound.units import MILLISECOND, SECOND, parse_duration, parse_number


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ("grün", "grün".encode()),
        (None, b""),
        (91, b"91"),
        (91.5, b"91.5"),
        (True, b"true"),
        ({"value": 91, "unit": "°C"}, '{"value":91,"unit":"°C"}'.encode()),
        ([1, "a", None], b'[1,"a",null]'),
    ],
)
def test_payloads_become_bytes(value: Any, payload: bytes) -> None:
    assert to_payload(value) == payload


@pytest.mark.parametrize("value", [float("nan"), {"value": float("inf")}])
def test_payload_that_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_payload(value)


def test_payload_of_another_type_is_refused_with_the_types_that_are_taken() -> None:
    with pytest.raises(TypeError, match="payload is a set; it must be bytes, str"):
        to_payload({1, 2})  # type: ignore[arg-type]  # the caller's mistake under test


@given(st.recursive(st.integers() | st.text() | st.booleans(), lambda inner: st.lists(inner, max_size=3)))
def test_json_payload_reads_back(value: Any) -> None:
    assert json.loads(to_payload([value])) == [value]


@pytest.mark.parametrize(
    ("value", "expected_ns"),
    [
        ("250ms", 250 * MILLISECOND),
        (2, 2 * SECOND),
        (0.25, 250 * MILLISECOND),
        (timedelta(seconds=3), 3 * SECOND),
    ],
)
def test_durations_are_text_seconds_or_timedeltas(value: Any, expected_ns: int) -> None:
    assert to_ns(value, "timeout") == expected_ns


@pytest.mark.parametrize("value", [-1, -0.1, float("nan"), float("inf"), timedelta(seconds=-1), 10**12])
def test_duration_out_of_range_names_the_argument(value: Any) -> None:
    with pytest.raises(UnitError, match=r"timeout .* is out of range"):
        to_ns(value, "timeout")


def test_duration_of_zero_is_refused_where_it_must_be_above() -> None:
    with pytest.raises(UnitError, match="timeout is 0; it must be above zero"):
        to_positive_ns(0, "timeout")


def test_whole_seconds_are_rounded_up() -> None:
    assert to_whole_seconds("1001ms", "expiry") == 2
    assert to_whole_seconds("2s", "expiry") == 2


def test_budget_stays_as_given_when_no_millisecond_has_passed() -> None:
    assert budget_text(400 * MILLISECOND, 999_999) == "400ms"


@given(st.integers(1, 10**12), st.integers(0, 2 * 10**12))
def test_budget_is_what_is_left_and_never_nothing(timeout_ns: int, elapsed_ns: int) -> None:
    left_ns = parse_duration(budget_text(timeout_ns, elapsed_ns))

    assert left_ns >= 1
    assert left_ns == 1 or 0 <= left_ns - (timeout_ns - elapsed_ns) < MILLISECOND


@given(st.floats(0, 1e12))
def test_numbers_are_written_so_that_a_broker_reads_the_same(value: float) -> None:
    text = number_text(value, "price")

    assert len(text) > 40 or parse_number(text) == value


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_price_below_zero_or_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"price is .*; it must be a number of at least 0"):
        number_text(value, "price")


def test_deadline_is_written_in_the_largest_whole_unit() -> None:
    assert duration_text(timedelta(milliseconds=1500), "deadline") == "1500ms"


def test_priority_beyond_nine_is_refused() -> None:
    assert priority_text(9) == "9"
    with pytest.raises(ValueError, match="priority is 10; it must be 0 to 9"):
        priority_text(10)


def test_user_properties_keep_their_order_and_become_text() -> None:
    given_pairs = [("b", 1), ("a", 2.5), ("b", True), ("c", "x")]

    assert to_user_properties(given_pairs) == [("b", "1"), ("a", "2.5"), ("b", "true"), ("c", "x")]
    assert to_user_properties({"n": 1e-7}) == [("n", "0.0000001")]
    assert to_user_properties(None) == []


@pytest.mark.parametrize("pair", [("a\0", "b"), ("a", "b\0"), ("a", "\ud800"), ("a", "x" * 65_536)])
def test_user_property_that_mqtt_cannot_carry_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="string"):
        to_user_properties([pair])
