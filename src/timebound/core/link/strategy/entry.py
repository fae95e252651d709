"""Entries of an outgoing queue, and the lists that they are part of.

An `Entry` is one message in one queue; it is linked into the `Chain` of its flow and the `Backlog` of its
kind, and has a `HeapNode` in each heap. Times are integer nanoseconds outside; inside a formula they are
floats relative to the publication of the message, so that large clock values do not cause rounding.

The classes refer to each other, so they share one file.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Final

from mypy_extensions import i64

from timebound.core.link.strategy.audience import DOUBT, SCALE_FLOOR_NS, Audience, LinkModel, Term
from timebound.records import Reason

# A time that is never reached; far beyond any clock, and still within 62 bits.
NEVER_NS: Final = 4_000_000_000_000_000_000

# States of an entry.
NEW: Final = 0
QUEUED: Final = 1
POPPED: Final = 2
DROPPED: Final = 3

# The part of the link that a kind gets is measured over this many of its time limits. A shorter burst does
# not count as overload: its messages wait, and are sent afterwards.
MEMORY: Final = 2.0
# A backlog may hold at least this part of what the link carries in the time limit of its kind.
PART_MIN: Final = 0.1
# Overload that has lasted this many time limits is assumed to continue: only half of the limit is used then.
LASTING: Final = 2.0
LASTING_PART: Final = 0.5
# Kinds are half an octave wide, in time and in worth per byte.
_PER_OCTAVE: Final = 2.0
_WORTH_MIN: Final = 1e-30
_LEVELS: Final = 1_024
_LIMITS: Final = 256


class Entry:
    """One message in one outgoing queue.

    `item` is the caller's reference to the message. `published_ns` is on the clock of the queue:
    now less the age. Entries of one `flow` keep their order; in an `ordered` flow an older entry is
    never dropped for a newer one. Of entries with the same `conflation` only the newest stays.
    `lane` is the index of its lane; -1 = automatic. `size_bytes` is the size on the link,
    `cost_bytes` what counts for the limits of the queue; 0 = the same.
    """

    __slots__ = (
        "audience",
        "backlog",
        "chain",
        "conflation",
        "cost_bytes",
        "cursor",
        "deviation_min",
        "drop_ns",
        "drop_reason",
        "flow",
        "flow_next",
        "flow_previous",
        "is_kept",
        "item",
        "kind_next",
        "kind_previous",
        "lane",
        "level",
        "lost_margin",
        "ordered",
        "priority",
        "published_ns",
        "pushed_ns",
        "rank",
        "reason",
        "sequence",
        "size",
        "size_bytes",
        "slowest",
        "state",
        "sure_margin",
        "timeout",
        "timeout_ns",
        "timer",
        "untimed",
        "victim",
    )

    def __init__(
        self,
        item: object,
        size_bytes: int,
        published_ns: int,
        audience: Audience,
        timeout_ns: int = 0,
        priority: int = 0,
        flow: Hashable = None,
        ordered: bool = False,
        conflation: Hashable = None,
        lane: int = -1,
        cost_bytes: int = 0,
    ) -> None:
        if size_bytes < 1 or timeout_ns < 0:
            raise ValueError(
                f"entry has size_bytes={size_bytes}, timeout_ns={timeout_ns}; expected at least 1 and 0"
            )
        self.item = item
        self.size_bytes = size_bytes
        self.cost_bytes = cost_bytes or size_bytes
        self.published_ns = published_ns
        self.audience = audience
        self.timeout_ns = timeout_ns  # 0 = none
        self.priority = priority
        self.flow = flow
        self.ordered = ordered
        self.conflation = conflation
        self.lane = lane
        self.is_kept = False  # never dropped for others; such an entry must have no time limit
        self.size = float(size_bytes)
        self.timeout = float(timeout_ns) if timeout_ns else math.inf
        self.sure_margin = 0.0  # a term that is allowed more than age + this is sure to arrive
        self.lost_margin = 0.0  # a term that is allowed less than age + this is lost
        self.slowest = 0.0  # mean delay of the slowest path, ns
        self.deviation_min = SCALE_FLOOR_NS  # least deviation of its time to arrive, ns
        self.cursor: i64 = 0  # the first term that was not lost at the last call
        self.state = NEW
        self.reason: Reason | None = None  # why it was dropped
        # The rest belongs to the queue.
        self.sequence = -1
        self.pushed_ns = 0
        self.drop_ns = NEVER_NS
        self.drop_reason = Reason.HOPELESS
        self.rank: HeapNode | None = None
        self.victim: HeapNode | None = None
        self.timer: HeapNode | None = None
        self.untimed: HeapNode | None = None
        self.chain: Chain | None = None
        self.flow_next: Entry | None = None
        self.flow_previous: Entry | None = None
        self.level = 0  # of its gain per byte, if levels are used (`Backlog`)
        self.backlog: Backlog | None = None
        self.kind_next: Entry | None = None
        self.kind_previous: Entry | None = None

    def fit(self, link: LinkModel) -> None:
        """Compute what depends on the delay of the link: margins, drop time and drop reason."""
        audience = self.audience
        audience.fit(link)
        self.deviation_min = max(link.jitter, SCALE_FLOOR_NS)
        self.sure_margin = audience.fixed_max + self.size * audience.doubt_max + DOUBT * self.deviation_min
        self.lost_margin = audience.fixed_min + self.size * audience.doubt_min - DOUBT * self.deviation_min
        self.slowest = audience.fixed_max + self.size * audience.delay_max
        self._set_drop_time(link)

    def scale(self, term: Term) -> float:
        """Return the deviation of its time to arrive on the path of a term, in ns."""
        scale = self.size * term.deviation
        return scale if scale > self.deviation_min else self.deviation_min

    def lost_below(self, age: float) -> i64:
        """Return the index of the first term that is not lost if sent at this age.

        It advances with time, so the search starts at the last result: for the next choice that is
        one step, where a binary search would touch terms all over the memory.
        """
        terms = self.audience.terms
        count: i64 = len(terms)
        limit = age + self.lost_margin
        if self.timeout < limit:
            return count
        index = self.cursor
        while index < count and terms[index].allowed < limit:
            index += 1
        while index > 0 and terms[index - 1].allowed >= limit:
            index -= 1
        self.cursor = index
        return index

    def sure_from(self, age: float) -> i64:
        """Return the index from which all terms are sure to arrive if sent at this age."""
        terms = self.audience.terms
        count: i64 = len(terms)
        limit = age + self.sure_margin
        if self.timeout < limit:
            return count
        index = self.cursor
        while index < count and terms[index].allowed < limit:
            index += 1
        while index > 0 and terms[index - 1].allowed >= limit:
            index -= 1
        return index

    def _set_drop_time(self, link: LinkModel) -> None:
        """Set the drop time and its reason (docs/model.md, early drop).

        A term is lost when its allowed time has passed, or earlier, once its success is down to ε:
        at published + allowed - fixed - size·μ - z(ε)·max(size·σ, jitter). The entry is dropped with
        its last term.
        """
        latest = -1.0
        timed_out = False
        for term in self.audience.terms:
            allowed = term.allowed if term.allowed < self.timeout else self.timeout
            scale = max(self.size * term.deviation, link.jitter)
            hopeless = allowed - term.fixed - self.size * term.mean - link.z_epsilon * scale
            if hopeless < allowed:
                if hopeless > latest:
                    latest = hopeless
                    timed_out = False
            elif allowed > latest:
                latest = allowed
                timed_out = True
        self.drop_reason = Reason.TIMED_OUT if timed_out else Reason.HOPELESS
        if latest == math.inf:
            self.drop_ns = NEVER_NS
        elif latest < 0.0:
            self.drop_ns = self.published_ns
        else:
            self.drop_ns = self.published_ns + int(latest)


class Chain:
    """The waiting entries of one flow, oldest first, linked through the entries themselves."""

    __slots__ = ("head", "key", "tail")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.head: Entry | None = None
        self.tail: Entry | None = None

    def insert(self, entry: Entry) -> None:
        """Insert an entry by its sequence: at the end, unless it takes the place of an older one."""
        after: Entry | None = None
        before = self.tail
        while before is not None and before.sequence > entry.sequence:
            after = before
            before = before.flow_previous
        entry.chain = self
        entry.flow_previous = before
        entry.flow_next = after
        if before is None:
            self.head = entry
        else:
            before.flow_next = entry
        if after is None:
            self.tail = entry
        else:
            after.flow_previous = entry

    def remove(self, entry: Entry) -> None:
        before = entry.flow_previous
        after = entry.flow_next
        if before is None:
            self.head = after
        else:
            before.flow_next = after
        if after is None:
            self.tail = before
        else:
            after.flow_previous = before
        entry.chain = None
        entry.flow_previous = None
        entry.flow_next = None


class HeapNode:
    """The node of an entry in one heap: key, tie-break, and position.

    The fields after `position` belong to a ranking: the value at `valued_ns`, the bucket with the end of
    the window in which the key is a bound, and whether it is valued at every choice.
    """

    __slots__ = (
        "bucket",
        "entry",
        "is_close",
        "is_exact",
        "is_fresh",
        "key",
        "position",
        "slot",
        "tie",
        "value",
        "valued_ns",
    )

    def __init__(self, entry: Entry, key: float, tie: int) -> None:
        self.entry = entry
        self.key = key
        self.tie = tie
        self.position: i64 = -1
        self.value = 0.0
        self.valued_ns = -1
        self.bucket = -1  # -1 = none
        self.slot = 0
        self.is_close = False
        self.is_exact = False  # whether the key is the value itself
        self.is_fresh = False


class Backlog:
    """The waiting entries of one kind, oldest first, linked through the entries themselves.

    Entries with about the same gain per byte and time limit compete for the part of the link that is left
    to their kind. If more wait than that part carries before the newest is late, some will be lost in any
    case. Dropping the oldest costs no more than dropping the newest, keeps the order, and leaves time to
    spare for all that are sent: if a kind gets the part r of what it offers, an entry is sent after r of
    its time limit, not at its end. That leaves time for delays that no queue sees: buffers in relays,
    radios and routers (docs/scheduling.md, "Fresh under overload").

    `level` is the level of their gain per byte.
    """

    __slots__ = (
        "_since_ns",
        "_until_ns",
        "allowed",
        "head",
        "key",
        "lane",
        "level",
        "part",
        "size",
        "tail",
    )

    def __init__(self, entry: Entry) -> None:
        self.key = kind_of(entry)
        self.lane = entry.lane
        self.level = entry.level
        self.allowed = max(float(entry.drop_ns - entry.published_ns), 1.0)
        self.head: Entry | None = None
        self.tail: Entry | None = None
        self.size = 0.0  # bytes
        self.part = 1.0  # of the link that it can have; all of it at first
        self._since_ns = 0  # since when it has dropped entries, and until when that counts
        self._until_ns = 0

    def append(self, entry: Entry) -> None:
        tail = self.tail
        entry.backlog = self
        entry.kind_previous = tail
        if tail is None:
            self.head = entry
        else:
            tail.kind_next = entry
        self.tail = entry
        self.size += entry.size

    def remove(self, entry: Entry) -> None:
        before = entry.kind_previous
        after = entry.kind_next
        if before is None:
            self.head = after
        else:
            before.kind_next = after
        if after is None:
            self.tail = before
        else:
            after.kind_previous = before
        entry.backlog = None
        entry.kind_previous = None
        entry.kind_next = None
        self.size -= entry.size

    def sent(self, size: float, link: LinkModel, is_free: bool) -> None:
        """Count an entry that was sent: whether this kind could have used the link, or others came first."""
        weight = size * link.mean_ns_per_byte / (MEMORY * self.allowed)
        if weight > 1.0:
            weight = 1.0
        self.part += weight * ((1.0 if is_free else 0.0) - self.part)

    def room(self, entry: Entry, link: LinkModel, now_ns: int) -> float:
        """Return how many bytes may wait so that all are sent in time; `entry` is the newest."""
        part = self.part if self.part > PART_MIN else PART_MIN
        if self.is_giving_up(now_ns) and float(now_ns - self._since_ns) > LASTING * self.allowed:
            part *= LASTING_PART
        per_byte = link.mean_ns_per_byte
        return part * float(entry.drop_ns - now_ns) / per_byte if per_byte > 0.0 else math.inf

    def give_up(self, now_ns: int) -> None:
        """Record that an entry is dropped for newer ones."""
        if not self.is_giving_up(now_ns):
            self._since_ns = now_ns
        self._until_ns = now_ns + int(self.allowed)

    def is_giving_up(self, now_ns: int) -> bool:
        """Whether it dropped entries lately: this kind exceeds its part of the link."""
        return now_ns < self._until_ns

    def _check(self) -> None:
        """Assert that the list and its sum agree."""
        size = 0.0
        previous: Entry | None = None
        entry = self.head
        assert entry is not None, "an empty backlog is kept"
        while entry is not None:
            assert entry.backlog is self, "an entry does not know its backlog"
            assert entry.kind_previous is previous, "a backlog is torn"
            size += entry.size
            previous = entry
            entry = entry.kind_next
        assert previous is self.tail, "a backlog has lost its end"
        assert size == self.size, "the bytes of a backlog are off"
        assert 0.0 <= self.part <= 1.0, "a part of the link is out of range"


def kind_of(entry: Entry) -> int:
    """Return the kind of an entry with a time limit: lane, time limit and gain per byte, rounded."""
    allowed = float(entry.drop_ns - entry.published_ns)
    limit = int(_PER_OCTAVE * math.log2(allowed)) if allowed > 1.0 else 0
    return (entry.lane * _LIMITS + limit) * _LEVELS + entry.level


def level_of(entry: Entry) -> int:
    """Return the gain per byte of an entry, in half octaves from the smallest."""
    worth = entry.audience.gains_from(0) / entry.size
    if worth <= _WORTH_MIN:
        return 0
    return min(int(_PER_OCTAVE * math.log2(worth / _WORTH_MIN)), _LEVELS - 1)


def flow_key(publisher: str, topic: str, qos: int, timeout_ns: int, audience: Audience) -> Hashable:
    """Return the flow of a copy for one receiver: copies with the same key keep their order."""
    return (publisher, topic, qos, timeout_ns, audience.deadlines())


def link_flow_key(publisher: str, topic: str, qos: int, timeout_ns: int) -> Hashable:
    """Return the flow of a copy for other brokers.

    Two messages may be for different brokers and still have a receiver in common, which gets them in order
    only if all links between keep it. So the deadlines behind the link are not part of the key.
    """
    return (publisher, topic, qos, timeout_ns)
