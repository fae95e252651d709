"""Entries for the queue of a session's link, made from deliveries.

The worth of a copy and its time limit follow from its message and its subscriptions. Copies for
the same subscription share one audience, so that it is computed once.
"""

from __future__ import annotations

import math
from typing import cast

from timebound.core.account.account import pairs
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import NEVER_NS, Entry, flow_key
from timebound.core.sessions.session import Session
from timebound.core.values.message import ENTRY_COST, Delivery, Message, copy_cost
from timebound.core.values.subscription import Subscription


def needs_scheduling(
    session: Session, message: Message, subscription: Subscription, others: tuple[Subscription, ...]
) -> bool:
    """Whether a copy has a time limit or a priority, so that its place in the queue matters."""
    if message.timeout_ns or subscription.deadline_ns or subscription.keep_last:
        return True
    if message.priority and session.scheduling.uses_priority:
        return True
    for one in others:
        if one.deadline_ns or one.keep_last:
            return True
    return False


def any_needs_scheduling(session: Session) -> bool:
    """Whether any waiting copy needs scheduling; O(n)."""
    waiting = [*session.queue, *session.blocked]
    if session.scheduled is not None:
        waiting += [cast(Delivery, entry.item) for entry in session.scheduled.entries()]
    for delivery in waiting:
        subscription = delivery.subscription
        if subscription is not None and needs_scheduling(
            session, delivery.message, subscription, delivery.others
        ):
            return True
    return False


def late_ns(session: Session, delivery: Delivery) -> int:
    """Return the time from which a copy, if sent, is in time for none of its subscriptions (success <= ε).

    NEVER_NS if there is no such time.
    """
    message = delivery.message
    expires_ns = message.expires_ns or NEVER_NS
    longest_ns = 0
    for one in pairs(delivery):
        allowed_ns = message.allowed_ns(one)
        if allowed_ns == 0:
            return expires_ns
        if allowed_ns > longest_ns:
            longest_ns = allowed_ns
    needed_ns = 0.0
    if session.scheduled is not None:
        link = session.scheduled.link
        size = message.size()
        deviation = max(size * math.sqrt(link.variance), link.jitter)
        needed_ns = max(size * link.mean_ns_per_byte + link.z_epsilon * deviation, 0.0)
    return min(expires_ns, message.published_ns + longest_ns - int(needed_ns))


def make_entry(session: Session, delivery: Delivery) -> Entry:
    """Return an entry for the queue of the session's link."""
    message = delivery.message
    subscription = delivery.subscription
    audience = _audience(session, delivery)
    conflation: tuple[str, ...] | None = None
    flow = flow_key(message.publisher, message.topic, delivery.qos, message.timeout_ns, audience)
    is_ordered = False
    if subscription is not None:
        if subscription.keep_last:
            conflation = _conflation(subscription, delivery.others, message.topic)
        if subscription.is_ordered:
            is_ordered = True
            flow = (subscription.topic_filter,)
        for other in delivery.others:
            if other.is_ordered and not is_ordered:
                is_ordered = True
                flow = (other.topic_filter,)
    return Entry(
        delivery,
        message.size(),
        message.published_ns,
        audience,
        message.lifetime_ns(),
        message.priority,
        flow,
        is_ordered,
        conflation,
        session.scheduling.lane_of(message.topic),
        entry_cost(delivery),
    )


def entry_cost(delivery: Delivery) -> int:
    """Return the memory that a delivery counts for while it is scheduled."""
    return copy_cost(delivery.message.size()) + ENTRY_COST


def _audience(session: Session, delivery: Delivery) -> Audience:
    subscription = delivery.subscription
    if subscription is None:
        return Audience([Term()])
    if delivery.others or subscription.is_free:
        # Copies free of charge may wait beside others of the same filter that are not.
        return Audience([_term(one) for one in pairs(delivery)])
    known = session.audiences.get(subscription.key)
    if known is None:
        known = Audience([_term(subscription)])
        session.audiences[subscription.key] = known
    return known


def _conflation(
    subscription: Subscription, others: tuple[Subscription, ...], topic: str
) -> tuple[str, ...] | None:
    """Return what a newer copy must have in common to replace this one; None if none may replace it.

    It is replaced only by a copy for the same subscriptions, all of which keep the last message: what one of
    them lets go, another may still want.
    """
    if not others:
        return (subscription.key, topic)
    if not all([one.keep_last for one in others]):
        return None
    return (subscription.key, *[one.key for one in others], topic)


def _term(subscription: Subscription | None) -> Term:
    if subscription is None:
        return Term()
    return Term(subscription.deadline_ns, subscription.price, subscription.penalty)


def sequence_of(delivery: Delivery) -> int:
    return delivery.sequence
