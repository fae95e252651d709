"""The broker: connects matching, sessions, retained messages and output, and does nothing else.

A call is an input: the shell calls a method for every event, with the time, and then asks what
to do: `take_closes`, `take_ready` with `take_deliveries`, `take_batch`. Nothing here waits, reads
a clock or knows a socket, so a simulator drives it in the same way as the network node.

Long, since every input of the broker is a method here.
"""

from __future__ import annotations

from typing import Final

from timebound.core.account.account import Account
from timebound.core.account.counters import Counters, Statistics
from timebound.core.distribution import MESH, Distribution, RetainedReplay
from timebound.core.input.entrance import TURNED_DOWN, Entrance
from timebound.core.input.options import EntranceOptions
from timebound.core.input.publisher import Publisher
from timebound.core.input.requests import BOUNDS_TOPIC, InputRequest
from timebound.core.link.due import DueList
from timebound.core.link.scheduling import Scheduling
from timebound.core.matching.gradual import HeldMessage
from timebound.core.matching.index import SubscriptionIndex
from timebound.core.matching.retained import WALK_STEPS_MAX, RetainedStore
from timebound.core.matching.tap import Tap
from timebound.core.mesh.member import Member
from timebound.core.mesh.message import Copy
from timebound.core.publishing import Publishing
from timebound.core.sessions.correlations import TIMERS_MAX, Correlations
from timebound.core.sessions.durability import ALL_SO_FAR, Batch, Durability
from timebound.core.sessions.faults import Fault, Faults
from timebound.core.sessions.lifecycle import Lifecycle
from timebound.core.sessions.outbound import Outbound
from timebound.core.sessions.pressure import Pressure
from timebound.core.sessions.session import (
    ENCODED,
    PUBCOMP,
    PUBREL,
    ReadyList,
    Reply,
    Session,
)
from timebound.core.values.access import AccessList, ClientAccess
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Delivery, Message, MessageName
from timebound.core.values.reason_codes import (
    NO_SUBSCRIPTION_EXISTED,
    NOT_AUTHORIZED,
    PACKET_IDENTIFIER_NOT_FOUND,
    QUOTA_EXCEEDED,
    SESSION_TAKEN_OVER,
    SUCCESS,
)
from timebound.core.values.store_orders import (
    DropInbound,
    DropRetained,
    DropSubscription,
    PutSubscription,
    Snapshot,
    Will,
)
from timebound.core.values.subscription import Subscription
from timebound.core.wakeups import Wakeups
from timebound.records import Reason
from timebound.topics import split_share

SECONDS_PER_HOUR: Final = 3_600


class Close:
    """An order to end a connection, with the reason for its DISCONNECT."""

    __slots__ = ("connection", "reason", "reason_code")

    def __init__(self, connection: int, reason_code: int, reason: str) -> None:
        self.connection = connection
        self.reason_code = reason_code
        self.reason = reason


class Broker:
    """One broker: every decision it takes."""

    __slots__ = (
        "_closes",
        "_correlations",
        "_distribution",
        "_due",
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
        "_wakeups",
        "account",
        "counters",
        "entrance",
        "publishing",
    )

    def __init__(
        self,
        limits: BrokerLimits,
        access: AccessList,
        is_durable: bool = False,
        index: SubscriptionIndex | None = None,
        entrance: EntranceOptions | None = None,
    ) -> None:
        self._limits = limits
        self.counters = Counters()
        self.entrance = Entrance(entrance or EntranceOptions(), self.counters)
        self._ready = ReadyList()
        self._index = index if index is not None else SubscriptionIndex()
        self._durability = Durability(self._ready, is_durable)
        self.account = Account()
        self._faults = Faults()
        self._reconciled = 0  # faults that `reconcile` has already seen
        self._due = DueList()  # of sessions, and of the links of a mesh
        self._outbound = Outbound(
            limits, self._ready, self._durability, self.counters, self.account, self._faults, self._due
        )
        self._wakeups = Wakeups(self._due, self._outbound, self._faults)
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
        self._pressure = Pressure(self._ready, self._durability, self._faults)
        self.publishing = Publishing(
            self._sessions,
            self._retained,
            self._distribution,
            self._durability,
            self._pressure,
            self.counters,
            self._faults,
        )
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
        """Connect a client accepted on a connection (number > 0); return its session and Session Present."""
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
        """Set listener, scheduling and link delay of a session that has just been connected."""
        session.listener = listener
        self._outbound.set_scheduling(session, scheduling, now_ns)
        self._outbound.set_delay(session, delay, now_ns)

    def disconnect(self, session: Session, connection: int, keep_will: bool, now_ns: int) -> None:
        """Handle the end of a connection; no effect if it no longer serves the session."""
        if session.connection == connection:
            self._lifecycle.disconnect(session, keep_will, now_ns)
            self._pressure.forget(session)
            self._distribution.reassign_orphans(now_ns)
            self._publish_due_wills(now_ns)
            self._distribution.publish_notices(now_ns)

    def identify(self, name: str, started_ns: int) -> None:
        """Set what messages published here are named after; called once, before the first message."""
        self.account.trace.origin = name
        self.account.trace.started_ns = started_ns

    def restore(self, snapshot: Snapshot, now_ns: int) -> None:
        """Restore what an earlier run stored; called once, before the first client."""
        self._distribution.sequence = snapshot.sequence_max
        # A retained message may also be owed to sessions. It must stay one object, or dropping the
        # last copy of one would remove from storage what copies of the other still refer to.
        owed = {
            delivery.message.sequence: delivery.message
            for stored in snapshot.sessions
            for delivery in stored.deliveries
        }
        origin = self.account.trace.origin
        for message in [*owed.values(), *snapshot.retained]:
            # Storage does not know what this broker is called.
            if message.name is None:
                message.name = MessageName(origin, 0, message.sequence)
            elif not message.name.origin:
                message.name.origin = origin
        for message in snapshot.retained:
            if message.is_expired(now_ns):
                self._durability.add(DropRetained(message.topic))
            else:
                self._retained.restore(owed.get(message.sequence, message))
        self._lifecycle.restore(snapshot, now_ns)
        self._publish_due_wills(now_ns)

    def set_access(self, access: AccessList, now_ns: int) -> None:
        """Replace the access rules of all clients: end the subscriptions that they forbid.

        Waiting copies that they forbid are dropped in steps: call `continue_expiry` while `is_expiring`.
        """
        for session, topic_filter in self._lifecycle.set_access(access):
            try:
                self._distribution.leave_group(session, topic_filter, now_ns)
            except Exception as error:  # the rules still apply to all others
                self._faults.note(session.client_id, session.connection, error)
        self.continue_expiry(now_ns)

    # --- subscriptions --------------------------------------------------------------

    def subscribe(self, session: Session, subscription: Subscription, now_ns: int) -> int:
        """Add or replace a subscription and send it retained messages; return the reason code for SUBACK."""
        code, replay = self.begin_subscribe(session, subscription, now_ns)
        if replay is not None:
            self.continue_replay(replay, WALK_STEPS_MAX, now_ns)
        return code

    def begin_subscribe(
        self, session: Session, subscription: Subscription, now_ns: int
    ) -> tuple[int, RetainedReplay | None]:
        """Do what `subscribe` does, except that `continue_replay` sends retained messages in steps."""
        topic_filter = subscription.topic_filter
        group, _ = split_share(topic_filter)
        if not session.access.may_subscribe(topic_filter):
            return NOT_AUTHORIZED, None
        old = session.subscriptions.get(subscription.key)
        if self.limit_reached(session, subscription):
            return QUOTA_EXCEEDED, None
        try:
            if old is not None and not self._correlations.has_timers(subscription):
                self._withdraw(session, old)  # its timers are needed
            is_started = self._correlations.start(subscription, now_ns)
            assert is_started, "no timers are left, although the limits were checked"
            if old is not None and old.key in session.subscriptions:
                self._withdraw(session, old)
            session.add_subscription(subscription)
            self._index.insert(subscription)
            self._outbound.prepare(session, subscription, now_ns)
            if old is not None and old.is_timed():
                self._outbound.relax(session)
            if session.is_durable:
                self._durability.add(PutSubscription(subscription))
        except BaseException:
            # The client gets no SUBACK, so it has no subscription, and the old one is not restored.
            self._withdraw(session, subscription)
            if session.is_durable and subscription.key not in session.subscriptions:
                name = subscription.terms.name
                self._durability.add(DropSubscription(session.client_id, topic_filter, name))
            raise
        wants_retained = subscription.retain_handling == 0 or (
            subscription.retain_handling == 1 and old is None
        )
        if group or not wants_retained:
            return subscription.qos, None
        return subscription.qos, self._distribution.start_replay(session, subscription)

    def continue_replay(self, replay: RetainedReplay, steps_max: int, now_ns: int) -> bool:
        """Send the next retained messages to a new subscription; True if none are left."""
        return self._distribution.continue_replay(replay, steps_max, now_ns)

    def stop_replay(self, replay: RetainedReplay) -> None:
        """Stop sending retained messages, because the client has gone."""
        self._distribution.stop_replay(replay)

    def limit_reached(self, session: Session, subscription: Subscription) -> str:
        """Return the name of the limit that a subscription would exceed; empty if none."""
        limits = self._limits
        old = session.subscriptions.get(subscription.key)
        if old is None and len(session.subscriptions) >= limits.subscriptions_per_client_max:
            return "subscriptions_per_client_max"
        if subscription.predicate is not None or subscription.dependency is not None:
            cost, cost_total, ticks = session.sums_with(subscription)
            # A subscription that costs no more than before is accepted: clients repeat them after a restart.
            if cost > max(limits.filter_cost_per_client_max, session.costs.total):
                return "filter_cost_per_client_max"
            if cost_total > max(limits.filter_cost_total_max, self._lifecycle.costs.total):
                return "filter_cost_total_max"
            if ticks > limits.ticks_per_second_max * SECONDS_PER_HOUR:
                return "ticks_per_second_max"
            if not self._correlations.has_timers(subscription, old):
                return f"the broker's number of timers ({TIMERS_MAX})"
        return ""

    def unsubscribe(self, session: Session, topic_filter: str, now_ns: int, name: str | None = None) -> int:
        """Remove the subscriptions to a filter, or the one of this name; return the code for UNSUBACK."""
        found = session.subscriptions_to(topic_filter)
        if name is not None:
            found = [one for one in found if one.terms.name == name]
        if not found:
            return NO_SUBSCRIPTION_EXISTED
        for subscription in found:
            self._withdraw(session, subscription)
            if session.is_durable:
                name = subscription.terms.name
                self._durability.add(DropSubscription(session.client_id, topic_filter, name))
        if split_share(topic_filter)[0]:
            self._distribution.leave_group(session, topic_filter, now_ns)
        if any([one.is_timed() for one in found]):
            self._outbound.relax(session)
        return SUCCESS

    def _withdraw(self, session: Session, subscription: Subscription) -> None:
        """Remove a subscription from index, correlations and session."""
        key = subscription.key
        self._index.remove(subscription)
        self._correlations.stop(subscription)
        if session.subscriptions.get(key) is subscription:
            session.remove_subscription(key)
        session.audiences.pop(key, None)

    # --- the entrance ---------------------------------------------------------------

    def police(
        self,
        publisher: Publisher,
        session: Session,
        topic: str,
        size: int,
        qos: int,
        packet_id: int,
        arrived_ns: int,
    ) -> int:
        """Check a message against its flow's contract: CONFORMING, EXCESS, or TURNED_DOWN and answered.

        Needed only of publishers with `policers`.
        """
        verdict = self.entrance.police(publisher, topic, size, arrived_ns)
        if verdict == TURNED_DOWN and qos:
            reason = f"{Reason.NOT_ADMITTED.value}: {topic!r} exceeds what was advertised"
            self.refuse_publish(session, qos, packet_id, QUOTA_EXCEEDED, reason)
        return verdict

    def continue_jobs(self, now_ns: int) -> InputRequest | None:
        """Take one step of the first of `entrance.jobs`; return a request that is done, to be answered.

        A step takes well below a millisecond. The driver counts the processor time as that of requests
        (`flows.allowance`).
        """
        flows = self.entrance.flows
        job = self.entrance.jobs.step(now_ns)
        if flows.is_report_new:
            flows.is_report_new = False
            report = flows.last_report.encode()
            self._distribution.route(Message(BOUNDS_TOPIC, report, 0, True, now_ns), now_ns)
        if isinstance(job, InputRequest):
            return job
        if job is not None and job.error is not None:
            self._faults.note(job.name, 0, job.error)
        return None

    # --- messages in ----------------------------------------------------------------

    def publish(self, session: Session, message: Message, packet_id: int, now_ns: int) -> int:
        """Publish a message of a client; with QoS 1 or 2, queue the reply.

        Return TAKEN; DENIED (already answered); or REFUSED: nothing was done, `refusal` returns why, and
        the caller must answer.
        """
        return self.publishing.publish(session, message, packet_id, now_ns)

    def refusal(self, message: Message) -> str:
        """Return why a QoS 1 or 2 message cannot be accepted; empty if it can."""
        return self.publishing.refusal(message)

    def accept_request(self, session: Session, qos: int, packet_id: int, answer: str = "") -> None:
        """Acknowledge a QoS 1 or 2 request to the broker itself, with a text as answer."""
        self.publishing.accept_request(session, qos, packet_id, answer)

    def refuse_publish(
        self, session: Session, qos: int, packet_id: int, reason_code: int, reason: str
    ) -> None:
        """Refuse a QoS 1 or 2 message that the shell did not accept."""
        self.publishing.refuse_publish(session, qos, packet_id, reason_code, reason)

    def is_matching(self) -> bool:
        """Whether messages are being matched in steps; `wake` does the next one."""
        return self.publishing.is_matching()

    def pressed(self) -> list[str]:
        """Return what the last message published here waits for: full brokers it goes to, or its matching."""
        return self.publishing.pressed()

    def has_room(self, homes: list[str]) -> bool:
        """Whether none of these brokers is full."""
        return self.publishing.has_room(homes)

    def relieve_publishers(self) -> None:
        """Send the acknowledgements that waited for links which have room again."""
        self.publishing.relieve_publishers()

    def route(self, message: Message, now_ns: int) -> int:
        """Publish a message of the broker itself, such as `$SYS`; return the number of sessions matched."""
        return self._distribution.route(message, now_ns)

    def join_mesh(self, member: Member) -> None:
        """Forward messages to other brokers whose clients want them; `member` watches the index."""
        self._distribution.mesh = member
        self._wakeups.forwarder = member.forwarder
        member.forwarder.share_due(self._due)
        member.forwarder.on_error = self._note_mesh_error

    def _note_mesh_error(self, error: Exception) -> None:
        self._faults.note(MESH, 0, error)

    def open_link(self, name: str, connection: int) -> Session:
        """Return a session that holds the confirmations for a neighbour broker, and nothing else."""
        session = Session(name, "", ClientAccess([], "", name))
        session.connection = connection
        return session

    def close_link(self, session: Session) -> None:
        """Discard the confirmations that a link still holds: its connection has ended."""
        session.connection = 0
        session.replies.clear()

    def receive_copy(self, copy: Copy, link: Session, packet_id: int, now_ns: int) -> None:
        """Forward a message from a neighbour broker, and deliver it to this broker's clients.

        Its confirmation goes to `link`, of `open_link`, once what must survive a crash is on disk. It does so
        after an error too, or the neighbour would send the copy again for ever. Packet id 0: none is wanted,
        or that of a pack, with its last copy.
        """
        mesh = self._distribution.mesh
        assert mesh is not None, "only a member of a mesh has neighbours"
        message = copy.what.message
        mark = self._durability.mark()
        held: HeldMessage | None = None
        try:
            self._distribution.number(message)
            if not mesh.lets_in(link.client_id, copy):
                mesh.refuse(link.client_id, copy, now_ns)
                self.counters.refuse(Reason.NOT_AUTHORIZED)
            elif mesh.receive(copy, now_ns):
                held = self._distribution.distribute_copy(message, now_ns)
            elif mesh.is_home_of(copy):
                # A second copy; the first may be under way, or not on disk yet.
                held = self._distribution.last_held(message.publisher)
                mark = ALL_SO_FAR
        finally:
            self._distribution.end_selection()
            if packet_id or copy.receipt is not None:
                self.publishing.confirm_copy(link, packet_id, copy.receipt, held, mark)

    def _publish_due_wills(self, now_ns: int) -> None:
        while self._lifecycle.due_wills:
            will = self._lifecycle.due_wills.pop(0)
            try:
                self._publish_will(will, now_ns)
            except Exception as error:  # must not affect the client that is being served
                self._faults.note(will.client_id, 0, error)

    def _publish_will(self, will: Will, now_ns: int) -> None:
        if self._lifecycle.may_publish(will):
            self._distribution.route(_published_will(will.message, now_ns), now_ns)
            return
        self.counters.refuse(Reason.NOT_AUTHORIZED)
        self.counters.alert(
            f"will of client {will.client_id!r} is not published: "
            f"publishing to {will.message.topic!r} is not allowed"
        )

    # --- acknowledgements -----------------------------------------------------------

    def acknowledge(self, session: Session, kind: int, packet_id: int, reason_code: int, now_ns: int) -> bool:
        """Handle PUBACK, PUBREC, PUBREL or PUBCOMP; False if it violates the protocol."""
        if kind != PUBREL:
            return self._outbound.acknowledge(session, kind, packet_id, reason_code, now_ns)
        mark = self._durability.mark()
        if session.inbound.pop(packet_id, False):
            if session.is_durable:
                self._durability.add(DropInbound(session.client_id, packet_id))
            reason_code = SUCCESS
        else:
            reason_code = PACKET_IDENTIFIER_NOT_FOUND
        self._durability.reply(session, Reply(PUBCOMP, packet_id, reason_code), mark)
        return True

    def reply(self, session: Session, frame: bytes, mark: int) -> None:
        """Reply with a packet encoded by the shell, once all orders since `mark` are on disk."""
        self._durability.reply(session, Reply(ENCODED, frame=frame), mark)

    def answer(self, session: Session, frame: bytes) -> None:
        """Reply at once with a packet that does not depend on storage."""
        session.replies.append(Reply(ENCODED, frame=frame))
        self._ready.add(session)

    def mark(self) -> int:
        """Return a position in the orders for storage, for `reply`."""
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
        """Take the sessions with work; call `take_deliveries` for each whose socket has room; once a turn."""
        self._outbound.begin_turn()
        return self._ready.take()

    def put_ready(self, session: Session) -> None:
        """Mark a session as ready if it has work: its socket has room again."""
        if session.has_work():
            self._ready.add(session)

    def take_deliveries(
        self, session: Session, bytes_max: int, now_ns: int, ahead_ns: int = 0
    ) -> list[Delivery]:
        """Take deliveries to write now; the link is busy for `ahead_ns` with earlier ones."""
        deliveries = self._outbound.take(session, bytes_max, now_ns, ahead_ns)
        if self.account.missed:
            self._distribution.publish_notices(now_ns)
        return deliveries

    def abandon(self, session: Session, delivery: Delivery, reason: Reason, now_ns: int) -> None:
        """Drop a delivery that was taken and cannot be sent."""
        self._outbound.abandon(session, delivery, reason, now_ns)

    def take_batch(self) -> Batch | None:
        """Take the orders for storage; call `committed` with the batch when they are on disk."""
        return self._durability.take()

    def keep_topics(self, topic_filters: list[str]) -> None:
        """Collect messages that match these filters for `take_kept`, for journals."""
        self._distribution.tap = Tap(topic_filters)

    def take_kept(self) -> list[Message]:
        """Take the messages for the journals since the last call."""
        tap = self._distribution.tap
        return tap.take() if tap is not None else []

    def committed(self, batch: Batch) -> None:
        self._durability.committed(batch)

    def wake(self, now_ns: int) -> None:
        """Handle what is due, at the time of `next_wakeup_ns`."""
        if self.is_matching():
            self.publishing.continue_matching(now_ns)
        # Before sessions end: what has expired must not go to another member of a group.
        self._wakeups.wake(now_ns)
        self._lifecycle.wake(now_ns)
        self._distribution.reassign_orphans(now_ns)
        self._distribution.wake(now_ns)
        self._publish_due_wills(now_ns)
        self._distribution.publish_notices(now_ns)

    def stop_notices(self) -> None:
        """Stop publishing notices about missed messages, because the broker is stopping."""
        self._distribution.sends_notices = False

    def take_faults(self) -> list[Fault]:
        """Take the errors of single clients; the shell logs them and ends their connections."""
        return self._faults.take()

    def reconcile(self) -> None:
        """Count pairs that errors left without an outcome as dropped; about once a second.

        It visits every copy, so it is not done at once for each error.
        """
        if self.counters.faults == self._reconciled:
            return
        self._reconciled = self.counters.faults
        self.account.reconcile(self._pairs_owed())

    def _pairs_owed(self) -> int:
        return sum([session.pairs_owed() for session in self._sessions.values()])

    def expire(self, now_ns: int) -> None:
        """Begin to drop late and hopeless copies, also of links that accept nothing; about once a second."""
        self._outbound.expire(now_ns)
        self._distribution.reassign_orphans(now_ns)  # in case an error left any
        self._distribution.publish_notices(now_ns)

    def is_expiring(self) -> bool:
        return self._outbound.is_expiring()

    def continue_expiry(self, now_ns: int) -> None:
        """Continue what `expire` or new access rules began, by one step; call it while `is_expiring`."""
        self._outbound.continue_expiry(now_ns)
        self._distribution.reassign_orphans(now_ns)
        self._distribution.publish_notices(now_ns)

    # --- scheduling -----------------------------------------------------------------

    def retained_payload(self, topic: str) -> bytes:
        """Return the payload retained on a topic; empty if none is."""
        message = self._retained.get(topic)
        return b"" if message is None else message.payload

    def forget_own_retained(self, topic: str) -> None:
        """Remove a retained message of the broker itself, without publishing anything."""
        self._retained.remove(topic)

    def set_delay(self, session: Session, delay: LinkDelay, now_ns: int) -> None:
        """Apply a measured delay of the session's link."""
        self._outbound.set_delay(session, delay, now_ns)

    def set_scheduling(self, listener: str, scheduling: Scheduling, now_ns: int) -> int:
        """Change the scheduling of all sessions of a listener; return their number."""
        count = 0
        for session in self._sessions.values():
            if session.listener == listener:
                try:
                    self._outbound.set_scheduling(session, scheduling, now_ns)
                except Exception as error:  # concerns one of many sessions
                    self._faults.note(session.client_id, session.connection, error)
                    self._outbound.mend(session)
                count += 1
        return count

    def next_wakeup_ns(self) -> int | None:
        """Return when to call `wake` next, if nothing else happens; ask after what was ready is written."""
        if self.is_matching():
            return self._distribution.held_ns  # at once
        first = _earlier(self._lifecycle.next_wakeup_ns(), self._correlations.next_wakeup_ns())
        return _earlier(first, self._wakeups.next_ns())

    def forget_matches(self) -> None:
        """Forget the matches of topics, to free memory; they are computed anew when needed."""
        self._index.clear_matches()

    def queued_bytes(self) -> int:
        """Return the memory cost of all copies that wait or are not acknowledged."""
        return self._outbound.queued_bytes

    def session_count(self) -> int:
        return len(self._sessions)

    def session(self, client_id: str) -> Session | None:
        return self._sessions.get(client_id)

    def statistics(self) -> Statistics:
        """Return the present values of all counters and sums."""
        statistics = Statistics(self.counters, self.account)
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
        """Assert that the parts are consistent."""
        self._index._check()
        self._retained._check()
        total = 0
        for session in self._sessions.values():
            session._check()
            total += session.cost_bytes
            for subscription in session.subscriptions.values():
                assert self._index.has(subscription), "a subscription is not in the index"
        assert total == self._outbound.queued_bytes, "queued bytes of sessions and broker differ"
        self._outbound._check()
        assert not self._outbound.orphans, "an orphan was not reassigned"
        count = sum([len(session.subscriptions) for session in self._sessions.values()])
        assert count == len(self._index), "the index holds a subscription of no session"
        self._lifecycle.costs._check(
            [one for session in self._sessions.values() for one in session.subscriptions.values()]
        )
        assert self._lifecycle.connected == sum(
            [1 for session in self._sessions.values() if session.connection]
        ), "the count of connected sessions is wrong"
        assert self.account.outstanding() == self._pairs_owed(), "the account and the queues differ"


def _earlier(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return first if first < second else second


def _published_will(will: Message, now_ns: int) -> Message:
    """Return the message of a will, dated now; a new object, as storage may still be writing the will."""
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
