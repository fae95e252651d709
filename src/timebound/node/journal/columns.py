"""Messages on their way to journals, packed by columns with only the fields that journals keep.

A message with payload and encoded frame takes about 400 bytes. Thousands of them waiting for the disk
would displace everything else from the processor's caches, and every garbage collection would visit them:
that cost a flood three quarters of its speed. So the fields are copied in the turn in which a message
arrives, while it is in the cache, and the message is released. Values that do not change from one message
to the next are stored once, with their first row.

This is the event loop's only work per message for journals; it is compiled if a compiler is available.
"""

from __future__ import annotations

from typing import Final

from timebound.core.values.message import Message
from timebound.core.values.subscription import UserProperties
from timebound.node.journal.repeats import Repeats
from timebound.topics import matches

# Topics whose journals are cached; beyond, the cache is cleared.
TOPICS_REMEMBERED_MAX: Final = 10_000
# Rows of a pack, which are encoded together. Encoding 8,000 takes half a millisecond, a third of the time
# for four times 2,000.
PACK_ROWS: Final = 8_000
# Approximate payload bytes of a pack.
PACK_BYTES: Final = 4 * 1024 * 1024
# From this many payloads on, they are joined at the end of a turn; fewer wait for more.
JOIN_MIN: Final = 64
# QoS and the retain flag of a message share a number.
QOS_MASK: Final = 3
RETAIN_BIT: Final = 4


class Pack:
    """Rows of one journal in order, and the number of lost rows after them.

    Each column except the payloads has the values where they change, and the rows of the changes.
    """

    __slots__ = (
        "blobs",
        "kind_rows",
        "kinds",
        "lost",
        "payload_bytes",
        "payloads",
        "properties",
        "published_ns",
        "published_rows",
        "publisher_rows",
        "publishers",
        "rows",
        "size_rows",
        "sizes",
        "topic_rows",
        "topics",
    )

    def __init__(self) -> None:
        self.rows = 0
        self.lost = 0
        self.topics: list[str] = []
        self.topic_rows: list[int] = []
        self.publishers: list[str] = []
        self.publisher_rows: list[int] = []
        self.kinds: list[int] = []  # QoS, and RETAIN_BIT
        self.kind_rows: list[int] = []
        self.published_ns: list[int] = []
        self.published_rows: list[int] = []
        self.sizes: list[int] = []  # of payloads
        self.size_rows: list[int] = []
        self.payloads: list[bytes] = []  # not yet joined
        self.blobs: list[bytes] = []  # earlier ones, joined
        self.payload_bytes = 0
        self.properties: dict[int, UserProperties] = {}  # by row; most have none

    def add(self, message: Message) -> None:
        row = self.rows
        self.rows = row + 1
        payload = message.payload
        size = len(payload)
        kind = message.qos | RETAIN_BIT if message.retain else message.qos
        if row == 0 or message.topic != self.topics[-1]:
            self.topics.append(message.topic)
            self.topic_rows.append(row)
        if row == 0 or message.publisher != self.publishers[-1]:
            self.publishers.append(message.publisher)
            self.publisher_rows.append(row)
        if row == 0 or kind != self.kinds[-1]:
            self.kinds.append(kind)
            self.kind_rows.append(row)
        if row == 0 or message.published_ns != self.published_ns[-1]:
            self.published_ns.append(message.published_ns)
            self.published_rows.append(row)
        if row == 0 or size != self.sizes[-1]:
            self.sizes.append(size)
            self.size_rows.append(row)
        self.payloads.append(payload)
        self.payload_bytes += size
        if len(message.user_properties) > 0:
            self.properties[row] = message.user_properties

    def join(self, payloads_min: int = 1) -> None:
        """Join payloads if there are at least `payloads_min`."""
        if len(self.payloads) >= payloads_min:
            self.blobs.append(b"".join(self.payloads))
            self.payloads = []


class Packs:
    """Packs that one journal has to write, in order."""

    __slots__ = ("_bytes_max", "packs")

    def __init__(self, bytes_max: int = PACK_BYTES) -> None:
        """Limit the payloads of a pack to about `bytes_max`; a single larger message still fits."""
        self.packs: list[Pack] = []
        self._bytes_max = min(bytes_max, PACK_BYTES)

    def add(self, message: Message) -> None:
        if len(self.packs) == 0:
            self.packs.append(Pack())
        pack = self.packs[-1]
        if pack.rows >= PACK_ROWS or pack.payload_bytes >= self._bytes_max or pack.lost > 0:
            pack.join()
            pack = Pack()
            self.packs.append(pack)
        pack.add(message)

    def lose(self) -> None:
        """Count a lost message, which takes an offset."""
        if len(self.packs) == 0:
            self.packs.append(Pack())
        self.packs[-1].lost += 1

    def end_turn(self) -> None:
        if len(self.packs) > 0:
            self.packs[-1].join(JOIN_MIN)


class Intake:
    """Distributes messages to the journals whose filters match their topics."""

    __slots__ = ("_filters", "_remembered", "bytes_in", "offsets", "repeats", "rows_in")

    def __init__(self, topic_filters: list[str], offsets: list[int] | None = None) -> None:
        self._filters = topic_filters
        self._remembered: dict[str, list[int]] = {}
        self.offsets = offsets or [0] * len(topic_filters)  # next offset of each journal
        self.repeats: Repeats | None = None  # rows that journals already have
        self.rows_in = 0  # total, of all journals
        self.bytes_in = 0

    def deal(self, messages: list[Message], journals: list[Packs], *, is_lossy: bool) -> None:
        """Add messages to their journals, which are in the order of the filters.

        With `is_lossy` messages of QoS 0 are lost: there is no room, and no publisher waits for them.
        """
        for message in messages:
            wanting = self._remembered.get(message.topic)
            if wanting is None:
                wanting = self._find(message.topic)
            for index in wanting:
                packs = journals[index]
                if self.repeats is not None and message.qos == 2 and self.repeats.has(index, message):
                    continue
                self.offsets[index] += 1
                if is_lossy and message.qos == 0:
                    packs.lose()
                else:
                    packs.add(message)
                    self.rows_in += 1
                    self.bytes_in += len(message.payload)
        for packs in journals:
            packs.end_turn()

    def _find(self, topic: str) -> list[int]:
        if len(self._remembered) >= TOPICS_REMEMBERED_MAX:
            self._remembered.clear()
        wanting = [index for index in range(len(self._filters)) if matches(self._filters[index], topic)]
        self._remembered[topic] = wanting
        return wanting
