"""One broker of a mesh: where each message goes next, over which link, and when it is given up.

The driver says what happened (`receive`, `link_free`), then asks what to do (`take_sends`,
`take_deliveries`); nothing here knows a clock or a socket. Matching is the table's affair,
paths are the link state's, the order in a link's queue is the strategy's.

How a message finds its way is one of three routings, which `routes.py` explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from timebound.core.link.queue import SHARES, LinkQueue
from timebound.core.link.scheduling import Scheduling
from timebound.core.link.strategy.base import Strategy, expected_gain
from timebound.core.link.strategy.entry import NEVER_NS, QUEUED, Entry
from timebound.core.link.strategy.fixed import Fixed
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.message import Copy, MeshMessage, Offer, Seen, Waiting
from timebound.core.mesh.neighbour import Neighbour
from timebound.core.mesh.options import LATE, MATCH, THRIFT_MOST, LocalDelivery, MeshOptions, Send
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.pressure import EXHAUSTED, ROOM, Parking
from timebound.core.mesh.readings import endless_entry
from timebound.core.mesh.routes import Router
from timebound.core.mesh.table import HomeGroup, SubscriptionTable
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import Message
from timebound.records import Reason


class MeshBroker:
    """Decides for one broker; `links` and `table` are what it knows of the mesh."""

    __slots__ = (
        "_deliveries",
        "_is_stale",
        "_levels",
        "_seen",
        "_sends",
        "_version",
        "account",
        "links",
        "name",
        "neighbours",
        "options",
        "parking",
        "router",
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
        self.router = Router(name, links, table, options.routing)
        self.neighbours = self.router.neighbours
        self._sends: list[Send] = []
        self._deliveries: list[LocalDelivery] = []
        self._seen = Seen()
        self.parking = Parking(options.grace_ns, options.messages_max, options.bytes_max)
        self._levels: dict[str, int] = {}
        self._is_stale = False  # levels have changed since
        self._version = links.version  # for which homes were looked up last

    def add_neighbour(self, name: str, delay: LinkDelay, scheduling: Scheduling | None = None) -> None:
        """Open a queue for the link to a neighbour; `scheduling` says if it differs from the options."""
        options = self.options
        strategy = options.strategy if scheduling is None else scheduling.strategy()
        queue = LinkQueue(
            Fixed() if options.never_drops else strategy,
            delay,
            messages_max=options.messages_max,
            bytes_max=options.bytes_max,
            shares=SHARES if scheduling is None else scheduling.lane_shares(),
            epsilon=options.epsilon,
            processing_ns=options.processing_ns,
            message_bytes=options.message_bytes,
        )
        self.neighbours[name] = Neighbour(name, queue, delay, options.waiting_share, scheduling)

    def set_strategy(self, name: str, strategy: Strategy, now_ns: int) -> None:
        """Choose by another strategy what goes next over a link; all that waits stays."""
        self.neighbours[name].queue.set_strategy(strategy, now_ns)

    def publish(self, what: MeshMessage, now_ns: int) -> None:
        """A local publisher's message: count what it matches, and send it on its way."""
        self.account.published += 1
        for group in what.groups(self.table):
            self.account.open(group)
        self.receive(Copy(what, (), 0, None), now_ns)

    def refuse(self, what: MeshMessage, now_ns: int) -> None:
        """A message was published where no broker works: count it, and all that it was for, as lost."""
        self.account.published += 1
        for group in what.groups(self.table):
            self.account.open(group)
            self.account.drop(what.message, group, what.size_bytes, 0, "", 0, Reason.DISCONNECTED, now_ns)

    def receive(self, copy: Copy, now_ns: int) -> None:
        """A copy has been read and processed: deliver it here, queue it for where it goes next."""
        self.account.received += 1
        self._place(copy, now_ns)

    def link_down(self, name: str, now_ns: int, unconfirmed: Sequence[Copy] = ()) -> None:
        """A link has failed: what waits for it looks for another way. The link state knows already.

        So does what was sent over it without having been confirmed, and first: it is the oldest.
        """
        neighbour = self.neighbours[name]
        neighbour.is_up = False
        neighbour.is_busy = False
        self.note_levels(name, {})
        homeless: list[Offer] = []
        for entry in neighbour.queue.entries():
            offer = cast(Offer, entry.item)
            homeless.append(Offer(offer.waiting, name, self._without_place(offer)))
            offer.waiting.forget(offer)
            offer.groups = []
        neighbour.queue.drop_all(Reason.DISCONNECTED)
        self._drain(neighbour, now_ns)
        self.router.forget_paths()
        ordered = [send.copy for send in self._sends if send.neighbour == name]
        self._sends = [send for send in self._sends if send.neighbour != name]
        for copy in [*unconfirmed, *ordered]:
            self.send_again(copy, now_ns)
        for offer in homeless:
            if offer.groups:
                waiting = offer.waiting
                targets = {group.home for group in offer.groups}
                self._place(Copy(waiting.what, (), waiting.hops, targets), now_ns)

    def link_up(self, name: str) -> None:
        """A link works again."""
        self.neighbours[name].is_up = True

    def set_link(self, name: str, delay: LinkDelay, now_ns: int) -> None:
        """Take a new estimate of a link's delay; announcing it to the mesh is the driver's part."""
        neighbour = self.neighbours[name]
        neighbour.delay = delay
        neighbour.queue.set_link(delay, now_ns)
        neighbour.forget_paths()

    def delay_of(self, name: str) -> LinkDelay:
        """What is known of the delay of the link to a neighbour."""
        return self.neighbours[name].delay

    def crash(self, now_ns: int) -> None:
        """Lose everything that waits here."""
        for neighbour in self.neighbours.values():
            neighbour.is_busy = False
            neighbour.queue.drop_all(Reason.DISCONNECTED)
            self._drain(neighbour, now_ns)
        self._sends = []
        self._deliveries = []

    def send_again(self, copy: Copy, now_ns: int) -> None:
        """A copy went over a link that then failed, unconfirmed: send it another way."""
        self._place(Copy(copy.what, (), copy.hops, copy.targets), now_ns)

    def lose(self, copy: Copy, link: str, now_ns: int, reason: Reason = Reason.DISCONNECTED) -> None:
        """A copy was lost on its way from here, or cannot go it: count what it was for."""
        what = copy.what
        for group in what.groups(self.table):
            if copy.targets is not None and group.home in copy.targets:
                self.account.drop(what.message, group, what.size_bytes, copy.hops, link, 0, reason, now_ns)

    def link_free(self, name: str, now_ns: int) -> None:
        """A link has finished sending: take what goes next on it."""
        neighbour = self.neighbours[name]
        neighbour.is_busy = False
        if neighbour.is_up:
            self._take(neighbour, now_ns)

    def report_waits(self) -> dict[str, int]:
        """How long messages wait from here to each home, to be told to the neighbours now and then."""
        return self.router.waits()

    def note_waits(self, name: str, waits: dict[str, int]) -> None:
        """Take over what a neighbour reports."""
        self.neighbours[name].set_waits(waits)

    def levels(self) -> dict[str, int]:
        """How full the ways to homes are; those with room are left out."""
        if self._is_stale or self._version != self.links.version:
            self._is_stale = False
            self._version = self.links.version
            self._levels = self.router.levels()
            level = self.parking.gauge.level
            if level > ROOM:
                for home in self.parking.homes():
                    if self.parking.has_copies(home):
                        self._levels[home] = level
        return self._levels

    def note_levels(self, name: str, levels: dict[str, int]) -> None:
        """Take over what a neighbour says of the ways from it on."""
        self.neighbours[name].set_levels(levels)
        self._is_stale = True

    def revive(self, now_ns: int) -> None:
        """Send on what waits for homes that can be reached again."""
        for home in self.parking.homes():
            if self.router.leads_to(home):
                for copy in self.parking.take(home):
                    self._place(copy, now_ns)
                self._is_stale = True

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
        for copy in self.parking.take_gone(now_ns):
            self._is_stale = True
            targets = copy.targets
            for group in copy.what.groups(self.table):
                if targets is not None and group.home in targets:
                    self._give_up_unreachable(copy, group, now_ns)

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
        is_second = self.options.routing == MATCH and self._is_duplicate(copy)
        if is_second and self.options.drops_duplicates:
            return
        waiting = Waiting(copy, now_ns)
        for group in self.router.offer(copy, waiting):
            if not is_second:
                self._end_here(copy, group, now_ns)
        for offer in list(waiting.offers):
            self._push(offer, now_ns)
        self._start_idle(waiting, now_ns)

    def _end_here(self, copy: Copy, group: HomeGroup, now_ns: int) -> None:
        """Deliver to this broker's own subscribers; give up those to whom no way leads."""
        if group.home == self.name:
            self._deliveries.append(LocalDelivery(copy, group))
        elif (
            self.options.grace_ns
            and copy.what.message.qos
            and self.parking.put(group.home, Copy(copy.what, (), copy.hops, {group.home}), now_ns)
        ):
            self._is_stale = True
        else:
            self._give_up_unreachable(copy, group, now_ns)

    def _give_up_unreachable(self, copy: Copy, group: HomeGroup, now_ns: int) -> None:
        what = copy.what
        self.account.unreachable += len(group.subscriptions)
        self.account.drop(what.message, group, what.size_bytes, copy.hops, "", 0, Reason.DISCONNECTED, now_ns)

    # Queues.

    def _push(self, offer: Offer, now_ns: int) -> None:
        waiting = offer.waiting
        what = waiting.what
        message = what.message
        neighbour = self.neighbours[offer.neighbour]
        audience = self.router.audience(neighbour, offer.groups)
        if self.options.never_drops:
            entry = endless_entry(offer, message, what.size_bytes, audience, self.options.strategy)
        else:
            entry = Entry(
                offer,
                what.size_bytes,
                message.published_ns,
                audience,
                message.lifetime_ns(),
                message.priority,
                lane=neighbour.lane_of(message.topic),
            )
            if self.options.is_lossless and _has_time(message, offer.groups):
                if message.qos == 0 and neighbour.gauge.level == EXHAUSTED:
                    waiting.forget(offer)
                    self._lose(offer, Reason.QUEUE_FULL, now_ns)
                    return
                entry.is_kept = True
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
                value = expected_gain(entry, float(now_ns - entry.published_ns))
                if value > best_stake:
                    best_stake = value
                    best = neighbour
            if best is None:
                return
            self._take(best, now_ns)

    def _take(self, neighbour: Neighbour, now_ns: int) -> None:
        """Send the best entry of an idle link; in no other queue does it wait for the same homes then."""
        while True:
            entry = neighbour.queue.pop(now_ns)
            self._drain(neighbour, now_ns)
            if entry is None:
                return
            offer = cast(Offer, entry.item)
            waiting = offer.waiting
            waiting.forget(offer)
            groups = offer.groups
            if waiting.offers and self.options.routing == LATE:
                groups = self._better_here(offer, neighbour, now_ns)
                if not groups:
                    continue
            if self.options.is_thrifty and not self._pays(neighbour, waiting, groups, now_ns):
                self._lose(Offer(waiting, neighbour.name, groups), Reason.QUEUE_FULL, now_ns)
                continue
            self._send(neighbour, waiting, groups, now_ns)
            return

    def _send(self, neighbour: Neighbour, waiting: Waiting, groups: list[HomeGroup], now_ns: int) -> None:
        targets: set[str] | None = None
        if self.options.routing != MATCH:
            targets = {group.home for group in groups}
            if waiting.offers and self.options.routing == LATE:
                self._withdraw(waiting, targets, now_ns)
        what = waiting.what
        waited_ns = now_ns - waiting.arrived_ns
        neighbour.sending(what.size_bytes, waited_ns, now_ns)
        # Where copies may meet they may also go in circles: only the sender is named then.
        via = (self.name,) if targets is None else (*waiting.via, self.name)
        copy = Copy(what, via, waiting.hops + 1, targets)
        self._sends.append(Send(neighbour.name, copy, waited_ns))

    def _pays(self, neighbour: Neighbour, waiting: Waiting, groups: list[HomeGroup], now_ns: int) -> bool:
        """Whether these groups are worth the links that the message passes on its way to them.

        For every link that is what sending costs, and a share of what this link usually sends in the same
        time is worth, the more congested the way the larger: what is worth little leaves its place to others.
        """
        what = waiting.what
        timeout_ns = what.message.timeout_ns
        size = float(what.size_bytes)
        age = float(now_ns - what.message.published_ns)
        value = waits = allowed = 0.0
        passed = 0
        for group in groups:
            reach = self.router.reach(neighbour, group.home)
            value += reach.stake(group, what.message, size, age)
            passed |= reach.passed
            waits += float(neighbour.wait_beyond_ns(group.home))
            limit_ns = group.deadline_ns
            if not limit_ns or 0 < timeout_ns < limit_ns:
                limit_ns = timeout_ns
            if not limit_ns:
                return True  # what has no limit is never given up
            allowed += float(limit_ns)
        count = float(len(groups))
        links = float(passed.bit_count())
        share = self.options.thrift * neighbour.congestion(waits / count)
        least = self.options.send_cost + min(share, THRIFT_MOST) * neighbour.usual_worth_of(size)
        if value < least * links:
            return False
        neighbour.note_worth(value / links, size, allowed / count)
        return True

    def _better_here(self, offer: Offer, neighbour: Neighbour, now_ns: int) -> list[HomeGroup]:
        """The groups that this link should take; the others wait on for a link that suits them better.

        Another link is asked what the group would be worth there after the wait that is to be
        expected. A group that is left gives up its place in this queue.
        """
        preference = self.options.preference
        if preference <= 0.0:
            return offer.groups
        waiting = offer.waiting
        message = waiting.what.message
        size = float(waiting.what.size_bytes)
        age = float(now_ns - message.published_ns)
        rivals = [self.neighbours[other.neighbour] for other in waiting.offers]
        homes = [{group.home for group in other.groups} for other in waiting.offers]
        taken: list[HomeGroup] = []
        for group in offer.groups:
            own = self.router.reach(neighbour, group.home).stake(group, message, size, age)
            elsewhere = -1.0
            for index in range(len(rivals)):
                if group.home in homes[index]:
                    rival = rivals[index]
                    later = age + rival.expected_wait_ns(now_ns)
                    value = self.router.reach(rival, group.home).stake(group, message, size, later)
                    if value > elsewhere:
                        elsewhere = value
            if own < preference * elsewhere:
                waiting.places[group.home] -= 1
            else:
                taken.append(group)
        return taken

    def _withdraw(self, waiting: Waiting, targets: set[str], now_ns: int) -> None:
        """Take what one link has taken out of the queues of the others."""
        offers = waiting.offers
        waiting.offers = []
        for offer in offers:
            left = [group for group in offer.groups if group.home not in targets]
            if len(left) == len(offer.groups):
                waiting.offers.append(offer)
                continue
            offer.groups = []
            neighbour = self.neighbours[offer.neighbour]
            entry = offer.entry
            offer.entry = None
            assert entry is not None, "an offer waits in its queue"
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
                if self.options.is_lossless and neighbour.weigh():
                    self._is_stale = True
                return
            offer = cast(Offer, entry.item)
            if offer.groups:
                offer.waiting.forget(offer)
                self._give_up(offer, entry, now_ns)

    def _give_up(self, offer: Offer, entry: Entry, now_ns: int) -> None:
        """Count what was lost with an entry, less what still waits in another queue."""
        reason = entry.reason
        assert reason is not None, "a dropped entry has a reason"
        time_ns = now_ns
        if (reason == Reason.HOPELESS or reason == Reason.TIMED_OUT) and entry.drop_ns < now_ns:
            time_ns = entry.drop_ns if entry.drop_ns > entry.pushed_ns else entry.pushed_ns
        self._lose(offer, reason, time_ns)

    def _lose(self, offer: Offer, reason: Reason, time_ns: int) -> None:
        """Account for the groups of an offer that wait in no other queue."""
        if self.options.routing == MATCH:
            return  # another copy may still arrive; what never did is counted at the end
        waiting = offer.waiting
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

    def _is_duplicate(self, copy: Copy) -> bool:
        is_new = self._seen.add(copy.what.key())
        if not is_new:
            self.account.duplicates += 1
        return not is_new


def _has_time(message: Message, groups: list[HomeGroup]) -> bool:
    """Whether a message is worth something to one of these groups however late it comes."""
    return not message.lifetime_ns() and any([not group.deadline_ns for group in groups])
