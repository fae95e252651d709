"""Outgoing deliveries: queued, sent, acknowledged, dropped.

Every copy for a session enters by `offer` and leaves in exactly one way: delivered (QoS 0 when
sent, QoS 1 and 2 when acknowledged), or dropped with a reason. A copy for a durable session is
ordered into storage when it is offered and out of storage when it leaves.

Copies wait in order of arrival. Only when a session has messages with a time limit and more
waits than its link can take at once do they compete: then `LinkQueue` chooses by worth. So a
message that meets no queue costs nothing more. Sums, account and rows in storage are kept
in `owed.py`; that queue is fed and emptied in `ranked.py`.

Long, since a call inside one compiled class is a jump, and most of this is hot.
"""

from __future__ import annotations

import heapq
from typing import Final, cast

from timebound.core.link.queue import LinkQueue
from timebound.core.link.scheduling import Scheduling
from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.sessions.entries import (
    any_needs_scheduling,
    late_ns,
    needs_scheduling,
    sequence_of,
)
from timebound.core.sessions.orphan import is_left
from timebound.core.sessions.owed import is_waiting
from timebound.core.sessions.ranked import STEP_COPIES_MAX, STUCK_NS, Ranked, late_reason
from timebound.core.sessions.rights import Rights
from timebound.core.sessions.session import PUBACK, PUBCOMP, PUBREC, PUBREL, Reply, Session
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import (
    ENTRY_COST,
    GONE,
    NO_MESSAGE,
    QUEUED,
    RELEASED,
    SENT,
    Delivery,
    Message,
    copy_cost,
)
from timebound.core.values.store_orders import PutDelivery
from timebound.core.values.subscription import Subscription
from timebound.records import Reason

PACKET_ID_NOT_FOUND: Final = 0x92
NO_OTHERS: Final[tuple[Subscription, ...]] = ()
# The expected start of sending may move back by this much before the queue is computed anew.
LINK_TIME_SLIP_NS: Final = 20_000_000
# Copies that a session whose oldest unranked copy is stuck ranks with each new one.
STUCK_COPIES_MAX: Final = 4
# A full queue ranks no more unranked copies than these with each new one, unless the turn has steps for more.
FULL_COPIES_MAX: Final = 32
# Dropped copies leave their places in a short queue at once, in a longer one when they are the greater part.
SHORT_QUEUE_MAX: Final = 64


class Outbound(Ranked):
    """The output side of all sessions."""

    __slots__ = ()

    def offer(
        self,
        session: Session,
        message: Message,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...],
        subscription: Subscription,
        others: tuple[Subscription, ...],
        now_ns: int,
        group: str = "",
    ) -> bool:
        """Queue a copy for the session; False if it was dropped instead.

        An error is recorded and ends the connection of this session only: the other receivers of the
        message and its publisher are not affected.
        """
        session.last_sequence += 1
        delivery = Delivery(
            message,
            qos,
            retain,
            subscription_ids,
            session.last_sequence,
            0,
            QUEUED,
            subscription,
            now_ns,
        )
        self.account.matched += 1
        if group:
            delivery.group = group
        if others:
            delivery.others = others
            self.account.matched += len(others)
        try:
            return self._queue(session, delivery, message, subscription, now_ns)
        except Exception as error:  # concerns one of several clients, see faults.py
            self._faults.note(session.client_id, session.connection, error)
            self.mend(session)
            return False

    def _queue(
        self, session: Session, delivery: Delivery, message: Message, subscription: Subscription, now_ns: int
    ) -> bool:
        qos = delivery.qos
        if session.connection == 0 and qos == 0:
            self._drop(session, delivery, Reason.DISCONNECTED, now_ns)
            return False
        if session.scheduled is None and needs_scheduling(session, message, subscription, delivery.others):
            self._make_scheduled(session, now_ns)
        size = message.size()
        cost = copy_cost(size) if session.scheduled is None else copy_cost(size) + ENTRY_COST
        if not self._has_room(session, qos, cost, now_ns):
            if not session.is_full:
                session.is_full = True
                self._counters.alert(
                    f"queue of client {session.client_id!r} is full ({session.queued_messages()} messages, "
                    f"{session.cost_bytes} bytes; all queues {self.queued_bytes} bytes)"
                )
            self._drop(session, delivery, Reason.QUEUE_FULL, now_ns)
            return False
        session.queue.append(delivery)
        session.queue_bytes += size
        session.cost_bytes += cost
        self.queued_bytes += cost
        if qos and session.is_durable and self._durability.is_enabled:
            self._store(session, delivery)
        if session.scheduled is not None:
            self._plan_ranking(session, message, subscription, now_ns)
            if now_ns - session.queue[0].offered_ns > STUCK_NS:
                self._schedule_some(session, session.scheduled, STUCK_COPIES_MAX, now_ns)
                self._counters.long_messages += 1
        elif message.expires_ns:
            self._watch_limit(session, delivery)
        if not session.is_ready:
            self._ready.add(session)
        return True

    def _plan_ranking(
        self, session: Session, message: Message, subscription: Subscription, now_ns: int
    ) -> None:
        """Have a new copy ranked in time, so that the queue by worth knows when to drop it."""
        limit_ns = message.lifetime_ns()
        deadline_ns = subscription.deadline_ns
        if deadline_ns and (limit_ns == 0 or deadline_ns < limit_ns):
            limit_ns = deadline_ns
        if limit_ns:
            left_ns = message.published_ns + limit_ns - now_ns
            rank_ns = now_ns + min(max(left_ns, 0) // 2, STUCK_NS)
            if rank_ns < session.rank_ns:
                session.rank_ns = rank_ns
                self._due.touch(session)

    def take(self, session: Session, bytes_max: int, now_ns: int, ahead_ns: int = 0) -> list[Delivery]:
        """Take deliveries of about `bytes_max` bytes to write now, and record the effects.

        The link is busy for another `ahead_ns` with earlier data. So the deliveries begin to be sent
        that much later, and are judged by that time.
        """
        start_ns = now_ns + ahead_ns
        session.is_full = False
        taken: list[Delivery] = []
        budget = bytes_max
        transit = session.transit if session.scheduled is not None else None
        if transit is not None:
            budget = transit.room_bytes(bytes_max)
        while session.outbox and budget > 0:
            delivery = session.outbox.popleft()
            if not _is_unanswered(session, delivery):
                continue
            budget -= delivery.message.size()
            taken.append(delivery)
        while session.resend and session.send_quota > 0 and budget > 0:
            delivery = session.resend.popleft()
            if not _is_unanswered(session, delivery):
                continue
            session.send_quota -= 1
            budget -= delivery.message.size()
            taken.append(delivery)
        while session.blocked and session.send_quota > 0 and budget > 0:
            delivery = session.blocked.popleft()
            if delivery.state == GONE:
                session.gone -= 1
                continue
            budget -= self._leave_queue(session, delivery)
            if not self._drop_if_late(session, delivery, start_ns):
                self._start(session, delivery, start_ns, taken)
        scheduled = session.scheduled
        if scheduled is None or (len(scheduled) == 0 and session.queue_bytes <= budget):
            budget = self._take_in_order(session, budget, start_ns, taken)
        elif session.send_quota <= 0 and session.scheduled_unconfirmed == 0:
            budget = self._take_unconfirmed(session, budget, start_ns, taken)
        if scheduled is not None and (session.queue or len(scheduled)):
            self._take_by_worth(session, scheduled, budget, start_ns, taken)
        self._counters.messages_sent += len(taken)
        if not session.queue_bytes and session.limits:
            session.limits.clear()
        if transit is not None:
            for delivery in taken:
                size = delivery.message.size()
                transit.record_sent(delivery.packet_id, size, now_ns, max(delivery.sent_ns, now_ns))
            if not session.queue_bytes:
                session.rank_ns = NEVER_NS
                transit.run_dry()
        return taken

    def _take_in_order(self, session: Session, budget: int, start_ns: int, taken: list[Delivery]) -> int:
        """Take copies in order of arrival; return the rest of the budget.

        Copies beyond the client's Receive Maximum are moved to `blocked`, so that others pass them. In a
        session with time limits the first of them ends this, because it may still compete.
        """
        queue = session.queue
        first = len(taken)
        is_timed = session.scheduled is not None
        entry = ENTRY_COST if is_timed else 0
        has_gone = session.gone > 0
        left_bytes = left_cost = 0  # subtracted once at the end: most calls take many copies
        while queue and budget > 0:
            delivery = queue.popleft()
            if has_gone and delivery.state == GONE:
                session.gone -= 1
                continue
            if delivery.qos and (session.send_quota <= 0 or session.blocked):
                if is_timed:
                    queue.appendleft(delivery)
                    break
                session.blocked.append(delivery)
                continue
            size = delivery.message.size()
            budget -= size
            left_bytes += size
            left_cost += copy_cost(size) + entry
            if (is_timed or delivery.message.expires_ns) and self._drop_if_late(session, delivery, start_ns):
                continue
            if delivery.qos:
                self._start(session, delivery, start_ns, taken)
            else:
                delivery.sent_ns = start_ns
                taken.append(delivery)
        session.queue_bytes -= left_bytes
        self._charge(session, -left_cost)
        self.account.delivered_now(session.client_id, taken, first, start_ns)
        return budget

    def _take_unconfirmed(self, session: Session, budget: int, start_ns: int, taken: list[Delivery]) -> int:
        """Take the QoS 0 copies if all fit, where the rest waits for acknowledgements: none competes."""
        plain = [delivery for delivery in session.queue if delivery.qos == 0]
        if sum([delivery.message.size() for delivery in plain]) > budget:
            return budget
        rest = [delivery for delivery in session.queue if delivery.qos]
        session.queue.clear()
        session.queue.extend(rest)
        for delivery in plain:
            budget -= self._leave_queue(session, delivery)
            if not self._drop_if_late(session, delivery, start_ns):
                delivery.sent_ns = start_ns
                self.account.delivered(session.client_id, delivery, start_ns)
                taken.append(delivery)
        return budget

    def _take_by_worth(
        self, session: Session, scheduled: LinkQueue, budget: int, start_ns: int, taken: list[Delivery]
    ) -> None:
        if start_ns < session.scheduled_ns - LINK_TIME_SLIP_NS and self._apply_delay(
            session, scheduled, start_ns
        ):
            # The link is faster than assumed, so time moves back: the whole queue was computed anew.
            session.scheduled_ns = start_ns
        self._learn_path_delay(session, scheduled, start_ns)
        self._schedule(session, scheduled, start_ns)
        while budget > 0:
            if session.send_quota <= 0 and session.scheduled_unconfirmed == 0:
                break  # the rest needs acknowledgements first, and competes until then
            entry = scheduled.pop(session.scheduled_ns)
            if entry is None:
                break
            delivery = cast(Delivery, entry.item)
            if delivery.qos == 0:
                session.scheduled_unconfirmed -= 1
            elif session.send_quota <= 0 or session.blocked:
                session.blocked.append(delivery)
                self._watch_limit(session, delivery)
                continue
            size = self._leave_queue(session, delivery)
            budget -= size
            if delivery.qos:
                self._start(session, delivery, session.scheduled_ns, taken)
            else:
                delivery.sent_ns = session.scheduled_ns
                self.account.delivered(session.client_id, delivery, session.scheduled_ns)
                taken.append(delivery)
            session.scheduled_ns += int(size * scheduled.link.mean_ns_per_byte)
        self._collect_dropped(session, scheduled, session.scheduled_ns)
        self._due.touch(session)
        if scheduled.is_behind():
            self._fall_behind(session)

    def drop_due(self, session: Session, copies_max: int, now_ns: int) -> int:
        """Drop the copies of a session that is due; return how many were handled, some if there are many."""
        count = 0
        try:
            count = self._drop_due(session, copies_max, now_ns)
        except Exception as error:  # as in `offer`
            self._faults.note(session.client_id, session.connection, error)
            self.mend(session)
        self._due.touch(session)
        return count

    def _drop_due(self, session: Session, copies_max: int, now_ns: int) -> int:
        """Drop late copies, and rank those whose time has come; return how many copies were handled."""
        scheduled = session.scheduled
        count = 0
        if scheduled is not None:
            count = self._expire_ranked(session, scheduled, copies_max, now_ns)
            if count < copies_max and session.rank_ns <= now_ns:
                queued = len(session.queue)
                self._rank(session, scheduled, copies_max - count)
                count += queued - len(session.queue)
        if count < copies_max:
            count += self._drop_unranked(session, copies_max - count, now_ns)
        return count

    def _drop_unranked(self, session: Session, copies_max: int, now_ns: int) -> int:
        """Drop late copies of `blocked`, and of `queue` unless they are to be ranked; return how many."""
        count = 0
        while count < copies_max and session.limits and session.limits[0][0] <= now_ns:
            delivery = heapq.heappop(session.limits)[2]
            count += 1
            if not is_waiting(delivery):
                continue
            limit_ns = late_ns(session, delivery)
            if limit_ns > now_ns:  # the link is faster than it was
                self._watch_limit(session, delivery)
                continue
            self._leave_queue(session, delivery)
            session.gone += 1
            reason = late_reason(delivery, limit_ns)
            self._drop(session, delivery, reason, max(limit_ns, delivery.offered_ns))
            delivery.message = NO_MESSAGE
        places = len(session.queue) + len(session.blocked)
        if session.gone and (places <= SHORT_QUEUE_MAX or session.gone > places // 2):
            self._sweep(session)
        return count

    def expire(self, now_ns: int) -> None:
        """Begin to drop copies that timed out or are hopeless, in all queues; about once a second."""
        if not self.expiring:
            self.expiring.extend(self._scheduled.values())
        self.continue_expiry(now_ns)

    def begin_turn(self) -> None:
        """Begin a turn: queues may spend again on what visits all their entries."""
        self._budget.renew()

    def is_expiring(self) -> bool:
        """Whether copies are still to be looked at or dropped, or queues to catch up."""
        return len(self.expiring) > 0 or len(self.reviewing) > 0 or len(self.behind) > 0

    def _catch_up(self, now_ns: int) -> None:
        """Do what queues have put off, as far as the turn's budget goes."""
        while self.behind:
            session = self.behind[0]
            scheduled = session.scheduled
            try:
                if scheduled is not None:
                    if session.scheduled_ns < now_ns:
                        session.scheduled_ns = now_ns
                    if not scheduled.catch_up(session.scheduled_ns):
                        return
                    self._watch_limits(session)
            except Exception as error:  # as in `offer`
                self._faults.note(session.client_id, session.connection, error)
                self.mend(session)
            self.behind.popleft()
            session.is_behind = False
        self._budget.is_awaited = False

    def continue_expiry(self, now_ns: int) -> None:
        """Continue what `expire` and `review` began, by one step, and what queues have put off."""
        self._catch_up(now_ns)
        left = STEP_COPIES_MAX
        while self.reviewing and left > 0:
            session = self.reviewing.popleft()
            try:
                left -= 1 + self._review(session, now_ns)
            except Exception as error:  # as in `offer`
                self._faults.note(session.client_id, session.connection, error)
                self.mend(session)
        while self.expiring and left > 0:
            session = self.expiring.popleft()
            try:
                left -= 1 + self._expire(session, left, now_ns)
            except Exception as error:  # as in `offer`
                self._faults.note(session.client_id, session.connection, error)
                self.mend(session)
                continue
            if left < 0:
                self.expiring.appendleft(session)

    def _expire(self, session: Session, copies_max: int, now_ns: int) -> int:
        """Expire one queue; return how many copies were handled, and `copies_max` if there are more."""
        scheduled = session.scheduled
        self._watch_path(session, now_ns)
        if scheduled is None or not session.queue_bytes:
            count = 0
        else:
            count = self._schedule_some(session, scheduled, copies_max, now_ns)
            if count >= copies_max:
                return count
            count += self._drop_unranked(session, copies_max - count, now_ns)
            if count >= copies_max:
                return count
        if session.is_relaxing:
            count += session.queued_messages()
            self._relax(session)
        return min(count, copies_max - 1)

    def review(self, sessions: list[Session]) -> None:
        """Begin to drop waiting copies that new access rules forbid; of connected clients first."""
        self.reviewing.clear()
        for session in sessions:
            if session.connection:
                self.reviewing.appendleft(session)
            else:
                self.reviewing.append(session)

    def _review(self, session: Session, now_ns: int) -> int:
        """Drop what the rules forbid, or leave it to other members of the group; return how much waited."""
        waiting = self._waiting(session)
        rights = Rights(session)
        forbidden = [delivery for delivery in waiting if not rights.may_have(delivery)]
        self.withdraw(session, forbidden, Reason.NOT_AUTHORIZED, now_ns)
        return len(waiting)

    def _watch_path(self, session: Session, now_ns: int) -> None:
        """Forget the path delay of a receiver that no longer answers."""
        transit = session.transit
        if transit is None:
            return
        transit.watch(now_ns)
        if session.path_delay is not None and not transit.has_speed():
            session.path_delay = None
            if session.scheduled is not None:
                self._apply_delay(session, session.scheduled, session.scheduled_ns)
        if session.has_work():
            self._ready.add(session)

    def prepare(self, session: Session, subscription: Subscription, now_ns: int) -> None:
        """Create the scheduled queue before anything waits, if a new subscription needs it.

        Without one, as much as possible is handed to the link, and cannot be recalled for the first
        urgent message.
        """
        if session.scheduled is None and subscription.is_timed():
            self._make_scheduled(session, now_ns)

    def relax(self, session: Session) -> None:
        """Return to order of arrival once no subscription of the session needs scheduling.

        Waiting copies keep their time limits: while there are any, `expire` tries again.
        """
        if session.scheduled is not None and not session.timed_subscriptions and not session.is_relaxing:
            session.is_relaxing = True
            self._relax(session)

    def _relax(self, session: Session) -> None:
        self._sweep(session)
        if session.timed_subscriptions:
            session.is_relaxing = False
        elif not any_needs_scheduling(session):
            self._return_to_queue(session)
            session.is_relaxing = False
            session.transit = None
            session.path_delay = None
            self._ready.add(session)  # its connection may write without a limit again

    def set_delay(self, session: Session, delay: LinkDelay, now_ns: int) -> None:
        """Apply a measured delay of the session's link to drop times and ranks."""
        session.delay = delay
        if session.scheduled is not None and self._apply_delay(session, session.scheduled, now_ns):
            session.scheduled_ns = now_ns
            self._collect_dropped(session, session.scheduled, now_ns)

    def set_scheduling(self, session: Session, scheduling: Scheduling, now_ns: int) -> None:
        """Change the scheduling settings; waiting copies are kept."""
        session.scheduling = scheduling
        if session.scheduled is not None:
            self._return_to_queue(session)
            self._make_scheduled(session, now_ns)
        elif session.timed_subscriptions:
            self._make_scheduled(session, now_ns)

    def acknowledge(self, session: Session, kind: int, packet_id: int, reason_code: int, now_ns: int) -> bool:
        """Handle PUBACK, PUBREC or PUBCOMP; False if it contradicts the QoS of the delivery."""
        delivery = session.inflight.get(packet_id)
        if delivery is None:
            if kind == PUBREC and reason_code < 0x80:
                mark = self._durability.mark()
                reply = Reply(PUBREL, packet_id, PACKET_ID_NOT_FOUND)
                self._durability.reply(session, reply, mark)
            return True
        if (kind == PUBACK) != (delivery.qos == 1):
            return False
        if session.transit is not None:
            session.transit.answer(packet_id, now_ns)
        if kind == PUBREC and reason_code < 0x80:
            self._settle(session, delivery, None, now_ns)
            self._release(session, delivery)
            if session.has_work():
                self._ready.add(session)
            return True
        if kind == PUBCOMP and delivery.state != RELEASED:
            return False
        if reason_code >= 0x80 and kind != PUBCOMP:
            self._settle(session, delivery, Reason.REFUSED, now_ns)
        else:
            self._settle(session, delivery, None, now_ns)
        self._finish(session, delivery)
        return True

    def abandon(self, session: Session, delivery: Delivery, reason: Reason, now_ns: int) -> None:
        """Drop a delivery that was taken and cannot be sent."""
        self._counters.messages_sent -= 1
        if delivery.qos == 0:
            self.account.retract(session.client_id, delivery)
            self.account.drop(session.client_id, delivery, reason, now_ns)
        else:
            if session.transit is not None:
                session.transit.forget(delivery.packet_id)
            self._settle(session, delivery, reason, now_ns)
            self._finish(session, delivery)

    def resume(self, session: Session, now_ns: int) -> None:
        """Resend on a new connection what was not acknowledged on the last one (4.4).

        Copies past their time limit are not sent again, nor what the access rules forbid now. The receiver
        may know the packet id of a QoS 2 copy: PUBREL frees the id on both sides in any case (4.3.3).
        """
        released = 0
        rights = Rights(session)
        for delivery in session.unanswered():
            if delivery.state != RELEASED and (
                not rights.may_have(delivery) or self._is_late(session, delivery, now_ns)
            ):
                reason = Reason.TIMED_OUT if rights.may_have(delivery) else Reason.NOT_AUTHORIZED
                self._settle(session, delivery, reason, now_ns)
                if delivery.qos == 1:
                    self._finish(session, delivery)
                    continue
                delivery.state = RELEASED
                if delivery.stored:
                    self._durability.add(PutDelivery(session.client_id, delivery))
            if delivery.state == RELEASED:
                released += 1
                mark = self._durability.mark()
                self._durability.reply(session, Reply(PUBREL, delivery.packet_id), mark)
            else:
                delivery.dup = True
                session.resend.append(delivery)
        # Released ids count although MQTT resets the quota (4.9): a client that never completes
        # would otherwise use up all packet ids by reconnecting again and again.
        session.open_window(session.receive_maximum, released)
        if session.has_work():
            self._ready.add(session)

    def unsent(self, session: Session, topic_filter: str) -> list[Delivery]:
        """Return the unsent copies of subscriptions to a filter that have ended, in order."""
        return [one for one in self._waiting(session) if is_left(session, one, topic_filter)]

    def _waiting(self, session: Session) -> list[Delivery]:
        """Return all unsent copies of a session, in order."""
        found = list(session.blocked) + list(session.queue)
        if session.scheduled is not None:
            found += [cast(Delivery, entry.item) for entry in session.scheduled.entries()]
        found = [one for one in found if one.state != GONE]
        found.sort(key=sequence_of)
        return found

    def withdraw(self, session: Session, deliveries: list[Delivery], reason: Reason, now_ns: int) -> None:
        """Remove unsent copies from the session's queues and leave them to other members of the group."""
        if not deliveries:
            return
        is_scheduled = session.scheduled is not None
        self._return_to_queue(session)
        self._sweep(session)
        leaving = {delivery.sequence for delivery in deliveries}
        for waiting in (session.queue, session.blocked):
            kept = [delivery for delivery in waiting if delivery.sequence not in leaving]
            waiting.clear()
            waiting.extend(kept)
        for delivery in deliveries:
            self._leave_queue(session, delivery)
            self._give_up(session, delivery, reason, now_ns)
        if is_scheduled:
            self._make_scheduled(session, now_ns)

    def _start(self, session: Session, delivery: Delivery, now_ns: int, taken: list[Delivery]) -> None:
        delivery.sent_ns = now_ns
        delivery.packet_id = session.start(delivery)
        delivery.state = SENT
        self._charge(session, copy_cost(delivery.message.size()))
        if not delivery.stored:
            taken.append(delivery)
            return
        self._durability.add(PutDelivery(session.client_id, delivery))
        if delivery.qos == 1:
            taken.append(delivery)
        else:
            # After a crash a QoS 2 message must be resent with the same packet id, or the
            # receiver takes it for a new one: so the id is written to disk first.
            self._durability.deliver(session, delivery)

    def _release(self, session: Session, delivery: Delivery) -> None:
        mark = self._durability.mark()
        if delivery.state != RELEASED:
            delivery.state = RELEASED
            if delivery.stored:
                self._durability.add(PutDelivery(session.client_id, delivery))
        # PUBREL makes the receiver forget the packet id, and a PUBLISH resent after it would
        # count as new. So it waits until storage has recorded that the message was received.
        self._durability.reply(session, Reply(PUBREL, delivery.packet_id), mark)

    def _finish(self, session: Session, delivery: Delivery) -> None:
        session.confirm(delivery.packet_id)
        self._charge(session, -copy_cost(delivery.message.size()))
        self._forget(session, delivery)
        if session.blocked or session.resend or (session.scheduled is not None and session.has_work()):
            self._ready.add(session)

    def _has_room(self, session: Session, qos: int, cost: int, now_ns: int) -> bool:
        limits = self._limits
        if self.queued_bytes + cost > limits.queue_bytes_total_max and not self._may_exceed(session, cost):
            return False
        if qos == 0 and session.send_quota <= 0 and self._has_spare_room(session, cost):
            return True
        scheduled = session.scheduled
        if not self.is_full(session, cost):
            return True
        self._drop_unranked(session, STEP_COPIES_MAX, now_ns)
        if scheduled is None:
            return not self.is_full(session, cost)
        unranked = len(session.queue)
        if unranked > FULL_COPIES_MAX and not self._budget.take(unranked):
            return False
        session.scheduled_ns = max(session.scheduled_ns, now_ns)
        # The copy of least worth leaves, which may be the newest one.
        if not self._limit_scheduled(session, scheduled, session.scheduled_ns):
            return False
        self._rank(session, scheduled, unranked)
        blocked = len(session.blocked) - session.gone
        return cost <= scheduled.bytes_max and blocked < limits.queue_messages_per_client_max


def _is_unanswered(session: Session, delivery: Delivery) -> bool:
    """Whether a delivery still has to be sent: an acknowledgement may have come before."""
    return delivery.state == SENT and session.inflight.get(delivery.packet_id) is delivery
