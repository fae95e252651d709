"""The state of one client, connected or not.

A session is an outlet that also owns its subscriptions, the packet ids of its client, and the deliveries
waiting to be sent. It does not enforce storage or the limits of the broker: `outbound` and
`lifecycle` do, and only they change it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, cast

from mypy_extensions import mypyc_attr

from timebound.core.link.outlet import Outlet
from timebound.core.link.strategy.audience import Audience
from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.link.transit import Transit
from timebound.core.values.access import ClientAccess
from timebound.core.values.delay import LinkDelay
from timebound.core.values.filter_costs import FilterCosts
from timebound.core.values.message import ENTRY_COST, GONE, Delivery, Message, copy_cost
from timebound.core.values.subscription import Subscription

# Kinds of reply: the packet type numbers of MQTT, and 0 for a packet that the shell has encoded.
ENCODED: Final = 0
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7

NO_KEYS: Final[dict[str, bool]] = {}


@mypyc_attr(acyclic=True, free_list_len=1)
class Reply:
    """An answer to one packet of the client; `frame` is set if the shell encoded it."""

    __slots__ = ("frame", "kind", "packet_id", "reason", "reason_code")

    def __init__(
        self, kind: int, packet_id: int = 0, reason_code: int = 0, reason: str = "", frame: bytes = b""
    ) -> None:
        self.kind = kind
        self.packet_id = packet_id
        self.reason_code = reason_code
        self.reason = reason
        self.frame = frame


class Awaited:
    """An acknowledgement that is held until the links to these brokers have room again."""

    __slots__ = ("homes", "needs_disk", "reply")

    def __init__(self, reply: Reply, homes: list[str], needs_disk: bool) -> None:
        self.reply = reply
        self.homes = homes
        self.needs_disk = needs_disk  # its message goes to storage or to a journal


class Session(Outlet[Delivery]):
    """State of one client id; its `scheduled` is made when a copy with a time limit waits.

    Deliveries move queue -> (scheduled, when they compete for the link) -> (blocked, when the client's
    Receive Maximum is used up) -> inflight. `outbox` holds those that wait only for the socket;
    `resend` those of an earlier connection.
    """

    __slots__ = (
        "access",
        "audiences",
        "awaiting",
        "blocked",
        "client_id",
        "connection",
        "cost_bytes",
        "costs",
        "expires_ns",
        "expiry_interval_s",
        "gone",
        "held",
        "inbound",
        "is_behind",
        "is_durable",
        "is_full",
        "is_pressed",
        "is_ready",
        "is_relaxing",
        "last_sequence",
        "limits",
        "listener",
        "named",
        "outbox",
        "path_delay",
        "queue",
        "queue_bytes",
        "rank_ns",
        "remarks",
        "replies",
        "resend",
        "scheduled_unconfirmed",
        "slowed_by",
        "subscriptions",
        "ticks",
        "ticks_per_hour",
        "timed_subscriptions",
        "transit",
        "user",
    )

    def __init__(
        self, client_id: str, user: str, access: ClientAccess, costs: FilterCosts | None = None
    ) -> None:
        super().__init__()
        self.client_id = client_id
        self.user = user
        self.access = access
        self.connection = 0  # number of the connection that serves it; 0 = not connected
        self.expiry_interval_s = 0
        self.is_durable = False  # outlives its connection
        self.expires_ns = 0  # when it ends, while not connected; 0 = never
        self.subscriptions: dict[str, Subscription] = {}  # by key; changed only by the two methods below
        self.named: dict[str, dict[str, bool]] = {}  # keys of those with a name, by topic filter
        self.timed_subscriptions = 0  # those with a deadline or `keep=last`
        self.ticks_per_hour = 0  # of all their timers
        self.costs = FilterCosts(costs)  # of their filters; `costs` is the sum over all sessions
        self.inbound: dict[int, bool] = {}  # packet ids of QoS 2 messages not yet released
        self.queue: deque[Delivery] = deque()
        self.blocked: deque[Delivery] = deque()
        self.outbox: deque[Delivery] = deque()
        self.resend: deque[Delivery] = deque()
        self.replies: list[Reply] = []
        self.gone = 0  # copies in `queue` and `blocked` that were dropped
        # When copies of `blocked`, and of `queue` unless they are to be ranked, are late: a heap, with the
        # copy and its sequence. It may hold copies that have left.
        self.limits: list[tuple[int, int, Delivery]] = []
        self.rank_ns = NEVER_NS  # when copies of `queue` are to be ranked, where `scheduled` is set
        self.queue_bytes = 0  # of queue, scheduled and blocked, as sizes on the link
        self.cost_bytes = 0  # of these and of inflight, as memory
        self.ticks: dict[
            tuple[str, str], Message
        ] = {}  # the last tick while away, by key of the subscription and topic
        self.held = 0  # replies that wait for storage
        self.awaiting: deque[Awaited] = deque()  # acknowledgements that wait for links to other brokers
        self.slowed_by: dict[str, None] = {}  # brokers whose links have no room for its QoS 0 messages
        self.remarks: dict[int, str] = {}  # on messages that are not acknowledged yet, by packet id
        self.is_pressed = False  # `awaiting` or `slowed_by` is not empty
        self.is_ready = False  # is in the ready list
        self.is_behind = False  # is in the list of those whose queue has put something off
        self.is_full = False  # a copy was dropped for lack of room since it was last served
        self.last_sequence = 0
        self.listener = ""  # name of the listener of its connection
        self.is_relaxing = False  # `scheduled` is removed once no waiting copy needs it
        self.scheduled_unconfirmed = 0  # QoS 0 copies in `scheduled`, which are not acknowledged
        self.audiences: dict[str, Audience] = {}  # by key of a subscription; they belong to `scheduled`
        self.transit: Transit | None = None  # what is in transit, where `scheduled` is set
        self.path_delay: LinkDelay | None = None  # of the path behind the link, as acknowledgements show it

    def add_subscription(self, subscription: Subscription) -> None:
        """Store a subscription under its filter and name, replacing an earlier one."""
        self.remove_subscription(subscription.key)
        self.subscriptions[subscription.key] = subscription
        if subscription.terms.name:
            self.named.setdefault(subscription.topic_filter, {})[subscription.key] = True
        self._count(subscription, 1)

    def remove_subscription(self, key: str) -> Subscription | None:
        """Remove and return the subscription with a key; None if there is none."""
        subscription = self.subscriptions.pop(key, None)
        if subscription is not None:
            self._count(subscription, -1)
            keys = self.named.get(subscription.topic_filter)
            if keys is not None and subscription.terms.name:
                del keys[key]
                if not keys:
                    del self.named[subscription.topic_filter]
        return subscription

    def subscriptions_to(self, topic_filter: str) -> list[Subscription]:
        """Return all subscriptions to a filter: the unnamed one first, then by time."""
        unnamed = self.subscriptions.get(topic_filter)
        found = [] if unnamed is None else [unnamed]
        for key in self.named.get(topic_filter, NO_KEYS):
            found.append(self.subscriptions[key])
        return found

    def sums_with(self, subscription: Subscription) -> tuple[int, int, int]:
        """Return the filter cost here and in all, and `ticks_per_hour`, as if a subscription were added."""
        old = self.subscriptions.get(subscription.key)
        if old is not None:
            self._count(old, -1)
        self._count(subscription, 1)
        sums = (self.costs.total, self.costs.whole_total(), self.ticks_per_hour)
        self._count(subscription, -1)
        if old is not None:
            self._count(old, 1)
        return sums

    def _count(self, subscription: Subscription, change: int) -> None:
        """Update the sums over all subscriptions for one that is added (1) or removed (-1)."""
        if subscription.is_timed():
            self.timed_subscriptions += change
        self.ticks_per_hour += change * subscription.ticks_per_hour
        self.costs.count(subscription, change)

    def link_delay(self) -> LinkDelay:
        """Return the delay of its link: the slower of what socket and acknowledgements show."""
        path = self.path_delay
        if path is None or path.mean_s_per_kb <= self.delay.mean_s_per_kb:
            return self.delay
        return LinkDelay(path.mean_s_per_kb, path.variance, self.delay.jitter_s)

    def owner(self) -> tuple[str, int]:
        return self.client_id, self.connection

    def next_drop_ns(self) -> int:
        """Return when a copy is to be dropped, or to be ranked so that its drop is known."""
        due_ns = super().next_drop_ns()
        if self.limits and self.limits[0][0] < due_ns:
            due_ns = self.limits[0][0]
        if self.scheduled is not None and self.queue and self.rank_ns < due_ns:
            due_ns = self.rank_ns
        return due_ns

    def has_work(self) -> bool:
        """Whether anything can be written now."""
        if self.replies:
            return True
        if self.scheduled is not None and self.transit is not None and not self.transit.has_room():
            return False
        if self.outbox or self.queue:
            return True
        if self.send_quota <= 0:
            return self.scheduled_unconfirmed > 0
        if self.scheduled is not None and len(self.scheduled):
            return True
        return len(self.blocked) > 0 or len(self.resend) > 0

    def queued_messages(self) -> int:
        return len(self.queue) + len(self.blocked) - self.gone + self.competing()

    def pairs_owed(self) -> int:
        """Count the pairs of message and subscription without an outcome yet."""
        count = 0
        for delivery in [*self.queue, *self.blocked]:
            if delivery.state != GONE:
                count += 1 + len(delivery.others)
        if self.scheduled is not None:
            for entry in self.scheduled.entries():
                count += 1 + len(cast(Delivery, entry.item).others)
        for delivery in self.inflight.values():
            if not delivery.is_settled:
                count += 1 + len(delivery.others)
        return count

    def _check(self) -> None:
        """Assert that the session is consistent."""
        super()._check()
        waiting = [one for one in [*self.queue, *self.blocked] if one.state != GONE]
        assert self.gone == len(self.queue) + len(self.blocked) - len(waiting)
        self._check_limits(waiting)
        if self.scheduled is not None:
            competing = [cast(Delivery, entry.item) for entry in self.scheduled.entries()]
            assert self.scheduled_unconfirmed == sum(delivery.qos == 0 for delivery in competing)
            waiting += competing
        assert self.queue_bytes == sum(delivery.message.size() for delivery in waiting)
        copies = waiting + list(self.inflight.values())
        cost = sum(copy_cost(delivery.message.size()) for delivery in copies)
        entries = len(waiting) if self.scheduled is not None else 0
        assert self.cost_bytes == cost + entries * ENTRY_COST
        assert self.timed_subscriptions == sum(one.is_timed() for one in self.subscriptions.values())
        assert self.ticks_per_hour == sum(one.ticks_per_hour for one in self.subscriptions.values())
        self.costs._check(list(self.subscriptions.values()))
        named = [one.key for one in self.subscriptions.values() if one.terms.name]
        assert sorted(named) == sorted([key for keys in self.named.values() for key in keys])
        assert all(self.named.values()), "a filter without names is left"
        for packet_id, delivery in self.inflight.items():
            assert delivery.packet_id == packet_id
            assert delivery.qos > 0
        assert self.connection or not (self.replies or self.outbox or self.resend)
        assert self.connection or not self.is_pressed
        assert self.is_pressed == bool(self.awaiting or self.slowed_by)

    def _check_limits(self, waiting: list[Delivery]) -> None:
        """Assert that every copy with an expiry that is not to be ranked is in the heap."""
        known = {sequence for _, sequence, _ in self.limits}
        ranked = set() if self.scheduled is None else {delivery.sequence for delivery in self.queue}
        for delivery in waiting:
            if delivery.message.expires_ns and delivery.sequence not in ranked:
                assert delivery.sequence in known, "nobody watches the expiry of a copy"


class ReadyList:
    """Sessions with something to write, each once, in the order in which they became ready."""

    __slots__ = ("_sessions",)

    def __init__(self) -> None:
        self._sessions: list[Session] = []

    def add(self, session: Session) -> None:
        if not session.is_ready and session.connection:
            session.is_ready = True
            self._sessions.append(session)

    def take(self) -> list[Session]:
        """Take all sessions out; each may become ready again."""
        sessions = self._sessions
        if sessions:
            self._sessions = []
            for session in sessions:
                session.is_ready = False
        return sessions

    def is_empty(self) -> bool:
        return not self._sessions
