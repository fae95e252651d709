"""The link to one neighbour broker: an outlet with the homes it reaches and its queueing delay.

A `Reach` holds the delay from here over this link to one home: that of the path, and a share of the queueing
delays of the brokers on it, as the neighbour's delay report gives them. What a message is worth to a group of
subscriptions over this link follows from it.
"""

from __future__ import annotations

import math
from typing import Final

from timebound.core.link.outlet import PACKET_ID_MAX, Outlet
from timebound.core.link.queue import LinkQueue
from timebound.core.link.scheduling import DEFAULT_SCHEDULING, Scheduling
from timebound.core.link.strategy.audience import SCALE_FLOOR_NS, Audience, Term
from timebound.core.link.transit import Transit
from timebound.core.mesh.border import OPEN_BORDER, Border
from timebound.core.mesh.figures import LossMeter
from timebound.core.mesh.message import Copy, CopyPack
from timebound.core.mesh.pressure import ROOM, Gauge
from timebound.core.mesh.table import HomeGroup
from timebound.core.values.delay import KILOBYTE, NS_PER_S, LinkDelay, Path, phi
from timebound.core.values.message import Message

# Audiences of single groups that a link caches; beyond this many the cache is cleared.
AUDIENCES_MAX: Final = 20_000
# Weight of one message's queueing delay in the mean of the link.
_QUEUE_DELAY_STEP: Final = 0.1
# Weight of one message in the means of worth and of allowed time: about fifty messages count.
_WORTH_STEP: Final = 0.02
# Messages ahead, at most, that congestion counts; beyond them only the share of the allowed time counts.
_AHEAD_MOST: Final = 3.0
# A neighbour answers a hello at once, so few slow answers show that the path is slow.
HELLOS_SLOW: Final = 2
# A link counts as carrying copies with a time limit for this time after the last one.
TIMED_NS: Final = 10 * NS_PER_S
# Changes of a reported queueing delay below this many messages' sending times are ignored.
_QUEUE_DELAY_DRIFT: Final = 0.25
_NS_PER_BYTE: Final = NS_PER_S / KILOBYTE
# What a broker's name counts in a pack, beyond the two that every copy has room for.
NAME_BYTES: Final = 128


class Reach:
    """The delay over one link to one home: times in ns, rates in ns per byte.

    `passed` has a bit for each broker on the path. Each stands for one link, so the united bits of several
    homes count the links that a message for all of them passes.
    """

    __slots__ = ("_last_mile_ns", "_path", "_paths", "deviation", "fixed", "mean", "passed")

    def __init__(self, path: Path, queue: LinkQueue, queue_delay_ns: int, passed: int) -> None:
        self.passed = passed
        link = queue.link
        # The queueing delay joins the last mile: neither depends on the size.
        whole = Path(path.mean_s_per_kb, path.variance, path.brokers, path.last_mile_ns + queue_delay_ns)
        self._paths: dict[int, Path] = {0: whole}  # by the subscriber's own last mile
        self._path = whole  # of the last call: most subscribers are alike
        self._last_mile_ns = 0
        self.mean = link.mean_ns_per_byte + path.mean_s_per_kb * _NS_PER_BYTE
        self.deviation = math.sqrt(link.variance + path.variance * _NS_PER_BYTE * _NS_PER_BYTE)
        self.fixed = float(path.brokers * link.processing_ns + queue_delay_ns) + link.margin

    def path(self, last_mile_ns: int) -> Path:
        """Return the path beyond the link to subscribers with this last mile."""
        if last_mile_ns != self._last_mile_ns:
            known = self._paths.get(last_mile_ns)
            if known is None:
                path = self._paths[0]
                known = Path(
                    path.mean_s_per_kb, path.variance, path.brokers, path.last_mile_ns + last_mile_ns
                )
                self._paths[last_mile_ns] = known
            self._path = known
            self._last_mile_ns = last_mile_ns
        return self._path

    def worth(self, group: HomeGroup, message: Message, size: float, age: float) -> float:
        """Return the expected gain of sending to a group over this link now: Σ (price + penalty)·success."""
        scale = size * self.deviation
        if scale < SCALE_FLOOR_NS:
            scale = SCALE_FLOOR_NS
        spent = self.fixed + size * self.mean + age
        total = 0.0
        for term in group.terms:
            allowed = math.inf
            if term.deadline_ns:
                allowed = float(term.deadline_ns)
            if message.timeout_ns and message.timeout_ns < allowed:
                allowed = float(message.timeout_ns)
            chance = 1.0
            if allowed < math.inf:
                chance = phi((allowed - float(term.last_mile_ns) - spent) / scale)
            total += (term.price + term.penalty) * chance
        return total


class MeshLink(Outlet[Copy | CopyPack | None]):
    """The link to one neighbour broker, as the forwarder schedules it; its `scheduled` always exists.

    In flight are copies, packs of them, and None for a hello. A link that packs may take several copies
    before its driver reports room again: `credit` bytes of them.
    """

    __slots__ = (
        "_audiences",
        "_levels_beyond",
        "_pack",
        "_packs",
        "_queue_delays_beyond",
        "allowed_ns",
        "border",
        "credit",
        "gauge",
        "is_busy",
        "is_confirmed",
        "is_fast",
        "is_fresh",
        "is_listed",
        "is_up",
        "loss",
        "name",
        "pack_bytes_max",
        "queue_delay_ns",
        "reaches",
        "size_max",
        "timed_ns",
        "transit",
        "usual_size",
        "usual_worth",
        "waiting_share",
    )

    def __init__(
        self,
        name: str,
        queue: LinkQueue,
        delay: LinkDelay,
        waiting_share: float,
        scheduling: Scheduling = DEFAULT_SCHEDULING,
        border: Border = OPEN_BORDER,
    ) -> None:
        super().__init__()
        self.name = name
        self.border = border
        self.scheduling = scheduling  # its topic classes are the lanes of the queue
        self.delay = delay
        self.scheduled = queue
        self.waiting_share = waiting_share
        self.is_busy = False  # until the driver reports room; it looks at the quota too
        self.is_confirmed = False  # the neighbour confirms copies
        self.is_fresh = False  # what is in transit is limited, and the queue sends fresh copies
        self.transit: Transit | None = None  # of the open connection, if it is limited
        self.is_up = True
        self.loss = LossMeter()
        self.size_max = 0  # of a message, in bytes; 0 = no limit
        self.pack_bytes_max = 0  # 0: the neighbour takes no packs, and each copy leaves alone
        self.credit = 0  # bytes that may be ordered before the driver reports room again
        self.is_fast = False  # waiting costs less in a publisher's socket than in the queue
        self.is_listed = False  # among the links with packs to send
        self._pack: CopyPack | None = None  # takes further copies
        self._packs: list[CopyPack] = []  # ordered and not yet taken, the open one last
        self.queue_delay_ns = 0.0  # mean of the messages sent
        self.timed_ns = -TIMED_NS  # when a copy with a time limit was queued last
        self.usual_size = 0.0  # mean of the messages sent, in bytes
        self.usual_worth = 0.0  # mean of the messages sent: expected gain per link still to pass
        self.allowed_ns = 0.0  # mean of the time the messages sent were allowed
        # By the number of a single group. Combinations of several groups hardly ever recur.
        self._audiences: dict[int, Audience] = {}
        self.reaches: dict[str, Reach] = {}  # by home
        self._queue_delays_beyond: dict[str, int] = {}  # by home, as last taken from a delay report
        self.gauge = Gauge(queue.messages_max, queue.bytes_max)  # of messages without a time limit
        self._levels_beyond: dict[str, int] = {}  # by home, as the neighbour reports; only without room

    @property
    def queue(self) -> LinkQueue:
        """The queue in which copies compete."""
        assert self.scheduled is not None, "a link always has its queue"
        return self.scheduled

    def owner(self) -> tuple[str, int]:
        return f"the link to broker {self.name!r}", 0

    def open(self, receive_maximum: int, pack_bytes_max: int = 0) -> None:
        """Start over on a new connection, on which the neighbour confirms by packet ids.

        It takes packs of at most `pack_bytes_max`, or none if that is 0.
        """
        self.inflight.clear()
        self.take_packs()
        self.pack_bytes_max = pack_bytes_max
        self.credit = 0
        self.last_packet_id = 0
        self.is_confirmed = True
        self.transit = Transit(HELLOS_SLOW) if self.is_fresh else None
        self.open_window(receive_maximum)

    def unconfirmed(self) -> list[Copy]:
        """Return the copies that were sent and may not have arrived, oldest first."""
        copies: list[Copy] = []
        for item in self.unanswered():
            if isinstance(item, CopyPack):
                copies += item.copies
            elif item is not None:
                copies.append(item)
        return copies

    def take_unconfirmed(self) -> list[Copy]:
        """Remove and return the unconfirmed copies: the connection is lost."""
        copies = self.unconfirmed()
        self.inflight.clear()
        self.take_packs()
        self.pack_bytes_max = 0
        self.credit = 0
        self.is_fast = False
        self.is_confirmed = False
        self.transit = None
        self.open_window(PACKET_ID_MAX)
        return copies

    def pack(self, copy: Copy) -> bool:
        """Add a copy to what leaves next; return whether that is the first thing since `take_packs`.

        One that is too large for a pack is the only one in its own.
        """
        size = copy.what.size_bytes + len(copy.what.message.publisher)
        names = len(copy.via)
        if copy.targets is not None:
            names += len(copy.targets)
        if names > 2:
            size += NAME_BYTES * (names - 2)
        pack = self._pack
        if pack is None or pack.size_bytes + size > self.pack_bytes_max:
            pack = self._pack = CopyPack()
            pack.packet_id = self.start(pack)
            self._packs.append(pack)
        pack.copies.append(copy)
        pack.size_bytes += size
        if self.is_listed:
            return False
        self.is_listed = True
        return True

    def take_packs(self) -> list[CopyPack]:
        """Return the packs to send now; what is ordered from here on goes into others."""
        packs = self._packs
        self._packs = []
        self._pack = None
        self.is_listed = False
        return packs

    def is_idle(self) -> bool:
        """Whether a copy can be sent now."""
        return not self.is_busy and self.send_quota > 0

    def is_held_back(self, now_ns: int) -> bool:
        """Whether copies have to wait until some that are in transit have been confirmed.

        Only a link that carries copies with a time limit is held back: nothing else can be late.
        """
        transit = self.transit
        return transit is not None and self.is_timed(now_ns) and not transit.has_room()

    def is_timed(self, now_ns: int) -> bool:
        """Whether it carries copies with a time limit."""
        return now_ns - self.timed_ns < TIMED_NS

    def forget_paths(self) -> None:
        """Clear what was computed from paths."""
        self._audiences = {}
        self.reaches = {}

    def reach(self, home: str, path: Path, passed: int) -> Reach:
        """Return the delay to a home over this link, given the path beyond it and the brokers it passes."""
        known = self.reaches.get(home)
        if known is None:
            queue_delay_ns = int(self.waiting_share * float(self._queue_delays_beyond.get(home, 0)))
            known = self.reaches[home] = Reach(path, self.queue, queue_delay_ns, passed)
        return known

    def audience(self, groups: list[HomeGroup], reaches: list[Reach]) -> Audience:
        """Return the audience of a message for these groups behind this link, given the reach of each."""
        number = groups[0].number
        if len(groups) == 1:
            known = self._audiences.get(number)
            if known is not None:
                return known
        terms: list[Term] = []
        for index in range(len(groups)):
            reach = reaches[index]
            for term in groups[index].terms:
                path = reach.path(term.last_mile_ns)
                terms.append(Term(term.deadline_ns, term.price, term.penalty, path, term.count))
        audience = Audience(terms)
        if len(groups) == 1:
            if len(self._audiences) >= AUDIENCES_MAX:
                self._audiences = {}
            self._audiences[number] = audience
        return audience

    def sending(self, size_bytes: int, waited_ns: int, now_ns: int) -> None:
        """Note that a message is being sent after waiting for `waited_ns`."""
        left = self.credit - size_bytes
        self.credit = left if left > 0 else 0
        self.is_busy = left <= 0
        self.loss.sent += 1
        self.scheduled_ns = now_ns + int(float(size_bytes) * self.queue.link.mean_ns_per_byte)
        self.queue_delay_ns += _QUEUE_DELAY_STEP * (float(waited_ns) - self.queue_delay_ns)

    def expected_queue_delay_ns(self, now_ns: int) -> float:
        """Return how long a message would wait for this link from now on."""
        if self.is_idle():
            return 0.0
        left_ns = self.scheduled_ns - now_ns
        return self.queue_delay_ns + (float(left_ns) if left_ns > 0 else 0.0)

    def congestion(self, queue_delay_beyond_ns: float) -> float:
        """Return the congestion beyond this link: (messages ahead)² times the share of allowed time waited.

        Either factor alone misleads. Many small messages ahead harm none that has time, and waiting for a
        single large one soon takes half of a short time. The square spares paths that are busy but hardly
        late. The queueing delay of this link does not count: what it sends next has been chosen as the best.
        """
        first_ns = self.queue.link.first_ns
        if self.allowed_ns <= 0.0 or first_ns <= 0.0:
            return 0.0
        ahead = min(queue_delay_beyond_ns / first_ns, _AHEAD_MOST)
        return ahead * ahead * queue_delay_beyond_ns / self.allowed_ns

    def usual_worth_of(self, size: float) -> float:
        """Return the usual worth of what is sent in the time that this many bytes take."""
        return self.usual_worth * (size / self.usual_size) if self.usual_size > 0.0 else 0.0

    def note_worth(self, worth: float, size: float, allowed_ns: float) -> None:
        """Note the worth of a message that is sent, per link of its path."""
        step = _WORTH_STEP if self.allowed_ns > 0.0 else 1.0
        self.usual_size += step * (size - self.usual_size)
        self.usual_worth += step * (worth - self.usual_worth)
        self.allowed_ns += step * (allowed_ns - self.allowed_ns)

    def update_level(self) -> bool:
        """Update the level from the queue; return whether it has changed."""
        return self.gauge.note(self.queue.kept_messages(), self.queue.kept_bytes())

    def level_to(self, home: str) -> int:
        """Return the level of the path over this link to a home."""
        beyond = self._levels_beyond.get(home, ROOM) if self._levels_beyond else ROOM
        return beyond if beyond > self.gauge.level else self.gauge.level

    def is_pressed(self) -> bool:
        """Whether any path over this link is full."""
        return self.gauge.level > ROOM or len(self._levels_beyond) > 0

    def set_levels(self, levels: dict[str, int]) -> None:
        """Store the levels that the neighbour reports for the paths beyond it."""
        self._levels_beyond = levels

    def queue_delay_beyond_ns(self, home: str) -> int:
        return self._queue_delays_beyond.get(home, 0)

    def set_queue_delays(self, delays: dict[str, int]) -> None:
        """Store the queueing delays of a delay report, where they differ enough to matter."""
        drift_ns = _QUEUE_DELAY_DRIFT * self.queue.link.first_ns
        has_moved = False
        for home, queue_delay_ns in delays.items():
            if abs(float(queue_delay_ns - self._queue_delays_beyond.get(home, 0))) > drift_ns:
                self._queue_delays_beyond[home] = queue_delay_ns
                self.reaches.pop(home, None)
                has_moved = True
        if has_moved:
            self._audiences = {}
