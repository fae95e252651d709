"""The words and columns that every part of the package shares."""

from __future__ import annotations

import re

import pytest

from timebound.records import (
    JOURNAL_FIELDS,
    PUBLISH_FIELDS,
    TRACE_FIELD_COUNTS,
    TRACE_FIELDS,
    TRACE_SCHEMA_VERSION,
    Outcome,
    Reason,
    message_name,
    parse_message_name,
    sampled_traceparent,
)

# The columns of traces that were written already, in their order: files keep them for ever.
VERSION_1 = (
    "time_ns message_id topic publisher subscriber topic_filter qos size_bytes published_ns queued_ns "
    "allowed_ns outcome reason price_micro penalty_micro hop link"
)
VERSION_2 = f"{VERSION_1} sent_ns promised_ns"
VERSION_3 = f"{VERSION_2} origin started_ns number traceparent"
ARROW_TYPES = {"int8", "int16", "int32", "int64", "string", "binary", "bool"}


@pytest.mark.parametrize(("version", "names"), [(1, VERSION_1), (2, VERSION_2), (3, VERSION_3)])
def test_columns_of_a_written_trace_never_change(version: int, names: str) -> None:
    assert [name for name, _ in TRACE_FIELDS[: TRACE_FIELD_COUNTS[version]]] == names.split()


def test_present_version_has_all_fields() -> None:
    assert TRACE_FIELD_COUNTS[TRACE_SCHEMA_VERSION] == len(TRACE_FIELDS)
    assert max(TRACE_FIELD_COUNTS) == TRACE_SCHEMA_VERSION


@pytest.mark.parametrize("fields", [TRACE_FIELDS, JOURNAL_FIELDS, PUBLISH_FIELDS])
def test_each_column_has_a_name_of_its_own_and_a_known_type(fields: tuple[tuple[str, str], ...]) -> None:
    names = [name for name, _ in fields]

    assert len(set(names)) == len(names)
    assert all(kind in ARROW_TYPES or kind.startswith("list<struct<") for _, kind in fields)


def test_rows_to_publish_have_the_columns_of_a_journal_where_both_have_them() -> None:
    journal, publish = dict(JOURNAL_FIELDS), dict(PUBLISH_FIELDS)

    assert {name: journal[name] for name in journal.keys() & publish.keys()} == {
        name: publish[name] for name in ("topic", "payload", "qos", "retain", "properties")
    }


def test_words_fit_topics_metrics_and_columns_alike() -> None:
    words = [one.value for kind in (Reason, Outcome) for one in kind]

    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", word) for word in words)
    assert [one.name.lower() for kind in (Reason, Outcome) for one in kind] == words


def test_a_name_of_a_message_is_read_as_it_was_written() -> None:
    text = message_name("plant-1.a_b", 1_763_480_000_000_000_000, 42)

    assert text == "plant-1.a_b:1763480000000000000.42"
    assert parse_message_name(text) == ("plant-1.a_b", 1_763_480_000_000_000_000, 42)


@pytest.mark.parametrize(
    "text", ["", "42", "b:42", "b:1.", "b:.2", ":1.2", "b:1.2.3", "b:-1.2", "b:1.²", "b 1.2"]
)
def test_what_is_no_name_of_a_message_gets_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected <broker>:<start>.<number>"):
        parse_message_name(text)


SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (SAMPLED, SAMPLED),
        (SAMPLED[:-2] + "03", SAMPLED[:-2] + "03"),
        ("01" + SAMPLED[2:] + "-more", "01" + SAMPLED[2:]),
        (SAMPLED[:-2] + "00", ""),  # not sampled
        (SAMPLED + "-more", ""),  # version 00 has no more
        ("ff" + SAMPLED[2:], ""),
        (SAMPLED.upper(), ""),
        (SAMPLED.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32), ""),
        (SAMPLED.replace("00f067aa0ba902b7", "0" * 16), ""),
        (SAMPLED[:-1], ""),
        ("x" * 55, ""),
        ("", ""),
    ],
)
def test_only_a_sampled_trace_context_counts(value: str, expected: str) -> None:
    assert sampled_traceparent((("other", SAMPLED), ("traceparent", value))) == expected
    assert sampled_traceparent((("other", value),)) == ""
