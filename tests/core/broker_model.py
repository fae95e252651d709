"""A naive broker to compare the real one with: what each session is owed, and why.

It knows no trie, no quota, no storage and no packets: it asks every subscription, keeps copies
in dicts and forgets nothing that a crash could bring back. Whoever drives it tells it what the
clients did and saw; `Promise` is what an acknowledgement, once seen, obliges the broker to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.topic_strategies import selects

from timebound.core.values.message import Message
from timebound.core.values.store_orders import Will
from timebound.core.values.subscription import Subscription
from timebound.topics import split_share
from timebound.units import SECOND

from .broker_doubles import NEVER_S

# Which member of a group gets a message is the broker's choice; the driver looks it up.
Choose = Callable[[list[Subscription], Message], Subscription]

QUEUED, STARTED, RELEASED, GONE = "queued", "started", "released", "gone"


@dataclass(eq=False)
class Promise:
    """Kept once the client has seen the answer."""

    kept: bool = False


@dataclass(eq=False)
class Copy:
    """One copy of a message that a session is owed."""

    tag: bytes
    qos: int
    retain: bool
    ids: tuple[int, ...]
    expires_ns: int
    promise: Promise
    pairs: int = 1
    sequence: int = 0
    state: str = QUEUED
    packet_id: int = 0
    arrivals: int = 0  # how often the receiving application got it
    message: Message | None = None
    group: str = ""  # the shared filter that it came by

    def is_expired(self, now_ns: int) -> bool:
        return 0 < self.expires_ns <= now_ns

    def look(self) -> tuple[bytes, int, bool, list[int]]:
        return (self.tag, self.qos, self.retain, sorted(self.ids))


@dataclass(eq=False)
class ModelSession:
    client_id: str
    user: str
    generation: int
    expiry_s: int = 0
    is_durable: bool = False
    is_connected: bool = False
    is_forgotten: bool = False  # by its client, which has begun a new one since
    expires_ns: int = 0
    promise: Promise = field(default_factory=Promise)
    subscriptions: dict[str, tuple[Subscription, Promise]] = field(default_factory=dict)
    removed: dict[str, Promise] = field(default_factory=dict)
    copies: dict[int, Copy] = field(default_factory=dict)
    coming: list[Copy] = field(default_factory=list)  # predicted, not yet seen in the broker
    inbound: set[int] = field(default_factory=set)

    def in_state(self, *states: str) -> list[Copy]:
        return [copy for copy in self.copies.values() if copy.state in states]


@dataclass(eq=False)
class PendingWill:
    will: Will
    promise: Promise
    due_ns: int = 0


class BrokerModel:
    """All sessions, retained messages and wills; time moves only by `wake`."""

    def __init__(self, queue_messages_max: int, choose: Choose, clock: Callable[[], int]) -> None:
        self.queue_messages_max = queue_messages_max
        self.sessions: dict[str, ModelSession] = {}
        self.history: dict[tuple[str, int], ModelSession] = {}
        self.generations: dict[str, int] = {}
        self.retained: dict[str, Message] = {}
        self.retained_promises: dict[str, Promise] = {}
        self.wills: dict[str, PendingWill] = {}
        self.matched = 0
        self.choose = choose
        self.clock = clock
        self.orphans: list[Copy] = []  # of members of groups that left

    # Sessions.

    def connect(
        self, client_id: str, user: str, clean: bool, expiry_s: int, will: Will | None, now_ns: int
    ) -> bool:
        """Give Session Present."""
        due: list[Will] = []
        old = self.sessions.get(client_id)
        if old is not None and old.is_connected:
            due += self._lose(old, True, now_ns)
            self.reassign_orphans()
            self.publish_wills(due, now_ns)
            due = []
            old = self.sessions.get(client_id)
        if old is not None and (clean or old.user != user):
            due += self._end(old)
            old = None
        self.wills.pop(client_id, None)
        session = old or self._make(client_id, user)
        session.is_connected = True
        session.expiry_s = expiry_s
        session.expires_ns = 0
        session.is_durable = session.is_durable or expiry_s > 0
        session.promise = Promise()
        if will is not None:
            self.wills[client_id] = PendingWill(will, session.promise)
        self._resume(session, now_ns)
        self.reassign_orphans()
        self.publish_wills(due, now_ns)
        return old is not None

    def _make(self, client_id: str, user: str) -> ModelSession:
        generation = self.generations.get(client_id, 0)
        session = ModelSession(client_id, user, generation)
        self.sessions[client_id] = self.history[client_id, generation] = session
        return session

    def _resume(self, session: ModelSession, now_ns: int) -> None:
        # What expired is not sent again; of QoS 2 the receiver is made to forget the packet id.
        for copy in session.in_state(STARTED):
            if copy.is_expired(now_ns):
                copy.state = GONE if copy.qos == 1 else RELEASED

    def disconnect(self, client_id: str, keep_will: bool, expiry_s: int | None, now_ns: int) -> None:
        session = self.sessions[client_id]
        if expiry_s is not None:
            session.expiry_s = expiry_s
        due = self._lose(session, keep_will, now_ns)
        self.reassign_orphans()
        self.publish_wills(due, now_ns)

    def _lose(self, session: ModelSession, keep_will: bool, now_ns: int) -> list[Will]:
        session.is_connected = False
        for copy in session.in_state(QUEUED):
            if copy.qos == 0:
                self._give_up(copy)
        pending = self.wills.get(session.client_id)
        due: list[Will] = []
        if pending is not None:
            delay_s = min(pending.will.delay_s, session.expiry_s)
            if not keep_will or not delay_s:
                del self.wills[session.client_id]
                due += [pending.will] if keep_will else []
            else:
                pending.due_ns = now_ns + delay_s * SECOND
        if session.expiry_s == 0:
            return due + self._end(session)
        self.expire_after(session, now_ns)
        return due

    def expire_after(self, session: ModelSession, ended_ns: int) -> None:
        if session.expiry_s != NEVER_S:
            session.expires_ns = ended_ns + session.expiry_s * SECOND

    def _end(self, session: ModelSession) -> list[Will]:
        del self.sessions[session.client_id]
        if session.is_durable:
            self.generations[session.client_id] = session.generation + 1
        started = [copy for copy in session.in_state(STARTED) if copy.qos == 1]
        for copy in sorted(started, key=sequence_of) + sorted(session.in_state(QUEUED), key=sequence_of):
            self._give_up(copy)
        for copy in session.copies.values():
            copy.state = GONE
        pending = self.wills.pop(session.client_id, None)
        return [pending.will] if pending is not None else []

    def _give_up(self, copy: Copy) -> None:
        copy.state = GONE
        if copy.group:
            self.orphans.append(copy)

    def reassign_orphans(self) -> None:
        """What a member of a group left behind goes to another, if there is one (4.8.2)."""
        orphans, self.orphans = self.orphans, []
        for copy in orphans:
            if candidates := self._members(copy.group):
                assert copy.message is not None
                self.matched -= 1
                # Until it is stored again, a crash brings back the old one.
                self._share(candidates, copy.message, Promise())

    def _members(self, group: str) -> list[Subscription]:
        entries = [session.subscriptions.get(group) for session in self.sessions.values()]
        return [entry[0] for entry in entries if entry is not None]

    def _share(self, candidates: list[Subscription], message: Message, promise: Promise) -> None:
        chosen = self.choose(self._able(candidates, message), message)
        retain = message.retain and chosen.retain_as_published
        self._offer(self.sessions[chosen.client_id], message, [chosen], retain, promise)

    # Time.

    def next_due_ns(self) -> int | None:
        times = [session.expires_ns for session in self.sessions.values() if session.expires_ns]
        times += [pending.due_ns for pending in self.wills.values() if pending.due_ns]
        for session in self.sessions.values():
            times += [copy.expires_ns for copy in session.in_state(QUEUED) if copy.expires_ns]
        return min(times, default=None)

    def wake(self, now_ns: int) -> None:
        """What has expired goes; what is due happens in its order, then of client ids; then wills."""
        for session in self.sessions.values():
            self.expire(session, now_ns)
        due: list[Will] = []
        events = [(session.expires_ns, name) for name, session in self.sessions.items()]
        events += [(pending.due_ns, name) for name, pending in self.wills.items()]
        for time_ns, name in sorted(events):
            if not 0 < time_ns <= now_ns:
                continue
            pending = self.wills.get(name)
            if pending is not None and 0 < pending.due_ns <= now_ns:
                due.append(self.wills.pop(name).will)
            ending = self.sessions.get(name)
            if ending is not None and 0 < ending.expires_ns <= now_ns:
                due += self._end(ending)
        self.reassign_orphans()
        self.publish_wills(due, now_ns)

    def expire(self, session: ModelSession, now_ns: int) -> None:
        for copy in session.in_state(QUEUED):
            if copy.is_expired(now_ns):
                copy.state = GONE

    def _make_room(self, session: ModelSession) -> None:
        """A full queue lets go of what has expired since the last wake-up."""
        if len(session.in_state(QUEUED)) + len(session.coming) >= self.queue_messages_max:
            self.expire(session, self.clock())

    def publish_wills(self, wills: list[Will], now_ns: int) -> None:
        for will in wills:
            message = will.message
            expires_ns = now_ns + message.expires_ns if message.expires_ns else 0
            published = Message(
                message.topic,
                message.payload,
                message.qos,
                message.retain,
                now_ns,
                message.publisher,
                message.properties,
                expires_ns=expires_ns,
            )
            self.route(published, Promise())

    # Subscriptions and messages.

    def subscribe(self, wanted: Subscription, promise: Promise, now_ns: int) -> None:
        session = self.sessions[wanted.client_id]
        is_new = wanted.key not in session.subscriptions
        session.subscriptions[wanted.key] = (wanted, promise)
        session.removed.pop(wanted.key, None)
        if split_share(wanted.topic_filter)[0] or wanted.retain_handling == 2:
            return
        if wanted.retain_handling == 1 and not is_new:
            return
        for topic, message in list(self.retained.items()):
            if not selects(wanted.topic_filter, topic):
                continue
            if message.is_expired(now_ns):
                del self.retained[topic]
            elif not (wanted.no_local and message.publisher == wanted.client_id):
                self._offer(session, message, [wanted], True, promise)

    def unsubscribe(self, client_id: str, topic_filter: str, name: str | None, promise: Promise) -> bool:
        session = self.sessions[client_id]
        ended = [
            key
            for key, (one, _) in session.subscriptions.items()
            if one.topic_filter == topic_filter and name in (None, one.terms.name)
        ]
        for key in ended:
            session.removed[key] = promise
            del session.subscriptions[key]
        existed = bool(ended)
        if existed and split_share(topic_filter)[0] and self._members(topic_filter):
            for copy in sorted(session.in_state(QUEUED), key=sequence_of):
                if copy.group == topic_filter:
                    self._give_up(copy)
        return existed

    def route(self, message: Message, promise: Promise) -> None:
        if message.retain:
            self.retained_promises[message.topic] = promise
            if message.payload:
                self.retained[message.topic] = message
            else:
                self.retained.pop(message.topic, None)
        shared: dict[str, list[Subscription]] = {}
        for session in self.sessions.values():
            wanted: list[Subscription] = []
            for one, _ in session.subscriptions.values():
                group, topic_filter = split_share(one.topic_filter)
                if not selects(topic_filter, message.topic):
                    continue
                if group:
                    shared.setdefault(one.topic_filter, []).append(one)
                elif not (one.no_local and one.client_id == message.publisher):
                    wanted.append(one)
            if wanted:
                retain = message.retain and any(one.retain_as_published for one in wanted)
                self._offer(session, message, wanted, retain, promise)
        for candidates in shared.values():
            self._share(candidates, message, promise)

    def _able(self, candidates: list[Subscription], message: Message) -> list[Subscription]:
        """The members of a group that are asked first: who can take it now, then who can keep it."""
        connected = [one for one in candidates if self.sessions[one.client_id].is_connected]
        takers = [
            one
            for one in candidates
            if not self.refuses(self.sessions[one.client_id], min(one.qos, message.qos))
        ]
        return [one for one in connected if one in takers] or takers or connected or candidates

    def _offer(
        self,
        session: ModelSession,
        message: Message,
        wanted: list[Subscription],
        retain: bool,
        promise: Promise,
    ) -> None:
        self.matched += len(wanted)
        qos = min(message.qos, max(one.qos for one in wanted))
        if qos or session.is_connected:
            self._make_room(session)
        if self.refuses(session, qos):
            return
        ids = tuple(one.identifier for one in wanted if one.identifier)
        copy = Copy(message.properties, qos, retain, ids, message.expires_ns, promise, len(wanted))
        copy.message = message
        if split_share(wanted[0].topic_filter)[0]:
            copy.group = wanted[0].topic_filter
        session.coming.append(copy)

    def refuses(self, session: ModelSession, qos: int) -> bool:
        """Whether a copy would be dropped at once."""
        queued = len(session.in_state(QUEUED)) + len(session.coming)
        return (qos == 0 and not session.is_connected) or queued >= self.queue_messages_max


def sequence_of(copy: Copy) -> int:
    return copy.sequence
