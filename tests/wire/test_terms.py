"""The product's own user properties: values, mistakes, and their error texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.errors import ProtocolError
from timebound.terms import DEFAULT_TERMS
from timebound.units import format_duration
from timebound.wire.terms import (
    DEFAULT_PUBLISH_TERMS,
    WORTH_MAX,
    parse_publish_terms,
    parse_subscribe_terms,
    publish_hint,
    refuse_reserved_terms,
    subscribe_hints,
)


def test_no_terms_give_the_shared_defaults() -> None:
    assert parse_publish_terms(()) is DEFAULT_PUBLISH_TERMS
    assert parse_publish_terms((("site", "7"), ("Timeout", "soon"))) is DEFAULT_PUBLISH_TERMS
    assert parse_subscribe_terms([]) is DEFAULT_TERMS
    assert parse_subscribe_terms([("timeout", "soon")]) is DEFAULT_TERMS
    assert DEFAULT_TERMS.price == 1.0
    assert DEFAULT_TERMS.penalty == 0.0


def test_publish_terms_are_read() -> None:
    terms = parse_publish_terms((("site", "7"), ("timeout", "250ms"), ("priority", "9")))

    assert terms.timeout_ns == 250_000_000
    assert terms.priority == 9


def test_subscribe_terms_are_read() -> None:
    terms = parse_subscribe_terms(
        [("where", "value > 90"), ("deadline", "1.5s"), ("price", "3"), ("penalty", "0.3")]
    )

    assert terms.where == "value > 90"
    assert terms.deadline_ns == 1_500_000_000
    assert terms.price == 3.0
    assert terms.penalty == 0.3


@given(st.integers(1, 10**15))
def test_any_duration_above_zero_is_a_timeout(timeout_ns: int) -> None:
    terms = parse_publish_terms((("timeout", format_duration(timeout_ns)),))

    assert terms.timeout_ns == timeout_ns


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "timeout",
            "soon",
            "property 'timeout' is 'soon'; it must be a duration above zero like 250ms, 1.5s or 2m, "
            "at most 100 years",
        ),
        (
            "timeout",
            "0",
            "property 'timeout' is '0'; it must be a duration above zero like 250ms, 1.5s or 2m, "
            "at most 100 years",
        ),
        ("timeout", " ", "property 'timeout' is empty; leave it out or give it a value"),
        ("priority", "10", "property 'priority' is '10'; it must be 0 to 9"),
        ("priority", "-1", "property 'priority' is '-1'; it must be 0 to 9"),
        ("priority", "²", "property 'priority' is '²'; it must be 0 to 9"),
    ],
)
def test_bad_publish_term_names_property_and_value(name: str, value: str, message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_publish_terms(((name, value),))

    assert str(caught.value) == message
    assert caught.value.reason_code == 0x83


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "deadline",
            "-5ms",
            "property 'deadline' is '-5ms'; it must be a duration above zero like 250ms, 1.5s or 2m, "
            "at most 100 years",
        ),
        (
            "price",
            "-1",
            "property 'price' is '-1'; it must be a decimal number from 0 to 1000000000 like 2.5",
        ),
        (
            "price",
            "nan",
            "property 'price' is 'nan'; it must be a decimal number from 0 to 1000000000 like 2.5",
        ),
        (
            "penalty",
            "lots",
            "property 'penalty' is 'lots'; it must be a decimal number from 0 to 1000000000 like 2.5",
        ),
        (
            "price",
            "1000000001",
            "property 'price' is '1000000001'; it must be a decimal number from 0 to 1000000000 like 2.5",
        ),
        ("where", "", "property 'where' is empty; leave it out or give it a value"),
    ],
)
def test_bad_subscribe_term_names_property_and_value(name: str, value: str, message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_subscribe_terms([(name, value)])

    assert str(caught.value) == message
    assert caught.value.reason_code == 0x83


def test_term_given_twice_is_refused() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_publish_terms((("timeout", "1s"), ("timeout", "1s")))
    assert str(caught.value) == "property 'timeout' is given twice, as '1s' and '1s'; give it once"

    with pytest.raises(ProtocolError, match="property 'price' is given twice"):
        parse_subscribe_terms([("price", "1"), ("price", "2")])


def test_long_values_are_shortened_in_the_reason() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_publish_terms((("timeout", "9" * 60_000),))

    assert len(str(caught.value)) < 200


@given(st.lists(st.tuples(st.sampled_from(["timeout", "priority", "price", "where"]), st.text(max_size=8))))
def test_any_text_is_read_or_refused_with_our_reason(pairs: list[tuple[str, str]]) -> None:
    for parse in (parse_publish_terms, parse_subscribe_terms):
        assert _reason_of(parse, pairs) in (0, 0x83)


def _reason_of(parse: Callable[[list[tuple[str, str]]], object], pairs: list[tuple[str, str]]) -> int:
    try:
        parse(pairs)
    except ProtocolError as error:
        return error.reason_code
    return 0


@pytest.mark.parametrize(
    ("name", "term"),
    [
        ("deadlin", "deadline"),
        ("deadlnie", "deadline"),
        ("dead-line", "deadline"),
        ("Deadline", "deadline"),
        ("prise", "price"),
        ("wheree", "where"),
        ("watch_dog", "watchdog"),
    ],
)
def test_almost_a_term_of_subscribe_is_named(name: str, term: str) -> None:
    assert subscribe_hints([(name, "1")]) == [f"unknown property {name!r}; did you mean {term!r}?"]


def test_names_of_the_application_and_terms_give_no_hint() -> None:
    terms = ["where", "deadline", "price", "keep", "within", "every"]

    assert subscribe_hints([(name, "1") for name in [*terms, "note", "", "temperature", "x" * 60_000]]) == []


def test_term_of_publish_on_a_subscribe_is_named() -> None:
    assert subscribe_hints([("timeout", "1s")]) == [
        "property 'timeout' is a term of PUBLISH, not of SUBSCRIBE"
    ]


def test_hints_of_one_packet_are_few() -> None:
    assert len(subscribe_hints([("deadlin", "1")] * 64)) == 4


@pytest.mark.parametrize(
    ("name", "term"), [("time-out", "timeout"), ("timeot", "timeout"), ("prioirty", "priority")]
)
def test_almost_a_term_of_publish_is_named(name: str, term: str) -> None:
    assert publish_hint(name) == f"unknown property {name!r}; did you mean {term!r}?"


@pytest.mark.parametrize("name", ["timeout", "priority", "price", "deadline", "time", ""])
def test_attributes_of_a_message_give_no_hint(name: str) -> None:
    assert publish_hint(name) == ""


@pytest.mark.parametrize("name", ["latency", "bandwidth", "period", "reserve"])
def test_reserved_terms_are_refused_by_name(name: str) -> None:
    with pytest.raises(ProtocolError, match=f"property '{name}' is '5'") as caught:
        refuse_reserved_terms([("where", "a = 1"), (name, "5")])

    assert caught.value.reason_code == 0x83


ODD = ["+1", "-1", " 1", "1_0", "1e3", "nan", "inf", "0x10", "٣", "１", "²", "1" * 41, "9" * 10_000]


@pytest.mark.parametrize("number", ODD)
def test_no_term_takes_an_odd_number(number: str) -> None:
    for name in ("price", "penalty"):
        with pytest.raises(ProtocolError, match=f"property '{name}' is .*; it must be a decimal number"):
            parse_subscribe_terms([(name, number)])
    for name in ("deadline", "within", "watchdog", "every"):
        for value in (number + "s", number.strip(), f" {number}s"):
            with pytest.raises(ProtocolError, match=f"property '{name}' is .*; it must be a duration"):
                parse_subscribe_terms([("correlate", "a"), (name, value)])
    with pytest.raises(ProtocolError, match=r"property 'timeout' is .*; it must be a duration"):
        parse_publish_terms([("timeout", number + "s")])
    with pytest.raises(ProtocolError, match="property 'priority' is"):
        parse_publish_terms([("priority", number)])


def test_the_largest_worth_is_taken() -> None:
    assert parse_subscribe_terms([("price", str(WORTH_MAX)), ("penalty", "0")]).price == WORTH_MAX
