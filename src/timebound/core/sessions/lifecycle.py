"""The life cycle of sessions: connection, take-over, expiry, and wills.

The order of events decides about a will: a take-over first closes the old connection, which
makes its will due, and then either resumes the session, which cancels the will, or ends the
session, which publishes it at once (MQTT 5, 3.1.2.5 and 3.1.3.2.2).
"""

from __future__ import annotations

import heapq
from typing import Final

from timebound.core.matching.index import SubscriptionIndex
from timebound.core.predicate.predicate import Attributes
from timebound.core.sessions.correlations import Correlations
from timebound.core.sessions.durability import Durability
from timebound.core.sessions.faults import Faults
from timebound.core.sessions.outbound import Outbound
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.filter_costs import FilterCosts
from timebound.core.values.limits import SESSION_NEVER_EXPIRES_S, BrokerLimits
from timebound.core.values.message import Delivery
from timebound.core.values.store_orders import (
    DropSession,
    DropSubscription,
    DropWill,
    PutSession,
    PutWill,
    Snapshot,
    Will,
)
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.topics import matches, split_share
from timebound.units import SECOND

# Outdated timers, beyond the needed ones, before all are rebuilt: a client that reconnects
# leaves one behind each time, which may be due only in years.
STALE_TIMERS_MAX: Final = 1_024


class Lifecycle:
    """All sessions, and the timers for their expiry and their wills.

    Wills that are due are appended to `due_wills`; the broker publishes them.
    """

    __slots__ = (
        "_access",
        "_correlations",
        "_dropping",
        "_durability",
        "_faults",
        "_index",
        "_limits",
        "_outbound",
        "_timers",
        "connected",
        "costs",
        "due_wills",
        "sessions",
        "wills",
    )

    def __init__(
        self,
        limits: BrokerLimits,
        access: AccessList,
        index: SubscriptionIndex,
        outbound: Outbound,
        durability: Durability,
        correlations: Correlations,
        faults: Faults,
    ) -> None:
        self._correlations = correlations
        self._faults = faults
        self._access = access
        self._limits = limits
        self._index = index
        self._outbound = outbound
        self._durability = durability
        self._timers: list[tuple[int, str]] = []
        self.sessions: dict[str, Session] = {}
        self.wills: dict[str, Will] = {}
        self.due_wills: list[Will] = []
        self.connected = 0
        self._dropping: dict[str, int] = {}  # client ids whose stored session goes with this batch
        self.costs = FilterCosts()  # of the subscriptions of all sessions

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
        """Open a session for a new connection; return it, and whether it was present before.

        The session must not be connected: the broker closes the old connection first.
        """
        session = self.sessions.get(client_id)
        assert session is None or session.connection == 0
        # A session belongs to its user: another user with the same client id must not inherit it.
        if session is not None and (clean_start or session.user != user):
            self.end(session, Reason.SESSION_EXPIRED, now_ns)
            session = None
        self._cancel_will(client_id)
        is_present = session is not None
        if session is None:
            session = Session(client_id, user, self._access.for_client(user, client_id), self.costs)
            self.sessions[client_id] = session
        session.connection = connection
        self.connected += 1
        session.expires_ns = 0
        session.open_window(min(receive_maximum, self._limits.outgoing_inflight_max))
        session.expiry_interval_s = min(expiry_interval_s, self._limits.session_expiry_max_s)
        # A stored session stays stored until it ends, even if it no longer outlives this connection.
        session.is_durable = session.is_durable or session.expiry_interval_s > 0
        if session.is_durable:
            self._put(session, 0)
        elif self._dropping.get(client_id, 0) > self._durability.stored:
            # Ordered again, for CONNACK to wait: a crash must not bring back what it says is gone.
            self._durability.add(DropSession(client_id))
        if will is not None:
            will.user = user
            self.wills[client_id] = will
            self._durability.add(PutWill(will))
        if is_present:
            self._outbound.resume(session, now_ns)
        return session, is_present

    def disconnect(self, session: Session, keep_will: bool, now_ns: int) -> None:
        """Handle the end of a connection; its will becomes due unless the client withdrew it.

        A DISCONNECT may have changed `expiry_interval_s` just before. If an error is raised, the whole
        session is removed: half a session would block its client id for ever.
        """
        try:
            self._disconnect(session, keep_will, now_ns)
        except Exception as error:  # the caller may be serving another client
            self._faults.note(session.client_id, 0, error)
            self._forget(session)

    def _disconnect(self, session: Session, keep_will: bool, now_ns: int) -> None:
        assert session.connection
        session.connection = 0
        self.connected -= 1
        self._outbound.suspend(session, now_ns)
        will = self.wills.get(session.client_id)
        if will is not None:
            if keep_will:
                self._schedule_will(session, will, now_ns)
            else:
                self._cancel_will(session.client_id)
        if session.expiry_interval_s == 0:
            self.end(session, Reason.SESSION_EXPIRED, now_ns)
            return
        self._put(session, now_ns)
        self._schedule_expiry(session, now_ns)

    def end(self, session: Session, reason: Reason, now_ns: int) -> None:
        """Remove the session; a will that still waits is due now."""
        for subscription in list(session.subscriptions.values()):
            # Removed from the session last: what an error leaves there is found by `_forget`.
            self._index.remove(subscription)
            self._correlations.stop(subscription)
            session.remove_subscription(subscription.key)
        self._outbound.discard(session, reason, now_ns)
        session.inbound.clear()
        del self.sessions[session.client_id]
        self._drop_stored(session)
        self._fire_will(session.client_id)

    def _forget(self, session: Session) -> None:
        """Remove the rest of a session whose regular end failed; its will is not published."""
        if session.connection:
            session.connection = 0
            self.connected -= 1
        for subscription in list(session.subscriptions.values()):
            self._index.remove(subscription)
            self._correlations.stop(subscription)
            session.remove_subscription(subscription.key)
        self._outbound.forget(session)
        session.inbound.clear()
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
        self._drop_stored(session)
        self._cancel_will(session.client_id)

    def _drop_stored(self, session: Session) -> None:
        """Remove a session from storage, and remember that until it is on disk."""
        if not session.is_durable:
            return
        session.is_durable = False
        durability = self._durability
        durability.add(DropSession(session.client_id))
        if not durability.is_enabled:
            return
        dropping = self._dropping
        dropping.pop(session.client_id, None)
        dropping[session.client_id] = durability.batch
        while dropping:  # in the order of their batches
            oldest = next(iter(dropping))
            if dropping[oldest] > durability.stored:
                break
            del dropping[oldest]

    def restore(self, snapshot: Snapshot, now_ns: int) -> None:
        """Restore the sessions and wills of an earlier run; none is connected."""
        for stored in snapshot.sessions:
            access = self._access.for_client(stored.user, stored.client_id)
            session = Session(stored.client_id, stored.user, access, self.costs)
            session.expiry_interval_s = stored.expiry_interval_s
            session.is_durable = True
            self.sessions[stored.client_id] = session
            for subscription in stored.subscriptions:
                if self._correlations.start(subscription, now_ns):
                    session.add_subscription(subscription)
                    self._index.insert(subscription)
            for delivery in stored.deliveries:
                found = _subscriptions_for(session, delivery)
                if found:
                    delivery.subscription = found[0]
                    delivery.others = tuple(found[1:])
                delivery.offered_ns = now_ns
                self._outbound.restore(session, delivery)
            for packet_id in stored.inbound:
                session.inbound[packet_id] = True
            ended_ns = stored.ended_ns or now_ns
            self._end_forbidden(session)  # the rules may be others than those of the earlier run
            if not stored.ended_ns:
                self._put(session, now_ns)
            self._schedule_expiry(session, ended_ns)
        self._outbound.review([one for one in self.sessions.values() if one.queue_bytes])
        for will in snapshot.wills:
            # The broker may have ended after publishing it and before recording that.
            will.message.is_repeated = True
            self.wills[will.client_id] = will
            owner = self.sessions.get(will.client_id)
            if owner is None:
                self._fire_will(will.client_id)
            elif will.due_ns == 0:
                self._schedule_will(owner, will, now_ns)
            else:
                self._arm(will.due_ns, will.client_id)

    def set_access(self, access: AccessList) -> list[tuple[Session, str]]:
        """Apply new access rules; return the sessions and filters of shared subscriptions that they end.

        Copies that they forbid are dropped later, by `continue_expiry`.
        """
        self._access = access
        left: list[tuple[Session, str]] = []
        for session in list(self.sessions.values()):
            try:
                session.access = access.for_client(session.user, session.client_id)
                left += self._end_forbidden(session)
            except Exception as error:  # the rules still apply to all others
                self._faults.note(session.client_id, session.connection, error)
        self._outbound.review([one for one in self.sessions.values() if one.queue_bytes])
        return left

    def _end_forbidden(self, session: Session) -> list[tuple[Session, str]]:
        """End the subscriptions of a session that its rights do not allow; return the shared ones."""
        left: list[tuple[Session, str]] = []
        was_timed = session.timed_subscriptions > 0
        for subscription in list(session.subscriptions.values()):
            topic_filter = subscription.topic_filter
            if session.access.may_subscribe(topic_filter):
                continue
            self._index.remove(subscription)
            self._correlations.stop(subscription)
            session.remove_subscription(subscription.key)
            session.audiences.pop(subscription.key, None)
            session.ticks = {key: tick for key, tick in session.ticks.items() if key[0] != subscription.key}
            if session.is_durable:
                name = subscription.terms.name
                self._durability.add(DropSubscription(session.client_id, topic_filter, name))
            if split_share(topic_filter)[0]:
                left.append((session, topic_filter))
        if was_timed:
            self._outbound.relax(session)
        return left

    def may_publish(self, will: Will) -> bool:
        """Whether the client of a will may publish it under the present rules."""
        return self._access.for_client(will.user, will.client_id).may_publish(will.message.topic)

    def wake(self, now_ns: int) -> None:
        """End the sessions and publish the wills that are due."""
        while self._timers and self._timers[0][0] <= now_ns:
            _, client_id = heapq.heappop(self._timers)
            # Timers are never cancelled: whether one still applies is checked when it is due.
            will = self.wills.get(client_id)
            if will is not None and 0 < will.due_ns <= now_ns:
                self._fire_will(client_id)
            session = self.sessions.get(client_id)
            if session is not None and 0 < session.expires_ns <= now_ns:
                try:
                    self.end(session, Reason.SESSION_EXPIRED, now_ns)
                except Exception as error:  # the other timers are still served
                    self._faults.note(client_id, 0, error)
                    self._forget(session)

    def next_wakeup_ns(self) -> int | None:
        return self._timers[0][0] if self._timers else None

    def _put(self, session: Session, ended_ns: int) -> None:
        self._durability.add(PutSession(session.client_id, session.expiry_interval_s, ended_ns, session.user))

    def _schedule_expiry(self, session: Session, ended_ns: int) -> None:
        if session.expiry_interval_s != SESSION_NEVER_EXPIRES_S:
            session.expires_ns = ended_ns + session.expiry_interval_s * SECOND
            self._arm(session.expires_ns, session.client_id)

    def _schedule_will(self, session: Session, will: Will, now_ns: int) -> None:
        delay_s = min(will.delay_s, session.expiry_interval_s, self._limits.will_delay_max_s)
        if delay_s == 0:
            self._fire_will(session.client_id)
            return
        will.due_ns = now_ns + delay_s * SECOND
        self._durability.add(PutWill(will))
        self._arm(will.due_ns, will.client_id)

    def _arm(self, due_ns: int, client_id: str) -> None:
        heapq.heappush(self._timers, (due_ns, client_id))
        if len(self._timers) > 2 * (len(self.sessions) + len(self.wills)) + STALE_TIMERS_MAX:
            self._timers = [(will.due_ns, name) for name, will in self.wills.items() if will.due_ns]
            for name, session in self.sessions.items():
                if session.expires_ns:
                    self._timers.append((session.expires_ns, name))
            heapq.heapify(self._timers)

    def _fire_will(self, client_id: str) -> None:
        will = self.wills.get(client_id)
        if will is not None:
            self.due_wills.append(will)
            self._cancel_will(client_id)

    def _cancel_will(self, client_id: str) -> None:
        if client_id in self.wills:
            del self.wills[client_id]
            self._durability.add(DropWill(client_id))


def _subscriptions_for(session: Session, delivery: Delivery) -> list[Subscription]:
    """Return the subscriptions that a stored message was for, as far as they still exist.

    Unshared subscriptions are preferred: a copy that other members of a group already have must not be
    given to them again. What correlates has copies of its own, each for one subscription.
    """
    message = delivery.message
    attributes = Attributes(message.user_properties, message.payload, message.topic)
    found: list[list[Subscription]] = [[], [], [], []]  # by how they are preferred
    for subscription in session.subscriptions.values():
        group, topic_filter = split_share(subscription.topic_filter)
        identifier = subscription.identifier
        if identifier and delivery.subscription_ids and identifier not in delivery.subscription_ids:
            continue
        if not matches(topic_filter, message.topic):
            continue
        if subscription.no_local and subscription.client_id == message.publisher:
            continue
        if subscription.predicate is not None and not subscription.predicate.matches(attributes):
            continue
        found[2 * bool(group) + (subscription.dependency is not None)].append(subscription)
    plain, correlated, shared, shared_correlated = found
    of_group = [one for one in shared if one.topic_filter == shared[0].topic_filter]
    return plain or correlated[:1] or of_group or shared_correlated[:1]
