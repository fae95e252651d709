"""Waiting for events together: any of them, all of them within a window, silence, and the ticks of a timer.

A `Dependency` is what somebody waits for, written down as a tree; a `Correlator` is one wait for it
with its state. Whether an event fits a leaf is for the caller to know (an event type and source in the
event channel, a topic filter in the broker): it hands in the leaves that were hit as a mask of bits.

Two rules settle every doubt. A conjunction keeps the latest occurrence of each part, and the occurrences
it delivers together span at most its window. When it delivers, it and everything below it starts over.
There is no clock here: time comes with each call, and timers from the caller's heap.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from timebound.core.correlation.timers import Timer, TimerHeap
from timebound.units import SECOND

# Each leaf and each timer of a tree owns one bit of a 64-bit mask.
SIGNALS_MAX: Final = 62
# The tree is walked by recursion; nobody can read a deeper one anyway.
DEPTH_MAX: Final = 8

HOUR: Final = 3_600 * SECOND

EVERY: Final = "every"
WATCHDOG: Final = "watchdog"


class Timeout:
    """What a timer contributes: the `count`-th tick, or the `count`-th silence in a row.

    `missed` counts the ticks that were skipped before it because nobody woke the heap in time.
    """

    __slots__ = ("count", "due_ns", "kind", "missed")

    def __init__(self, kind: str, due_ns: int, count: int, missed: int) -> None:
        self.kind = kind
        self.due_ns = due_ns
        self.count = count
        self.missed = missed

    def __repr__(self) -> str:
        return f"Timeout({self.kind}, due_ns={self.due_ns}, count={self.count}, missed={self.missed})"


class Dependency:
    """Base of everything one can wait for. Immutable."""

    __slots__ = ()


class Leaf(Dependency):
    """One kind of event; `key` means something only to the caller."""

    __slots__ = ("key",)

    def __init__(self, key: object) -> None:
        self.key: Final = key


class AnyOf(Dependency):
    """Satisfied whenever one of its parts is."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Dependency]) -> None:
        if not parts:
            raise ValueError("any_of needs at least one part")
        self.parts: Final = parts


class AllOf(Dependency):
    """Satisfied once each part has been, by occurrences that span at most `within_ns` (0 = no limit)."""

    __slots__ = ("parts", "within_ns")

    def __init__(self, parts: list[Dependency], within_ns: int = 0) -> None:
        if not parts:
            raise ValueError("all_of needs at least one part")
        if within_ns < 0:
            raise ValueError(f"window of {within_ns} ns is negative; it must be positive, or 0 for none")
        self.parts: Final = parts
        self.within_ns: Final = within_ns


class Every(Dependency):
    """Satisfied periodically, the first time one period after the start."""

    __slots__ = ("period_ns",)

    def __init__(self, period_ns: int) -> None:
        if period_ns <= 0:
            raise ValueError(f"period of {period_ns} ns is not positive")
        self.period_ns: Final = period_ns


class Watchdog(Dependency):
    """Satisfied when its part is, and with a `Timeout` each time that takes longer than `timeout_ns`."""

    __slots__ = ("part", "timeout_ns")

    def __init__(self, part: Dependency, timeout_ns: int) -> None:
        if timeout_ns <= 0:
            raise ValueError(f"watchdog timeout of {timeout_ns} ns is not positive")
        self.part: Final = part
        self.timeout_ns: Final = timeout_ns


class _Part:
    """Occurrences that satisfied a node, and the time of the oldest of them."""

    __slots__ = ("occurrences", "oldest_ns")

    def __init__(self, occurrences: list[object], oldest_ns: i64) -> None:
        self.occurrences = occurrences
        self.oldest_ns = oldest_ns


class _Node:
    """One node of a running correlation. `mask` has the bits of every leaf and timer below it."""

    __slots__ = ("mask",)

    def __init__(self, mask: i64) -> None:
        self.mask = mask

    def offer(self, hits: i64, occurrence: object, now_ns: i64) -> _Part | None:
        """Take in an occurrence that hit some leaf below; answer what that completed."""
        return _Part([occurrence], now_ns)

    def restart(self) -> None:
        """Forget what has been collected, not what time it is."""


class _AnyNode(_Node):
    __slots__ = ("children",)

    def __init__(self, mask: i64, children: list[_Node]) -> None:
        super().__init__(mask)
        self.children = children

    def offer(self, hits: i64, occurrence: object, now_ns: i64) -> _Part | None:
        found: _Part | None = None
        # Every child takes the occurrence in, though the first satisfied one would settle it:
        # a conjunction next to it must not lose its part.
        for child in self.children:
            if child.mask & hits == 0:
                continue
            part = child.offer(hits, occurrence, now_ns)
            if part is not None:
                found = part if found is None else _union(found, part)
        return found

    def restart(self) -> None:
        for child in self.children:
            child.restart()


class _AllNode(_Node):
    __slots__ = ("children", "held", "within_ns")

    def __init__(self, mask: i64, children: list[_Node], within_ns: i64) -> None:
        super().__init__(mask)
        self.children = children
        self.within_ns = within_ns
        self.held: list[_Part | None] = [None] * len(children)

    def offer(self, hits: i64, occurrence: object, now_ns: i64) -> _Part | None:
        renewed = False
        held = self.held
        for index, child in enumerate(self.children):
            if child.mask & hits == 0:
                continue
            part = child.offer(hits, occurrence, now_ns)
            if part is not None:
                held[index] = part
                renewed = True
        return self._completed(now_ns) if renewed else None

    def _completed(self, now_ns: i64) -> _Part | None:
        complete = True
        for index, part in enumerate(self.held):
            if part is None:
                complete = False
            elif 0 < self.within_ns < now_ns - part.oldest_ns:
                self.held[index] = None
                complete = False
        if not complete:
            return None
        whole: _Part | None = None
        for part in self.held:
            assert part is not None
            whole = part if whole is None else _union(whole, part)
        self.restart()
        return whole

    def restart(self) -> None:
        for index in range(len(self.held)):
            self.held[index] = None
        for child in self.children:
            child.restart()


class _TimedNode(_Node):
    """Base of the nodes that own a timer; `due_ns` is when it should next speak up."""

    __slots__ = ("bit", "count", "due_ns", "interval_ns", "kind", "timer")

    def __init__(self, mask: i64, bit: i64, interval_ns: i64, kind: str) -> None:
        super().__init__(mask)
        self.bit = bit
        self.interval_ns = interval_ns
        self.kind = kind
        self.timer: Timer | None = None
        self.due_ns: i64 = 0
        self.count: i64 = 0


class _WatchdogNode(_TimedNode):
    __slots__ = ("child",)

    def __init__(self, bit: i64, child: _Node, timeout_ns: i64) -> None:
        super().__init__(bit | child.mask, bit, timeout_ns, WATCHDOG)
        self.child = child

    def offer(self, hits: i64, occurrence: object, now_ns: i64) -> _Part | None:
        if hits & self.bit:
            return _Part([occurrence], now_ns)
        part = self.child.offer(hits, occurrence, now_ns)
        if part is not None:
            # The timer in the heap is left alone and corrected when it expires: O(1) an event.
            self.due_ns = now_ns + self.interval_ns
            self.count = 0
        return part

    def restart(self) -> None:
        self.child.restart()


def _union(left: _Part, right: _Part) -> _Part:
    """Merge two parts; an occurrence that serves both is delivered once."""
    occurrences = list(left.occurrences)
    for candidate in right.occurrences:
        for known in occurrences:
            if known is candidate:
                break
        else:
            occurrences.append(candidate)
    return _Part(occurrences, min(left.oldest_ns, right.oldest_ns))


class Correlator:
    """One running wait for a dependency.

    `leaves[i]` owns bit `1 << i` of the masks given to `arrive`. A tree with timers needs a heap, and
    `start` before anything else; its owner calls `expire` for each timer of its own that came due.
    """

    __slots__ = ("_bit_next", "_root", "_timed", "_timers", "is_stateless", "leaves")

    def __init__(self, dependency: Dependency, timers: TimerHeap | None = None) -> None:
        self.leaves: list[Leaf] = []
        self.is_stateless = True  # any single leaf satisfies it, so nobody need ask
        self._timed: list[_TimedNode] = []
        self._timers = timers
        self._bit_next: i64 = 1
        _number_leaves(dependency, self.leaves, 0)
        for _ in self.leaves:
            self._take_bit()
        self._root = self._build(dependency, _Cursor())

    @property
    def timer_count(self) -> int:
        return len(self._timed)

    def start(self, now_ns: int, owner: object) -> bool:
        """Arm every timer, on behalf of `owner`; False, and nothing armed, when the heap has too few left."""
        if not self._timed:
            return True
        heap = self._timers
        if heap is None or heap.available() < len(self._timed):
            return False
        for index, node in enumerate(self._timed):
            node.timer = heap.acquire(owner, index)
            assert node.timer is not None
            node.due_ns = now_ns + node.interval_ns
            heap.set(node.timer, node.due_ns)
        return True

    def set_owner(self, owner: object) -> None:
        """Pass the timers on to another owner; they stay set."""
        for node in self._timed:
            if node.timer is not None:
                node.timer.owner = owner

    def stop(self) -> None:
        """Release the timers and discard what has been collected."""
        for node in self._timed:
            if node.timer is not None and self._timers is not None:
                self._timers.release(node.timer)
            node.timer = None
        self._root.restart()

    def arrive(self, hits: int, occurrence: object, now_ns: int) -> list[object] | None:
        """Take in an occurrence that fits the leaves in `hits`; answer what is now to be delivered."""
        part = self._root.offer(hits, occurrence, now_ns)
        return None if part is None else part.occurrences

    def expire(self, timer: Timer, now_ns: int) -> list[object] | None:
        """Handle a timer of this correlator that `pop_expired` gave out, and set it for the next time."""
        node = self._timed[timer.tag]
        assert node.timer is timer
        assert self._timers is not None
        if node.due_ns > now_ns:
            self._timers.set(timer, node.due_ns)
            return None
        missed = (now_ns - node.due_ns) // node.interval_ns
        due_ns = node.due_ns + missed * node.interval_ns
        node.due_ns = due_ns + node.interval_ns
        node.count += missed + 1
        self._timers.set(timer, node.due_ns)
        timeout = Timeout(node.kind, due_ns, node.count, missed)
        part = self._root.offer(node.bit, timeout, now_ns)
        return None if part is None else part.occurrences

    def _take_bit(self) -> i64:
        bit = self._bit_next
        if bit == 1 << SIGNALS_MAX:
            raise ValueError(f"a dependency has more than {SIGNALS_MAX} leaves and timers")
        self._bit_next = bit << 1
        return bit

    def _build(self, dependency: Dependency, cursor: _Cursor) -> _Node:
        if isinstance(dependency, Leaf):
            return _Node(cursor.take())
        if isinstance(dependency, AnyOf):
            children = [self._build(part, cursor) for part in dependency.parts]
            return _AnyNode(_mask_of(children), children)
        self.is_stateless = False
        if isinstance(dependency, AllOf):
            children = [self._build(part, cursor) for part in dependency.parts]
            return _AllNode(_mask_of(children), children, dependency.within_ns)
        bit = self._take_bit()
        timed: _TimedNode
        if isinstance(dependency, Every):
            timed = _TimedNode(bit, bit, dependency.period_ns, EVERY)
        elif isinstance(dependency, Watchdog):
            timed = _WatchdogNode(bit, self._build(dependency.part, cursor), dependency.timeout_ns)
        else:
            raise TypeError(f"unknown dependency {dependency!r}; use Leaf, AnyOf, AllOf, Every or Watchdog")
        self._timed.append(timed)
        return timed


class _Cursor:
    """Hands out the leaves' bits in the order in which they are written."""

    __slots__ = ("bit",)

    def __init__(self) -> None:
        self.bit: i64 = 1

    def take(self) -> i64:
        taken = self.bit
        self.bit = taken << 1
        return taken


def signature(dependency: Dependency) -> str:
    """Return a text that is the same for dependencies that wait for the same."""
    if isinstance(dependency, Leaf):
        return repr(dependency.key)
    if isinstance(dependency, Every):
        return f"every({dependency.period_ns})"
    if isinstance(dependency, Watchdog):
        return f"watchdog({signature(dependency.part)},{dependency.timeout_ns})"
    if isinstance(dependency, AllOf):
        parts = ",".join([signature(part) for part in dependency.parts])
        return f"all({parts};{dependency.within_ns})"
    assert isinstance(dependency, AnyOf), "there are no other dependencies"
    return f"any({','.join([signature(part) for part in dependency.parts])})"


def ticks_per_hour(dependency: Dependency) -> int:
    """Return how often the timers of a dependency fire per hour if no event resets a watchdog."""
    if isinstance(dependency, Every):
        return -(-HOUR // dependency.period_ns)
    if isinstance(dependency, Watchdog):
        return -(-HOUR // dependency.timeout_ns) + ticks_per_hour(dependency.part)
    if isinstance(dependency, (AnyOf, AllOf)):
        return sum([ticks_per_hour(part) for part in dependency.parts])
    return 0


def _mask_of(children: list[_Node]) -> i64:
    mask: i64 = 0
    for child in children:
        mask |= child.mask
    return mask


def _number_leaves(dependency: Dependency, leaves: list[Leaf], depth: int) -> None:
    """Collect the leaves from left to right, and refuse a tree that is too deep."""
    if depth > DEPTH_MAX:
        raise ValueError(f"a dependency is nested more than {DEPTH_MAX} deep")
    if isinstance(dependency, Leaf):
        leaves.append(dependency)
    elif isinstance(dependency, (AnyOf, AllOf)):
        for part in dependency.parts:
            _number_leaves(part, leaves, depth + 1)
    elif isinstance(dependency, Watchdog):
        _number_leaves(dependency.part, leaves, depth + 1)
