"""The broker: joins matching, sessions, retained messages and output, and only joins.

A call is an input: the shell calls a method for everything that happens, with the time, and
then asks what to do: `take_closes`, `take_ready` with `take_deliveries`, `take_batch`. Nothing
here waits, reads a clock or knows a socket, so a simulator drives it as the network node does.
"""

from __future__ import annotations

from typing import Final

from timebound.core.account.account import Account
from timebound.core.account.counters import Counters, Statistics
from timebound.core.distribution import Distribution, RetainedReplay
from timebound.core.link.scheduling import Scheduling
from timebound.core.matching.index import SubscriptionIndex
from timebound.core.matching.retained import WALK_STEPS_MAX, RetainedStore
from timebound.core.matching.tap import Tap
from timebound.core.mesh.member import Member
from timebound.core.mesh.message import Copy
from timebound.core.sessions.correlations import TIMERS_MAX, Correlations
from timebound.core.sessions.durability import Batch, Durability
from timebound.core.sessions.faults import Fault, Faults
from timebound.core.sessions.lifecycle import Lifecycle
from timebound.core.sessions.outbound import Outbound
from timebound.core.sessions.pressure import NO_HOMES, Pressure
from timebound.core.sessions.session import (
    ENCODED,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    ReadyList,
    Reply,
    Session,
)
from timebound.core.values.access import AccessList
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Delivery, Message
from timebound.core.values.store_orders import (
    DropInbound,
    DropRetained,
    DropSubscription,
    PutInbound,
    PutSubscription,
    Snapshot,
    Will,
)
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.topics import split_share

# MQTT 5 reason codes that the broker itself decides on (2.4).
SUCCESS: Final = 0x00
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
NOT_AUTHORIZED: Final = 0x87
SESSION_TAKEN_OVER: Final = 0x8E
PACKET_ID_NOT_FOUND: Final = 0x92
QUOTA_EXCEEDED: Final = 0x97
SECONDS_PER_HOUR: Final = 3_600

# What became of a message that a client published.
TAKEN: Final = 0
DENIED: Final = 1
REFUSED: Final = 2


class Close:
    """An order to end a connection, with the reason for its DISCONNECT."""

    __slots__ = ("connection", "reason", "reason_code")

    def __init__(self, connection: int, reason_code: int, reason: str) -> None:
        self.connection = connection
        self.reason_code = reason_code
        self.reason = reason


class Broker:
    """Every decision of one broker."""

    __slots__ = (
        "_closes",
        "_correlations",
        "_distribution",
        "_durability",
        "_faults",
        "_index",
        "_lifecycle",
        "_limits",
        "_outbound",
        "_pressure",
        "_ready",
        "_reconciled",
        "_retained",
        "_sessions",
        "account",
        "counters",
    )

    def __init__(
        self,
        limits: BrokerLimits,
        access: AccessList,
        is_durable: bool = False,
        index: SubscriptionIndex | None = None,
    ) -> None:
        self._limits = limits
        self.counters = Counters()
        self._ready = ReadyList()
        self._index = index if index is not None else SubscriptionIndex()
        self._durability = Durability(self._ready, is_durable)
        self.account = Account()
        self._faults = Faults()
        self._reconciled = 0  # faults after which the account was put right
        self._outbound = Outbound(
            limits, self._ready, self._durability, self.counters, self.account, self._faults
        )
        self._correlations = Correlations()
        self._lifecycle = Lifecycle(
            limits, access, self._index, self._outbound, self._durability, self._correlations, self._faults
        )
        self._sessions = self._lifecycle.sessions
        self._retained = RetainedStore(limits.retained_messages_max, limits.retained_bytes_max)
        self._distribution = Distribution(
            self._sessions,
            self._index,
            self._retained,
            self._outbound,
            self._durability,
            self._correlations,
            self.counters,
            self._faults,
        )
        self._pressure = Pressure(self._ready, self._durability)
        self._closes: list[Close] = []

    # --- sessions -------------------------------------------------------------------

    def connect(
        self,
        client_id: str,
        user: str,
        clean_start: bool,
        expiry_interval_s: int,
        receive_maximum: int,
        will: Will | None,
        connection: int,
        now_ns: int,
    ) -> tuple[Session, bool]:
        """A client was let in on a connection (a number above 0); gives its session and Session Present."""
        old = self._sessions.get(client_id)
        if old is not None and old.connection:
            self._closes.append(
                Close(old.connection, SESSION_TAKEN_OVER, f"client id {client_id!r} connected again")
            )
            self.disconnect(old, old.connection, True, now_ns)
        try:
            opened = self._lifecycle.connect(
                client_id, user, clean_start, expiry_interval_s, receive_maximum, will, connection, now_ns
            )
            self._distribution.reassign_orphans(now_ns)
            self._publish_due_wills(now_ns)
            self._distribution.deliver_ticks(opened[0], now_ns)
        except BaseException:
            half_open = self._sessions.get(client_id)
            if half_open is not None:
                self.disconnect(half_open, connection, True, now_ns)
            raise
        self.counters.connections_total += 1
        return opened

    def bind(
        self, session: Session, listener: str, scheduling: Scheduling, delay: LinkDelay, now_ns: int
    ) -> None:
        """Say what is known of the link that a session has just been connected through."""
        session.listener = listener
        self._outbound.set_scheduling(session, scheduling, now_ns)
        self._outbound.set_delay(session, delay, now_ns)

    def disconnect(self, session: Session, connection: int, keep_will: bool, now_ns: int) -> None:
        """A connection is gone. One that no longer serves the session changes nothing."""
        if session.connection == connection:
            self._lifecycle.disconnect(session, keep_will, now_ns)
            self._pressure.forget(session)
            self._distribution.reassign_orphans(now_ns)
            self._publish_due_wills(now_ns)
            self._distribution.publish_notices(now_ns)

    def restore(self, snapshot: Snapshot, now_ns: int) -> None:
        """Take up what an earlier run stored; once, before the first client."""
        self._distribution.sequence = snapshot.sequence_max
        # A retained message may be owed to sessions as well. It must stay one object, or its last
        # copy here would drop from storage what the copies there still refer to.
        owed = {
            delivery.message.sequence: delivery.message
            for stored in snapshot.sessions
            for delivery in stored.deliveries
        }
        for message in snapshot.retained:
            if message.is_expired(now_ns):
                self._durability.add(DropRetained(message.topic))
            else:
                self._retained.restore(owed.get(message.sequence, message))
        self._lifecycle.restore(snapshot, now_ns)
        self._publish_due_wills(now_ns)

    def set_access(self, access: AccessList) -> None:
        """Replace the access rules of all clients."""
        self._lifecycle.set_access(access)

    # --- subscriptions --------------------------------------------------------------

    def subscribe(self, session: Session, subscription: Subscription, now_ns: int) -> int:
        """Add or replace a subscription, and give it what is retained; gives the reason code for SUBACK."""
        code, replay = self.begin_subscribe(session, subscription, now_ns)
        if replay is not None:
            self.continue_replay(replay, WALK_STEPS_MAX, now_ns)
        return code

    def begin_subscribe(
        self, session: Session, subscription: Subscription, now_ns: int
    ) -> tuple[int, RetainedReplay | None]:
        """As `subscribe`, but what is retained is given out by `continue_replay`, a part at a time."""
        topic_filter = subscription.topic_filter
        group, _ = split_share(topic_filter)
        if not session.access.may_subscribe(topic_filter):
            return NOT_AUTHORIZED, None
        old = session.subscriptions.get(topic_filter)
        if self.limit_reached(session, subscription):
            return QUOTA_EXCEEDED, None
        is_started = self._correlations.start(subscription, now_ns)
        assert is_started, "the limits leave timers for it"
        try:
            if old is not None:
                self._withdraw(session, old)
            session.add_subscription(subscription)
            self._index.insert(subscription)
            self._outbound.prepare(session, subscription, now_ns)
            if old is not None and old.is_timed():
                self._outbound.relax(session)
            if session.is_durable:
                self._durability.add(PutSubscription(subscription))
        except BaseException:
            # The client gets no SUBACK, so it has no subscription. Nor the one before, as far as that went.
            self._withdraw(session, subscription)
            if session.is_durable and topic_filter not in session.subscriptions:
                self._durability.add(DropSubscription(session.client_id, topic_filter))
            raise
        wants_retained = subscription.retain_handling == 0 or (
            subscription.retain_handling == 1 and old is None
        )
        if group or not wants_retained:
            return subscription.qos, None
        return subscription.qos, self._distribution.start_replay(session, subscription)

    def continue_replay(self, replay: RetainedReplay, steps_max: int, now_ns: int) -> bool:
        """Give a new subscription a part of what is retained; True if that was all."""
        return self._distribution.continue_replay(replay, steps_max, now_ns)

    def stop_replay(self, replay: RetainedReplay) -> None:
        """The rest of what is retained need not be given out: the client has gone."""
        self._distribution.stop_replay(replay)

    def limit_reached(self, session: Session, subscription: Subscription) -> str:
        """The name of the limit that a subscription would exceed; empty if it may be made."""
        limits = self._limits
        is_new = subscription.topic_filter not in session.subscriptions
        if is_new and len(session.subscriptions) >= limits.subscriptions_per_client_max:
            return "subscriptions_per_client_max"
        if subscription.predicate is not None or subscription.dependency is not None:
            cost, cost_total, ticks = session.sums_with(subscription)
            # A subscription that costs no more than before is granted: clients repeat them after a restart.
            if cost > max(limits.filter_cost_per_client_max, session.costs.total):
                return "filter_cost_per_client_max"
            if cost_total > max(limits.filter_cost_total_max, self._lifecycle.costs.total):
                return "filter_cost_total_max"
            if ticks > limits.ticks_per_second_max * SECONDS_PER_HOUR:
                return "ticks_per_second_max"
            if not self._correlations.has_timers(subscription):
                return f"the broker's number of timers ({TIMERS_MAX})"
        return ""

    def unsubscribe(self, session: Session, topic_filter: str, now_ns: int) -> int:
        """Remove a subscription; gives the reason code for UNSUBACK."""
        subscription = session.subscriptions.get(topic_filter)
        if subscription is None:
            return NO_SUBSCRIPTION_EXISTED
        self._withdraw(session, subscription)
        if split_share(topic_filter)[0]:
            self._distribution.leave_group(session, subscription, now_ns)
        if session.is_durable:
            self._durability.add(DropSubscription(session.client_id, topic_filter))
        if subscription.is_timed():
            self._outbound.relax(session)
        return SUCCESS

    def _withdraw(self, session: Session, subscription: Subscription) -> None:
        """Take a subscription out of wherever it is."""
        topic_filter = subscription.topic_filter
        self._index.remove(subscription)
        self._correlations.stop(subscription)
        if session.subscriptions.get(topic_filter) is subscription:
            session.remove_subscription(topic_filter)
        session.audiences.pop(topic_filter, None)

    # --- messages in ----------------------------------------------------------------

    def publish(self, session: Session, message: Message, packet_id: int, now_ns: int) -> int:
        """A client published; the answer, where its QoS asks for one, becomes a reply.

        Gives what became of it: TAKEN, DENIED (answered already), or REFUSED: nothing was done, `refusal`
        says why, and it is for the caller to answer.
        """
        self.counters.messages_received += 1
        qos = message.qos
        mesh = self._distribution.mesh
        if qos == 0:
            if not session.access.may_publish(message.topic):
                self._refuse()
                return DENIED
            self._distribution.route(message, now_ns)
            if mesh is not None and mesh.pressed:
                self._pressure.slow(session, mesh.pressed)
            return TAKEN
        mark = self._durability.mark()
        if qos == 2 and packet_id in session.inbound:
            # MQTT 5, 4.3.3: sent again before it was released; it was routed the first time.
            self._pressure.acknowledge(session, Reply(PUBREC, packet_id), NO_HOMES, mark)
            return TAKEN
        kind = PUBACK if qos == 1 else PUBREC
        if not session.access.may_publish(message.topic):
            self._refuse()
            reason = f"{Reason.NOT_AUTHORIZED.value}: publishing to {message.topic!r} is not allowed"
            denied = Reply(kind, packet_id, NOT_AUTHORIZED, reason)
            self._pressure.acknowledge(session, denied, NO_HOMES, mark)
            return DENIED
        if mesh is not None and mesh.refusal(message):
            return REFUSED
        count = self._distribution.route(message, now_ns)
        if qos == 2:
            session.inbound[packet_id] = True
            if session.is_durable:
                self._durability.add(PutInbound(session.client_id, packet_id))
        reason_code = SUCCESS if count else NO_MATCHING_SUBSCRIBERS
        reason = ""
        if message.retain and message.payload and self._retained.get(message.topic) is not message:
            reason = (
                f"{Reason.QUOTA.value}: delivered, but not retained; the retained messages are at their limit"
            )
        reply = Reply(kind, packet_id, reason_code, reason)
        self._pressure.acknowledge(session, reply, self.pressed(), mark)
        return TAKEN

    def refusal(self, message: Message) -> str:
        """Why a message that is acknowledged cannot be taken in; empty if it can."""
        mesh = self._distribution.mesh
        return "" if mesh is None else mesh.refusal(message)

    def route(self, message: Message, now_ns: int) -> int:
        """Give out a message of the broker's own, such as `$SYS`; the count of sessions it matched."""
        return self._distribution.route(message, now_ns)

    def join_mesh(self, member: Member) -> None:
        """Pass on to other brokers what their clients want; `member` watches this broker's index."""
        self._distribution.mesh = member

    def receive_copy(self, copy: Copy, now_ns: int) -> None:
        """A neighbour broker has sent a message: pass it on, and give it to this broker's own clients."""
        mesh = self._distribution.mesh
        assert mesh is not None, "only a member of a mesh has neighbours"
        message = copy.what.message
        self._distribution.number(message)
        if mesh.receive(copy, now_ns):
            self._distribution.distribute(message, now_ns)

    def accept_request(self, session: Session, qos: int, packet_id: int, answer: str = "") -> None:
        """Acknowledge a QoS 1 or 2 message that was a request to the broker itself, with an answer in words.

        Of QoS 2 no packet id is kept: a request sent again is done again, to the same end.
        """
        kind = PUBACK if qos == 1 else PUBREC
        reply = Reply(kind, packet_id, SUCCESS, answer)
        self._pressure.acknowledge(session, reply, NO_HOMES, self._durability.mark())

    def refuse_publish(
        self, session: Session, qos: int, packet_id: int, reason_code: int, reason: str
    ) -> None:
        """Answer a QoS 1 or 2 message that the shell found unacceptable."""
        kind = PUBACK if qos == 1 else PUBREC
        mark = self._durability.mark()
        self._pressure.acknowledge(session, Reply(kind, packet_id, reason_code, reason), NO_HOMES, mark)

    def pressed(self) -> list[str]:
        """The brokers that the last message published here is for and that have no room for more."""
        mesh = self._distribution.mesh
        return mesh.pressed if mesh is not None else NO_HOMES

    def has_room(self, homes: list[str]) -> bool:
        """Whether none of these brokers is full any more."""
        mesh = self._distribution.mesh
        return mesh is None or not any([home in mesh.forwarder.levels() for home in homes])

    def relieve_publishers(self) -> None:
        """Acknowledge what waited for links to other brokers that have room again."""
        mesh = self._distribution.mesh
        if mesh is not None and len(self._pressure):
            self._pressure.relieve(mesh.forwarder.levels())

    def _refuse(self) -> None:
        self.counters.publishes_refused += 1
        self.counters.drop(Reason.NOT_AUTHORIZED)

    def _publish_due_wills(self, now_ns: int) -> None:
        while self._lifecycle.due_wills:
            will = self._lifecycle.due_wills.pop(0)
            try:
                self._publish_will(will, now_ns)
            except Exception as error:  # its client has gone, and whoever is served now has no part in it
                self._faults.note(will.client_id, 0, error)

    def _publish_will(self, will: Will, now_ns: int) -> None:
        if self._lifecycle.may_publish(will):
            self._distribution.route(_published_will(will.message, now_ns), now_ns)
            return
        self._refuse()
        self.counters.alert(
            f"the will of {will.client_id!r} is not published: "
            f"publishing to {will.message.topic!r} is not allowed"
        )

    # --- acknowledgements -----------------------------------------------------------

    def acknowledge(self, session: Session, kind: int, packet_id: int, reason_code: int, now_ns: int) -> bool:
        """Take PUBACK, PUBREC, PUBREL or PUBCOMP; False if it breaks the protocol."""
        if kind != PUBREL:
            return self._outbound.acknowledge(session, kind, packet_id, reason_code, now_ns)
        mark = self._durability.mark()
        if session.inbound.pop(packet_id, False):
            if session.is_durable:
                self._durability.add(DropInbound(session.client_id, packet_id))
            reason_code = SUCCESS
        else:
            reason_code = PACKET_ID_NOT_FOUND
        self._durability.reply(session, Reply(PUBCOMP, packet_id, reason_code), mark)
        return True

    def reply(self, session: Session, frame: bytes, mark: int) -> None:
        """Answer with a packet the shell encoded, once what was ordered since `mark` is on disk."""
        self._durability.reply(session, Reply(ENCODED, frame=frame), mark)

    def answer(self, session: Session, frame: bytes) -> None:
        """Answer at once with a packet that depends on nothing stored."""
        session.replies.append(Reply(ENCODED, frame=frame))
        self._ready.add(session)

    def mark(self) -> int:
        """A position in the orders for storage, to hand to `reply`."""
        return self._durability.mark()

    # --- what to do -----------------------------------------------------------------

    def take_closes(self) -> list[Close]:
        closes = self._closes
        if closes:
            self._closes = []
        return closes

    def has_ready(self) -> bool:
        return not self._ready.is_empty()

    def take_ready(self) -> list[Session]:
        """Sessions with something to write; ask `take_deliveries` of each whose socket has room."""
        return self._ready.take()

    def put_ready(self, session: Session) -> None:
        """The session's socket has room again."""
        if session.has_work():
            self._ready.add(session)

    def take_deliveries(
        self, session: Session, bytes_max: int, now_ns: int, ahead_ns: int = 0
    ) -> list[Delivery]:
        """Deliveries to write now; `ahead_ns` is how long the link is busy with what it was given before."""
        deliveries = self._outbound.take(session, bytes_max, now_ns, ahead_ns)
        if self.account.missed:
            self._distribution.publish_notices(now_ns)
        return deliveries

    def abandon(self, session: Session, delivery: Delivery, reason: Reason, now_ns: int) -> None:
        """A delivery that was taken cannot be sent."""
        self._outbound.abandon(session, delivery, reason, now_ns)

    def take_batch(self) -> Batch | None:
        """Orders for storage; call `committed` with the batch when they are on disk."""
        return self._durability.take()

    def keep_topics(self, topic_filters: list[str]) -> None:
        """Collect messages of these topics for `take_kept`, as journals need them."""
        self._distribution.tap = Tap(topic_filters)

    def take_kept(self) -> list[Message]:
        """Messages for the journals since the last call."""
        tap = self._distribution.tap
        return tap.take() if tap is not None else []

    def committed(self, batch: Batch) -> None:
        self._durability.committed(batch)

    def wake(self, now_ns: int) -> None:
        """The moment of `next_wakeup_ns` has come."""
        self._lifecycle.wake(now_ns)
        self._distribution.reassign_orphans(now_ns)
        self._distribution.wake(now_ns)
        self._publish_due_wills(now_ns)

    def stop_notices(self) -> None:
        """Publish no notices about what was missed any more: the broker is stopping."""
        self._distribution.sends_notices = False

    def take_faults(self) -> list[Fault]:
        """Errors that struck single clients; the shell logs them and ends their connections."""
        return self._faults.take()

    def reconcile(self) -> None:
        """After errors, count what they left without an outcome as dropped; about once a second.

        Every copy is looked at, so this is not done at once for each error.
        """
        if self.counters.faults == self._reconciled:
            return
        self._reconciled = self.counters.faults
        self.account.reconcile(self._pairs_owed())

    def _pairs_owed(self) -> int:
        return sum([session.pairs_owed() for session in self._sessions.values()])

    def expire(self, now_ns: int) -> None:
        """Begin to drop what waits in vain, also for links that take nothing; about once a second."""
        self._outbound.expire(now_ns)
        self._distribution.reassign_orphans(now_ns)  # what an error may have left
        self._distribution.publish_notices(now_ns)

    def is_expiring(self) -> bool:
        return len(self._outbound.expiring) > 0

    def continue_expiry(self, now_ns: int) -> None:
        """Take the next step of what `expire` began, while there `is_expiring` any."""
        self._outbound.continue_expiry(now_ns)
        self._distribution.publish_notices(now_ns)

    # --- scheduling -----------------------------------------------------------------

    def retained_payload(self, topic: str) -> bytes:
        """What is retained on a topic; empty if nothing is."""
        message = self._retained.get(topic)
        return b"" if message is None else message.payload

    def forget_own_retained(self, topic: str) -> None:
        """No longer retain a message of the broker's own; nobody is told."""
        self._retained.remove(topic)

    def set_delay(self, session: Session, delay: LinkDelay, now_ns: int) -> None:
        """The speed of the session's link was measured."""
        self._outbound.set_delay(session, delay, now_ns)

    def set_scheduling(self, listener: str, scheduling: Scheduling, now_ns: int) -> int:
        """Choose by other settings for all sessions of a listener; the count of them."""
        count = 0
        for session in self._sessions.values():
            if session.listener == listener:
                try:
                    self._outbound.set_scheduling(session, scheduling, now_ns)
                except Exception as error:  # one of many, and not the one who asks
                    self._faults.note(session.client_id, session.connection, error)
                    self._outbound.mend(session)
                count += 1
        return count

    def next_wakeup_ns(self) -> int | None:
        first = self._lifecycle.next_wakeup_ns()
        second = self._correlations.next_wakeup_ns()
        if first is None or second is None:
            return second if first is None else first
        return min(first, second)

    def queued_bytes(self) -> int:
        """What all copies that wait, or are not acknowledged, cost in memory."""
        return self._outbound.queued_bytes

    def session_count(self) -> int:
        return len(self._sessions)

    def session(self, client_id: str) -> Session | None:
        return self._sessions.get(client_id)

    def statistics(self) -> Statistics:
        """A frozen picture of this moment."""
        statistics = Statistics(self.counters)
        statistics.sessions = len(self._sessions)
        statistics.connected = self._lifecycle.connected
        statistics.subscriptions = len(self._index)
        statistics.filter_cost = self._lifecycle.costs.total
        statistics.retained_messages = len(self._retained)
        statistics.retained_bytes = self._retained.size_bytes
        statistics.queued_bytes = self._outbound.queued_bytes
        for session in self._sessions.values():
            statistics.queued_messages += session.queued_messages()
            statistics.inflight += len(session.inflight)
        return statistics

    def _check(self) -> None:
        """Raise AssertionError where the parts contradict each other."""
        self._index._check()
        self._retained._check()
        total = 0
        for session in self._sessions.values():
            session._check()
            total += session.cost_bytes
            for subscription in session.subscriptions.values():
                assert self._index.has(subscription), "a subscription is not in the index"
        assert total == self._outbound.queued_bytes, "queued bytes of sessions and broker differ"
        assert not self._outbound.orphans, "what a member of a group left was not passed on"
        count = sum([len(session.subscriptions) for session in self._sessions.values()])
        assert count == len(self._index), "the index holds a subscription of no session"
        self._lifecycle.costs._check(
            [one for session in self._sessions.values() for one in session.subscriptions.values()]
        )
        assert self._lifecycle.connected == sum(
            [1 for session in self._sessions.values() if session.connection]
        ), "the count of connected sessions is wrong"
        assert self.account.outstanding() == self._pairs_owed(), "the account and the queues differ"


def _published_will(will: Message, now_ns: int) -> Message:
    """The message of a will, dated now. A new one: storage may still be writing the will itself."""
    message = Message(
        will.topic,
        will.payload,
        will.qos,
        will.retain,
        now_ns,
        will.publisher,
        will.properties,
        will.user_properties,
        # The expiry of a will counts from its publication, not from CONNECT (3.1.3.2.4).
        now_ns + will.expires_ns if will.expires_ns else 0,
        will.timeout_ns,
        will.priority,
    )
    message.is_repeated = will.is_repeated
    return message
