"""The packets between brokers of a mesh, as MQTT 5 packets.

A copy of a message is its PUBLISH with QoS 1, as its publisher sent it: topic, payload and properties.
One User Property comes last and holds what only brokers need (docs/mesh.md):

    mesh: <origin> <started>.<number> <age>ns <hops> <passed> <homes> <qos> <publisher>

The age is that on arrival, so no clocks are compared; names are joined by commas. Link-state advertisements
and delay reports are JSON on topics under `$timebound/mesh/`, to which no client can publish.
"""

from __future__ import annotations

from typing import Final

import msgspec

from timebound.core.mesh.figures import LinkFigures
from timebound.core.mesh.flooding import FIGURES, LINK, SUBSCRIPTION, LinkStateAdvertisement
from timebound.core.mesh.member import COPY_BYTES
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.pressure import EXHAUSTED, FULL
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import MQTT_PACKET_BYTES_MAX
from timebound.core.values.message import MessageName
from timebound.errors import FilterError, ProtocolError
from timebound.terms import Terms
from timebound.toml.setting import UNLIMITED
from timebound.topics import check_filter
from timebound.translate import to_message
from timebound.units import DURATION_NS_MAX, SECOND, parse_count
from timebound.wire.codec import encode_property_prefix, encode_publish, with_user_property
from timebound.wire.packets import Publish
from timebound.wire.properties import encode_user_property
from timebound.wire.reasons import ReasonCode

PREFIX: Final = "$timebound/mesh/"
HELLO_TOPIC: Final = "$timebound/mesh/hello"  # measures how long an answer takes
ADVERTISEMENTS_TOPIC: Final = "$timebound/mesh/news"
DELAY_REPORT_TOPIC: Final = "$timebound/mesh/waits"
LEVELS_TOPIC: Final = "$timebound/mesh/full"

# The User Property of CONNECT and CONNACK that holds the name of a broker.
BROKER_PROPERTY: Final = "timebound-broker"
COPY_PROPERTY: Final = "mesh"
# Size of a packet of advertisements, unless the neighbour takes less: some hundreds of them.
ADVERTISEMENTS_BYTES: Final = 64 * 1_024
# What a packet between brokers may have beyond the limit of clients' packets: a copy's User Property has up
# to 65,535 bytes, and its name, lengths and expiry some more. So whatever a client may publish can pass a
# link.
ENVELOPE_BYTES: Final = 65_535 + 64
_TOPIC_BYTES: Final = 64  # at most, of a control packet: header, topic and lengths
_NUMBER_MAX: Final = (1 << 63) - 1
_NOBODY: Final = "*"  # no valid broker name


class AdvertisedTerms(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The terms of an advertised subscription."""

    subscriber: str
    where: str
    deadline_ns: int
    price: float
    penalty: float
    last_mile_ns: int


class Fact(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One advertisement; with neither `link` nor `terms` it is a withdrawal."""

    kind: int
    owner: str
    first: str
    second: str
    started_ns: int
    count: int
    link: tuple[float, float, float] | None = None
    terms: AdvertisedTerms | None = None


class FactHead(msgspec.Struct, array_like=True, frozen=True):
    """How every advertisement begins, also those of kinds that are not known here."""

    kind: int
    owner: str
    first: str
    second: str
    started_ns: int
    count: int


class FiguresFact(FactHead, array_like=True, frozen=True, omit_defaults=True):
    """How a link is doing: what waits, how long, its latency, and the share that is lost."""

    figures: tuple[int, int, int, float] | None = None


class LaterTerms(AdvertisedTerms, frozen=True, forbid_unknown_fields=False):
    """Terms with further fields, of a later version."""


class LaterFact(Fact, frozen=True, forbid_unknown_fields=False):
    """An advertisement with further fields, of a later version."""

    terms: LaterTerms | None = None


class DecodedAdvertisements:
    """What came out of a packet of advertisements."""

    __slots__ = ("advertisements", "mistakes", "unknown")

    def __init__(self) -> None:
        self.advertisements: list[LinkStateAdvertisement] = []
        self.mistakes: list[str] = []  # one for each that cannot be used
        self.unknown: list[str] = []  # what this version does not know, of those and of others


_READ_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_READ_HEAD: Final = msgspec.json.Decoder(FactHead)
_READ_FIGURES: Final = msgspec.json.Decoder(FiguresFact)
_READ_VALUES: Final = msgspec.json.Decoder(list[msgspec.Raw])
_HEAD_LENGTH: Final = 6
_READ_FACT: Final = msgspec.json.Decoder(Fact)
_READ_LATER_FACT: Final = msgspec.json.Decoder(LaterFact)
_READ_NUMBERS: Final = msgspec.json.Decoder(dict[str, int])
_WRITE: Final = msgspec.json.Encoder()


def encode_copy(copy: Copy, age_ns: int, packet_id: int) -> bytes:
    """Return the PUBLISH of a copy whose age on arrival will be `age_ns`."""
    what = copy.what
    message = what.message
    assert copy.targets is not None, "a copy between members names the homes it is for"
    header = (
        f"{what.origin} {what.started_ns}.{what.number} {max(age_ns, 0)}ns {copy.hops} "
        f"{','.join(copy.via) or _NOBODY} {','.join(sorted(copy.targets))} {message.qos} {message.publisher}"
    )
    properties = with_user_property(message.properties, COPY_PROPERTY, header)
    if message.expires_ns:
        # As the publisher set it: with the age, the receiver knows the rest to the nanosecond.
        expiry_s = (message.expires_ns - message.published_ns) // SECOND
        properties = encode_property_prefix(expiry_s, 0, ()) + properties
    return encode_publish(message.topic, message.payload, 1, message.retain, False, packet_id, properties, 5)


def decode_copy(packet: Publish, now_ns: int) -> Copy:
    """Return the copy in a neighbour's PUBLISH; its message is dated by this broker's clock.

    Raises:
        ProtocolError: the packet is not a copy.
    """
    properties = packet.user_properties
    if not properties or properties[-1][0] != COPY_PROPERTY:
        raise _wrong(f"a message on {packet.topic!r} has no property {COPY_PROPERTY!r} at its end")
    header = properties[-1][1]
    fields = header.split(" ", 7)
    try:
        origin, identity, age, hops, via, targets, qos, publisher = fields
        started, _, number = identity.partition(".")
        # A timer that fires early dates a message a little ahead; earlier versions send a negative age.
        age_ns = parse_count(age.removeprefix("-").removesuffix("ns"), 0, DURATION_NS_MAX)
        published_ns = now_ns if age.startswith("-") else now_ns - age_ns
        packet.qos = parse_count(qos, 0, 2)
        packet.user_properties = tuple(properties[:-1])
        packet.passed_on = packet.passed_on[: -len(encode_user_property(COPY_PROPERTY, header))]
        message = to_message(packet, packet.topic, publisher, published_ns)
        message.hops = parse_count(hops, 0, _NUMBER_MAX)
        name = MessageName(origin, parse_count(started, 0, _NUMBER_MAX), parse_count(number, 0, _NUMBER_MAX))
        message.name = name
        what = MeshMessage(message, origin, message.size() + COPY_BYTES, name.started_ns, name.number)
    except ValueError as error:
        raise _wrong(f"property {COPY_PROPERTY!r} is {header[:100]!r}: {error}") from error
    passed = () if via == _NOBODY else tuple(via.split(","))
    return Copy(what, passed, message.hops, set(targets.split(",")))


def link_packet_size_max(packet_size_max: int) -> int:
    """Return the largest packet accepted from a neighbour, where clients may send `packet_size_max`."""
    return min(packet_size_max + ENVELOPE_BYTES, MQTT_PACKET_BYTES_MAX)


def message_size_max(packet_size_max: int) -> int:
    """Return the largest message for a neighbour that accepts packets of this size; 0 = no limit."""
    # A limit without room for an envelope is not that of a broker of this kind: try half.
    return packet_size_max - ENVELOPE_BYTES if packet_size_max > ENVELOPE_BYTES else packet_size_max // 2


def encode_advertisements(
    advertisements: list[LinkStateAdvertisement], packet_size_max: int = 0
) -> tuple[list[bytes], list[LinkStateAdvertisement]]:
    """Return payloads of packets that a neighbour accepts (0 = no limit), and what fits into none."""
    bytes_max = packet_size_max - _TOPIC_BYTES if packet_size_max else UNLIMITED
    packets: list[list[bytes]] = []
    too_large: list[LinkStateAdvertisement] = []
    size = 0
    for advertisement in advertisements:
        fact = advertisement.wire or _WRITE.encode(_to_fact(advertisement))
        if len(fact) + 2 > bytes_max:  # with the brackets of a list
            too_large.append(advertisement)
            continue
        if not packets or size + len(fact) + 1 > min(ADVERTISEMENTS_BYTES, bytes_max):
            packets.append([])
            size = 1
        packets[-1].append(fact)
        size += len(fact) + 1
    return [b"[" + b",".join(facts) + b"]" for facts in packets], too_large


def advertised_size(subscription: MeshSubscription) -> int:
    """Return the size of a packet that advertises only this subscription."""
    key = (SUBSCRIPTION, subscription.home, subscription.client_id, subscription.topic_filter)
    advertisement = LinkStateAdvertisement(key, (1 << 62, 1 << 40), subscription=subscription)
    return len(_WRITE.encode(_to_fact(advertisement))) + 2 + _TOPIC_BYTES


def decode_advertisements(payload: bytes) -> DecodedAdvertisements:
    """Return the advertisements of a payload, a mistake for each that cannot be used, and what is unknown.

    An advertisement that this broker cannot read must not end the link: the neighbour would only send it
    again. One with further fields is used without them.

    Raises:
        ProtocolError: the payload is not a list.
    """
    found = DecodedAdvertisements()
    try:
        facts = _READ_LIST.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _wrong(f"advertisements cannot be read: {error}") from error
    for fact in facts:
        try:
            found.advertisements.append(_read_advertisement(fact, found.unknown))
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, FilterError) as error:
            found.mistakes.append(str(error))
    return found


def _read_advertisement(raw: msgspec.Raw, unknown: list[str]) -> LinkStateAdvertisement:
    """Read one advertisement; what a later version wrote is kept as it is, to be passed on."""
    head = _READ_HEAD.decode(raw)
    if head.kind not in (LINK, SUBSCRIPTION, FIGURES):
        unknown.append(f"advertisements of kind {head.kind}")
        key = (head.kind, head.owner, head.first, head.second)
        has_content = len(_READ_VALUES.decode(raw)) > _HEAD_LENGTH
        return LinkStateAdvertisement(
            key, (head.started_ns, head.count), wire=bytes(raw) if has_content else b""
        )
    if head.kind == FIGURES:
        return _to_told(_READ_FIGURES.decode(raw))
    try:
        return _to_advertisement(_READ_FACT.decode(raw))
    except msgspec.ValidationError:
        advertisement = _to_advertisement(_READ_LATER_FACT.decode(raw))
        advertisement.wire = bytes(raw)
        unknown.append(f"further fields in an advertisement of kind {head.kind}")
        return advertisement


def encode_delay_report(delays: dict[str, int]) -> bytes:
    return _WRITE.encode(delays)


def decode_delay_report(payload: bytes) -> dict[str, int]:
    """Return the queueing delays by home, in nanoseconds.

    Raises:
        ProtocolError: they cannot be read.
    """
    try:
        delays = _READ_NUMBERS.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _wrong(f"delay report cannot be read: {error}") from error
    if any(delay_ns < 0 for delay_ns in delays.values()):
        raise _wrong("a delay report has a negative delay")
    return delays


def encode_levels(levels: dict[str, int]) -> bytes:
    return _WRITE.encode(levels)


def decode_levels(payload: bytes) -> tuple[dict[str, int], list[str]]:
    """Return the levels of paths without room, by home (`core/mesh/pressure.py`), and what is unknown.

    Raises:
        ProtocolError: they cannot be read.
    """
    try:
        levels = _READ_NUMBERS.decode(payload)
    except msgspec.MsgspecError as error:
        raise _wrong(f"levels cannot be read: {error}") from error
    known = {home: level for home, level in levels.items() if level in (FULL, EXHAUSTED)}
    return known, [f"level {level}" for home, level in levels.items() if home not in known]


def _to_fact(advertisement: LinkStateAdvertisement) -> Fact | FiguresFact:
    kind, owner, first, second = advertisement.key
    started_ns, count = advertisement.stamp
    if kind == FIGURES:
        told = advertisement.figures
        values = None
        if told is not None:
            values = (told.waiting, told.queue_delay_ns, told.latency_ns, told.lost_share)
        return FiguresFact(kind, owner, first, second, started_ns, count, values)
    delay = advertisement.delay
    subscription = advertisement.subscription
    link = None
    terms = None
    if delay is not None:
        link = (delay.mean_s_per_kb, delay.variance, delay.jitter_s)
    elif subscription is not None:
        wanted = subscription.terms
        terms = AdvertisedTerms(
            subscriber=subscription.subscriber,
            where=wanted.where,
            deadline_ns=wanted.deadline_ns,
            price=wanted.price,
            penalty=wanted.penalty,
            last_mile_ns=subscription.last_mile_ns,
        )
    return Fact(kind, owner, first, second, started_ns, count, link, terms)


def _to_advertisement(fact: Fact) -> LinkStateAdvertisement:
    key = (fact.kind, fact.owner, fact.first, fact.second)
    stamp = (fact.started_ns, fact.count)
    if fact.kind == LINK:
        if fact.owner == fact.first:
            raise ValueError(f"link from {fact.owner!r} leads to itself")
        delay = LinkDelay(*fact.link) if fact.link is not None else None
        return LinkStateAdvertisement(key, stamp, delay)
    terms = fact.terms
    if terms is None:
        return LinkStateAdvertisement(key, stamp)
    check_filter(fact.second)
    subscription = MeshSubscription(
        client_id=fact.first,
        home=fact.owner,
        topic_filter=fact.second,
        terms=Terms(
            where=terms.where, deadline_ns=terms.deadline_ns, price=terms.price, penalty=terms.penalty
        ),
        last_mile_ns=terms.last_mile_ns,
        subscriber=terms.subscriber,
    )
    return LinkStateAdvertisement(key, stamp, subscription=subscription)


def _to_told(fact: FiguresFact) -> LinkStateAdvertisement:
    figures = LinkFigures(*fact.figures) if fact.figures is not None else None
    key = (fact.kind, fact.owner, fact.first, fact.second)
    return LinkStateAdvertisement(key, (fact.started_ns, fact.count), figures=figures)


def _wrong(text: str) -> ProtocolError:
    return ProtocolError(ReasonCode.PROTOCOL_ERROR, text)
