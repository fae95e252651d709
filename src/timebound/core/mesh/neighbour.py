"""One link of a mesh broker: its queue, what lies beyond it, and how long messages wait for it.

A `Reach` says what it takes to get from here over this link to one home: the delay of the path,
and a share of the time that messages have been waiting at the brokers on it, as the neighbour
reports it. What a group of subscriptions is worth over this link follows from that.
"""

from __future__ import annotations

import math
from typing import Final

from timebound.core.link.queue import LinkQueue
from timebound.core.link.scheduling import Scheduling
from timebound.core.link.strategy.audience import SCALE_FLOOR_NS, Audience, Term
from timebound.core.mesh.pressure import ROOM, Gauge
from timebound.core.mesh.table import HomeGroup
from timebound.core.values.delay import KILOBYTE, NS_PER_S, LinkDelay, Path, phi
from timebound.core.values.message import Message

# Audiences of single groups kept for reuse per link; beyond this many they start over.
AUDIENCES_MAX: Final = 20_000
# How much one message's waiting time moves the link's mean.
_WAIT_STEP: Final = 0.1
# How much one message moves the link's mean of worth and of time allowed: that of some fifty counts.
_WORTH_STEP: Final = 0.02
# More messages ahead than this say no more about a way. Beyond it only the part of the time waited counts.
_AHEAD_MOST: Final = 3.0
# Reported waits that moved less than this many messages' sending times change nothing here.
_WAIT_DRIFT: Final = 0.25
_NS_PER_BYTE: Final = NS_PER_S / KILOBYTE


class Reach:
    """From here over one link to one home: times are ns, rates ns per byte.

    `passed` has a bit for each broker on the way. One broker is one link there, so the bits of several
    homes together count the links that a message for all of them passes.
    """

    __slots__ = ("_last_mile_ns", "_path", "_paths", "deviation", "fixed", "mean", "passed")

    def __init__(self, path: Path, queue: LinkQueue, wait_ns: int, passed: int) -> None:
        self.passed = passed
        link = queue.link
        # The waiting time joins the last mile: both come to it whatever the size.
        whole = Path(path.mean_s_per_kb, path.variance, path.brokers, path.last_mile_ns + wait_ns)
        self._paths: dict[int, Path] = {0: whole}  # by the subscriber's own last mile
        self._path = whole  # as last asked for: most subscribers are alike
        self._last_mile_ns = 0
        self.mean = link.mean_ns_per_byte + path.mean_s_per_kb * _NS_PER_BYTE
        self.deviation = math.sqrt(link.variance + path.variance * _NS_PER_BYTE * _NS_PER_BYTE)
        self.fixed = float(path.brokers * link.processing_ns + wait_ns)

    def path(self, last_mile_ns: int) -> Path:
        """The whole way beyond the link to subscribers with this last mile."""
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

    def stake(self, group: HomeGroup, message: Message, size: float, age: float) -> float:
        """What sending now over this link is expected to gain from a group: Σ (price + penalty)·success."""
        scale = size * self.deviation
        if scale < SCALE_FLOOR_NS:
            scale = SCALE_FLOOR_NS
        spent = self.fixed + size * self.mean + age
        total = 0.0
        for share in group.shares:
            allowed = math.inf
            if share.deadline_ns:
                allowed = float(share.deadline_ns)
            if message.timeout_ns and message.timeout_ns < allowed:
                allowed = float(message.timeout_ns)
            chance = 1.0
            if allowed < math.inf:
                chance = phi((allowed - float(share.last_mile_ns) - spent) / scale)
            total += (share.price + share.penalty) * chance
        return total


class Neighbour:
    """The link to one neighbour broker."""

    __slots__ = (
        "_audiences",
        "_levels_beyond",
        "_scheduling",
        "_waits_beyond",
        "allowed_ns",
        "delay",
        "free_ns",
        "gauge",
        "is_busy",
        "is_up",
        "name",
        "queue",
        "reaches",
        "size_max",
        "usual_size",
        "usual_worth",
        "wait_ns",
        "waiting_share",
    )

    def __init__(
        self,
        name: str,
        queue: LinkQueue,
        delay: LinkDelay,
        waiting_share: float,
        scheduling: Scheduling | None = None,
    ) -> None:
        self.name = name
        self._scheduling = scheduling  # whose classes of topics have lanes in the queue
        self.delay = delay  # as last told to the queue
        self.queue = queue
        self.waiting_share = waiting_share
        self.is_busy = False
        self.is_up = True
        self.size_max = 0  # of messages that it takes, in bytes; 0 = any
        self.free_ns = 0  # when it is expected to be free, if busy
        self.wait_ns = 0.0  # mean time that what was sent had waited here
        self.usual_size = 0.0  # of what was sent, in bytes
        self.usual_worth = 0.0  # mean of what was sent: expected to earn, for each link still to pass
        self.allowed_ns = 0.0  # mean of the time that it was allowed
        # Of a single group, by its number. Messages for several groups hardly ever meet the same ones again.
        self._audiences: dict[int, Audience] = {}
        self.reaches: dict[str, Reach] = {}  # by home
        self._waits_beyond: dict[str, int] = {}  # by home, as last taken over from the neighbour
        self.gauge = Gauge(queue.messages_max, queue.bytes_max)  # of what waits without a time limit
        self._levels_beyond: dict[str, int] = {}  # by home, as the neighbour says; where there is no room

    def lane_of(self, topic: str) -> int:
        """The lane of a topic's class in the queue; -1 for what is in none."""
        return self._scheduling.lane_of(topic) if self._scheduling is not None else -1

    def forget_paths(self) -> None:
        """What was worked out from paths no longer holds."""
        self._audiences = {}
        self.reaches = {}

    def reach(self, home: str, path: Path, passed: int) -> Reach:
        """What it takes to get to a home over this link, by the way beyond it and the brokers on it."""
        known = self.reaches.get(home)
        if known is None:
            wait_ns = int(self.waiting_share * float(self._waits_beyond.get(home, 0)))
            known = self.reaches[home] = Reach(path, self.queue, wait_ns, passed)
        return known

    def audience(self, groups: list[HomeGroup], reaches: list[Reach]) -> Audience:
        """Whom a message for these groups has behind this link; each group comes with its reach."""
        number = groups[0].number
        if len(groups) == 1:
            known = self._audiences.get(number)
            if known is not None:
                return known
        terms: list[Term] = []
        for index in range(len(groups)):
            reach = reaches[index]
            for share in groups[index].shares:
                path = reach.path(share.last_mile_ns)
                terms.append(Term(share.deadline_ns, share.price, share.penalty, path, share.count))
        audience = Audience(terms)
        if len(groups) == 1:
            if len(self._audiences) >= AUDIENCES_MAX:
                self._audiences = {}
            self._audiences[number] = audience
        return audience

    def sending(self, size_bytes: int, waited_ns: int, now_ns: int) -> None:
        """A message that waited so long is being sent."""
        self.is_busy = True
        self.free_ns = now_ns + int(float(size_bytes) * self.queue.link.mean_ns_per_byte)
        self.wait_ns += _WAIT_STEP * (float(waited_ns) - self.wait_ns)

    def expected_wait_ns(self, now_ns: int) -> float:
        """How long a message would wait for this link from now."""
        if not self.is_busy:
            return 0.0
        left_ns = self.free_ns - now_ns
        return self.wait_ns + (float(left_ns) if left_ns > 0 else 0.0)

    def congestion(self, wait_beyond_ns: float) -> float:
        """How congested the way beyond this link is: messages ahead squared, times part of the time waited.

        Either alone misleads. Many small messages ahead of one harm nobody who has time, and half of a short
        time is soon waited for a single large one; the square leaves alone what is busy but hardly late.
        The wait for this link does not count: whatever it sends next has already been chosen as the best.
        """
        first_ns = self.queue.link.first_ns
        if self.allowed_ns <= 0.0 or first_ns <= 0.0:
            return 0.0
        ahead = min(wait_beyond_ns / first_ns, _AHEAD_MOST)
        return ahead * ahead * wait_beyond_ns / self.allowed_ns

    def usual_worth_of(self, size: float) -> float:
        """What is usually sent in the time that this many bytes take."""
        return self.usual_worth * (size / self.usual_size) if self.usual_size > 0.0 else 0.0

    def note_worth(self, worth: float, size: float, allowed_ns: float) -> None:
        """A message is sent that is worth so much for each link of its way."""
        step = _WORTH_STEP if self.allowed_ns > 0.0 else 1.0
        self.usual_size += step * (size - self.usual_size)
        self.usual_worth += step * (worth - self.usual_worth)
        self.allowed_ns += step * (allowed_ns - self.allowed_ns)

    def weigh(self) -> bool:
        """Look at the queue; whether its level has changed."""
        return self.gauge.note(self.queue.kept_messages(), self.queue.kept_bytes())

    def level_to(self, home: str) -> int:
        """How full the way over this link to a home is."""
        beyond = self._levels_beyond.get(home, ROOM) if self._levels_beyond else ROOM
        return beyond if beyond > self.gauge.level else self.gauge.level

    def is_pressed(self) -> bool:
        """Whether some way over this link is full."""
        return self.gauge.level > ROOM or len(self._levels_beyond) > 0

    def set_levels(self, levels: dict[str, int]) -> None:
        """Take over what the neighbour says of the ways from it on."""
        self._levels_beyond = levels

    def wait_beyond_ns(self, home: str) -> int:
        return self._waits_beyond.get(home, 0)

    def set_waits(self, waits: dict[str, int]) -> None:
        """Take over what the neighbour reports, where it differs enough to matter."""
        drift_ns = _WAIT_DRIFT * self.queue.link.first_ns
        has_moved = False
        for home, wait_ns in waits.items():
            if abs(float(wait_ns - self._waits_beyond.get(home, 0))) > drift_ns:
                self._waits_beyond[home] = wait_ns
                self.reaches.pop(home, None)
                has_moved = True
        if has_moved:
            self._audiences = {}
