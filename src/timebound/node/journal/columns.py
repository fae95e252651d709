"""Messages on their way to journals, packed column by column: what is kept of them, and nothing else.

A message with payload and encoded frame takes some 400 bytes. Thousands of them that wait for the disk
drive everything else out of the processor's caches, and every collection looks through them: that
cost a flood three quarters of its speed. So what a journal keeps is taken over in the turn in which
a message comes, while it is in the cache, and the message is let go. Values that stay the same from
one message to the next are noted once, with the row that they begin at.

This is the only work for each message that the event loop does for journals; it is compiled where
a compiler is at hand.
"""

from __future__ import annotations

from typing import Final

from timebound.core.values.message import Message
from timebound.core.values.subscription import UserProperties
from timebound.node.journal.repeats import Repeats
from timebound.topics import matches

# Topics whose journals are remembered; beyond, all are forgotten and asked again.
TOPICS_REMEMBERED_MAX: Final = 10_000
# Rows of a pack, which are encoded in one go. Encoding 8,000 takes half a millisecond, and a third of
# what four times 2,000 take.
PACK_ROWS: Final = 8_000
# Bytes of the payloads of a pack, about.
PACK_BYTES: Final = 4 * 1024 * 1024
# So many payloads, at the end of a turn, are put together at once; fewer may wait for more.
JOIN_MIN: Final = 64
# QoS and the retain flag of a message share a number.
QOS_MASK: Final = 3
RETAIN_BIT: Final = 4


class Pack:
    """Rows of one journal in their order, and how many are lost behind them.

    Of each column but the payloads there are the values where they change, and the rows of the changes.
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
        self.payloads: list[bytes] = []  # not yet put together
        self.blobs: list[bytes] = []  # those before them, several in one
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
        """Put payloads together if there are so many."""
        if len(self.payloads) >= payloads_min:
            self.blobs.append(b"".join(self.payloads))
            self.payloads = []


class Packs:
    """What one journal has to write, in its order."""

    __slots__ = ("_bytes_max", "packs")

    def __init__(self, bytes_max: int = PACK_BYTES) -> None:
        """`bytes_max` is for payloads of one pack, about: with one message, it has more if that has."""
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
        """Keep the place of a message that is not kept itself."""
        if len(self.packs) == 0:
            self.packs.append(Pack())
        self.packs[-1].lost += 1

    def end_turn(self) -> None:
        if len(self.packs) > 0:
            self.packs[-1].join(JOIN_MIN)


class Intake:
    """Deals messages out to the journals whose filters match their topics."""

    __slots__ = ("_filters", "_remembered", "bytes_in", "offsets", "repeats", "rows_in")

    def __init__(self, topic_filters: list[str], offsets: list[int] | None = None) -> None:
        self._filters = topic_filters
        self._remembered: dict[str, list[int]] = {}
        self.offsets = offsets or [0] * len(topic_filters)  # that each journal gives next
        self.repeats: Repeats | None = None  # what journals have already
        self.rows_in = 0  # ever, of all journals together
        self.bytes_in = 0

    def deal(self, messages: list[Message], journals: list[Packs], *, is_lossy: bool) -> None:
        """Add messages to what their journals have, which stand in the order of the filters.

        With `is_lossy` those of QoS 0 are lost: nobody waits for them, and there is no room.
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
