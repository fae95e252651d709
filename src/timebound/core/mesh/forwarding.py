"""The forwarder of one mesh broker: where each message goes next, over which link, and when it is dropped.

The driver reports what happened (`receive`, `link_free`), then asks what to do (`take_sends`,
`take_deliveries`); nothing here knows a clock or a socket. The table matches, the link state finds paths,
the strategy orders a link's queue, and `routes.py` chooses the links that a message may take.

Long, since every step of a message works on the same copies in transit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import cast

from timebound.core.link.due import DueList
from timebound.core.link.outlet import time_of_drop
from timebound.core.link.queue import SHARES, LinkQueue
from timebound.core.link.scheduling import DEFAULT_SCHEDULING, Scheduling
from timebound.core.link.strategy.base import Strategy, expected_gain
from timebound.core.link.strategy.entry import NEVER_NS, QUEUED, Entry, link_flow_key
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.border import OPEN_BORDER, Border
from timebound.core.mesh.link import MeshLink
from timebound.core.mesh.message import Copy, InTransit, MeshMessage, Placement
from timebound.core.mesh.options import LATE, THRIFT_MOST, LocalDelivery, MeshOptions, Send
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.pressure import BRAKE, EXHAUSTED, FULL, ROOM, Parking
from timebound.core.mesh.routes import HOPS_MAX, Router
from timebound.core.mesh.table import HomeGroup, SubscriptionTable
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import Message
from timebound.records import Reason


class Forwarder:
    """Forward messages for one broker; `link_state` and `table` are what it knows of the mesh."""

    __slots__ = (
        "_deliveries",
        "_is_local",
        "_is_released",
        "_is_stale",
        "_levels",
        "_packing",
        "_passed",
        "_sends",
        "_version",
        "account",
        "braked",
        "due",
        "link_state",
        "links",
        "name",
        "on_error",
        "options",
        "parking",
        "router",
        "stalled",
        "table",
    )

    def __init__(
        self,
        name: str,
        link_state: LinkState,
        table: SubscriptionTable,
        options: MeshOptions,
        account: MeshAccount,
    ) -> None:
        self.name = name
        self.due = DueList()  # until its broker has one for all outlets
        self.on_error: Callable[[Exception], None] | None = None  # about one message; None: raise it
        self.link_state = link_state
        self.table = table
        self.options = options
        self.account = account
        self.router = Router(name, link_state, table, options.routing)
        self.links = self.router.links
        self._sends: list[Send] = []
        # Fast links that the last message has to wait for; and those that QoS 0 publishers wait for.
        self.stalled: list[str] = []
        self.braked: dict[str, int] = {}
        self._is_local = False  # the message under way was published here
        self._is_released = False  # one of them has room again
        self._passed = (name,)  # by a copy that was published here
        self._packing: list[MeshLink] = []  # links with packs to send
        self._deliveries: list[LocalDelivery] = []
        self.parking = Parking(options.grace_ns, options.messages_max, options.bytes_max)
        self._levels: dict[str, int] = {}
        self._is_stale = False  # levels have changed since
        self._version = link_state.version  # for which homes were looked up last

    def add_neighbour(
        self,
        name: str,
        delay: LinkDelay,
        scheduling: Scheduling | None = None,
        border: Border = OPEN_BORDER,
    ) -> None:
        """Open a queue for the link to a neighbour; `scheduling` replaces the strategy of the options."""
        options = self.options
        strategy = options.strategy if scheduling is None else scheduling.strategy()
        queue = LinkQueue(
            strategy,
            delay,
            messages_max=options.messages_max,
            bytes_max=options.bytes_max,
            shares=SHARES if scheduling is None else scheduling.lane_shares(),
            epsilon=options.epsilon,
            processing_ns=options.processing_ns,
            message_bytes=options.message_bytes,
            wants_fresh=options.keeps_fresh,
            gives_up_young=False,  # two messages of a flow may be for different brokers
        )
        topics = scheduling if scheduling is not None else DEFAULT_SCHEDULING
        link = MeshLink(name, queue, delay, options.waiting_share, topics, border)
        link.is_fresh = options.keeps_fresh
        self.links[name] = link

    def share_due(self, due: DueList) -> None:
        """Have the links woken with the other outlets of the broker."""
        self.due = due
        for link in self.links.values():
            link.is_touched = False
            due.touch(link)

    def set_strategy(self, name: str, strategy: Strategy, now_ns: int) -> None:
        """Change the strategy of a link; its queue is kept."""
        self.links[name].queue.set_strategy(strategy, now_ns)

    def publish(self, what: MeshMessage, now_ns: int) -> None:
        """Take a local publisher's message: count what it matches, and forward it."""
        self.account.published += 1
        if self.stalled:
            self.stalled = []
        groups = what.groups(self.table)
        for group in groups:
            self.account.open(group)
        if len(groups) == 1 and self._pass(what, groups[0], (), 0, now_ns):
            self.account.received += 1
        else:
            self._is_local = True
            try:
                self.receive(Copy(what, (), 0, None), now_ns)
            finally:
                self._is_local = False

    def refuse(self, what: MeshMessage, now_ns: int) -> None:
        """Count a message that was published while this broker is down, and all its pairs as dropped."""
        self.account.published += 1
        for group in what.groups(self.table):
            self.account.open(group)
            self.account.drop(what.message, group, what.size_bytes, 0, "", 0, Reason.DISCONNECTED, now_ns)

    def receive(self, copy: Copy, now_ns: int) -> None:
        """Take a copy that has been read: deliver it here, and queue it for its next hops."""
        self.account.received += 1
        targets = copy.targets
        if targets is not None and len(targets) == 1:
            for group in copy.what.groups(self.table):
                if group.home in targets:
                    if self._pass(copy.what, group, copy.via, copy.hops, now_ns):
                        return
                    break
        self._place(copy, now_ns)

    def _pass(
        self, what: MeshMessage, group: HomeGroup, via: tuple[str, ...], hops: int, now_ns: int
    ) -> bool:
        """Order a copy at once, where placing and queueing it would come to the same; False: they may not.

        One link leads to its home, that link is idle, and nothing waits for it; nor can the copy be late.
        """
        link = self.router.only_link(group.home)
        if link is None or not link.pack_bytes_max or not link.is_idle() or len(link.queue):
            return False
        message = what.message
        is_timed = not group.is_patient or message.timeout_ns or message.expires_ns
        if is_timed or not link.is_up or not link.border.is_open or self.options.is_thrifty:
            return False
        if via and (link.name in via or hops >= HOPS_MAX):
            return False
        link.queue.pass_by(float(what.size_bytes), now_ns)
        link.sending(what.size_bytes, 0, now_ns)
        self._dispatch(link, Copy(what, self._via(via), hops + 1, group.targets), 0)
        return True

    def link_down(self, name: str, now_ns: int) -> int:
        """Route what waits for a failed link another way; the link state knows of the failure already.

        What was sent and not confirmed goes first, as the oldest; return how many copies that are.
        """
        link = self.links[name]
        link.is_up = False
        link.is_busy = False
        self._release(name)
        self.note_levels(name, {})
        homeless: list[Placement] = []
        for entry in link.queue.entries():
            placement = cast(Placement, entry.item)
            homeless.append(Placement(placement.transit, name, self._without_place(placement)))
            placement.transit.forget(placement)
            placement.groups = []
        link.queue.drop_all(Reason.DISCONNECTED)
        self._drain(link, now_ns)
        self.router.forget_paths()
        ordered = [send.copy for send in self._sends if send.neighbour == name]
        self._sends = [send for send in self._sends if send.neighbour != name]
        again = link.take_unconfirmed() if link.is_confirmed else ordered
        for copy in again:
            self.send_again(copy, now_ns)
        for placement in homeless:
            if placement.groups:
                transit = placement.transit
                targets = {group.home for group in placement.groups}
                self._place(Copy(transit.what, (), transit.hops, targets), now_ns)
        return len(again) - len(ordered)

    def link_up(self, name: str) -> None:
        """Note that a link works again."""
        self.links[name].is_up = True

    def set_link(self, name: str, delay: LinkDelay, now_ns: int) -> None:
        """Set a new estimate of a link's delay; advertising it to the mesh is the driver's part."""
        link = self.links[name]
        link.delay = delay
        link.queue.set_link(delay, now_ns)
        link.forget_paths()
        self.due.touch(link)

    def set_margin(self, name: str, margin_ns: int, now_ns: int) -> None:
        """Set the time that messages take behind the socket of a link, beside the time of sending."""
        link = self.links[name]
        link.queue.set_margin(margin_ns, now_ns)
        link.forget_paths()
        self.due.touch(link)

    def delay_of(self, name: str) -> LinkDelay:
        """Return the delay of the link to a neighbour, as last estimated."""
        return self.links[name].delay

    def crash(self, now_ns: int) -> None:
        """Drop everything that waits here."""
        for link in self.links.values():
            link.is_busy = False
            link.queue.drop_all(Reason.DISCONNECTED)
            self._drain(link, now_ns)
        self._sends = []
        self._deliveries = []

    def send_again(self, copy: Copy, now_ns: int) -> None:
        """Forward a copy again that was sent over a link that failed before the neighbour confirmed it."""
        self._place(Copy(copy.what, (), copy.hops, copy.targets), now_ns)

    def abandon(self, send: Send, reason: Reason, now_ns: int) -> None:
        """Drop a copy that was ordered and cannot be sent."""
        if send.packet_id:
            self.links[send.neighbour].confirm(send.packet_id)
        self.lose(send.copy, send.neighbour, now_ns, reason)

    def lose(self, copy: Copy, link: str, now_ns: int, reason: Reason = Reason.DISCONNECTED) -> None:
        """Count the pairs of a copy that was lost after it left, or cannot be sent."""
        what = copy.what
        for group in what.groups(self.table):
            if copy.targets is not None and group.home in copy.targets:
                self.account.drop(what.message, group, what.size_bytes, copy.hops, link, 0, reason, now_ns)

    def link_free(self, name: str, now_ns: int) -> None:
        """Send the next message over a link that has finished sending, and more as far as its credit goes."""
        link = self.links[name]
        link.is_busy = False
        if not link.is_up:
            return
        while link.is_idle() and len(link.queue):
            self._take(link, now_ns)
        if self.braked and link.is_idle():
            self._release(name)
        if link.is_timed(now_ns):
            link.credit = 0  # what comes later competes until the driver has looked at the link again

    def brake(self) -> list[str]:
        """Have the publisher of the last message wait for the links it found busy; return what it waits for.

        It sends QoS 0 faster than a fast link takes it. In its socket messages wait at no cost and in order.
        """
        for name in self.stalled:
            self.braked[name] = FULL
        return self.stalled

    def _release(self, name: str) -> None:
        if self.braked.pop(BRAKE + name, ROOM):
            self._is_released = True

    def take_released(self) -> bool:
        """Whether publishers that were braked may go on, since the last call."""
        is_released = self._is_released
        self._is_released = False
        return is_released

    def delay_report(self) -> dict[str, int]:
        """Return the queueing delays from here to each home, for the neighbours."""
        return self.router.queue_delays()

    def receive_delay_report(self, name: str, report: dict[str, int]) -> None:
        """Store a neighbour's delay report."""
        self.links[name].set_queue_delays(report)

    def levels(self) -> dict[str, int]:
        """Return how full the paths to homes are; homes with room are left out."""
        if self._is_stale or self._version != self.link_state.version:
            self._is_stale = False
            self._version = self.link_state.version
            self._levels = self.router.levels()
            level = self.parking.gauge.level
            if level > ROOM:
                for home in self.parking.homes():
                    if self.parking.has_copies(home):
                        self._levels[home] = level
        return self._levels

    def note_levels(self, name: str, levels: dict[str, int]) -> None:
        """Store how full a neighbour's own paths are."""
        self.links[name].set_levels(levels)
        self._is_stale = True

    def revive(self, now_ns: int) -> None:
        """Forward what is parked for homes that can be reached again."""
        for home in self.parking.homes():
            if self.router.leads_to(home):
                for copy in self.parking.take(home):
                    self._place(copy, now_ns)
                self._is_stale = True

    def take_sends(self) -> list[Send]:
        """Return what to send now; the links used are busy until `link_free`."""
        sends = self._sends
        if sends:
            self._sends = []
        return sends

    def take_packing(self) -> list[MeshLink]:
        """Return the links with packs to send now (`MeshLink.take_packs`)."""
        packing = self._packing
        if packing:
            self._packing = []
        return packing

    def take_deliveries(self) -> list[LocalDelivery]:
        """Return what has arrived for subscribers of this broker."""
        deliveries = self._deliveries
        if deliveries:
            self._deliveries = []
        return deliveries

    def wake(self, now_ns: int) -> None:
        """Drop what can no longer arrive in time."""
        for link in self.links.values():
            self._drain(link, now_ns)
        for copy in self.parking.take_gone(now_ns):
            self._is_stale = True
            targets = copy.targets
            for group in copy.what.groups(self.table):
                if targets is not None and group.home in targets:
                    self._give_up_unreachable(copy, group, now_ns)

    def drop_due(self, link: MeshLink, copies_max: int, now_ns: int) -> int:
        """Drop what can no longer arrive over a link that is due; return how much, some if it is much."""
        link.queue.expire_some(copies_max, now_ns)
        return self._count_dropped(link, now_ns)

    def waiting_messages(self) -> int:
        """Return the entries in all queues; a message in several queues counts in each."""
        return sum([len(link.queue) for link in self.links.values()])

    # Where a message goes.

    def _place(self, copy: Copy, now_ns: int) -> None:
        transit = InTransit(copy, now_ns)
        for group in self.router.place(copy, transit):
            self._end_here(copy, group, now_ns)
        self._queue(transit, now_ns)

    def _queue(self, transit: InTransit, now_ns: int) -> None:
        """Queue a message for the links it was placed on, and send it over those that are idle."""
        for placement in list(transit.placements):
            self._push(placement, now_ns)
        self._start_idle(transit, now_ns)

    def _end_here(self, copy: Copy, group: HomeGroup, now_ns: int) -> None:
        """Deliver to this broker's own subscribers; park or drop what no link leads to."""
        if group.home == self.name:
            self._deliveries.append(LocalDelivery(copy, group))
        elif self.router.is_barred(group.home, copy):
            what = copy.what
            self.account.drop(
                what.message, group, what.size_bytes, copy.hops, "", 0, Reason.NOT_AUTHORIZED, now_ns
            )
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

    def _push(self, placement: Placement, now_ns: int, place: int = -1) -> None:
        """Queue a placement, last or in the place of another one: `place` is the sequence of that."""
        link = self.links[placement.neighbour]
        entry = self._make_entry(placement, link)
        message = placement.transit.what.message
        if self.options.is_lossless and _is_untimed(message, placement.groups):
            if message.qos == 0 and link.gauge.level == EXHAUSTED:
                placement.transit.forget(placement)
                self._lose(placement, Reason.QUEUE_FULL, now_ns)
                return
            entry.is_kept = True
        placement.entry = entry
        link.queue.push(entry, now_ns, place)
        if self._is_local and entry.is_kept and link.is_fast and not link.is_idle():
            self.stalled.append(BRAKE + link.name)
        if entry.drop_ns < NEVER_NS:
            link.timed_ns = now_ns
        self._drain(link, now_ns)

    def _make_entry(self, placement: Placement, link: MeshLink) -> Entry:
        what = placement.transit.what
        message = what.message
        return Entry(
            placement,
            what.size_bytes,
            message.published_ns,
            self.router.audience(link, placement.groups),
            message.lifetime_ns(),
            message.priority,
            flow=self._flow_of(message),
            lane=link.scheduling.lane_of(message.topic),
        )

    def _flow_of(self, message: Message) -> Hashable:
        if not self.options.keeps_order:
            return None
        return link_flow_key(message.publisher, message.topic, message.qos, message.timeout_ns)

    def _start_idle(self, transit: InTransit, now_ns: int) -> None:
        """Send the message over idle links, first over the one for which it is worth most."""
        while True:
            best: MeshLink | None = None
            best_stake = -1.0
            for placement in transit.placements:
                entry = placement.entry
                if entry is None or entry.state != QUEUED:
                    continue
                link = self.links[placement.neighbour]
                if not link.is_up or not link.is_idle():
                    continue
                value = expected_gain(entry, float(now_ns - entry.published_ns))
                if value > best_stake:
                    best_stake = value
                    best = link
            if best is None:
                return
            self._take(best, now_ns)

    def _take(self, link: MeshLink, now_ns: int) -> None:
        """Send the best entry of an idle link, and withdraw it from other queues for the same homes."""
        while True:
            entry = link.queue.pop(now_ns)
            self._drain(link, now_ns)
            if entry is None:
                return
            placement = cast(Placement, entry.item)
            placement.transit.forget(placement)
            try:
                if self._send_best(placement, link, now_ns):
                    return
            except Exception as error:  # concerns one message; the link has to carry the others
                link.is_busy = False
                self.note_error(error)
                self._lose(placement, Reason.FAULT, now_ns)

    def note_error(self, error: Exception) -> None:
        """Report an internal error that concerns one message."""
        if self.on_error is None:
            raise error
        self.on_error(error)

    def _send_best(self, placement: Placement, link: MeshLink, now_ns: int) -> bool:
        """Send what was chosen over a link; return False if it is better not sent there."""
        transit = placement.transit
        groups = placement.groups
        if transit.placements and self.options.routing == LATE:
            groups = self._better_here(placement, link, now_ns)
            if not groups:
                return False
        if self.options.is_thrifty and not self._pays(link, transit, groups, now_ns):
            self._lose(Placement(transit, link.name, groups), Reason.QUEUE_FULL, now_ns)
            return False
        self._send(link, transit, groups, now_ns)
        return True

    def _send(self, link: MeshLink, transit: InTransit, groups: list[HomeGroup], now_ns: int) -> None:
        # Shared where it can be: a pack then sees at once that two copies go the same way.
        targets = groups[0].targets if len(groups) == 1 else {group.home for group in groups}
        copy = self._make_copy(transit, targets)
        if transit.placements and self.options.routing == LATE:
            self._withdraw(transit, targets, now_ns)
        waited_ns = now_ns - transit.arrived_ns
        link.sending(transit.what.size_bytes, waited_ns, now_ns)
        self._dispatch(link, copy, waited_ns)

    def _dispatch(self, link: MeshLink, copy: Copy, waited_ns: int) -> None:
        """Order a copy to be sent: with QoS 0 in a pack, where the neighbour takes them.

        What is acknowledged to its publisher goes alone. In packs it comes faster than the clients of its
        home acknowledge it, and would be dropped there.
        """
        if link.pack_bytes_max and not copy.what.message.qos:
            if link.pack(copy):
                self._packing.append(link)
            return
        packet_id = link.start(copy) if link.is_confirmed else 0
        self._sends.append(Send(link.name, copy, waited_ns, packet_id))

    def _make_copy(self, transit: InTransit, targets: set[str]) -> Copy:
        return Copy(transit.what, self._via(transit.via), transit.hops + 1, targets)

    def _via(self, before: tuple[str, ...]) -> tuple[str, ...]:
        """Return the brokers that a copy has passed when it leaves here."""
        return (*before, self.name) if before else self._passed

    def _pays(self, link: MeshLink, transit: InTransit, groups: list[HomeGroup], now_ns: int) -> bool:
        """Whether these groups are worth the links that the message passes to reach them.

        Each link costs `send_cost`, and a share of the usual worth that it sends in the same time. The share
        grows with the congestion of the path, so that messages of little worth leave room for others.
        """
        what = transit.what
        timeout_ns = what.message.timeout_ns
        size = float(what.size_bytes)
        age = float(now_ns - what.message.published_ns)
        value = delays = allowed = 0.0
        passed = 0
        for group in groups:
            reach = self.router.reach(link, group.home)
            value += reach.worth(group, what.message, size, age)
            passed |= reach.passed
            delays += float(link.queue_delay_beyond_ns(group.home))
            limit_ns = group.deadline_ns
            if not limit_ns or 0 < timeout_ns < limit_ns:
                limit_ns = timeout_ns
            if not limit_ns:
                return True  # without a limit it is never dropped
            allowed += float(limit_ns)
        count = float(len(groups))
        links = float(passed.bit_count())
        share = self.options.thrift * link.congestion(delays / count)
        least = self.options.send_cost + min(share, THRIFT_MOST) * link.usual_worth_of(size)
        if value < least * links:
            return False
        link.note_worth(value / links, size, allowed / count)
        return True

    def _better_here(self, placement: Placement, link: MeshLink, now_ns: int) -> list[HomeGroup]:
        """Return the groups that this link should take; the others wait for a link that suits them better.

        A group leaves this queue if it would be worth clearly more over another link, even after the
        queueing delay expected there.
        """
        preference = self.options.preference
        if preference <= 0.0:
            return placement.groups
        transit = placement.transit
        message = transit.what.message
        size = float(transit.what.size_bytes)
        age = float(now_ns - message.published_ns)
        rivals = [self.links[other.neighbour] for other in transit.placements]
        homes = [{group.home for group in other.groups} for other in transit.placements]
        taken: list[HomeGroup] = []
        for group in placement.groups:
            own = self.router.reach(link, group.home).worth(group, message, size, age)
            elsewhere = -1.0
            for index in range(len(rivals)):
                if group.home in homes[index]:
                    rival = rivals[index]
                    later = age + rival.expected_queue_delay_ns(now_ns)
                    value = self.router.reach(rival, group.home).worth(group, message, size, later)
                    if value > elsewhere:
                        elsewhere = value
            if own < preference * elsewhere:
                transit.places[group.home] -= 1
            else:
                taken.append(group)
        return taken

    def _withdraw(self, transit: InTransit, targets: set[str], now_ns: int) -> None:
        """Remove what one link has taken from the queues of the others."""
        placements = transit.placements
        transit.placements = []
        for placement in placements:
            left = [group for group in placement.groups if group.home not in targets]
            if len(left) == len(placement.groups):
                transit.placements.append(placement)
                continue
            placement.groups = []
            link = self.links[placement.neighbour]
            entry = placement.entry
            placement.entry = None
            assert entry is not None, "a placement is in its queue"
            link.queue.drop(entry, Reason.REPLACED)
            if left:
                smaller = Placement(transit, placement.neighbour, left)
                transit.placements.append(smaller)
                # Of its flow, what came later must not overtake what is left.
                self._push(smaller, now_ns, entry.sequence if self.options.keeps_order else -1)
            else:
                self._drain(link, now_ns)

    def _drain(self, link: MeshLink, now_ns: int) -> None:
        """Drop what can no longer arrive over a link, and count what its queue has dropped."""
        link.queue.expire(now_ns)
        self._count_dropped(link, now_ns)

    def _count_dropped(self, link: MeshLink, now_ns: int) -> int:
        """Count the pairs of what a queue has dropped; return how many entries that were."""
        count = 0
        while (entry := link.queue.next_dropped()) is not None:
            count += 1
            placement = cast(Placement, entry.item)
            if placement.groups:
                link.loss.dropped += 1
                placement.transit.forget(placement)
                reason = entry.reason
                assert reason is not None, "a dropped entry has a reason"
                self._lose(placement, reason, time_of_drop(entry, now_ns))
        if self.options.is_lossless and link.update_level():
            self._is_stale = True
        self.due.touch(link)
        return count

    def _lose(self, placement: Placement, reason: Reason, time_ns: int) -> None:
        """Count as dropped the groups of a placement that wait in no other queue."""
        transit = placement.transit
        what = transit.what
        for group in self._without_place(placement):
            self.account.drop(
                what.message,
                group,
                what.size_bytes,
                transit.hops,
                placement.neighbour,
                time_ns - transit.arrived_ns,
                reason,
                time_ns,
            )

    def _without_place(self, placement: Placement) -> list[HomeGroup]:
        """Take a placement's groups out of their count of queues; return those that are now in none."""
        places = placement.transit.places
        lost: list[HomeGroup] = []
        for group in placement.groups:
            left = places[group.home] - 1
            places[group.home] = left
            if not left:
                lost.append(group)
        return lost


def _is_untimed(message: Message, groups: list[HomeGroup]) -> bool:
    """Whether a message has no time limit, and one of these groups has none either."""
    return not message.lifetime_ns() and any([not group.deadline_ns for group in groups])
