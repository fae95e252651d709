"""The copies that sessions are owed: waiting, or sent and not acknowledged.

Every operation on a queue updates the same things: the sums of the session and of all sessions, the
account, and the rows in storage. That is done here, and repaired here after an error, together with
the events that concern all copies of a session: its connection is lost, it ends, or it is restored.
How copies move is in `outbound.py`, which extends this class: a call inside one compiled class is a jump.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final, cast

from timebound.core.account.account import Account
from timebound.core.account.counters import Counters
from timebound.core.link.budget import TurnBudget
from timebound.core.link.due import DueList
from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.sessions.durability import Durability
from timebound.core.sessions.entries import late_ns, sequence_of
from timebound.core.sessions.faults import Faults
from timebound.core.sessions.orphan import Orphan
from timebound.core.sessions.session import ReadyList, Session
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import COPY_COST, ENTRY_COST, GONE, QUEUED, Delivery, Message, copy_cost
from timebound.core.values.store_orders import DropDelivery, DropMessage, PutDelivery, PutMessage
from timebound.records import Reason
from timebound.topics import SHARE_PREFIX

# A queue that is full of unacknowledged copies accepts QoS 0 for another sixteenth of its limits. All queues
# together accept another sixteenth for sessions in which less than SMALL_QUEUE_BYTES wait.
SPARE_PART: Final = 16
SMALL_QUEUE_BYTES: Final = 64 * 1024
# Of all that waits, this part may be in `limits` although it has left, and a few more. They are then removed
# in one pass, which costs each copy as much as eight steps of it.
STALE_PART: Final = 8
STALE_MIN: Final = 8


class Owed:
    """The copies that all sessions are owed."""

    __slots__ = (
        "_budget",
        "_counters",
        "_due",
        "_durability",
        "_faults",
        "_limits",
        "_ready",
        "_scheduled",
        "account",
        "behind",
        "expiring",
        "orphans",
        "queued_bytes",
        "reviewing",
    )

    def __init__(
        self,
        limits: BrokerLimits,
        ready: ReadyList,
        durability: Durability,
        counters: Counters,
        account: Account,
        faults: Faults,
        due: DueList,
    ) -> None:
        self._faults = faults
        self._limits = limits
        self._ready = ready
        self._durability = durability
        self._counters = counters
        self.account = account
        self.queued_bytes = 0  # memory cost of all sessions
        self._scheduled: dict[str, Session] = {}  # sessions whose `scheduled` is set
        self.expiring: deque[Session] = deque()  # those that the present expiry has still to visit
        self.reviewing: deque[Session] = deque()  # those whose copies are still to be compared with new rules
        self.orphans: list[Orphan] = []
        self._due = due
        self._budget = TurnBudget()  # of all queues by worth together
        self.behind: deque[Session] = deque()  # those whose queue has put something off

    def restore(self, session: Session, delivery: Delivery) -> None:
        """Restore a delivery read from storage."""
        session.last_sequence = max(session.last_sequence, delivery.sequence)
        self.account.matched += 1 + len(delivery.others)
        size = delivery.message.size()
        self._charge(session, copy_cost(size))
        if delivery.packet_id:
            session.inflight[delivery.packet_id] = delivery
        else:
            session.queue.append(delivery)
            session.queue_bytes += size
            self._watch_limit(session, delivery)

    # --- room -------------------------------------------------------------------------

    def has_room_for(self, session: Session, message: Message) -> bool:
        """Whether a message fits without dropping another of this session."""
        cost = copy_cost(message.size())
        return not self.is_full(session, cost if session.scheduled is None else cost + ENTRY_COST)

    def is_full(self, session: Session, cost: int) -> bool:
        """Whether a copy of this cost exceeds the limits of the session."""
        limits = self._limits
        if session.cost_bytes + cost > limits.queue_bytes_per_client_max:
            return True
        # Counted only if there may be so many: each costs COPY_COST or more.
        messages_max = limits.queue_messages_per_client_max
        return session.cost_bytes >= messages_max * COPY_COST and session.queued_messages() >= messages_max

    def _may_exceed(self, session: Session, cost: int) -> bool:
        """Whether a session that keeps up may exceed the total limit, which others have reached."""
        if session.connection == 0:
            return False
        total_max = self._limits.queue_bytes_total_max
        is_small = session.cost_bytes == 0 or session.cost_bytes + cost <= SMALL_QUEUE_BYTES
        return is_small and self.queued_bytes + cost <= total_max + total_max // SPARE_PART

    def _has_spare_room(self, session: Session, cost: int) -> bool:
        """Whether QoS 0 fits beside copies that wait for the client's acknowledgements.

        These may fill the queue for as long as the client does not answer, and must not stop QoS 0.
        """
        limits = self._limits
        plain = len(session.queue) + session.scheduled_unconfirmed
        spare_bytes = limits.queue_bytes_per_client_max // SPARE_PART
        return (
            plain < limits.queue_messages_per_client_max // SPARE_PART
            and session.cost_bytes + cost <= limits.queue_bytes_per_client_max + spare_bytes
        )

    # --- the ends of connections and sessions ------------------------------------------

    def suspend(self, session: Session, now_ns: int) -> None:
        """Drop what belonged to the connection, which is gone; the rest waits in the queue."""
        session.replies.clear()
        session.awaiting.clear()
        session.slowed_by.clear()
        session.remarks.clear()
        session.is_pressed = False
        session.outbox.clear()
        session.resend.clear()
        session.held = 0
        session.transit = None
        session.path_delay = None
        session.is_relaxing = False
        self._return_to_queue(session)
        self._sweep(session)
        kept = [delivery for delivery in session.queue if delivery.qos]
        for delivery in session.queue:
            if delivery.qos == 0:
                self._leave_queue(session, delivery)
                self._give_up(session, delivery, Reason.DISCONNECTED, now_ns)
        session.queue.clear()
        session.queue.extendleft(reversed(kept))
        session.queue.extendleft(reversed(session.blocked))
        session.blocked.clear()
        self._recount(session)

    def discard(self, session: Session, reason: Reason, now_ns: int) -> None:
        """Drop all copies of a session that ends, or leave them to other members of its groups.

        Of sent copies, QoS 1 may go to another member; QoS 2 may not (MQTT 5, 4.8.2).
        """
        self._return_to_queue(session)
        self._sweep(session)
        for delivery in session.inflight.values():
            if delivery.qos == 1 and not delivery.is_settled:
                self._give_up(session, delivery, reason, now_ns)
            else:
                self._settle(session, delivery, reason, now_ns)
                self._forget(session, delivery)
        for delivery in list(session.blocked) + list(session.queue):
            self._give_up(session, delivery, reason, now_ns)
        self._clear(session)

    def forget(self, session: Session) -> None:
        """Drop all copies of a session whose regular end failed, without accounting for them."""
        if session.scheduled is not None:
            self._return_to_queue(session)
        for delivery in [*session.queue, *session.blocked, *session.inflight.values()]:
            self._forget(session, delivery)
        session.replies.clear()
        session.outbox.clear()
        session.resend.clear()
        session.held = 0
        self._clear(session)

    def mend(self, session: Session) -> None:
        """Repair a session after an error: the remaining copies wait by arrival, the sums are recomputed."""
        self._return_to_queue(session)
        session.is_relaxing = False
        self._recount(session)
        self._watch_limits(session)

    def end_orphan(self, orphan: Orphan, is_taken: bool, now_ns: int) -> None:
        """End an orphan: another member has its own copy (`is_taken`), or it is dropped."""
        if is_taken:
            # The pairs are counted for the other member.
            self.account.matched -= 1 + len(orphan.delivery.others)
            self._forget(orphan.session, orphan.delivery)
        else:
            self._drop(orphan.session, orphan.delivery, orphan.reason, now_ns)

    def forget_orphan(self, orphan: Orphan) -> None:
        """Remove an orphan whose reassignment failed; nobody gets it."""
        self._forget(orphan.session, orphan.delivery)

    def _return_to_queue(self, session: Session) -> None:
        """Undo `_schedule`: the copies wait in order of arrival again, before later ones."""
        scheduled = session.scheduled
        if scheduled is None:
            return
        for entry in scheduled.take_dropped():
            # Only an error leaves any, between a drop and its account; `reconcile` adds the missing outcome.
            self._forget(session, cast(Delivery, entry.item))
        self._charge(session, -ENTRY_COST * session.queued_messages())
        waiting = [cast(Delivery, entry.item) for entry in scheduled.dissolve()]
        waiting.sort(key=sequence_of)
        session.queue.extendleft(reversed(waiting))
        session.scheduled = None
        session.scheduled_unconfirmed = 0
        session.audiences.clear()
        session.rank_ns = NEVER_NS
        self._scheduled.pop(session.client_id, None)
        self._watch_limits(session)

    # --- time limits ------------------------------------------------------------------

    def _watch_limit(self, session: Session, delivery: Delivery) -> None:
        """Have a copy dropped when it is late, if nothing ranks it."""
        limit_ns = late_ns(session, delivery)
        if limit_ns == NEVER_NS:
            return
        limits = session.limits
        heapq.heappush(limits, (limit_ns, delivery.sequence, delivery))
        waiting = len(session.queue) + len(session.blocked)
        if len(limits) > waiting + waiting // STALE_PART + STALE_MIN:
            session.limits = [item for item in limits if is_waiting(item[2])]
            heapq.heapify(session.limits)
        self._due.touch(session)

    def _watch_limits(self, session: Session) -> None:
        """Compute anew when copies are late that nothing ranks; O(n)."""
        waiting = list(session.blocked)
        if session.scheduled is None:
            waiting.extend(session.queue)
        limits = [(late_ns(session, one), one.sequence, one) for one in waiting if one.state != GONE]
        session.limits = [item for item in limits if item[0] < NEVER_NS]
        heapq.heapify(session.limits)
        self._due.touch(session)

    def _sweep(self, session: Session) -> None:
        """Remove the places of dropped copies; O(n)."""
        if session.gone:
            for waiting in (session.queue, session.blocked):
                kept = [delivery for delivery in waiting if delivery.state != GONE]
                waiting.clear()
                waiting.extend(kept)
            session.gone = 0

    # --- outcomes ---------------------------------------------------------------------

    def _drop(self, session: Session, delivery: Delivery, reason: Reason, now_ns: int) -> None:
        """Account for a copy that has left its queue and will never be sent."""
        # Storage first: `reconcile` adds an outcome that an error leaves out of the account.
        delivery.state = GONE
        self._forget(session, delivery)
        self.account.drop(session.client_id, delivery, reason, now_ns)

    def _give_up(self, session: Session, delivery: Delivery, reason: Reason, now_ns: int) -> None:
        """Drop a copy that its session will not get; one of a shared subscription becomes an orphan."""
        subscription = delivery.subscription
        if (
            subscription is not None
            and subscription.topic_filter.startswith(SHARE_PREFIX)
            and not subscription.is_free
        ):
            delivery.state = GONE
            self.orphans.append(Orphan(session, delivery, reason))
        else:
            self._drop(session, delivery, reason, now_ns)

    def _settle(self, session: Session, delivery: Delivery, reason: Reason | None, now_ns: int) -> None:
        """Account for the outcome of a QoS 1 or 2 copy, once: delivered, or dropped for a reason."""
        if delivery.is_settled:
            return
        delivery.is_settled = True
        if reason is None:
            self.account.delivered(session.client_id, delivery, now_ns)
        else:
            self.account.drop(session.client_id, delivery, reason, now_ns)

    # --- sums and rows ----------------------------------------------------------------

    def _leave_queue(self, session: Session, delivery: Delivery) -> int:
        size = delivery.message.size()
        cost = copy_cost(size) if session.scheduled is None else copy_cost(size) + ENTRY_COST
        session.queue_bytes -= size
        session.cost_bytes -= cost
        self.queued_bytes -= cost
        return size

    def _charge(self, session: Session, cost: int) -> None:
        session.cost_bytes += cost
        self.queued_bytes += cost

    def _clear(self, session: Session) -> None:
        session.queue.clear()
        session.blocked.clear()
        session.inflight.clear()
        session.limits.clear()
        self._due.remove(session)
        self._recount(session)

    def _recount(self, session: Session) -> None:
        """Recompute the sums: an error may have been raised between a change and its sum."""
        assert session.scheduled is None, "scheduled copies are counted by their queue"
        session.gone = len(session.queue) + len(session.blocked)  # not trusted: any of them may be
        self._sweep(session)
        waiting = 0
        cost = 0
        for delivery in [*session.queue, *session.blocked]:
            size = delivery.message.size()
            waiting += size
            cost += copy_cost(size)
        for delivery in session.inflight.values():
            cost += copy_cost(delivery.message.size())
        session.queue_bytes = waiting
        self._charge(session, cost - session.cost_bytes)

    def _check(self) -> None:
        """Assert that no session will be visited later than its next drop."""
        self._due._check()
        for session in self._scheduled.values():
            assert session.scheduled is not None, "a session without a queue by worth is visited for it"

    def _store(self, session: Session, delivery: Delivery) -> None:
        message = delivery.message
        if message.stored_copies == 0:
            self._durability.add(PutMessage(message))
        message.stored_copies += 1
        delivery.stored = True
        self._durability.add(PutDelivery(session.client_id, delivery))

    def _forget(self, session: Session, delivery: Delivery) -> None:
        if not delivery.stored:
            return
        delivery.stored = False
        self._durability.add(DropDelivery(session.client_id, delivery.sequence))
        delivery.message.stored_copies -= 1
        if delivery.message.stored_copies == 0:
            self._durability.add(DropMessage(delivery.message.sequence))


def is_waiting(delivery: Delivery) -> bool:
    """Whether a copy has neither been sent nor dropped."""
    return delivery.state == QUEUED and delivery.sent_ns == 0
