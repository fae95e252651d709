from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.predicate.predicate import Attributes, parse
from timebound.core.values.message import Message
from timebound.node.journal.columns import Pack
from timebound.node.journal.rows import (
    Selection,
    check_comparison,
    encode_pack,
    gap_row,
    message_schema,
    serve_rows,
    served_schema,
)
from timebound.topics import matches

SCHEMA = served_schema(message_schema())
texts = st.text(max_size=5)
messages = st.lists(
    st.builds(
        Message,
        st.sampled_from(["a/b", "a/c", "b", "$x"]),
        st.sampled_from([b"", b'{"v": 1}', b'{"v": 5}', b"\xff"]),
        st.integers(0, 2),
        st.booleans(),
        st.integers(0, 10),
        texts,
        user_properties=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    ),
    max_size=30,
)


def encode(published: list[Message]) -> pa.RecordBatch:
    pack = Pack()
    for number, message in enumerate(published):
        pack.add(message)
        if number % 7 == 6:
            pack.join()
    return encode_pack(pack)


def as_dict(offset: int, message: Message) -> dict[str, object]:
    return {
        "offset": offset,
        "topic": message.topic,
        "payload": message.payload,
        "publisher": message.publisher,
        "qos": message.qos,
        "retain": message.retain,
        "published_ns": message.published_ns,
        "properties": [{"name": name, "value": value} for name, value in message.user_properties],
        "gap": None,
    }


@given(messages)
def test_messages_come_back_as_they_were(published: list[Message]) -> None:
    served = serve_rows(7, encode(published), SCHEMA)

    assert served.to_pylist() == [as_dict(7 + number, one) for number, one in enumerate(published)]


@settings(max_examples=60)
@given(
    messages,
    st.sampled_from(["", "#", "a/+", "b"]),
    st.sampled_from(["", "v > 2", "v IS NULL"]),
    st.lists(st.sampled_from([("qos", "=", 1), ("published_ns", ">=", 5), ("topic", "<", "b")]), max_size=2),
)
def test_a_selection_chooses_what_a_look_at_each_row_would(
    published: list[Message], topic_filter: str, where: str, comparisons: list[tuple[str, str, object]]
) -> None:
    predicate = parse(where) if where else None
    batch = serve_rows(0, encode(published), SCHEMA)

    chosen = Selection(topic_filter, predicate, list(comparisons)).select(batch)

    def is_wanted(message: Message) -> bool:
        checks = {
            ("qos", "=", 1): message.qos == 1,
            ("published_ns", ">=", 5): message.published_ns >= 5,
            ("topic", "<", "b"): message.topic < "b",
        }
        attributes = Attributes(message.user_properties, message.payload, message.topic)
        return (
            (not topic_filter or matches(topic_filter, message.topic))
            and (predicate is None or predicate.matches(attributes))
            and all(checks[one] for one in comparisons)
        )

    expected = [number for number, message in enumerate(published) if is_wanted(message)]
    assert chosen.column("offset").to_pylist() == expected


def test_a_gap_row_has_its_place_and_nothing_else() -> None:
    [row] = gap_row(5, 3, SCHEMA).to_pylist()

    assert {name: value for name, value in row.items() if value is not None} == {"offset": 5, "gap": 3}


def test_a_field_that_was_not_stored_yet_is_null() -> None:
    stored = encode([Message("a", b"", 0, False, 0)]).drop_columns(["retain"])

    [row] = serve_rows(0, stored, SCHEMA).to_pylist()

    assert (row["topic"], row["retain"]) == ("a", None)


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        (("colour", "=", 1), "unknown column 'colour'"),
        (("qos", "~", 1), "unknown comparison '~'"),
        (("qos", "=", "one"), "column 'qos' cannot be compared with 'one'"),
        (("qos", "=", 1000), "column 'qos' cannot be compared with 1000"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_explained(
    comparison: tuple[str, str, object], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        check_comparison(SCHEMA, *comparison)


def test_types_fit_what_they_are_called() -> None:
    assert SCHEMA.field("payload").type == pa.binary()
    assert SCHEMA.field("properties").type.value_type.field("name").type == pa.string()
