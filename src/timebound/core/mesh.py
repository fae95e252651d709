"""One broker of a mesh: where each message goes next, over which link, and when it is given up.

The driver says what happened (`receive`, `link_free`), then asks what to do (`take_sends`,
`take_deliveries`); nothing here knows a clock or a socket. Matching is the table's affair,
paths are the link state's, the order in a link's queue is the strategy's.

How a message finds its way is one of three routings:

* `TREE`: along the path tree of its origin, so that no broker gets it twice;
* `LATE`: it waits in the queues of all links that lead nearer to a subscriber, and the link
  that takes it first binds the path; the copy names the homes it is for;
* `MATCH`: every broker matches again and sends to all next hops, so that copies may meet.
"""

from __future__ import annotations

from typing import Final, cast

from timebound.core.delay import LinkDelay, Path
from timebound.core.mesh_account import MeshAccount
from timebound.core.mesh_message import Copy, MeshMessage, Offer, Waiting
from timebound.core.mesh_table import HomeGroup, SubscriptionTable
from timebound.core.queue import EPSILON, LinkQueue
from timebound.core.routing import LinkState
from timebound.core.strategy.base import Strategy, stake
from timebound.core.strategy.entry import DIRECT, NEVER_NS, QUEUED, Audience, Entry, Term
from timebound.records import Reason

TREE: Final = 0
LATE: Final = 1
MATCH: Final = 2

# Audiences kept for reuse per link; beyond this many they start over.
AUDIENCES_MAX: Final = 20_000
# Link states that contradict each other for a moment can send a message in a circle; not for long.
HOPS_MAX: Final = 64
# How many messages a broker remembers to tell a second copy from the first.
SEEN_MAX: Final = 65_536


class MeshOptions:
    """How a broker of the mesh decides; the same for all its links."""

    __slots__ = (
        "drops_duplicates",
        "epsilon",
        "message_bytes",
        "messages_max",
        "processing_ns",
        "routing",
        "strategy",
    )

    def __init__(
        self,
        strategy: Strategy,
        *,
        routing: int = LATE,
        epsilon: float = EPSILON,
        processing_ns: int = 0,
        message_bytes: int = 0,
        messages_max: int = 10_000,
        drops_duplicates: bool = True,
    ) -> None:
        self.strategy = strategy
        self.routing = routing
        self.epsilon = epsilon
        self.processing_ns = processing_ns
        self.message_bytes = message_bytes  # behind FT; 0 learns it
        self.messages_max = messages_max
        self.drops_duplicates = drops_duplicates  # of MATCH only: the others have none


class Neighbour:
    """The link to one neighbour broker: its queue, and whether something is being sent."""

    __slots__ = ("audiences", "is_busy", "is_up", "name", "queue")

    def __init__(self, name: str, queue: LinkQueue) -> None:
        self.name = name
        self.queue = queue
        self.is_busy = False
        self.is_up = True
        self.audiences: dict[tuple[int, ...], Audience] = {}  # by the numbers of the groups


class Send:
    """An order to the driver: send this copy to that neighbour now, and say when the link is free."""

    __slots__ = ("copy", "neighbour", "queued_ns")

    def __init__(self, neighbour: str, copy: Copy, queued_ns: int) -> None:
        self.neighbour = neighbour
        self.copy = copy
        self.queued_ns = queued_ns


class LocalDelivery:
    """A message has reached the broker of these subscribers."""

    __slots__ = ("copy", "group")

    def __init__(self, copy: Copy, group: HomeGroup) -> None:
        self.copy = copy
        self.group = group


class MeshBroker:
    """Decides for one broker; `links` and `table` are what it knows of the mesh."""

    __slots__ = (
        "_deliveries",
        "_seen",
        "_sends",
        "_version",
        "account",
        "links",
        "name",
        "neighbours",
        "options",
        "table",
    )

    def __init__(
        self,
        name: str,
        links: LinkState,
        table: SubscriptionTable,
        options: MeshOptions,
        account: MeshAccount,
    ) -> None:
        self.name = name
        self.links = links
        self.table = table
        self.options = options
        self.account = account
        self.neighbours: dict[str, Neighbour] = {}
        self._sends: list[Send] = []
        self._deliveries: list[LocalDelivery] = []
        self._seen: dict[int, None] = {}
        self._version = links.version

    def add_neighbour(self, name: str, delay: LinkDelay) -> None:
        """Open a queue for the link to a neighbour."""
        options = self.options
        queue = LinkQueue(
            options.strategy,
            delay,
            messages_max=options.messages_max,
            epsilon=options.epsilon,
            processing_ns=options.processing_ns,
            message_bytes=options.message_bytes,
        )
        self.neighbours[name] = Neighbour(name, queue)

    def publish(self, what: MeshMessage, now_ns: int) -> None:
        """A local publisher's message: count what it matches, and send it on its way."""
        self.account.published += 1
        for group in what.groups(self.table):
            self.account.open(group)
        self.receive(Copy(what, "", 0, None), now_ns)

    def receive(self, copy: Copy, now_ns: int) -> None:
        """A copy has been read and processed: deliver it here, queue it for where it goes next."""
        self.account.received += 1
        self._place(copy, now_ns)

    def link_down(self, name: str, now_ns: int) -> None:
        """A link has failed: what waits for it looks for another way. The link state knows already."""
        neighbour = self.neighbours[name]
        neighbour.is_up = False
        neighbour.is_busy = False
        homeless: list[Offer] = []
        for entry in neighbour.queue.entries():
            offer = cast(Offer, entry.item)
            homeless.append(Offer(offer.waiting, name, self._without_place(offer)))
            offer.groups = []
        neighbour.queue.drop_all(Reason.DISCONNECTED)
        self._drain(neighbour, now_ns)
        self._forget_paths()
        for offer in homeless:
            if offer.groups:
                waiting = offer.waiting
                targets = {group.home for group in offer.groups}
                self._place(Copy(waiting.what, "", waiting.hops, targets), now_ns)

    def link_up(self, name: str) -> None:
        """A link works again."""
        self.neighbours[name].is_up = True

    def set_link(self, name: str, delay: LinkDelay, now_ns: int) -> None:
        """Take a new estimate of a link's delay; announcing it to the mesh is the driver's part."""
        self.neighbours[name].queue.set_link(delay, now_ns)

    def crash(self, now_ns: int) -> None:
        """Lose everything that waits here."""
        for neighbour in self.neighbours.values():
            neighbour.is_busy = False
            neighbour.queue.drop_all(Reason.DISCONNECTED)
            self._drain(neighbour, now_ns)
        self._sends = []
        self._deliveries = []

    def lose(self, copy: Copy, link: str, now_ns: int) -> None:
        """A copy was lost on its way from here: count what it was for."""
        what = copy.what
        for group in what.groups(self.table):
            if copy.targets is not None and group.home in copy.targets:
                self.account.drop(
                    what.message, group, what.size_bytes, copy.hops, link, 0, Reason.DISCONNECTED, now_ns
                )

    def link_free(self, name: str, now_ns: int) -> None:
        """A link has finished sending: take what goes next on it."""
        neighbour = self.neighbours[name]
        neighbour.is_busy = False
        if neighbour.is_up:
            self._take(neighbour, now_ns)

    def take_sends(self) -> list[Send]:
        """What to send now; the links concerned are busy until `link_free`."""
        sends = self._sends
        if sends:
            self._sends = []
        return sends

    def take_deliveries(self) -> list[LocalDelivery]:
        """What has arrived for subscribers of this broker."""
        deliveries = self._deliveries
        if deliveries:
            self._deliveries = []
        return deliveries

    def wake(self, now_ns: int) -> None:
        """Give up what can no longer arrive in time."""
        for neighbour in self.neighbours.values():
            self._drain(neighbour, now_ns)

    def next_wakeup_ns(self) -> int | None:
        """When something has to be given up if nothing else happens."""
        nearest = NEVER_NS
        for neighbour in self.neighbours.values():
            wakeup_ns = neighbour.queue.next_wakeup_ns()
            if wakeup_ns is not None and wakeup_ns < nearest:
                nearest = wakeup_ns
        return None if nearest == NEVER_NS else nearest

    def waiting_messages(self) -> int:
        """Entries in all queues; a message that waits in several counts in each."""
        return sum([len(neighbour.queue) for neighbour in self.neighbours.values()])

    # Where a message goes.

    def _place(self, copy: Copy, now_ns: int) -> None:
        if self._version != self.links.version:
            self._forget_paths()
        waiting = Waiting(copy.what, copy.hops, now_ns)
        routing = self.options.routing
        if routing == LATE:
            self._offer_late(copy, waiting)
        elif routing == TREE:
            self._offer_single(copy, waiting)
        else:
            self._offer_again(copy, waiting)
        for offer in waiting.offers:
            self._push(offer, now_ns)
        self._start_idle(waiting, now_ns)

    def _offer_single(self, copy: Copy, waiting: Waiting) -> None:
        """One way per home: along the path tree of the origin while it leads there, else the best."""
        what = copy.what
        targets = copy.targets
        ways = self.links.tree(what.origin).ways_from(self.name)
        by_neighbour: dict[str, list[HomeGroup]] = {}
        for group in what.groups(self.table):
            home = group.home
            if targets is not None and home not in targets:
                continue
            way = ways.get(home)
            if way is None and home != self.name and copy.hops < HOPS_MAX:
                way = self.links.tree(self.name).ways_from(self.name).get(home)
            if way is not None and self.neighbours[way.neighbour].is_up:
                _add(by_neighbour, way.neighbour, group)
                waiting.places[home] = 1
            else:
                self._end_here(copy, group, waiting.arrived_ns)
        for name, groups in by_neighbour.items():
            waiting.offers.append(Offer(waiting, name, groups))

    def _offer_again(self, copy: Copy, waiting: Waiting) -> None:
        """Every matching next hop as this broker sees it, whoever else sends there."""
        ways = self.links.tree(self.name).ways_from(self.name)
        is_second = self._is_duplicate(copy)
        if is_second and self.options.drops_duplicates:
            return
        by_neighbour: dict[str, list[HomeGroup]] = {}
        for group in copy.what.groups(self.table):
            way = ways.get(group.home)
            if way is None:
                if group.home == self.name and not is_second:
                    self._deliveries.append(LocalDelivery(copy, group))
            elif way.neighbour != copy.sender and self.neighbours[way.neighbour].is_up:
                _add(by_neighbour, way.neighbour, group)
        for name, groups in by_neighbour.items():
            waiting.offers.append(Offer(waiting, name, groups))

    def _offer_late(self, copy: Copy, waiting: Waiting) -> None:
        """All ways that lead nearer: the message waits for each of them."""
        downhill = self.links.downhill(self.name)
        targets = copy.targets
        by_neighbour: dict[str, list[HomeGroup]] = {}
        for group in copy.what.groups(self.table):
            home = group.home
            if targets is not None and home not in targets:
                continue
            ways = downhill.get(home)
            places = 0
            if ways is not None and copy.hops < HOPS_MAX:
                for way in ways:
                    if way.neighbour != copy.sender and self.neighbours[way.neighbour].is_up:
                        places += 1
                        _add(by_neighbour, way.neighbour, group)
            if places:
                waiting.places[home] = places
            else:
                self._end_here(copy, group, waiting.arrived_ns)
        for name, groups in by_neighbour.items():
            waiting.offers.append(Offer(waiting, name, groups))

    def _end_here(self, copy: Copy, group: HomeGroup, now_ns: int) -> None:
        """Deliver to this broker's own subscribers; give up those to whom no way leads."""
        if group.home == self.name:
            self._deliveries.append(LocalDelivery(copy, group))
            return
        what = copy.what
        self.account.unreachable += len(group.subscriptions)
        self.account.drop(what.message, group, what.size_bytes, copy.hops, "", 0, Reason.DISCONNECTED, now_ns)

    # Queues.

    def _push(self, offer: Offer, now_ns: int) -> None:
        waiting = offer.waiting
        what = waiting.what
        message = what.message
        neighbour = self.neighbours[offer.neighbour]
        entry = Entry(
            offer,
            what.size_bytes,
            message.published_ns,
            self._audience(neighbour, offer.groups),
            message.timeout_ns,
            message.priority,
        )
        offer.entry = entry
        neighbour.queue.push(entry, now_ns)
        self._drain(neighbour, now_ns)

    def _start_idle(self, waiting: Waiting, now_ns: int) -> None:
        """Let idle links take the message, the one first for which it is worth most."""
        while True:
            best: Neighbour | None = None
            best_stake = -1.0
            for offer in waiting.offers:
                entry = offer.entry
                if entry is None or entry.state != QUEUED:
                    continue
                neighbour = self.neighbours[offer.neighbour]
                if neighbour.is_busy or not neighbour.is_up:
                    continue
                value = stake(entry, float(now_ns - entry.published_ns))
                if value > best_stake:
                    best_stake = value
                    best = neighbour
            if best is None:
                return
            self._take(best, now_ns)

    def _take(self, neighbour: Neighbour, now_ns: int) -> None:
        """Send the best entry of an idle link; in no other queue does it wait for the same homes then."""
        entry = neighbour.queue.pop(now_ns)
        self._drain(neighbour, now_ns)
        if entry is None:
            return
        offer = cast(Offer, entry.item)
        waiting = offer.waiting
        targets: set[str] | None = None
        if self.options.routing != MATCH:
            targets = {group.home for group in offer.groups}
            if self.options.routing == LATE:
                self._withdraw(waiting, offer, targets, now_ns)
        neighbour.is_busy = True
        copy = Copy(waiting.what, self.name, waiting.hops + 1, targets)
        self._sends.append(Send(neighbour.name, copy, now_ns - waiting.arrived_ns))

    def _withdraw(self, waiting: Waiting, taken: Offer, targets: set[str], now_ns: int) -> None:
        """Take what one link has taken out of the queues of the others."""
        if waiting.waits_once():
            return
        offers = waiting.offers
        waiting.offers = []
        for offer in offers:
            entry = offer.entry
            if offer is taken or entry is None or entry.state != QUEUED:
                continue
            left = [group for group in offer.groups if group.home not in targets]
            if len(left) == len(offer.groups):
                waiting.offers.append(offer)
                continue
            offer.groups = []
            neighbour = self.neighbours[offer.neighbour]
            neighbour.queue.drop(entry, Reason.REPLACED)
            if left:
                smaller = Offer(waiting, offer.neighbour, left)
                waiting.offers.append(smaller)
                self._push(smaller, now_ns)
            else:
                self._drain(neighbour, now_ns)

    def _drain(self, neighbour: Neighbour, now_ns: int) -> None:
        """Account for what a queue has dropped."""
        queue = neighbour.queue
        while True:
            entry = queue.pop_dropped(now_ns)
            if entry is None:
                return
            offer = cast(Offer, entry.item)
            if offer.groups:
                self._give_up(offer, entry, now_ns)

    def _give_up(self, offer: Offer, entry: Entry, now_ns: int) -> None:
        """Count what was lost with an entry, less what still waits in another queue."""
        waiting = offer.waiting
        reason = entry.reason
        assert reason is not None, "a dropped entry has a reason"
        time_ns = now_ns
        if (reason == Reason.HOPELESS or reason == Reason.TIMED_OUT) and entry.drop_ns < now_ns:
            time_ns = entry.drop_ns if entry.drop_ns > entry.pushed_ns else entry.pushed_ns
        if self.options.routing == MATCH:
            return  # another copy may still arrive; what never did is counted at the end
        what = waiting.what
        for group in self._without_place(offer):
            self.account.drop(
                what.message,
                group,
                what.size_bytes,
                waiting.hops,
                offer.neighbour,
                time_ns - waiting.arrived_ns,
                reason,
                time_ns,
            )

    def _without_place(self, offer: Offer) -> list[HomeGroup]:
        """Take an offer's groups out of their count of places; those that now wait nowhere."""
        places = offer.waiting.places
        lost: list[HomeGroup] = []
        for group in offer.groups:
            left = places[group.home] - 1
            places[group.home] = left
            if not left:
                lost.append(group)
        return lost

    # What a message is worth behind a link.

    def _audience(self, neighbour: Neighbour, groups: list[HomeGroup]) -> Audience:
        known = neighbour.audiences
        key = tuple([group.number for group in groups])
        audience = known.get(key)
        if audience is None:
            if len(known) >= AUDIENCES_MAX:
                known.clear()
            audience = Audience(self._terms(neighbour.name, groups))
            known[key] = audience
        return audience

    def _terms(self, name: str, groups: list[HomeGroup]) -> list[Term]:
        terms: list[Term] = []
        downhill = self.links.downhill(self.name)
        for group in groups:
            path = DIRECT
            for way in downhill.get(group.home, []):
                if way.neighbour == name:
                    path = way.path
            for share in group.shares:
                way_there = _with_last_mile(path, share.last_mile_ns)
                terms.append(Term(share.deadline_ns, share.price, share.penalty, way_there, share.count))
        return terms

    def _forget_paths(self) -> None:
        """The overlay has changed: what was worked out from its paths no longer holds."""
        self._version = self.links.version
        for neighbour in self.neighbours.values():
            neighbour.audiences = {}

    def _is_duplicate(self, copy: Copy) -> bool:
        seen = self._seen
        sequence = copy.what.message.sequence
        if sequence in seen:
            self.account.duplicates += 1
            return True
        if len(seen) >= SEEN_MAX:
            del seen[next(iter(seen))]
        seen[sequence] = None
        return False


def _with_last_mile(path: Path, last_mile_ns: int) -> Path:
    if last_mile_ns == path.last_mile_ns:
        return path
    return Path(path.mean_s_per_kb, path.variance, path.brokers, last_mile_ns)


def _add(by_neighbour: dict[str, list[HomeGroup]], name: str, group: HomeGroup) -> None:
    known = by_neighbour.get(name)
    if known is None:
        by_neighbour[name] = [group]
    else:
        known.append(group)
