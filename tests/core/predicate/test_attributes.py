"""Where the attributes of a message come from, and payloads that are no good JSON."""

from __future__ import annotations

import pytest

from timebound.core.predicate.attributes import JSON_BYTES_MAX, JSON_CONTAINERS_MAX, SET_MEMBERS_MAX
from timebound.core.predicate.predicate import Attributes, parse


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"warm",
        b"\xff\xfe",
        b'{"a": 1',
        b'{"a": "\xff"}',
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"[" * 200_000 + b"]" * 200_000,
        b"9" * 10_000,
        b"1e999",
        b"NaN",
        b'{"a": 1, "pad": "' + b" " * JSON_BYTES_MAX + b'"}',
    ],
)
def test_a_payload_that_cannot_be_read_has_no_attributes(payload: bytes) -> None:
    message = Attributes((("b", "2"),), payload)

    assert parse("a IS NULL AND payload IS NULL AND payload.a IS NULL AND b = 2").matches(message)
    assert not parse("a = 1 OR payload = 1 OR a <> 1").matches(message)


@pytest.mark.parametrize(
    "inner", [b"[" * 150 + b"]" * 150, b"[1" + b"0" * 30 + b"]", b'{"x": 1e-999}', b"null"]
)
def test_odd_members_of_an_array_raise_nothing(inner: bytes) -> None:
    message = Attributes((("b", f"[{inner.decode()}, 2]"),), b'{"a": [' + inner + b", 2]}")

    assert parse("a CONTAINS 2 AND a NOT CONTAINS 1 AND a = a AND a = b").matches(message)


@pytest.mark.parametrize("depth", range(100, 1100, 50))
def test_json_of_any_depth_raises_nothing(depth: int) -> None:
    payload = b'{"a": ' + b"[" * depth + b"]" * depth + b"}"

    assert not parse("a CONTAINS 1 OR payload.a.0.0 CONTAINS 1").matches(Attributes((), payload))


def test_the_payload_is_left_alone_while_properties_answer() -> None:
    message = Attributes((("a", "1"),), b'{"a": 2}')

    assert parse("a = 1").matches(message)
    assert not message._decoded_is_ready
    assert parse("payload.a = 2").matches(message)
    assert message._decoded_is_ready


def test_a_bare_name_is_a_property_before_it_is_a_field() -> None:
    assert parse("a = 1").matches(Attributes((("a", "1"),), b'{"a": 2}'))
    assert parse("a = 2").matches(Attributes((("b", "1"),), b'{"a": 2}'))
    assert not parse("a = 2").matches(Attributes((("a", "x"),), b'{"a": 2}'))


def test_a_dotted_name_is_a_property_or_a_way_into_the_payload() -> None:
    assert parse("a.b = 1").matches(Attributes((("a.b", "1"),), b""))
    assert parse("a.b = 1").matches(Attributes((), b'{"a": {"b": 1}}'))
    assert not parse("a.b = 1").matches(Attributes((), b'{"a.b": 1}'))
    assert parse('"a.b" = 1').matches(Attributes((), b'{"a.b": 1}'))


def test_a_bare_number_is_no_index_into_an_array() -> None:
    assert not parse('"0" = 7').matches(Attributes((), b"[7]"))
    assert parse("payload.0 = 7").matches(Attributes((), b"[7]"))
    assert not parse("payload.00000000000000000000 = 7").matches(Attributes((), b"[7]"))


def test_a_payload_with_too_many_arrays_has_no_fields() -> None:
    def has_field(count: int) -> bool:
        payload = b'{"a": 1, "pad": [' + b",".join([b"[]"] * (count - 2)) + b"]}"
        return parse("a = 1").matches(Attributes((), payload))

    assert has_field(JSON_CONTAINERS_MAX)
    assert not has_field(JSON_CONTAINERS_MAX + 1)


def test_an_array_with_too_many_elements_is_no_set() -> None:
    def contains(count: int) -> bool:
        payload = b'{"tags": [' + b",".join([b'"x"'] * count) + b"]}"
        return parse("tags CONTAINS 'x'").matches(Attributes((), payload))

    assert contains(SET_MEMBERS_MAX)
    assert not contains(SET_MEMBERS_MAX + 1)
    assert parse("tags IS NOT NULL").matches(Attributes((), b'{"tags": [%s]}' % (b"1," * 5_000 + b"1")))


def test_a_long_property_is_no_set_and_no_boolean() -> None:
    long = "[" + ",".join(['"x"'] * 2_000) + "]"

    assert not parse("tags CONTAINS 'y'").matches(Attributes((("tags", long),), b""))
    assert not parse("tags SUBSET OF {'x'}").matches(Attributes((("tags", long),), b""))
    assert not parse("armed").matches(Attributes((("armed", "true" + " " * 60_000),), b""))
