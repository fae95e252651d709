"""The terms of a subscription as a caller gives them, written as the User Properties of its SUBSCRIBE.

The terms and the form of each are defined in `timebound/terms.py`.
"""

from __future__ import annotations

from typing import cast

from timebound.client.values import Duration, Scalar, duration_text, number_text, scalar_text
from timebound.errors import ProtocolError
from timebound.terms import DURATION, NUMBER, TERM_PROPERTIES, TIMER, Form, TermArguments
from timebound.wire.terms import parse_subscribe_terms


def term_properties(terms: TermArguments) -> list[tuple[str, str]]:
    """Return the user properties of the terms that are given, those with None left out.

    Raises:
        TypeError: a term is unknown.
        ValueError: a broker would refuse a value.
    """
    unknown = [name for name in terms if name not in TERM_PROPERTIES]
    if unknown:
        raise TypeError(f"unknown term {unknown[0]!r}; terms are {', '.join(TERM_PROPERTIES)}")
    pairs = [
        (name, _text(name, value, TERM_PROPERTIES[name].form))
        for name, value in terms.items()
        if value is not None
    ]
    try:
        parse_subscribe_terms(pairs)
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    return pairs


def _text(name: str, value: object, form: Form) -> str:
    if form in (DURATION, TIMER):
        return duration_text(cast(Duration, value), name)
    if form == NUMBER:
        return number_text(cast(float, value), name)
    return scalar_text(name, cast(Scalar, value))
