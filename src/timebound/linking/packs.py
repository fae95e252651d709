"""Packs: many copies in one packet, for a neighbour that knows them (docs/mesh.md, "On the wire").

The payload of a pack is a sequence of runs. A run is a head and some payloads of the same size: those of
copies that differ in nothing else but their numbers, which follow each other. A head is a byte of flags, then
for each flag what has changed since the run before, then how many copies there are:

    0x01  route: hops, and the names of the brokers passed and of those it is for
    0x02  source: origin, when that started, publisher
    0x04  topic
    0x08  properties as their publisher sent them, and the Message Expiry Interval + 1; 0 = none
    0x10  QoS, + 4 if the message is retained
    0x20  number of the first copy; otherwise the next one
    0x40  age on arrival in nanoseconds
    0x80  size of a payload

Numbers have seven bits to a byte, the lowest first, and bit 7 in all but the last. Text and bytes have their
length before them. A route, source, topic or set of properties is written once: it is preceded by 0 then, and
later only named by its place among those of its kind in this pack, from 1.
"""

from __future__ import annotations

from typing import Final

from timebound.core.mesh.member import COPY_BYTES
from timebound.core.mesh.message import Copy, MeshMessage, PackReceipt
from timebound.core.values.message import Message, MessageName
from timebound.core.values.subscription import NO_USER_PROPERTIES, UserProperties
from timebound.errors import MalformedPacket
from timebound.linking.codec import PREFIX
from timebound.units import DURATION_NS_MAX, SECOND
from timebound.wire.primitives import BYTE, PacketReader, decode_utf8
from timebound.wire.publish import decode_passed_on, decode_topic_name
from timebound.wire.terms import parse_publish_terms

PACK_TOPIC: Final = PREFIX + "pack"

ROUTE: Final = 0x01
SOURCE: Final = 0x02
TOPIC: Final = 0x04
PROPERTIES: Final = 0x08
KIND: Final = 0x10
NUMBER: Final = 0x20
AGE: Final = 0x40
SIZE: Final = 0x80
RETAINED: Final = 4  # added to the QoS
_NUMBER_BYTES_MAX: Final = 9  # 63 bits
_EXPIRY_MAX: Final = 0xFFFF_FFFF
# A run of empty payloads has no bytes that would limit it.
COUNT_EMPTY_MAX: Final = 65_536


class _Writer:
    """The state of the last run, and what was written before."""

    __slots__ = (
        "_age_ns",
        "_ahead_ns",
        "_expected",
        "_head",
        "_hops",
        "_kind",
        "_known",
        "_last",
        "_last_targets",
        "_last_via",
        "_now_ns",
        "_origin",
        "_payloads",
        "_places",
        "_size",
        "_started_ns",
        "parts",
    )

    def __init__(self, now_ns: int, ahead_ns: int) -> None:
        self.parts: list[bytes] = []
        self._now_ns = now_ns
        self._ahead_ns = ahead_ns
        self._known: dict[bytes, int] = {}  # routes, sources, topics and properties with their flag: places
        self._places = [0, 0, 0, 0]  # how many there are of each
        self._last: Message | None = None
        self._last_via: tuple[str, ...] = ()
        self._last_targets: set[str] | None = None
        self._hops = -1
        self._origin = ""
        self._started_ns = -1
        self._kind = 0
        self._age_ns = 0
        self._size = 0
        self._expected = -1  # the number of the next copy of the run
        self._head = b""
        self._payloads: list[bytes] = []

    def add(self, copy: Copy) -> None:
        """Add a copy to the run, or begin another one."""
        what = copy.what
        message = what.message
        last = self._last
        if (
            last is not None
            and what.number == self._expected
            and message.published_ns == last.published_ns
            and len(message.payload) == self._size
            and message.topic == last.topic
            and (copy.targets is self._last_targets or copy.targets == self._last_targets)
            and (copy.via is self._last_via or copy.via == self._last_via)
            and copy.hops == self._hops
            and message.publisher == last.publisher
            and message.properties == last.properties
            and message.qos == last.qos
            and message.retain == last.retain
            and message.expires_ns == last.expires_ns
            and what.started_ns == self._started_ns
            and what.origin == self._origin
        ):
            self._payloads.append(message.payload)
        else:
            self.end_run()
            self._begin_run(copy, what, message)
        self._expected = what.number + 1

    def end_run(self) -> None:
        """Write the run that was begun."""
        payloads = self._payloads
        if payloads:
            self.parts.append(self._head)
            self.parts.append(encode_number(len(payloads)))
            self.parts += payloads
            self._payloads = []

    def _begin_run(self, copy: Copy, what: MeshMessage, message: Message) -> None:
        targets = copy.targets
        assert targets is not None, "a copy between members names the homes it is for"
        fields: list[bytes] = [b""]
        flags = 0
        last = self._last
        if copy.hops != self._hops or copy.via != self._last_via or targets != self._last_targets:
            flags |= ROUTE
            self._refer(fields, 0, _route(copy.hops, copy.via, targets))
            self._hops = copy.hops
        self._last_via = copy.via
        self._last_targets = targets
        is_other = what.origin != self._origin or what.started_ns != self._started_ns
        if last is None or is_other or message.publisher != last.publisher:
            flags |= SOURCE
            source = _text(what.origin) + encode_number(what.started_ns) + _text(message.publisher)
            self._refer(fields, 1, source)
            self._origin = what.origin
            self._started_ns = what.started_ns
        if last is None or message.topic != last.topic:
            flags |= TOPIC
            self._refer(fields, 2, _text(message.topic))
        expiry = _expiry(message)
        if message.properties != (last.properties if last is not None else b"") or expiry != (
            _expiry(last) if last is not None else 0
        ):
            flags |= PROPERTIES
            block = encode_number(len(message.properties)) + message.properties + encode_number(expiry)
            self._refer(fields, 3, block)
        flags |= self._add_numbers(fields, what, message)
        fields[0] = BYTE[flags]
        self._head = b"".join(fields)
        self._payloads = [message.payload]
        self._last = message

    def _add_numbers(self, fields: list[bytes], what: MeshMessage, message: Message) -> int:
        """Add what is not referred to; return its flags."""
        flags = 0
        kind = message.qos + (RETAINED if message.retain else 0)
        if kind != self._kind:
            flags |= KIND
            self._kind = kind
            fields.append(BYTE[kind])
        if what.number != self._expected:
            flags |= NUMBER
            fields.append(encode_number(what.number))
        age_ns = max(self._now_ns - message.published_ns + self._ahead_ns, 0)
        if age_ns != self._age_ns:
            flags |= AGE
            self._age_ns = age_ns
            fields.append(encode_number(age_ns))
        size = len(message.payload)
        if size != self._size:
            flags |= SIZE
            self._size = size
            fields.append(encode_number(size))
        return flags

    def _refer(self, fields: list[bytes], table: int, value: bytes) -> None:
        """Add a value, or its place if it was written before."""
        key = BYTE[table] + value
        place = self._known.get(key, 0)
        fields.append(encode_number(place))
        if not place:
            self._places[table] += 1
            self._known[key] = self._places[table]
            fields.append(value)


def encode_pack(copies: list[Copy], now_ns: int, ahead_ns: int) -> bytes:
    """Return the payload of a pack that will arrive in `ahead_ns`."""
    writer = _Writer(now_ns, ahead_ns)
    for copy in copies:
        writer.add(copy)
    writer.end_run()
    return b"".join(writer.parts)


class _Route:
    __slots__ = ("hops", "targets", "via")

    def __init__(self, hops: int, via: tuple[str, ...], targets: set[str]) -> None:
        self.hops = hops
        self.via = via
        self.targets = targets


class _Source:
    __slots__ = ("origin", "publisher", "started_ns")

    def __init__(self, origin: str, started_ns: int, publisher: str) -> None:
        self.origin = origin
        self.started_ns = started_ns
        self.publisher = publisher


class _Block:
    """Properties of a message, with what the broker reads from them."""

    __slots__ = ("expiry", "priority", "properties", "timeout_ns", "user_properties")

    def __init__(self, properties: bytes, expiry: int) -> None:
        self.properties = properties
        self.expiry = expiry
        self.user_properties: UserProperties = NO_USER_PROPERTIES
        self.timeout_ns = 0
        self.priority = 0
        if properties:
            found = decode_passed_on(properties)
            if found:
                self.user_properties = found
                terms = parse_publish_terms(found)
                self.timeout_ns = terms.timeout_ns
                self.priority = terms.priority


class _Reader:
    """Reads a pack; each run continues with the state of the last one."""

    __slots__ = (
        "_age_ns",
        "_block",
        "_blocks",
        "_input",
        "_kind",
        "_now_ns",
        "_number",
        "_receipt",
        "_route",
        "_routes",
        "_size",
        "_source",
        "_sources",
        "_topic",
        "_topics",
        "copies",
    )

    def __init__(self, payload: bytes, receipt: PackReceipt | None, now_ns: int) -> None:
        self.copies: list[Copy] = []
        self._input = PacketReader(payload, 0, len(payload))
        self._receipt = receipt
        self._now_ns = now_ns
        self._routes: list[_Route] = []
        self._sources: list[_Source] = []
        self._topics: list[str] = []
        self._blocks: list[_Block] = []
        self._route: _Route | None = None
        self._source: _Source | None = None
        self._topic = ""
        self._block = _Block(b"", 0)
        self._kind = 0
        self._number = -1
        self._age_ns = 0
        self._size = 0

    def read(self) -> None:
        """Read all runs.

        Raises:
            ProtocolError: one of them cannot be read.
        """
        if not self._input.left():
            raise MalformedPacket("pack: it is empty")
        while self._input.left():
            self._read_head()
            self._read_copies(self._read_number("count"))

    def _read_head(self) -> None:
        flags = self._input.u8("pack: flags")
        if flags & ROUTE:
            self._read_route()
        if flags & SOURCE:
            self._read_source()
        if flags & TOPIC:
            self._read_topic()
        if flags & PROPERTIES:
            self._read_block()
        if flags & KIND:
            self._kind = self._input.u8("pack: QoS")
            if self._kind & ~RETAINED > 2:
                raise MalformedPacket(f"pack: QoS is {self._kind & ~RETAINED} (0, 1 or 2)")
        if flags & NUMBER:
            self._number = self._read_number("number")
        if flags & AGE:
            self._age_ns = self._read_number("age")
            if self._age_ns > DURATION_NS_MAX:
                raise MalformedPacket(f"pack: age is {self._age_ns} ns (at most 100 years)")
        if flags & SIZE:
            self._size = self._read_number("size")

    def _read_copies(self, count: int) -> None:
        route = self._route
        source = self._source
        if route is None or source is None or not self._topic or self._number < 0:
            raise MalformedPacket("pack: a run has no route, source, topic or number")
        size = self._size
        reader = self._input
        if not count or count * size > reader.left():
            raise MalformedPacket(
                f"pack: a run has {count} payloads of {size} bytes, but {reader.left()} left"
            )
        if not size and count > COUNT_EMPTY_MAX:
            raise MalformedPacket(f"pack: a run has {count} empty payloads (at most {COUNT_EMPTY_MAX})")
        data = reader.data
        start = reader.position
        reader.position = start + count * size
        topic = self._topic
        block = self._block
        qos = self._kind & ~RETAINED
        retain = self._kind >= RETAINED
        published_ns = self._now_ns - self._age_ns
        expires_ns = published_ns + (block.expiry - 1) * SECOND if block.expiry else 0
        number = self._number
        origin = source.origin
        started_ns = source.started_ns
        receipt = self._receipt
        copies = self.copies
        for _ in range(count):
            message = Message(
                topic,
                data[start : start + size],
                qos,
                retain,
                published_ns,
                source.publisher,
                block.properties,
                block.user_properties,
                expires_ns,
                block.timeout_ns,
                block.priority,
            )
            message.hops = route.hops
            message.name = MessageName(origin, started_ns, number)
            what = MeshMessage(message, origin, message.size() + COPY_BYTES, started_ns, number)
            copies.append(Copy(what, route.via, route.hops, route.targets, receipt))
            start += size
            number += 1
        self._number = number

    def _read_route(self) -> None:
        place = self._place("route", len(self._routes))
        if not place:
            hops = self._read_number("hops")
            via = self._read_names("passed")
            targets = self._read_names("homes")
            if not targets:
                raise MalformedPacket("pack: a route leads to no home")
            self._routes.append(_Route(hops, tuple(via), set(targets)))
        self._route = self._routes[place - 1]

    def _read_source(self) -> None:
        place = self._place("source", len(self._sources))
        if not place:
            origin = self._read_text("origin")
            started_ns = self._read_number("start")
            self._sources.append(_Source(origin, started_ns, self._read_text("publisher")))
        self._source = self._sources[place - 1]

    def _read_topic(self) -> None:
        place = self._place("topic", len(self._topics))
        if not place:
            raw = self._input.take(self._read_number("length of a topic"), "pack: topic")
            topic = decode_topic_name(raw)
            if not topic or topic.startswith(PREFIX):
                raise MalformedPacket(f"pack: {topic[:100]!r} is no topic of a message")
            self._topics.append(topic)
        self._topic = self._topics[place - 1]

    def _read_block(self) -> None:
        place = self._place("properties", len(self._blocks))
        if not place:
            raw = self._input.take(self._read_number("length of properties"), "pack: properties")
            expiry = self._read_number("expiry")
            if expiry > _EXPIRY_MAX + 1:
                raise MalformedPacket(f"pack: expiry is {expiry - 1} s (at most {_EXPIRY_MAX})")
            self._blocks.append(_Block(raw, expiry))
        self._block = self._blocks[place - 1]

    def _place(self, what: str, known: int) -> int:
        place = self._read_number(what)
        if place > known:
            raise MalformedPacket(f"pack: {what} {place} is named, but there are {known}")
        return place

    def _read_names(self, what: str) -> list[str]:
        count = self._read_number(what)
        if count > self._input.left():
            raise MalformedPacket(f"pack: {count} brokers {what}, but {self._input.left()} bytes left")
        return [self._read_text(what) for _ in range(count)]

    def _read_text(self, what: str) -> str:
        return decode_utf8(self._input.take(self._read_number(what), f"pack: {what}"), f"pack: {what}")

    def _read_number(self, what: str) -> int:
        reader = self._input
        data = reader.data
        position = reader.position
        end = reader.end
        value = 0
        for index in range(_NUMBER_BYTES_MAX):
            if position >= end:
                raise MalformedPacket(f"pack: {what} is cut short")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                reader.position = position
                return value
        raise MalformedPacket(f"pack: {what} is longer than {_NUMBER_BYTES_MAX} bytes")


def decode_pack(payload: bytes, packet_id: int, now_ns: int) -> list[Copy]:
    """Return the copies of a neighbour's pack, dated by this broker's clock; packet id 0: it wants no answer.

    Raises:
        ProtocolError: the pack cannot be read.
    """
    receipt = PackReceipt(packet_id) if packet_id else None
    reader = _Reader(payload, receipt, now_ns)
    reader.read()
    if receipt is not None:
        receipt.left = len(reader.copies)
    return reader.copies


def encode_number(value: int) -> bytes:
    """Encode a number in seven bits to a byte, the lowest first."""
    if value < 0x80:
        return BYTE[value]
    found = b""
    while value >= 0x80:
        found += BYTE[(value & 0x7F) | 0x80]
        value >>= 7
    return found + BYTE[value]


def _text(value: str) -> bytes:
    raw = value.encode()
    return encode_number(len(raw)) + raw


def _route(hops: int, via: tuple[str, ...], targets: set[str]) -> bytes:
    names = b"".join([_text(name) for name in via])
    homes = b"".join([_text(name) for name in sorted(targets)])
    return b"".join((encode_number(hops), encode_number(len(via)), names, encode_number(len(targets)), homes))


def _expiry(message: Message) -> int:
    """Return the Message Expiry Interval as its publisher set it, + 1; 0 = none."""
    if not message.expires_ns:
        return 0
    return (message.expires_ns - message.published_ns) // SECOND + 1
