from __future__ import annotations

from datetime import timedelta

import pytest

from timebound.client.terms import term_properties
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND
from timebound.wire.terms import parse_subscribe_terms


def test_terms_are_written_as_a_broker_reads_them() -> None:
    pairs = term_properties(
        {
            "name": "hot",
            "where": "value > 90",
            "deadline": 0.25,
            "price": 3,
            "penalty": 0.3,
            "keep": "last",
            "ordered": True,
            "notify": "missed",
            "correlate": "all(a, b)",
            "within": timedelta(seconds=2),
            "watchdog": "1s",
            "every": 5,
        }
    )

    assert parse_subscribe_terms(pairs) == Terms(
        name="hot",
        where="value > 90",
        deadline_ns=250 * MILLISECOND,
        price=3.0,
        penalty=0.3,
        keep_last=True,
        is_ordered=True,
        notify_missed=True,
        correlate="all(a, b)",
        within_ns=2 * SECOND,
        watchdog_ns=SECOND,
        every_ns=5 * SECOND,
    )


def test_what_is_none_is_left_out() -> None:
    assert term_properties({"where": None, "price": 2}) == [("price", "2")]


def test_an_unknown_term_is_named_with_those_that_exist() -> None:
    with pytest.raises(TypeError, match="unknown term 'deadlin'; terms are name, where, deadline"):
        term_properties({"deadlin": "1s"})  # type: ignore[typeddict-unknown-key]  # what is tested


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("price", -1, "price is -1; it must be a number of at least 0"),
        ("watchdog", "1ms", "property 'watchdog' is '1ms'; the shortest is 10ms"),
        ("keep", "first", "property 'keep' is 'first'; write 'last' or 'all'"),
        ("within", "1s", "property 'within' is the window of 'correlate', which is not given"),
        ("name", "n" * 129, "property 'name' has 129 characters; it may have 128"),
    ],
)
def test_what_a_broker_would_refuse_is_refused_before_it_is_sent(
    name: str, value: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        term_properties({name: value})  # type: ignore[misc]  # any of them
