"""One broker as a member of a mesh: what it knows of the others, and what it decides for messages.

Joins `Forwarder`, which decides, with `Replica`, which knows. The driver reports what happened: a client of
this broker published or subscribed, a link came up or failed, a neighbour sent a copy or an advertisement.
Then it asks what to do: `take_sends`, `take_advertisements`. Nothing here knows a clock or a socket, so tests
and simulations drive it as the network node does.

A link keeps a copy until the neighbour has confirmed it. When it fails, unconfirmed copies go another way; a
home recognises a copy that had arrived after all.
"""

from __future__ import annotations

from typing import Final

from timebound.core.link.scheduling import Scheduling
from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.mesh.absence import Absence
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.border import OPEN_BORDER, Border
from timebound.core.mesh.figures import LinkFigures
from timebound.core.mesh.flooding import LinkStateAdvertisement, Replica
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.interest import Interest, WatchedIndex
from timebound.core.mesh.message import Copy, MeshMessage, Seen
from timebound.core.mesh.options import MeshOptions, Send
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.pressure import EXHAUSTED, ROOM
from timebound.core.mesh.table import MeshSubscription, SubscriptionTable
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.units import SECOND

# Size of a copy on the wire beside its message: framing, origin and targets.
COPY_BYTES: Final = 100
# A link's delay is advertised at most this often: every advertisement reaches every broker.
ADVERTISE_NS: Final = SECOND


class SendAdvertisement:
    """An order: send this advertisement to that neighbour."""

    __slots__ = ("advertisement", "neighbour")

    def __init__(self, neighbour: str, advertisement: LinkStateAdvertisement) -> None:
        self.neighbour = neighbour
        self.advertisement = advertisement


class Member:
    """One broker's part in the mesh."""

    __slots__ = (
        "_advertised_ns",
        "_advertisements",
        "_interest",
        "_measured",
        "_seen",
        "_size_max",
        "_started_ns",
        "absence",
        "account",
        "forwarder",
        "is_behind",
        "name",
        "pressed",
        "received",
        "replica",
        "resent",
        "table",
    )

    def __init__(
        self, name: str, options: MeshOptions, index: WatchedIndex, account: MeshAccount, started_ns: int
    ) -> None:
        self.name = name
        self._started_ns = started_ns  # names messages; that of the replica may have to grow
        self.account = account
        self.table = SubscriptionTable(index)
        link_state = LinkState()
        self.replica = Replica(name, link_state, self.table, started_ns, lists_own=False)
        self.forwarder = Forwarder(name, link_state, self.table, options, account)
        self.absence = Absence(self.replica, options.forget_after_ns)
        self.resent = 0  # copies sent again after their link failed unconfirmed
        self.received = 0  # copies from neighbours
        self.is_behind = False  # an error may have left out an advertisement: `catch_up`
        self.pressed: list[str] = []  # homes of the last message published to which all paths are full
        self._interest = Interest(index, name)
        self._advertisements: list[SendAdvertisement] = []
        self._seen = Seen()  # messages for this broker's clients
        self._size_max = NEVER_NS
        self._advertised_ns: dict[str, int] = {}  # by neighbour
        self._measured: dict[str, LinkDelay] = {}  # by neighbour, not yet advertised

    # --- links ------------------------------------------------------------------------

    def add_neighbour(
        self,
        name: str,
        delay: LinkDelay,
        scheduling: Scheduling | None = None,
        border: Border = OPEN_BORDER,
    ) -> None:
        """Add a link that may come up; `delay` is its estimate until it is measured."""
        self.forwarder.add_neighbour(name, delay, scheduling, border)
        self.forwarder.links[name].is_up = False

    def link_up(self, name: str, now_ns: int, size_max: int = 0) -> None:
        """Take a link into use: send the neighbour everything known, and advertise the link to the others.

        The link takes messages of at most `size_max` bytes; 0 = no limit.
        """
        self.forwarder.links[name].size_max = size_max
        for advertisement in self.replica.snapshot():
            self._advertisements.append(SendAdvertisement(name, advertisement))
        self.forwarder.link_up(name)
        self._measure_sizes()
        self._advertise_link(name, self.forwarder.delay_of(name), now_ns)

    def link_down(self, name: str, now_ns: int) -> int:
        """Withdraw a failed link, and send again what may not have arrived; return how many copies."""
        self._measured.pop(name, None)
        self._advertisements = [send for send in self._advertisements if send.neighbour != name]
        self._flood(self.replica.set_link(name, None), "")
        if (self.name, name) in self.replica.figures:
            self._flood(self.replica.set_figures(name, None), "")
        resent = self.forwarder.link_down(name, now_ns)
        self.resent += resent
        self._measure_sizes()
        return resent

    def _measure_sizes(self) -> None:
        """Update the smallest limit of all working links: almost every message is below it."""
        sizes = [one.size_max for one in self.forwarder.links.values() if one.is_up and one.size_max]
        self._size_max = min(sizes, default=NEVER_NS)

    def advertised(self, subscription: Subscription) -> MeshSubscription:
        """Return a subscription of this broker's clients as advertised to the mesh."""
        return self._interest.advertised(subscription)

    def measured(self, name: str, delay: LinkDelay, now_ns: int) -> None:
        """Use a measured delay at once, and advertise it at most every ADVERTISE_NS."""
        self.forwarder.set_link(name, delay, now_ns)
        if now_ns - self._advertised_ns.get(name, 0) >= ADVERTISE_NS:
            self._advertise_link(name, delay, now_ns)
        else:
            self._measured[name] = delay

    def _advertise_link(self, name: str, delay: LinkDelay, now_ns: int) -> None:
        self._advertised_ns[name] = now_ns
        self._flood(self.replica.set_link(name, delay), "")

    def report(self, name: str, latency_ns: int, now_ns: int) -> None:
        """Advertise how a link is doing, if that has changed; called from time to time."""
        link = self.forwarder.links[name]
        share = link.loss.take_share()
        delay_ns = int(link.expected_queue_delay_ns(now_ns))
        figures = LinkFigures(len(link.queue), delay_ns, max(latency_ns, 0), share)
        earlier = self.replica.figures.get((self.name, name))
        if earlier is None or figures.has_moved(earlier):
            self._flood(self.replica.set_figures(name, figures), "")

    # --- advertisements -----------------------------------------------------------------

    def receive_advertisement(self, sender: str, advertisement: LinkStateAdvertisement) -> bool:
        """Store an advertisement from a neighbour, and pass it on if it is newer.

        Return False, and ignore it, if the neighbour may not speak for its owner.
        """
        if not self.forwarder.links[sender].border.may_speak_for(advertisement.key[1]):
            return False
        started_ns = self.replica.started_ns()
        if self.replica.receive(advertisement):
            self._flood(advertisement, sender)
        elif self.replica.started_ns() != started_ns:
            for own in self.replica.readvertise():
                self._flood(own, "")
        return True

    def _flood(self, advertisement: LinkStateAdvertisement, sender: str) -> None:
        for name, link in self.forwarder.links.items():
            if link.is_up and name != sender:
                self._advertisements.append(SendAdvertisement(name, advertisement))

    # --- messages -----------------------------------------------------------------------

    def publish(self, message: Message, now_ns: int) -> int:
        """Forward a message of this broker's own clients; return how many subscriptions elsewhere match."""
        if self.pressed:
            self.pressed = []
        if not self.table.may_match(message.topic):
            return 0
        what = MeshMessage(message, self.name, message.size() + COPY_BYTES, self._started_ns)
        count = 0
        for group in what.groups(self.table):
            count += len(group.subscriptions)
        if count:
            self.forwarder.publish(what, now_ns)
        levels = self.forwarder.levels()
        if levels and not message.promised_ns and not message.lifetime_ns():
            for group in what.groups(self.table):
                if not group.deadline_ns and group.home in levels:
                    self.pressed.append(group.home)
        if not message.qos and self.forwarder.stalled:
            self.pressed += self.forwarder.brake()
        return count

    def full(self) -> dict[str, int]:
        """Return what publishers wait for: brokers without room, and links that QoS 0 finds busy."""
        levels = self.forwarder.levels()
        braked = self.forwarder.braked
        return {**levels, **braked} if braked else levels

    def refusal(self, message: Message) -> str:
        """Return why a message that is acknowledged cannot be accepted; empty if it can.

        Messages with a time limit may be dropped on their way, and an admitted flow has its room guaranteed.
        """
        levels = self.forwarder.levels()
        is_large = message.size() > self._size_max
        if not levels and not is_large:
            return ""
        is_patient = not message.promised_ns and not message.lifetime_ns()
        for group in self.table.match(message):
            home = group.home
            if is_patient and not group.deadline_ns and levels.get(home, ROOM) == EXHAUSTED:
                return f"the links to broker {home!r} are full (mesh.queue_messages_max)"
            if is_large and not self.forwarder.router.carries(home, message.size()):
                return f"no link to broker {home!r} takes {message.size()} bytes (its packet_size_max)"
        return ""

    def lets_in(self, sender: str, copy: Copy) -> bool:
        """Whether a copy may come from this neighbour."""
        return self.forwarder.links[sender].border.lets_in(copy)

    def refuse(self, sender: str, copy: Copy, now_ns: int) -> None:
        """Drop a copy that may not come from its sender."""
        self.received += 1
        self.forwarder.lose(copy, sender, now_ns, Reason.NOT_AUTHORIZED)

    def receive(self, copy: Copy, now_ns: int) -> bool:
        """Take a copy from a neighbour; return whether to deliver it to clients of this broker."""
        self.received += 1
        targets = copy.targets
        assert targets is not None, "a copy between members names the homes it is for"
        is_for_here = self.name in targets
        what = copy.what
        if is_for_here and not self._seen.add(what.origin, what.started_ns, what.number):
            self.account.duplicates += 1
            is_for_here = False
        if is_for_here and len(targets) == 1:
            self.account.received += 1
        elif targets != {self.name}:
            try:
                self.forwarder.receive(Copy(what, copy.via, copy.hops, targets - {self.name}), now_ns)
            except Exception as error:  # the clients of this broker get it nevertheless
                self.forwarder.note_error(error)
        return is_for_here

    def is_home_of(self, copy: Copy) -> bool:
        """Whether a copy is for clients of this broker."""
        return copy.targets is not None and self.name in copy.targets

    def link_free(self, name: str, now_ns: int) -> None:
        """Send the next copy over a link that is free."""
        self.forwarder.link_free(name, now_ns)

    # --- orders -------------------------------------------------------------------------

    def take_sends(self) -> list[Send]:
        """Return copies to send now; the links used are busy until `link_free`."""
        return self.forwarder.take_sends()

    def take_advertisements(self) -> list[SendAdvertisement]:
        """Return advertisements to send to neighbours, in order."""
        try:
            changes = self._interest.take()
        except Exception as error:
            self._fall_behind(error)
            changes = []
        for subscription, is_wanted in changes:
            try:
                self._advertise(subscription, is_wanted)
            except Exception as error:  # concerns one subscription
                self._fall_behind(error)
        sends = self._advertisements
        if sends:
            self._advertisements = []
        return sends

    def _advertise(self, subscription: MeshSubscription, is_wanted: bool) -> None:
        if is_wanted:
            self._flood(self.replica.subscribe(subscription), "")
        else:
            self._flood(self.replica.unsubscribe(subscription.client_id, subscription.topic_filter), "")

    def _fall_behind(self, error: Exception) -> None:
        self.is_behind = True
        self.forwarder.note_error(error)

    def catch_up(self) -> None:
        """Advertise again, after an error, what the clients of this broker want and no longer want."""
        self.is_behind = False
        wanted = self._interest.all()
        known: dict[tuple[str, str], MeshSubscription] = {}
        for advertisement in self.replica.own():
            if advertisement.subscription is not None:
                known[(advertisement.key[2], advertisement.key[3])] = advertisement.subscription
        for key in known:
            if key not in wanted:
                self.replica.unsubscribe(*key)
        for key, subscription in wanted.items():
            if key not in known or known[key].terms != subscription.terms:
                self.replica.subscribe(subscription)
        for advertisement in self.replica.own():
            self._flood(advertisement, "")

    def wake(self, now_ns: int) -> list[str]:
        """Drop what can no longer arrive, and advertise measured delays; called about once a second.

        Return the brokers that were gone for so long that they are forgotten.
        """
        self.forwarder.wake(now_ns)
        for name in list(self._measured):
            if now_ns - self._advertised_ns.get(name, 0) >= ADVERTISE_NS:
                self._advertise_link(name, self._measured.pop(name), now_ns)
        return self.absence.patrol(now_ns)
