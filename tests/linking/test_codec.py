"""What brokers say to each other: everything that is written is read as it was meant."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.mesh.flooding import LINK, SUBSCRIPTION, LinkStateAdvertisement
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import Message
from timebound.errors import ProtocolError
from timebound.linking import codec as mesh_codec
from timebound.terms import Terms
from timebound.units import SECOND
from timebound.wire.codec import Decoder, encode_publish
from timebound.wire.packets import Publish
from timebound.wire.properties import encode_user_property

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=20)


def through_the_wire(copy: Copy, age_ns: int, now_ns: int) -> Copy:
    decoder = Decoder(5, is_server=True)
    [packet] = decoder.feed(mesh_codec.encode_copy(copy, age_ns, 7))
    assert isinstance(packet, Publish)
    assert (packet.qos, packet.packet_id) == (1, 7)
    return mesh_codec.decode_copy(packet, now_ns)


@given(
    names=st.lists(NAMES, min_size=2, max_size=8, unique=True),
    publisher=TEXTS,
    properties=st.lists(st.tuples(TEXTS, TEXTS), max_size=3),
    payload=st.binary(max_size=50),
    qos=st.sampled_from((0, 1, 2)),
    retain=st.booleans(),
    expiry_s=st.sampled_from((0, 1, 3_600)),
    age_ns=st.integers(0, 10**12),
    hops=st.integers(0, 64),
)
def test_a_copy_arrives_as_it_was_sent(
    names: list[str],
    publisher: str,
    properties: list[tuple[str, str]],
    payload: bytes,
    qos: int,
    retain: bool,
    expiry_s: int,
    age_ns: int,
    hops: int,
) -> None:
    properties = [(name, text) for name, text in properties if name not in ("timeout", "priority")]
    encoded = b"".join(encode_user_property(name, text) for name, text in properties)
    expires_ns = 1_000 + expiry_s * SECOND if expiry_s else 0
    message = Message("a/b", payload, qos, retain, 1_000, publisher, encoded, tuple(properties), expires_ns)
    what = MeshMessage(message, names[0], 123, 55, 42)
    copy = Copy(what, tuple(names[1:-1]), hops, {names[0], names[-1]})

    found = through_the_wire(copy, age_ns, 10**13)

    got = found.what.message
    assert (got.topic, got.payload, got.qos, got.retain) == ("a/b", payload, qos, retain)
    assert (got.publisher, got.properties, got.hops) == (publisher, encoded, hops)
    assert tuple(got.user_properties) == tuple(properties)
    assert got.published_ns == 10**13 - age_ns
    assert got.lifetime_ns() == expiry_s * SECOND
    assert found.what.key() == (names[0], 55, 42)
    assert (found.via, found.hops, found.targets) == (copy.via, hops, copy.targets)


@pytest.mark.parametrize("via", [(), ("-",), ("-", "a")])
def test_who_has_passed_a_copy_on_is_known_by_any_name(via: tuple[str, ...]) -> None:
    copy = Copy(MeshMessage(Message("a", b"", 0, False, 1_000), "o", 123, 55, 42), via, 1, {"t"})

    assert through_the_wire(copy, 0, 10**13).via == via


def test_terms_of_the_publisher_are_known_again() -> None:
    properties = encode_user_property("timeout", "250ms") + encode_user_property("priority", "7")
    message = Message("t", b"", 0, False, 0, "p", properties)

    found = through_the_wire(Copy(MeshMessage(message, "a", 1, 1, 1), ("a",), 1, {"b"}), 0, 0)

    assert (found.what.message.timeout_ns, found.what.message.priority) == (250_000_000, 7)


@pytest.mark.parametrize(
    "header", ["", "a 1.1 5ns", "a 1.x 5ns 1 a b 0 p", "a 1.1 soon 1 a b 0 p", "a 1.1 5ns one a b 0 p"]
)
def test_a_copy_that_cannot_be_read_is_a_mistake_of_the_neighbour(header: str) -> None:
    packet = Publish("t", b"", 1, passed_on=encode_user_property("mesh", header))
    packet.user_properties = (("mesh", header),)

    with pytest.raises(ProtocolError, match="'mesh'"):
        mesh_codec.decode_copy(packet, 0)


@pytest.mark.parametrize(
    "numbers",
    [
        ("+5.1", "9ns", "1", "0"),
        ("5.1_0", "9ns", "1", "0"),
        ("5.1", "--9ns", "1", "0"),
        ("5.1", "٣ns", "1", "0"),
        ("5.1", "9" * 4_000 + "ns", "1", "0"),
        ("5.1", "9ns", "-1", "0"),
        ("5.1", "9ns", "1", "3"),
    ],
)
def test_odd_numbers_are_no_copy(numbers: tuple[str, str, str, str]) -> None:
    identity, age, hops, qos = numbers
    packet = Publish("t", b"")
    packet.user_properties = (("mesh", f"a {identity} {age} {hops} * b {qos} publisher"),)

    with pytest.raises(ProtocolError, match="'mesh'"):
        mesh_codec.decode_copy(packet, 0)


@pytest.mark.parametrize("age", ["0ns", "-9ns"])
def test_a_copy_from_a_clock_that_was_ahead_is_as_old_as_now(age: str) -> None:
    packet = Publish("t", b"")
    packet.user_properties = (("mesh", f"a 5.1 {age} 1 * b 0 publisher"),)

    assert mesh_codec.decode_copy(packet, 1_000).what.message.published_ns == 1_000


def test_a_message_without_its_way_is_no_copy() -> None:
    with pytest.raises(ProtocolError, match="no property 'mesh'"):
        mesh_codec.decode_copy(Publish("t", b""), 0)


def test_links_and_subscriptions_and_their_ends_are_told() -> None:
    subscription = MeshSubscription(
        client_id="s@a",
        home="a",
        topic_filter="t/#",
        last_mile_ns=7,
        subscriber="s",
        terms=Terms(where="x > 1", deadline_ns=5_000_000, price=2.5, penalty=0.25),
    )
    told = [
        LinkStateAdvertisement((LINK, "a", "b", ""), (5, 1), LinkDelay(0.1, 0.02, 0.003)),
        LinkStateAdvertisement((LINK, "a", "c", ""), (5, 2)),
        LinkStateAdvertisement((SUBSCRIPTION, "a", "s@a", "t/#"), (5, 3), subscription=subscription),
        LinkStateAdvertisement((SUBSCRIPTION, "a", "s@a", "u"), (5, 4)),
    ]

    [payload], too_large = mesh_codec.encode_advertisements(told)
    found_all = mesh_codec.decode_advertisements(payload)
    heard = found_all.advertisements

    assert (too_large, found_all.mistakes, found_all.unknown) == ([], [], [])
    assert [(one.key, one.stamp) for one in heard] == [(one.key, one.stamp) for one in told]
    delay = heard[0].delay
    assert delay is not None
    assert (delay.mean_s_per_kb, delay.variance, delay.jitter_s) == (0.1, 0.02, 0.003)
    assert heard[1].is_withdrawal()
    assert heard[3].is_withdrawal()
    found = heard[2].subscription
    assert found is not None
    assert found.predicate is not None
    assert found.predicate.text == "x > 1"
    assert (found.home, found.subscriber, found.deadline_ns) == ("a", "s", 5_000_000)
    assert (found.price, found.penalty, found.last_mile_ns) == (2.5, 0.25, 7)


@pytest.mark.parametrize(
    "payload",
    [
        b'[["x"]]',
        b'[[7,"a","b","",1]]',  # no count
        b'[[0,"a","a","",1,1,[0.1,0,0]]]',  # a link to itself
        b'[[0,"a","b","",1,1,[-1,0,0]]]',
        b'[[1,"a","s","t/#/u",1,1,null,["s","",0,1,0,0]]]',
        b'[[1,"a","s","t",1,1,null,["s","x >",0,1,0,0]]]',
        b'[[0,"a","b","",1,1,[1e999,0,0]]]',
    ],
)
def test_news_that_cannot_be_read_are_left_out_and_the_others_are_used(payload: bytes) -> None:
    found = mesh_codec.decode_advertisements(payload[:-1] + b',[0,"a","b","",1,1]]')

    assert [one.key for one in found.advertisements] == [(LINK, "a", "b", "")]
    assert len(found.mistakes) == 1
    assert found.unknown == []


@pytest.mark.parametrize(
    "payload",
    [
        b'[[1,"a","s","t",1,1,null,["s","",0,1,0,0,"later"]]]',
        b'[[1,"a","s","t",1,1,null,["s","",0,1,0,0],{"later":1}]]',
    ],
)
def test_news_with_further_fields_are_used_without_them(payload: bytes) -> None:
    found = mesh_codec.decode_advertisements(payload)

    assert [one.key for one in found.advertisements] == [(SUBSCRIPTION, "a", "s", "t")]
    assert found.mistakes == []
    assert found.unknown == ["further fields in an advertisement of kind 1"]


@pytest.mark.parametrize("payload", [b"", b"{}", b"[1", b"7", 5_000 * b"[" + 5_000 * b"]"], ids=range(5))
def test_news_that_are_no_list_are_a_mistake_of_the_neighbour(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="advertisements cannot be read"):
        mesh_codec.decode_advertisements(payload)


def subscribed(number: int, where: str, client_id: str = "s@a") -> LinkStateAdvertisement:
    subscription = MeshSubscription(
        client_id=client_id, home="a", topic_filter=f"t/{number}", terms=Terms(where=where)
    )
    key = (SUBSCRIPTION, "a", client_id, f"t/{number}")
    return LinkStateAdvertisement(key, (1, number), subscription=subscription)


def test_advertisements_are_packed_by_their_size_and_what_fits_into_no_packet_is_left_out() -> None:
    growing = "x = '" + 300 * '"' + "'"  # twice as long in JSON
    told = [subscribed(number, growing) for number in range(100)]
    told.insert(50, subscribed(1_000, "x = 1", 9_000 * "y"))

    payloads, too_large = mesh_codec.encode_advertisements(told, 8_192)

    assert too_large == [told[50]]
    assert len(payloads) < 15
    for payload in payloads:
        frame = encode_publish(mesh_codec.ADVERTISEMENTS_TOPIC, payload, 0, False, False, 0, b"", 5)
        assert len(frame) <= 8_192
    heard = [one for payload in payloads for one in mesh_codec.decode_advertisements(payload).advertisements]
    assert [one.key for one in heard] == [one.key for one in told if one not in too_large]


def test_the_size_of_an_advertisement_is_known_before_it_is_made() -> None:
    advertisement = subscribed(7, "x = '" + 300 * '"' + "'")
    assert advertisement.subscription is not None

    size = mesh_codec.advertised_size(advertisement.subscription)

    assert mesh_codec.encode_advertisements([advertisement], size) != ([], [advertisement])


def test_levels_are_read_as_written() -> None:
    assert mesh_codec.decode_levels(mesh_codec.encode_levels({"a": 1, "b": 2})) == ({"a": 1, "b": 2}, [])
    assert mesh_codec.decode_levels(b'{"a": 3, "b": 1}') == ({"b": 1}, ["level 3"])
    with pytest.raises(ProtocolError, match="cannot be read"):
        mesh_codec.decode_levels(b"[]")


def test_waits_are_told_in_nanoseconds() -> None:
    assert mesh_codec.decode_delay_report(mesh_codec.encode_delay_report({"a": 5, "b": 0})) == {
        "a": 5,
        "b": 0,
    }
    with pytest.raises(ProtocolError, match="negative"):
        mesh_codec.decode_delay_report(b'{"a": -1}')
    with pytest.raises(ProtocolError, match="cannot be read"):
        mesh_codec.decode_delay_report(b"[]")


def test_what_a_later_broker_adds_to_an_advertisement_is_passed_over() -> None:
    name = "s\0hot@a"
    wanted = MeshSubscription(
        client_id=name, home="a", topic_filter="t", terms=Terms(deadline_ns=5, price=2.0), subscriber="s"
    )
    advertisement = LinkStateAdvertisement((SUBSCRIPTION, "a", name, "t"), (5, 3), subscription=wanted)
    [payload], _ = mesh_codec.encode_advertisements([advertisement])
    [fact] = json.loads(payload)
    assert fact == [1, "a", name, "t", 5, 3, None, ["s", "", 5, 2.0, 0.0, 0]], "as the first version has it"
    fact[7] += ["more", {"and": 1}]
    fact.append("again")

    found = mesh_codec.decode_advertisements(json.dumps([fact]).encode())

    assert found.mistakes == []
    [heard] = found.advertisements
    assert heard.key == advertisement.key
    assert heard.subscription is not None
    assert (heard.subscription.subscriber, heard.subscription.terms) == ("s", wanted.terms)
    assert json.loads(mesh_codec.encode_advertisements([heard])[0][0]) == [fact], "passed on as it came"


@pytest.mark.parametrize(
    ("fact", "is_withdrawal"),
    [
        ([9, "a", "x", "y", 5, 3, {"any": ["thing"]}, 1], False),
        ([9, "a", "x", "y", 5, 3, None], False),
        ([9, "a", "x", "y", 5, 3], True),
    ],
)
def test_an_advertisement_of_an_unknown_kind_is_passed_on_as_it_came(
    fact: list[object], is_withdrawal: bool
) -> None:
    found = mesh_codec.decode_advertisements(json.dumps([fact]).encode())

    [heard] = found.advertisements
    assert (heard.key, heard.stamp) == ((9, "a", "x", "y"), (5, 3))
    assert heard.is_withdrawal() == is_withdrawal
    assert (found.mistakes, found.unknown) == ([], ["advertisements of kind 9"])
    assert json.loads(mesh_codec.encode_advertisements([heard])[0][0])[0][:6] == fact[:6]
    assert is_withdrawal or json.loads(mesh_codec.encode_advertisements([heard])[0][0]) == [fact]
