"""The scheduled queue of a session: made, fed in order of arrival, limited, rid of what is dropped.

What is put off here, since it visits all entries, is caught up with in `outbound.py`.
"""

from __future__ import annotations

from typing import Final, cast

from timebound.core.link.outlet import time_of_drop
from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.entry import NEVER_NS, Entry
from timebound.core.link.transit import MARGIN_MOVE, MARGIN_MOVE_NS, Transit
from timebound.core.sessions.entries import entry_cost, late_ns, make_entry
from timebound.core.sessions.owed import Owed
from timebound.core.sessions.session import Session
from timebound.core.values.message import ENTRY_COST, Delivery
from timebound.records import Reason

# Copies that are ranked or dropped in one step for sessions that are not being served.
STEP_COPIES_MAX: Final = 256
# A copy with a time limit is ranked after it has waited this long, or half of the time that it has: until
# then the link may take it with all others, without a choice. A session whose oldest unranked copy has waited
# longer ranks some copies with each new one.
STUCK_NS: Final = 50_000_000


class Ranked(Owed):
    """Copies that compete for the link of their session."""

    __slots__ = ()

    def _make_scheduled(self, session: Session, now_ns: int) -> None:
        limits = self._limits
        self._sweep(session)
        if session.queue:
            left_ns = session.limits[0][0] - now_ns if session.limits else NEVER_NS
            session.rank_ns = now_ns + min(max(left_ns, 0) // 2, STUCK_NS)
        session.scheduled = session.scheduling.make_queue(
            session.link_delay(),
            limits.queue_messages_per_client_max,
            limits.queue_bytes_per_client_max,
            now_ns,
            self._budget,
        )
        session.scheduled_ns = now_ns
        session.audiences.clear()
        self._charge(session, ENTRY_COST * session.queued_messages())
        if session.transit is None:
            session.transit = Transit()
        session.scheduled.set_margin(session.scheduling.margin_ns, now_ns)
        self._scheduled[session.client_id] = session
        self._watch_limits(session)

    def _learn_path_delay(self, session: Session, scheduled: LinkQueue, now_ns: int) -> None:
        """Update the delay of the path behind the link, as acknowledged or as configured."""
        transit = session.transit
        if transit is None:
            return
        delay = transit.changed_delay()
        if delay is not None:
            session.path_delay = delay
            self._apply_delay(session, scheduled, now_ns)
        margin_ns = max(transit.delay_ns(), session.scheduling.margin_ns)
        moved_ns = abs(margin_ns - scheduled.link.margin)
        if moved_ns > MARGIN_MOVE_NS and moved_ns > MARGIN_MOVE * scheduled.link.margin:
            scheduled.set_margin(margin_ns, now_ns)  # where that is put off, `_take_by_worth` notes it

    def _schedule(self, session: Session, scheduled: LinkQueue, now_ns: int) -> None:
        """Move the waiting copies to the queue in which they compete by worth, some if there are many."""
        if session.scheduled_ns < now_ns:
            session.scheduled_ns = now_ns  # a queue's time never goes backwards
        if (
            session.inflight
            or session.blocked
            or scheduled.bytes_max != self._limits.queue_bytes_per_client_max
        ):
            self._limit_scheduled(session, scheduled, session.scheduled_ns)
        copies = len(session.queue)
        if copies > STEP_COPIES_MAX and not self._budget.take(copies):
            copies = STEP_COPIES_MAX
        self._rank(session, scheduled, copies)

    def _rank(self, session: Session, scheduled: LinkQueue, copies_max: int) -> None:
        while session.queue and copies_max > 0:
            copies_max -= 1
            delivery = session.queue.popleft()
            if delivery.qos == 0:
                session.scheduled_unconfirmed += 1
            scheduled.push(make_entry(session, delivery), session.scheduled_ns)
        if not session.queue:
            session.rank_ns = NEVER_NS
        self._take_dropped(session, scheduled, session.scheduled_ns)
        if scheduled.is_behind():
            self._fall_behind(session)

    def _schedule_some(self, session: Session, scheduled: LinkQueue, copies_max: int, now_ns: int) -> int:
        """Drop late and hopeless copies, then rank new ones; return `copies_max` if there may be more to do.

        The limits of the queue stay: they are updated before a copy is sent or has to leave.
        """
        count = self._expire_ranked(session, scheduled, copies_max, now_ns)
        if count < copies_max:
            queued = len(session.queue)
            self._rank(session, scheduled, copies_max - count)
            count += queued
        return min(count, copies_max)

    def _expire_ranked(self, session: Session, scheduled: LinkQueue, copies_max: int, now_ns: int) -> int:
        """Drop ranked copies that are late or hopeless; return how many, at most `copies_max`."""
        session.scheduled_ns = max(session.scheduled_ns, now_ns)
        scheduled.expire_some(copies_max, session.scheduled_ns)
        return self._take_dropped(session, scheduled, now_ns)

    def _limit_scheduled(self, session: Session, scheduled: LinkQueue, now_ns: int) -> bool:
        """Limit the queue to what blocked and unacknowledged copies leave of the session's limits.

        False: that is put off.
        """
        limits = self._limits
        competing = scheduled.bytes_queued + sum([entry_cost(delivery) for delivery in session.queue])
        bytes_left = limits.queue_bytes_per_client_max - (session.cost_bytes - competing)
        messages_left = limits.queue_messages_per_client_max - len(session.blocked) + session.gone
        if scheduled.set_limits(max(messages_left, 1), max(bytes_left, 1), now_ns):
            return True
        self._fall_behind(session)
        return False

    def _collect_dropped(self, session: Session, scheduled: LinkQueue, now_ns: int) -> None:
        """Drop what is late by now, some if there is much, and account for what was dropped."""
        scheduled.expire_some(STEP_COPIES_MAX, now_ns)
        self._take_dropped(session, scheduled, now_ns)

    def _take_dropped(self, session: Session, scheduled: LinkQueue, now_ns: int) -> int:
        """Account for what the queue has dropped; return how many copies."""
        count = 0
        while (entry := scheduled.next_dropped()) is not None:
            self._account_dropped(session, entry, now_ns)
            count += 1
        return count

    def _account_dropped(self, session: Session, entry: Entry, now_ns: int) -> None:
        delivery = cast(Delivery, entry.item)
        if delivery.qos == 0:
            session.scheduled_unconfirmed -= 1
        self._leave_queue(session, delivery)
        reason = entry.reason
        assert reason is not None
        self._drop(session, delivery, reason, time_of_drop(entry, now_ns))

    def _is_late(self, session: Session, delivery: Delivery, now_ns: int) -> bool:
        """Whether a copy sent now would be in time for none of its subscriptions (success <= ε)."""
        return late_ns(session, delivery) <= now_ns

    def _drop_if_late(self, session: Session, delivery: Delivery, now_ns: int) -> bool:
        if not self._is_late(session, delivery, now_ns):
            return False
        self._drop(session, delivery, late_reason(delivery, now_ns), now_ns)
        return True

    def _apply_delay(self, session: Session, scheduled: LinkQueue, now_ns: int) -> bool:
        """Compute all drop times anew after the delay of the link has changed; False: that is put off."""
        if not scheduled.set_link(session.link_delay(), now_ns):
            self._fall_behind(session)
            return False
        self._watch_limits(session)
        return True

    def _fall_behind(self, session: Session) -> None:
        """Note that the queue of a session has put something off."""
        if not session.is_behind:
            session.is_behind = True
            self.behind.append(session)
            self._budget.is_awaited = True


def late_reason(delivery: Delivery, now_ns: int) -> Reason:
    """Return why a copy that is late is dropped."""
    message = delivery.message
    if message.is_expired(now_ns):
        return Reason.EXPIRED
    if now_ns - message.published_ns >= message.allowed_ns(delivery.subscription):
        return Reason.TIMED_OUT
    return Reason.HOPELESS
