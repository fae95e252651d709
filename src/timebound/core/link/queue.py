"""The bounded outgoing queue of one link: which entry is sent next, and which are dropped.

Links lead to neighbour brokers and to subscribers; the node and the simulator use the same
queue. It has no clock: every call gets the time, which must not go backwards. It sends nothing:
`pop` returns one entry at a time, as late as possible, because a sent entry can no longer be
reordered or dropped. Every entry that was pushed is either popped once, or dropped once with one
reason.

The choice is made in `strategy/ranking.py`; `lane.py` prevents starvation; early drops are decided
in `strategy/entry.py`.

Long, since a call inside one compiled class is a jump, and most of this is hot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final

from timebound.core.link.budget import TurnBudget
from timebound.core.link.lane import LinkLane, charge, check_shares, choose
from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import LeastWorth, Strategy, expected_gain
from timebound.core.link.strategy.entry import (
    DROPPED,
    NEVER_NS,
    NEW,
    POPPED,
    QUEUED,
    Backlog,
    Chain,
    Entry,
    HeapNode,
    kind_of,
    level_of,
)
from timebound.core.link.strategy.heap import Heap
from timebound.core.link.strategy.ranking import Ranking
from timebound.core.values.delay import LinkDelay
from timebound.records import Reason

MESSAGES_MAX: Final = 10_000
BYTES_MAX: Final = 64 * 1_048_576
# ε of the model: a message whose probability to arrive in time is below this is dropped.
EPSILON: Final = 0.000_5
# Timed messages compete by value; those without a time limit keep a twentieth of the link.
SHARES: Final = (0.0, 0.05)
# An entry is dropped for a newer one of its flow that is worth more than this many times as much.
# With 2, an overloaded flow sends messages with an even chance; measured at three times the capacity of
# a link, 1.1 delivers what is possible even if the delay of the link is known badly.
GIVE_UP_RATIO: Final = 1.1
# Unless the queue gives up young entries, it is not dropped before this part of its time limit has passed.
# With scenarios/star.toml a tenth earns 2 % more than none, and a quarter 9 % less (docs/decisions/0052).
GIVE_UP_AGE: Final = 0.1
# The mean message size is a plain average at first, later over about this many messages.
_SIZES_MAX: Final = 1_024
# FT follows the mean message size in steps of this size, as each step ranks the whole queue.
_SIZE_DRIFT: Final = 0.25
_SIZE_CHECK_PUSHES: Final = 16
# A message sent only after this part of its time limit shows that the link is congested; one without a
# limit, after _CONGESTED_NS. The link counts as congested for the same time again, within these limits,
# as each change ranks the whole queue.
_CONGESTED_PART: Final = 0.5
_CONGESTED_NS: Final = 1_000_000_000
_CONGESTED_NS_MIN: Final = 250_000_000
_CONGESTED_NS_MAX: Final = 5_000_000_000
# With a budget: entries that one push drops because they are late, or because too many of their kind wait.
# More than one, so that a queue gets shorter; the rest is left to `expire_some` and to later pushes.
_DROPS_PER_PUSH: Final = 8
# With a budget: late entries that one choice drops.
_DROPS_PER_POP: Final = 256
# With a budget, victims are ranked ahead of the first overflow: when less of the limits is left than 2 to the
# power of minus this.
_ALMOST_FULL_SHIFT: Final = 4

# What may be put off to a later turn, as bits.
_CONGESTION: Final = 1
_SIZE: Final = 2
_DELAY: Final = 4
_MARGIN: Final = 8
_VICTIMS: Final = 16


class LinkQueue:
    """Messages waiting for one link.

    `shares` has one number per lane: its least share of the link's bytes while it has waiting
    entries. An entry with `lane=-1` goes to lane 0, or, without a time limit, to the last lane.
    `message_bytes` fixes the mean message size behind FT; 0 = measure it. `wants_fresh` drops early
    what exceeds the link's capacity, so that what is sent has time to spare; published strategies
    without such a rule ignore it. With `gives_up_young` such a queue also drops an entry for a newer one of
    its flow that is worth more while both are young: right where all entries are for one receiver, who
    prefers the newer one. With a `budget`, what visits all entries is put off where the turn has no steps
    left for it: `is_behind` then, until `catch_up`.
    """

    __slots__ = (
        "_backlogs",
        "_budget",
        "_chains",
        "_congested_until_ns",
        "_delay_due",
        "_dropped",
        "_due",
        "_gives_up_young",
        "_is_fresh",
        "_kept",
        "_kept_bytes",
        "_latest",
        "_margin_due",
        "_pushes_since_first",
        "_sequence",
        "_single",
        "_size_fixed",
        "_size_mean",
        "_sizes",
        "_timers",
        "_victims",
        "_wants_fresh",
        "bytes_max",
        "bytes_queued",
        "dropped_by_reason",
        "lanes",
        "link",
        "messages_max",
        "messages_queued",
        "popped",
        "pushed",
        "strategy",
    )

    def __init__(
        self,
        strategy: Strategy,
        delay: LinkDelay,
        *,
        origin_ns: int = 0,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
        shares: Sequence[float] = SHARES,
        epsilon: float = EPSILON,
        processing_ns: int = 0,
        message_bytes: int = 0,
        wants_fresh: bool = False,
        gives_up_young: bool = True,
        budget: TurnBudget | None = None,
    ) -> None:
        if messages_max < 1 or bytes_max < 1 or message_bytes < 0:
            raise ValueError(
                f"queue has messages_max={messages_max}, bytes_max={bytes_max}, "
                f"message_bytes={message_bytes}; expected at least 1, 1 and 0"
            )
        check_shares(shares)
        self.strategy = strategy
        self.link = LinkModel(delay, epsilon, processing_ns, origin_ns)
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.lanes: list[LinkLane] = [LinkLane(share, strategy, self.link) for share in shares]
        self.messages_queued = 0
        self.bytes_queued = 0
        self.pushed = 0
        self.popped = 0
        self.dropped_by_reason: dict[Reason, int] = {}
        self._sequence = 0
        self._single: Entry | None = None  # the only entry; it is not in the other structures
        self._timers = Heap()
        self._victims: Ranking | None = None  # made by the first overflow
        self._chains: dict[Hashable, Chain] = {}
        self._latest: dict[Hashable, Entry] = {}
        self._wants_fresh = wants_fresh
        self._is_fresh = wants_fresh and strategy.knows_levels
        self._gives_up_young = gives_up_young
        self._backlogs: dict[int, Backlog] = {}
        self._congested_until_ns = 0
        self._dropped: deque[Entry] = deque()
        self._kept = 0  # entries in the structures with `is_kept`: they are never dropped for others
        self._kept_bytes = 0
        self._size_fixed = message_bytes > 0
        self._size_mean = float(message_bytes)
        self._sizes = 0
        self._pushes_since_first = 0
        self._budget = budget
        self._due = 0  # what is put off
        self._delay_due = delay
        self._margin_due = 0
        self._set_first()

    def __len__(self) -> int:
        return self.messages_queued

    def kept_messages(self) -> int:
        """Count the entries that are never dropped for others; the limits apply to the rest."""
        single = self._single
        return self._kept if single is None else int(single.is_kept)

    def kept_bytes(self) -> int:
        single = self._single
        if single is None:
            return self._kept_bytes
        return single.cost_bytes if single.is_kept else 0

    def push(self, entry: Entry, now_ns: int, place: int = -1) -> None:
        """Queue an entry; `pop_dropped` then returns those dropped for it, or the entry itself.

        It comes last in the order of arrival, or takes the place of an entry that was dropped: `place` is
        the sequence of that one.

        Raises:
            ValueError: the queue does not have the lane of the entry.
        """
        assert entry.state == NEW, "an entry is pushed once"
        if not -1 <= entry.lane < len(self.lanes):
            raise ValueError(f"entry has lane={entry.lane}; the queue has {len(self.lanes)} lanes")
        entry.state = QUEUED
        entry.sequence = place if place >= 0 else self._sequence
        self._sequence += 1
        entry.pushed_ns = now_ns
        self.pushed += 1
        entry.fit(self.link)
        if not self._size_fixed:
            self._learn_size(entry.size, now_ns)
        if entry.drop_ns <= now_ns:
            self._report(entry, entry.drop_reason)
            return
        if self.messages_queued == 0 and (entry.is_kept or entry.cost_bytes <= self.bytes_max):
            self._single = entry
            self.messages_queued = 1
            self.bytes_queued = entry.cost_bytes
            return
        self._spill(now_ns)
        if self._budget is None:
            self.expire(now_ns)
        else:
            self.expire_some(_DROPS_PER_PUSH, now_ns)
        if entry.conflation is not None:
            self._conflate(entry)
        if self._has_room(entry) or self._make_room(entry, now_ns):
            self._insert(entry, now_ns)
            if self._budget is not None and self._victims is None and self._is_almost_full():
                self._may_rank_victims(now_ns)
        else:
            self._report(entry, Reason.QUEUE_FULL)

    def pass_by(self, size: float, now_ns: int) -> None:
        """Count an entry without a time limit that is sent at once, as nothing waits that could compete."""
        self._sequence += 1
        self.pushed += 1
        self.popped += 1
        if not self._size_fixed:
            self._learn_size(size, now_ns)

    def pop(self, now_ns: int) -> Entry | None:
        """Remove and return the entry to send next, which can still arrive in time; None if there is none.

        With a budget it is also None while too many late entries have still to be dropped.
        """
        single = self._single
        if single is not None:
            self._single = None
            self.messages_queued = 0
            self.bytes_queued = 0
            if single.drop_ns <= now_ns:
                self._report(single, single.drop_reason)
                return None
            single.state = POPPED
            self.popped += 1
            return single
        if self._budget is None:
            self.expire(now_ns)
        else:
            self.expire_some(_DROPS_PER_POP, now_ns)
            if self._has_late(now_ns):
                return None
        if self.link.is_congested and now_ns >= self._congested_until_ns:
            self._set_congested(False, now_ns)
        chosen = choose(self.lanes, now_ns)
        if chosen is None:
            return None
        entry = self._in_order(chosen, now_ns)
        if self._is_fresh:
            self._count_sent(entry, now_ns)
        charge(self.lanes, entry)
        self._take_out(entry)
        entry.state = POPPED
        self.popped += 1
        return entry

    def pop_dropped(self, now_ns: int) -> Entry | None:
        """Return the next dropped entry, with its `reason`, or None; drain it after each push and pop."""
        self.expire(now_ns)
        return self.next_dropped()

    def next_dropped(self) -> Entry | None:
        """Like `pop_dropped`, but without dropping anything first."""
        return self._dropped.popleft() if self._dropped else None

    def expire_some(self, count_max: int, now_ns: int) -> None:
        """Drop at most `count_max` entries that timed out or are hopeless; see `next_dropped`."""
        single = self._single
        if single is not None and single.drop_ns <= now_ns:
            self.drop(single, single.drop_reason)
        for _ in range(count_max):
            node = self._timers.top()
            if node is None or node.entry.drop_ns > now_ns:
                return
            self.drop(node.entry, node.entry.drop_reason)

    def _has_late(self, now_ns: int) -> bool:
        node = self._timers.top()
        return node is not None and node.entry.drop_ns <= now_ns

    def take_dropped(self) -> list[Entry]:
        """Take all dropped entries that `pop_dropped` has not returned yet, without dropping others."""
        dropped = list(self._dropped)
        self._dropped.clear()
        return dropped

    def next_wakeup_ns(self) -> int | None:
        """Return the time of the next drop if nothing else happens, or None."""
        single = self._single
        if single is not None:
            return single.drop_ns if single.drop_ns < NEVER_NS else None
        node = self._timers.top()
        return None if node is None else node.entry.drop_ns

    def drop(self, entry: Entry, reason: Reason) -> None:
        """Drop one waiting entry, for example because its only subscription was removed."""
        assert entry.state == QUEUED, "only a waiting entry can be dropped"
        if entry is self._single:
            self._single = None
            self.messages_queued = 0
            self.bytes_queued = 0
        else:
            self._take_out(entry)
        self._report(entry, reason)

    def drop_all(self, reason: Reason) -> None:
        """Drop all waiting entries, oldest first, because the link has ended."""
        for entry in self.entries():
            self.drop(entry, reason)

    def entries(self) -> list[Entry]:
        """Return all waiting entries in order of arrival; O(n log n)."""
        if self._single is not None:
            return [self._single]
        found = [node.entry for lane in self.lanes for node in lane.ranking.nodes()]
        found.sort(key=_by_sequence)
        return found

    def dissolve(self) -> list[Entry]:
        """Return all waiting entries in order of arrival; the queue is not used any more.

        Entries and what orders them refer to each other: left so, they would wait for a full collection.
        """
        found = self.entries()
        for entry in found:
            entry.rank = None
            entry.timer = None
            entry.victim = None
            entry.chain = None
            entry.flow_next = None
            entry.flow_previous = None
            entry.backlog = None
            entry.kind_next = None
            entry.kind_previous = None
        self._single = None
        self._chains = {}
        self._backlogs = {}
        self._latest = {}
        return found

    def set_strategy(self, strategy: Strategy, now_ns: int) -> None:
        """Change the strategy; all waiting entries stay."""
        self.strategy = strategy
        self._is_fresh = self._wants_fresh and strategy.knows_levels
        if self._is_fresh:
            for entry in self.entries():
                entry.level = level_of(entry)
        self._rank_anew(now_ns)

    def set_link(self, delay: LinkDelay, now_ns: int) -> bool:
        """Set the delay of the link and update drop times and ranks, O(n); False: that is put off."""
        self._delay_due = delay
        if not self._may_visit_all(_DELAY):
            return False
        self.link.set_delay(delay)
        self._set_first()
        self._fit_anew(now_ns)
        return True

    def set_margin(self, margin_ns: int, now_ns: int) -> bool:
        """Set the delay behind the link and update drop times and ranks, O(n); False: that is put off."""
        self._margin_due = margin_ns
        if not self._may_visit_all(_MARGIN):
            return False
        self.link.set_margin(margin_ns)
        self._fit_anew(now_ns)
        return True

    # --- what visits all entries --------------------------------------------------------

    def is_behind(self) -> bool:
        """Whether something that visits all entries is put off."""
        return self._due != 0

    def catch_up(self, now_ns: int) -> bool:
        """Do what was put off; False: the turn has no steps left for it."""
        budget = self._budget
        if self._due == 0:
            return True
        if budget is not None and not budget.take_awaited(self.messages_queued):
            return False
        due = self._due
        self._due = 0
        if due & _DELAY:
            self.link.set_delay(self._delay_due)
        if due & _MARGIN:
            self.link.set_margin(self._margin_due)
        if due & _CONGESTION:
            self.link.is_congested = now_ns < self._congested_until_ns
        if due & (_DELAY | _SIZE):
            self._set_first()
        if due & (_DELAY | _MARGIN):
            self._fit_anew(now_ns)
        elif due & (_CONGESTION | _SIZE):
            self._rank_anew(now_ns)
        if due & _VICTIMS and self._single is None and self.messages_queued > self._kept:
            self._ranked_victims(now_ns)
        return True

    def _may_visit_all(self, what: int) -> bool:
        """Whether all entries may be visited in this turn, for a reason named above; else it is put off."""
        budget = self._budget
        if budget is None or self._single is not None or self.messages_queued == 0:
            self._due &= ~what
            return True
        if self._due == 0 and budget.take(self.messages_queued):
            return True
        self._due |= what
        return False

    def _may_rank_victims(self, now_ns: int) -> bool:
        """Rank the entries by who would be dropped first, unless that is done or put off; False: put off."""
        if self._victims is None and not self._may_visit_all(_VICTIMS):
            return False
        self._ranked_victims(now_ns)
        return True

    def _is_almost_full(self) -> bool:
        messages_left = self.messages_max - self.messages_queued + self._kept
        bytes_left = self.bytes_max - self.bytes_queued + self._kept_bytes
        return (
            messages_left < self.messages_max >> _ALMOST_FULL_SHIFT
            or bytes_left < self.bytes_max >> _ALMOST_FULL_SHIFT
        )

    def _fit_anew(self, now_ns: int) -> None:
        waiting = self.entries()
        timers: list[HeapNode] = []
        for entry in waiting:
            entry.fit(self.link)
            if entry is not self._single:
                entry.timer = self._timer_of(entry)
                if entry.timer is not None:
                    timers.append(entry.timer)
        self._timers.replace_all(timers)
        self._rank_anew(now_ns)

    def set_limits(self, messages_max: int, bytes_max: int, now_ns: int) -> bool:
        """Change the limits; entries of least worth are dropped until the rest fits.

        False: which ones these are is not known yet, and the limits stay.
        """
        is_over = self.messages_queued > messages_max or self.bytes_queued > bytes_max
        if is_over and self._victims is None and not self._may_visit_all(_VICTIMS):
            return False
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        while self.messages_queued > messages_max or self.bytes_queued > bytes_max:
            self._spill(now_ns)
            node = self._ranked_victims(now_ns).best(now_ns, None)
            assert node is not None, "a full queue has something to drop"
            self.drop(node.entry, _reason_for_room(node.entry, now_ns))
        return True

    def _spill(self, now_ns: int) -> None:
        """Move the single entry into the structures, as it has to compete now."""
        single = self._single
        if single is not None:
            self._single = None
            self.messages_queued = 0
            self.bytes_queued = 0
            self._insert(single, now_ns)

    def _insert(self, entry: Entry, now_ns: int) -> None:
        lanes = self.lanes
        if entry.lane < 0:
            entry.lane = len(lanes) - 1 if entry.drop_ns == NEVER_NS else 0
        if self._is_fresh:
            entry.level = level_of(entry)
        lanes[entry.lane].insert(entry, now_ns)
        entry.timer = self._timer_of(entry)
        if entry.timer is not None:
            self._timers.insert(entry.timer)
        if entry.is_kept:
            self._kept += 1
            self._kept_bytes += entry.cost_bytes
        elif self._victims is not None and entry.victim is None:
            entry.victim = self._victims.insert(entry, now_ns)
        if entry.flow is not None:
            chain = self._chains.get(entry.flow)
            if chain is None:
                chain = Chain(entry.flow)
                self._chains[entry.flow] = chain
            chain.insert(entry)
        if entry.conflation is not None:
            self._latest[entry.conflation] = entry
        self.messages_queued += 1
        self.bytes_queued += entry.cost_bytes
        if self._is_fresh and entry.drop_ns < NEVER_NS and not entry.ordered:
            self._shorten_backlog(entry, now_ns)

    def _shorten_backlog(self, entry: Entry, now_ns: int) -> None:
        """Drop the oldest entries of a kind while more wait than can be sent before the newest is late."""
        key = kind_of(entry)
        backlog = self._backlogs.get(key)
        if backlog is None:
            backlog = Backlog(entry)
            self._backlogs[key] = backlog
        backlog.append(entry)
        room = backlog.room(entry, self.link, now_ns)
        drops_left = _DROPS_PER_PUSH if self._budget is not None else self.messages_queued
        while backlog.size > room and drops_left > 0:
            drops_left -= 1
            oldest = backlog.head
            if oldest is None or oldest is entry:
                return
            if oldest.drop_ns <= now_ns:  # too many were late at once
                self.drop(oldest, oldest.drop_reason)
                continue
            backlog.give_up(now_ns)
            self._meet_congestion(int(backlog.allowed), now_ns)
            self.drop(oldest, Reason.REPLACED)

    def _count_sent(self, entry: Entry, now_ns: int) -> None:
        """Update the share of the link for each kind, and whether the link is congested."""
        is_due = self.lanes[entry.lane].is_due()
        for backlog in self._backlogs.values():
            is_free = backlog.lane == entry.lane if is_due else backlog.level >= entry.level
            backlog.sent(entry.size, self.link, is_free)
        wait_ns = _CONGESTED_NS
        if entry.drop_ns < NEVER_NS:
            wait_ns = int(_CONGESTED_PART * float(entry.drop_ns - entry.published_ns))
        if now_ns - entry.published_ns > wait_ns:
            self._meet_congestion(wait_ns, now_ns)

    def _meet_congestion(self, lasting_ns: int, now_ns: int) -> None:
        """Mark the link as congested for a while: only worth counts then."""
        until_ns = now_ns + min(max(lasting_ns, _CONGESTED_NS_MIN), _CONGESTED_NS_MAX)
        if until_ns > self._congested_until_ns:
            self._congested_until_ns = until_ns
        if not self.link.is_congested:
            self._set_congested(True, now_ns)

    def _set_congested(self, is_congested: bool, now_ns: int) -> None:
        if not self._may_visit_all(_CONGESTION):
            return
        self.link.is_congested = is_congested
        self._rank_anew(now_ns)

    def _take_out(self, entry: Entry) -> None:
        self.lanes[entry.lane].remove(entry)
        if entry.timer is not None:
            self._timers.remove(entry.timer)
            entry.timer = None
        if entry.victim is not None:
            if self._victims is not None:
                self._victims.remove(entry.victim)
            entry.victim = None
        backlog = entry.backlog
        if backlog is not None:
            backlog.remove(entry)
            if backlog.head is None:
                del self._backlogs[backlog.key]
        chain = entry.chain
        if chain is not None:
            chain.remove(entry)
            if chain.head is None:
                del self._chains[chain.key]
        if entry.conflation is not None and self._latest.get(entry.conflation) is entry:
            del self._latest[entry.conflation]
        if entry.is_kept:
            self._kept -= 1
            self._kept_bytes -= entry.cost_bytes
        self.messages_queued -= 1
        self.bytes_queued -= entry.cost_bytes
        if self._victims is not None and self.messages_queued == self._kept:
            self._victims = None

    def _report(self, entry: Entry, reason: Reason) -> None:
        entry.state = DROPPED
        entry.reason = reason
        self.dropped_by_reason[reason] = self.dropped_by_reason.get(reason, 0) + 1
        self._dropped.append(entry)

    def _timer_of(self, entry: Entry) -> HeapNode | None:
        if entry.drop_ns == NEVER_NS:
            return None
        return HeapNode(entry, float(entry.drop_ns - self.link.origin_ns), entry.sequence)

    def expire(self, now_ns: int) -> None:
        """Drop all entries that timed out or are hopeless now."""
        single = self._single
        if single is not None and single.drop_ns <= now_ns:
            self.drop(single, single.drop_reason)
        while True:
            node = self._timers.top()
            if node is None or node.entry.drop_ns > now_ns:
                return
            self.drop(node.entry, node.entry.drop_reason)

    def _conflate(self, entry: Entry) -> None:
        """Drop the older entry of the same conflation key; the new one takes its place in the order.

        Otherwise a topic that is updated faster than it is sent would never reach the front. The new
        entry keeps its own place if others of its flow wait, which it must not overtake.
        """
        older = self._latest.get(entry.conflation)
        if older is None:
            return
        self.drop(older, Reason.REPLACED)
        if not entry.ordered and (entry.flow is None or entry.flow not in self._chains):
            entry.sequence = older.sequence

    def _has_room(self, entry: Entry) -> bool:
        return entry.is_kept or (
            self.messages_queued - self._kept < self.messages_max
            and self.bytes_queued - self._kept_bytes + entry.cost_bytes <= self.bytes_max
        )

    def _make_room(self, newcomer: Entry, now_ns: int) -> bool:
        """Drop entries worth less than a new one until it fits; False, without a drop, if it cannot."""
        if newcomer.cost_bytes > self.bytes_max:
            return False
        if self._budget is not None and not self._may_rank_victims(now_ns):
            return False
        victims = self._ranked_victims(now_ns)
        newcomer.victim = victims.insert(newcomer, now_ns)
        leaving: list[Entry] = []
        messages = self.messages_queued - self._kept
        bytes_left = self.bytes_queued - self._kept_bytes + newcomer.cost_bytes
        while messages >= self.messages_max or bytes_left > self.bytes_max:
            node = victims.best(now_ns, None)
            assert node is not None, "a full queue has something to drop"
            victims.remove(node)
            entry = node.entry
            entry.victim = None
            if entry is newcomer:
                for spared in leaving:
                    spared.victim = victims.insert(spared, now_ns)
                return False
            leaving.append(entry)
            messages -= 1
            bytes_left -= entry.cost_bytes
        for entry in leaving:
            self.drop(entry, _reason_for_room(entry, now_ns))
        return True

    def _ranked_victims(self, now_ns: int) -> Ranking:
        victims = self._victims
        if victims is None:
            victims = Ranking(LeastWorth(self.strategy), self.link, newest_first=True)
            for entry in self.entries():
                if not entry.is_kept:
                    entry.victim = victims.insert(entry, now_ns)
            self._victims = victims
        return victims

    def _in_order(self, chosen: Entry, now_ns: int) -> Entry:
        """Return the entry to send so that the flow of the chosen one keeps its order.

        That is the oldest of the flow. But if the strategy weighs worth, an old entry that is worth
        noticeably less than the chosen one is dropped: otherwise an overloaded flow would send only
        messages that are about to be late. One without a time limit never is late. One that has most of its
        time left may be of a short burst that is sent in time as a whole, which a queue that gives up young
        entries does not wait for.
        """
        chain = chosen.chain
        if chain is None:
            return chosen
        gives_up = self.strategy.weighs_worth and not chosen.ordered
        least = -1.0
        while True:
            head = chain.head
            assert head is not None, "the chosen entry is in its chain"
            if head is chosen or not gives_up:
                return head
            if head.ordered or head.drop_ns == NEVER_NS:
                return head
            if not (self._is_fresh and self._gives_up_young) and now_ns < _give_up_ns(head):
                return head
            if least < 0.0:
                least = expected_gain(chosen, float(now_ns - chosen.published_ns)) / GIVE_UP_RATIO
            if expected_gain(head, float(now_ns - head.published_ns)) >= least:
                return head
            self.drop(head, Reason.REPLACED)

    def _learn_size(self, size: float, now_ns: int) -> None:
        """Update the mean message size; change FT, and rank anew, only after a drift."""
        if self._sizes < _SIZES_MAX:
            self._sizes += 1
        self._size_mean += (size - self._size_mean) / float(self._sizes)
        self._pushes_since_first += 1
        if self.link.first_ns > 0.0:
            # At least half as many pushes as entries are between two rankings: each push pays for two.
            if self._pushes_since_first < max(_SIZE_CHECK_PUSHES, self.messages_queued // 2):
                return
            known = self.link.first_ns / self.link.mean_ns_per_byte
            if abs(self._size_mean - known) <= _SIZE_DRIFT * known or not self._may_visit_all(_SIZE):
                return
        self._set_first()
        self._rank_anew(now_ns)

    def _set_first(self) -> None:
        self.link.first_ns = self._size_mean * self.link.mean_ns_per_byte
        self._pushes_since_first = 0

    def _rank_anew(self, now_ns: int) -> None:
        for lane in self.lanes:
            lane.ranking.rebuild(self.strategy, now_ns)
        if self._victims is not None:
            self._victims.rebuild(LeastWorth(self.strategy), now_ns)

    def _check(self) -> None:
        """Assert that the queue is consistent."""
        waiting = self.entries()
        assert len(waiting) == self.messages_queued, "the count of entries is off"
        assert sum(entry.cost_bytes for entry in waiting) == self.bytes_queued, "the count of bytes is off"
        kept = [entry for entry in waiting if entry.is_kept]
        assert len(kept) == self.kept_messages(), "the count of kept entries is off"
        assert sum(entry.cost_bytes for entry in kept) == self.kept_bytes(), "the count of kept bytes is off"
        assert self.messages_queued - len(kept) <= self.messages_max, "too many messages"
        assert self.bytes_queued - self.kept_bytes() <= self.bytes_max, "too many bytes"
        dropped = sum(self.dropped_by_reason.values())
        assert self.pushed == self.popped + dropped + self.messages_queued, "an entry went missing"
        for lane in self.lanes:
            lane.ranking._check()
            lane.untimed._check()
        self._timers._check()
        if self._victims is not None:
            self._victims._check()
            assert len(self._victims) == self.messages_queued - len(kept), "an entry cannot be evicted"
        chained = 0
        for chain in self._chains.values():
            entry = chain.head
            assert entry is not None, "an empty chain is kept"
            while entry is not None:
                chained += 1
                follower = entry.flow_next
                assert follower is None or follower.sequence > entry.sequence, "a flow is out of order"
                entry = follower
        for backlog in self._backlogs.values():
            backlog._check()
        if self._single is None:
            assert chained == sum(entry.flow is not None for entry in waiting), "an entry left its flow"


def _give_up_ns(entry: Entry) -> int:
    """Return from when on an entry with a time limit may be dropped for a newer one of its flow."""
    return entry.published_ns + int(GIVE_UP_AGE * float(entry.drop_ns - entry.published_ns))


def _reason_for_room(entry: Entry, now_ns: int) -> Reason:
    """Return why an entry leaves a full queue: it may be late and not dropped for that yet."""
    return entry.drop_reason if entry.drop_ns <= now_ns else Reason.QUEUE_FULL


def _by_sequence(entry: Entry) -> int:
    return entry.sequence
