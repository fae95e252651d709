"""Packs: what goes in comes out, what is shared is written once, and bytes that are no pack are named."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.values.message import Message
from timebound.errors import MalformedPacket, ProtocolError
from timebound.linking.packs import COUNT_EMPTY_MAX, PACK_TOPIC, decode_pack, encode_number, encode_pack
from timebound.units import SECOND
from timebound.wire.properties import encode_user_property

NOW_NS = 1_000 * SECOND
NAMES = st.sampled_from(["a", "b", "plant-1", "grün"])
# Few values of each kind, so that runs and references come about; some of full length.
TOPICS = st.sampled_from(["t", "plant/7/temp", "ß/" + "x" * 200])
PROPERTIES = st.sampled_from(
    [
        (),
        (("colour", "red"),),
        (("timeout", "250ms"), ("priority", "3")),
        (("long", "v" * 3_000), ("", "")),
    ]
)
PAYLOADS = st.one_of(st.sampled_from([b"", b"x", b"y", b"12345678"]), st.binary(max_size=300))


@st.composite
def copies_of(draw: st.DrawFn) -> Copy:
    user_properties = draw(PROPERTIES)
    published_ns = NOW_NS - draw(st.sampled_from([0, 1, 127, 128, 5 * SECOND]))
    expiry_s = draw(st.sampled_from([-1, -1, 0, 60, 0xFFFF_FFFF]))
    terms = dict(user_properties)
    message = Message(
        draw(TOPICS),
        draw(PAYLOADS),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        published_ns,
        draw(NAMES),
        b"".join(encode_user_property(name, value) for name, value in user_properties),
        user_properties,
        published_ns + expiry_s * SECOND if expiry_s >= 0 else 0,
        timeout_ns=SECOND // 4 if "timeout" in terms else 0,
        priority=int(terms.get("priority", 0)),
    )
    number = draw(st.one_of(st.integers(1, 4), st.integers(1, (1 << 63) - 1)))
    started_ns = draw(st.sampled_from([0, 5, 1_794_900_000_000_000_000]))
    what = MeshMessage(message, draw(NAMES), message.size(), started_ns, number)
    via = tuple(draw(st.lists(NAMES, max_size=3)))
    return Copy(what, via, draw(st.sampled_from([1, 2, 64])), set(draw(st.lists(NAMES, min_size=1))))


def seen(copy: Copy, ahead_ns: int = 0) -> tuple[object, ...]:
    """All that a copy carries over a link, dated as on arrival."""
    what, message = copy.what, copy.what.message
    expiry_ns = message.expires_ns - message.published_ns if message.expires_ns else None
    return (
        what.key(),
        copy.via,
        copy.hops,
        copy.targets,
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.published_ns - ahead_ns,
        message.publisher,
        message.properties,
        message.user_properties,
        expiry_ns,
        message.timeout_ns,
        message.priority,
    )


def run_of(numbers: list[int], payload: bytes = b"12345678") -> list[Copy]:
    """Copies that differ in nothing but their numbers."""
    found = []
    for number in numbers:
        message = Message("t", payload, 0, False, NOW_NS, "p", sequence=number)
        found.append(Copy(MeshMessage(message, "a", 100, 5), ("a",), 1, {"b"}))
    return found


def attempt(payload: bytes) -> list[Copy] | ProtocolError:
    """The copies of a pack, or why it is none."""
    try:
        return decode_pack(payload, 1, NOW_NS)
    except ProtocolError as error:
        return error


@given(st.lists(copies_of(), min_size=1, max_size=12), st.sampled_from([0, 1, 3 * SECOND]))
def test_what_is_packed_comes_out_as_it_was_and_in_its_order(copies: list[Copy], ahead_ns: int) -> None:
    found = decode_pack(encode_pack(copies, NOW_NS, ahead_ns), 7, NOW_NS)

    assert [seen(copy) for copy in found] == [seen(copy, ahead_ns) for copy in copies]
    assert [copy.what.message.hops for copy in found] == [copy.hops for copy in copies]
    names = [copy.what.message.name for copy in found]
    assert [(name.origin, name.started_ns, name.number) for name in names if name is not None] == [
        copy.what.key() for copy in copies
    ]


def test_one_receipt_counts_all_copies_of_a_pack() -> None:
    found = decode_pack(encode_pack(run_of([1, 2, 5]), NOW_NS, 0), 7, NOW_NS)

    receipt = found[0].receipt
    assert receipt is not None
    assert (receipt.packet_id, receipt.left) == (7, 3)
    assert all(copy.receipt is receipt for copy in found)


def test_a_pack_without_a_packet_id_wants_no_receipt() -> None:
    assert decode_pack(encode_pack(run_of([1]), NOW_NS, 0), 0, NOW_NS)[0].receipt is None


def test_a_further_copy_of_a_run_costs_its_payload_alone() -> None:
    short = encode_pack(run_of([1, 2]), NOW_NS, 0)
    longer = encode_pack(run_of([1, 2, 3, 4]), NOW_NS, 0)

    assert len(longer) == len(short) + 2 * 8


def test_what_comes_again_later_in_a_pack_is_named_and_not_repeated() -> None:
    copies = run_of([1, 2, 3, 4, 5, 6])
    for index, copy in enumerate(copies):
        copy.what.message.topic = ["one" * 30, "two" * 30][index % 2]
        copy.what.message.properties = [b"", encode_user_property("a", "b" * 90)][index % 2]

    payload = encode_pack(copies, NOW_NS, 0)

    assert payload.count(b"one" * 30) == payload.count(b"two" * 30) == payload.count(b"b" * 90) == 1
    assert [copy.what.message.topic[:3] for copy in decode_pack(payload, 1, NOW_NS)] == ["one", "two"] * 3


def test_a_copy_that_is_dated_ahead_arrives_as_new() -> None:
    copy = run_of([1])[0]
    copy.what.message.published_ns = NOW_NS + 5

    assert decode_pack(encode_pack([copy], NOW_NS, 0), 1, NOW_NS)[0].what.message.published_ns == NOW_NS


@given(st.binary(max_size=60))
@example(b"")
@example(b"\x80\x00")
def test_bytes_are_a_pack_or_an_error_that_the_protocol_knows(payload: bytes) -> None:
    found = attempt(payload)

    assert found.reason_code in (0x81, 0x82, 0x83) if isinstance(found, ProtocolError) else found


@given(st.lists(copies_of(), min_size=1, max_size=4), st.data())
def test_a_pack_that_is_cut_is_no_pack_or_a_shorter_one(copies: list[Copy], data: st.DataObject) -> None:
    payload = encode_pack(copies, NOW_NS, 0)
    cut = data.draw(st.integers(0, len(payload) - 1))
    found = attempt(payload[:cut])

    if isinstance(found, ProtocolError):
        assert isinstance(found, MalformedPacket)
    else:
        assert [seen(copy) for copy in found] == [seen(copy) for copy in copies[: len(found)]]


HEAD = b"\x27" + b"\0" + b"\x01\x00\x01\x01b" + b"\0" + b"\x01a\x05\x01p" + b"\0" + b"\x01t" + b"\x07"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "pack: it is empty"),
        (b"\x00\x01", "pack: a run has no route, source, topic or number"),
        (b"\x01\x02", "pack: route 2 is named, but there are 0"),
        (b"\x01\x00\x01\x00\x00", "pack: a route leads to no home"),
        (b"\x01\x00\x01\x7f", "pack: 127 brokers passed, but 0 bytes left"),
        (b"\x04\x00\x03a/+", "topic name contains a wildcard"),
        (b"\x04\x00\x13$timebound/mesh/news", "is no topic of a message"),
        (b"\x04\x00\x00", "is no topic of a message"),
        (b"\x08\x00\x02\x23\x01\x00", "topic alias"),
        (b"\x08\x00\x03\x23\x00\x01\x00", "a property of one hop"),
        (b"\x08\x00\x00\xff\xff\xff\xff\xff\x01", "pack: expiry is"),
        (b"\x10\x03", "pack: QoS is 3"),
        (b"\x10\x08", "pack: QoS is 8"),
        (b"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "pack: number is longer than 9 bytes"),
        (b"\x40" + encode_number(36_526 * 86_400 * SECOND), "pack: age is"),
        (b"\x20", "pack: number is cut short"),
        (HEAD + b"\x00", "pack: a run has 0 payloads of 0 bytes"),
        (HEAD + encode_number(COUNT_EMPTY_MAX + 1), "empty payloads"),
        (
            HEAD.replace(b"\x27", b"\xa7", 1) + b"\x05\x03" + b"x" * 14,
            "pack: a run has 3 payloads of 5 bytes",
        ),
    ],
)
def test_a_malformed_pack_is_refused_with_what_is_wrong(payload: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode_pack(payload, 1, NOW_NS)


def test_a_run_of_empty_payloads_is_a_run() -> None:
    assert len(decode_pack(HEAD + b"\x03", 1, NOW_NS)) == 3


def test_the_topic_of_packs_is_one_that_clients_cannot_publish_to() -> None:
    assert PACK_TOPIC == "$timebound/mesh/pack"
