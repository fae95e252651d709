"""Distribution: one copy of a message for each session whose subscriptions select it.

The index returns a match. If that is simple, each of its subscriptions gets a copy. Otherwise content
filters, shared groups, correlations and several subscriptions of one session are resolved here.
Retained messages and notices about missed messages are sent from here, too.

Long, since a call inside one compiled class is a jump, and every message passes here.
"""

from __future__ import annotations

import json
from typing import Final

from timebound.core.account.account import Missed
from timebound.core.account.counters import Counters
from timebound.core.matching.gradual import TESTS_PER_STEP, Gradual, GradualSelection, HeldMessage
from timebound.core.matching.index import (
    FilterErrors,
    Match,
    SharedGroup,
    SubscriptionIndex,
    attributes_of,
)
from timebound.core.matching.retained import RetainedStore, RetainedWalk
from timebound.core.matching.tap import Tap
from timebound.core.mesh.member import Member
from timebound.core.predicate.predicate import Attributes
from timebound.core.sessions.correlations import Correlations
from timebound.core.sessions.durability import Durability
from timebound.core.sessions.faults import Faults
from timebound.core.sessions.outbound import NO_OTHERS, Outbound
from timebound.core.sessions.session import Session
from timebound.core.values.message import Delivery, Message
from timebound.core.values.store_orders import DropRetained, PutRetained
from timebound.core.values.subscription import Subscription
from timebound.records import Reason
from timebound.topics import MISSED_PREFIX, is_own_topic, matches

# In place of a client id, for errors that concern no client.
MESH: Final = "the mesh"
FILTERS: Final = "the content filters"
# Notices about messages that were not delivered: to the subscriber, and to everyone who watches drops.
NOTICE_PREFIX: Final = "$timebound/"
DROPS_PREFIX: Final = "$timebound/drops/"
# Missed pairs are collected until the turn is over, but no more than these: each keeps its message
# in memory.
MISSED_MAX: Final = 1_000
NO_IDENTIFIERS: Final[tuple[int, ...]] = ()
# In place of a number of sessions: the message is being matched in steps (`held`).
HELD: Final = -1
# A message with more copies counts as long: the shell then checks the length of the turn.
LONG_COPIES: Final = 64


class RetainedReplay:
    """Retained messages that are being sent to a new subscription, in steps.

    The subscription is already in the index: it gets what is published after `sequence` as usual.
    """

    __slots__ = ("given", "sequence", "session", "subscription", "walk")

    def __init__(
        self, session: Session, subscription: Subscription, walk: RetainedWalk, sequence: int
    ) -> None:
        self.session = session
        self.subscription = subscription
        self.walk = walk
        self.sequence = sequence
        self.given: set[str] = set()  # topics already sent; never iterated


class Distribution:
    """Distributes messages to sessions."""

    __slots__ = (
        "_account",
        "_correlations",
        "_counters",
        "_durability",
        "_faults",
        "_gradual",
        "_groups",
        "_index",
        "_is_holding",
        "_outbound",
        "_replays",
        "_retained",
        "_sessions",
        "held",
        "held_ns",
        "mesh",
        "sends_notices",
        "sequence",
        "tap",
    )

    def __init__(
        self,
        sessions: dict[str, Session],
        index: SubscriptionIndex,
        retained: RetainedStore,
        outbound: Outbound,
        durability: Durability,
        correlations: Correlations,
        counters: Counters,
        faults: Faults,
    ) -> None:
        self._faults = faults
        self._sessions = sessions
        self._index = index
        self._retained = retained
        self._outbound = outbound
        self._account = outbound.account
        self._durability = durability
        self._correlations = correlations
        self._counters = counters
        self._gradual = Gradual()
        self._is_holding = False  # whether `_gradual` has any
        self._groups = 0  # correlations completed
        self._replays: dict[RetainedReplay, bool] = {}  # replays that are not finished
        self.held: HeldMessage | None = None  # the last message, if it is being matched in steps
        self.held_ns = 0  # when one was held, or matched a step further
        self.sequence = 0  # of the last message
        self.sends_notices = True  # about missed messages
        self.mesh: Member | None = None  # for messages to clients of other brokers
        self.tap: Tap | None = None  # for messages to journals

    def route(self, message: Message, now_ns: int) -> int:
        """Distribute a message published here, also to the mesh; return the number of sessions matched.

        HELD: that is not known yet, and `continue_matching` does the rest.
        """
        self.number(message)
        if self.tap is not None and self.tap.offer(message) and message.qos:
            self._durability.expect_journal()
        match = self._index.match(message.topic)
        if (match.cost > TESTS_PER_STEP or self._is_holding) and self._hold(match, message, now_ns):
            return HELD
        count = self._distribute(match, message, now_ns)
        if self.mesh is None and not self._account.missed:
            return count
        return count + self._finish(message, now_ns)

    def _finish(self, message: Message, now_ns: int) -> int:
        """Pass a message on to the mesh, and publish notices if many are due; return its sessions there."""
        count = 0
        if self.mesh is not None:
            try:
                count += self.mesh.publish(message, now_ns)
            except Exception as error:  # local clients have it, and its publisher still gets an answer
                self._faults.note(MESH, 0, error)
            self.end_selection()
        if len(self._account.missed) > MISSED_MAX:  # after the mesh: a notice is matched in its own right
            pressed = [] if self.mesh is None else self.mesh.pressed
            self.publish_notices(now_ns)
            if self.mesh is not None:
                self.mesh.pressed = pressed  # by the message, not by notices
        return count

    def _hold(self, match: Match, message: Message, now_ns: int) -> bool:
        """Hold a message if its filters take long, or if an earlier one of its publisher is held."""
        self.held = None
        held = self._gradual.hold(match, message)
        if held is None:
            return False
        if isinstance(held, GradualSelection):
            self._index.put_selection(held.selected())
            return False
        # Who subscribes from now on gets it as retained, if at all.
        self._prepare(message, now_ns)
        self.held = held
        self._is_holding = True
        self.held_ns = now_ns
        self._counters.long_messages += 1
        return True

    def holding(self) -> dict[str, int]:
        """Return the names of messages that are being matched in steps."""
        return self._gradual.names

    def last_held(self, publisher: str) -> HeldMessage | None:
        return self._gradual.last(publisher)

    def continue_matching(self, now_ns: int) -> HeldMessage | None:
        """Do one step of matching what is held; return the message that has been distributed by it."""
        self.held_ns = now_ns
        try:
            held = self._gradual.step()
        finally:
            if not len(self._gradual):
                self._is_holding = False
                self.held = None
        if held is not None and held.error is None:
            try:
                self._distribute_held(held, now_ns)
            except Exception as error:  # concerns one message
                held.error = error
        return held

    def _distribute_held(self, held: HeldMessage, now_ns: int) -> None:
        message = held.selection.message
        match = self._index.match(message.topic)
        message.trace_hint = match.trace_hint
        self._index.put_selection(held.selection.selected())
        self._route_selectively(match, message, now_ns)
        if held.is_copy:
            self.end_selection()
        else:
            self._finish(message, now_ns)

    def number(self, message: Message) -> None:
        """Number a message that has arrived at this broker."""
        self.sequence += 1
        message.sequence = self.sequence

    def distribute_copy(self, message: Message, now_ns: int) -> HeldMessage | None:
        """Distribute a message from another broker to the clients of this one.

        Return it if it is matched in steps: `continue_matching` does the rest.
        """
        match = self._index.match(message.topic)
        if (match.cost > TESTS_PER_STEP or self._is_holding) and self._hold(match, message, now_ns):
            held = self.held
            assert held is not None
            held.is_copy = True
            return held
        self._distribute(match, message, now_ns)
        return None

    def _prepare(self, message: Message, now_ns: int) -> None:
        """Keep a message if it is retained, for the subscriptions to come."""
        if message.retain:
            self._retain(message)
        if self._replays:
            self._replay_before(message.topic, now_ns)

    def _distribute(self, match: Match, message: Message, now_ns: int) -> int:
        if message.retain or self._replays:
            self._prepare(message, now_ns)
        message.trace_hint = match.trace_hint
        if not match.is_simple:
            return self._route_selectively(match, message, now_ns)
        count = 0
        for subscription in match.plain:
            if subscription.no_local and subscription.client_id == message.publisher:
                continue
            retain = message.retain and subscription.retain_as_published
            self._deliver(subscription, NO_OTHERS, message, retain, now_ns)
            count += 1
        if count > LONG_COPIES:
            self._counters.long_messages += 1
        return count

    def _route_selectively(self, match: Match, message: Message, now_ns: int) -> int:
        """Distribute a message whose match is not simple; return the number of sessions matched."""
        selection = self._index.select(message)
        attributes = selection.attributes
        by_session: dict[str, list[Subscription]] = {}
        waiting = 0
        for subscription in selection.local:
            if subscription.no_local and subscription.client_id == message.publisher:
                continue
            if subscription.dependency is not None:
                self._deliver(subscription, NO_OTHERS, message, False, now_ns)
                waiting += 1
            else:
                by_session.setdefault(subscription.client_id, []).append(subscription)
        for subscriptions in by_session.values():
            first = subscriptions[0]
            retain = message.retain and first.retain_as_published
            self._deliver(first, tuple(subscriptions[1:]), message, retain, now_ns)
        count = len(by_session) + waiting
        if attributes is not None or count > LONG_COPIES:
            self._counters.long_messages += 1
        for group in match.groups:
            candidates = self._candidates(group, attributes)
            if candidates:
                chosen = self._choose_member(candidates, message)
                if group.named:
                    self._deliver_to_member(group.subscriptions_of(chosen, attributes), message, now_ns)
                else:
                    retain = message.retain and chosen.retain_as_published
                    self._deliver(chosen, NO_OTHERS, message, retain, now_ns)
                count += 1
        if self.mesh is None:
            self.end_selection()
        return count

    def end_selection(self) -> None:
        """Release a message that has been matched, here and for other brokers; note filters that raised."""
        errors = self._index.end_selection()
        if errors:
            self._note_all(errors)

    def _deliver_to_member(self, subscriptions: list[Subscription], message: Message, now_ns: int) -> None:
        """Pass a message to the subscriptions of one member of a shared group, which differ in their names.

        Those that correlate together count it once.
        """
        plain: list[Subscription] = []
        served: list[str] = []
        for subscription in subscriptions:
            if subscription.dependency is None:
                plain.append(subscription)
            elif subscription.shared_correlation not in served:
                served.append(subscription.shared_correlation)
                self._deliver(subscription, NO_OTHERS, message, False, now_ns)
        if plain:
            first = plain[0]
            retain = message.retain and first.retain_as_published
            self._deliver(first, tuple(plain[1:]), message, retain, now_ns)

    def _deliver(
        self,
        subscription: Subscription,
        others: tuple[Subscription, ...],
        message: Message,
        retain: bool,
        now_ns: int,
        group: str = "",
        is_correlated: bool = False,
    ) -> bool:
        """Pass a message to a subscription that selects it, and to `others` of the same session.

        Every message takes this way: published here or elsewhere, shared, retained, correlated, a notice or a
        tick. A subscription that correlates gets it later: then `is_correlated`, and `group` names what it
        belongs to. An error ends the connection of this subscriber only; False after one.
        """
        try:
            if subscription.dependency is not None and not is_correlated:
                self._arrive(subscription, message, now_ns)
            else:
                self._offer(subscription, others, message, retain, group, now_ns)
        except Exception as error:  # concerns one of several receivers
            self._note(subscription, error)
            return False
        return True

    def _offer(
        self,
        subscription: Subscription,
        others: tuple[Subscription, ...],
        message: Message,
        retain: bool,
        group: str,
        now_ns: int,
    ) -> None:
        """Queue one copy for all subscriptions of a session (MQTT 5, 3.3.4).

        It has their highest QoS and all identifiers, and RETAIN if one of them wants it as published.
        """
        qos = subscription.qos
        identifiers = (subscription.identifier,) if subscription.identifier else NO_IDENTIFIERS
        if others:
            qos = max(qos, max([other.qos for other in others]))
            identifiers += tuple([other.identifier for other in others if other.identifier])
            if message.retain and any([other.retain_as_published for other in others]):
                retain = True
        if message.qos < qos:
            qos = message.qos
        session = self._sessions[subscription.client_id]
        self._outbound.offer(session, message, qos, retain, identifiers, subscription, others, now_ns, group)

    def _candidates(self, group: SharedGroup, attributes: Attributes | None) -> list[Subscription]:
        errors: FilterErrors = []
        found = group.candidates(attributes, errors)
        self._note_all(errors)
        return found

    def _arrive(self, subscription: Subscription, message: Message, now_ns: int) -> None:
        """Pass a message to a correlation, and deliver what it completes."""
        keeper = self._correlations.keeper(subscription)
        try:
            together = self._correlations.arrive(keeper, message, now_ns)
        except Exception as error:
            self._note(keeper, error)
            return
        self.deliver_together(keeper, together, now_ns)

    def _note_all(self, errors: FilterErrors) -> None:
        """Note filters that raised: here of a client, at another broker of the mesh."""
        for subscription, error in errors:
            if subscription is None:
                self._faults.note(FILTERS, 0, error)
            elif subscription.home:
                self._faults.note(MESH, 0, error)
            else:
                self._note(subscription, error)

    def _note(self, subscription: Subscription, error: Exception) -> None:
        session = self._sessions.get(subscription.client_id)
        self._faults.note(subscription.client_id, session.connection if session is not None else 0, error)

    def deliver_together(self, subscription: Subscription, messages: list[Message], now_ns: int) -> None:
        """Deliver the messages of a completed correlation, all to one member if it is shared.

        An error ends the connection of that member, which need not be the one of `subscription`.
        """
        if not messages:
            return
        takers = self._correlations.takers(subscription)
        if len(takers) > 1:
            subscription = self._choose_member(takers, messages[0])
        first = messages[0]
        session = self._sessions[subscription.client_id]
        if session.connection == 0 and subscription.qos and is_own_topic(first.topic):
            # The client is away: the next tick or alarm replaces the last, so they do not pile up.
            session.ticks[subscription.key, first.topic] = first
            return
        is_group = len(messages) > 1
        if is_group:
            # Only messages delivered together get a number: ticks, alarms and single parts leave no gap.
            self._groups += 1
        for number, message in enumerate(messages):
            if not message.sequence:
                self.number(message)
            group = f"{self._groups}:{number + 1}/{len(messages)}" if is_group else ""
            taker = subscription.free() if is_own_topic(message.topic) else subscription
            if not self._deliver(taker, NO_OTHERS, message, False, now_ns, group, True):
                return

    def deliver_ticks(self, session: Session, now_ns: int) -> None:
        """Deliver the last ticks to a session that has reconnected."""
        ticks = session.ticks
        session.ticks = {}
        for (key, _), message in ticks.items():
            subscription = session.subscriptions.get(key)
            if subscription is not None:
                self.deliver_together(subscription, [message], now_ns)

    def wake(self, now_ns: int) -> None:
        """Deliver the messages of due timers."""
        for due in self._correlations.wake(now_ns):
            if due.error is not None:
                self._note(due.subscription, due.error)
            try:
                self.deliver_together(due.subscription, due.messages, now_ns)
            except Exception as error:  # concerns one of several timers
                self._note(due.subscription, error)

    def reassign_orphans(self, now_ns: int) -> None:
        """Reassign copies that members of shared groups have left; drop those without a taker."""
        orphans = self._outbound.orphans
        if not orphans:
            return
        self._outbound.orphans = []
        takers: dict[str, Subscription] = {}  # by number of a correlation, whose messages stay together
        for orphan in orphans:
            try:
                taker = self._taker(orphan.delivery, takers)
                if taker is None:
                    self._outbound.end_orphan(orphan, False, now_ns)
                # The new copy first: storage then keeps the message that both refer to.
                elif self._hand_on(taker, orphan.delivery, now_ns):
                    self._outbound.end_orphan(orphan, True, now_ns)
                else:
                    self._outbound.forget_orphan(orphan)
            except Exception as error:  # the other orphans are still reassigned
                self._faults.note(orphan.session.client_id, 0, error)
                self._outbound.forget_orphan(orphan)

    def _taker(self, delivery: Delivery, takers: dict[str, Subscription]) -> Subscription | None:
        """Return the member of its group that takes over a copy; None if there is no other."""
        candidates = self._candidates_for(delivery)
        if not candidates:
            return None
        correlation = delivery.group.partition(":")[0]
        chosen = takers.get(correlation) if correlation else None
        if chosen is None:
            chosen = self._choose_member(candidates, delivery.message)
            takers[correlation] = chosen
        return chosen

    def _hand_on(self, taker: Subscription, delivery: Delivery, now_ns: int) -> bool:
        """Queue a copy for another member; False after an error, which ends that member's connection."""
        message = delivery.message
        retain = message.retain and taker.retain_as_published
        others = self._companions(taker, message)
        return self._deliver(taker, others, message, retain, now_ns, delivery.group, True)

    def _companions(self, taker: Subscription, message: Message) -> tuple[Subscription, ...]:
        """Return the other subscriptions of a shared group's member that its copy of a message is for."""
        group = self._index.shared_group(taker.topic_filter)
        if group is None or not group.named or taker.dependency is not None:
            return NO_OTHERS
        attributes = attributes_of(message) if group.predicates() else None
        found = group.subscriptions_of(taker, attributes)
        return tuple([one for one in found if one is not taker and one.dependency is None])

    def leave_group(self, session: Session, topic_filter: str, now_ns: int) -> None:
        """Leave the unsent copies of a member that unsubscribed to the rest of the group.

        Copies without a taker stay with the session, as after any UNSUBSCRIBE.
        """
        unsent = self._outbound.unsent(session, topic_filter)
        wanted = [delivery for delivery in unsent if self._candidates_for(delivery)]
        self._outbound.withdraw(session, wanted, Reason.DISCONNECTED, now_ns)
        self.reassign_orphans(now_ns)

    def _candidates_for(self, delivery: Delivery) -> list[Subscription]:
        """Return the members of the group that could take over a copy."""
        assert delivery.subscription is not None
        group = self._index.shared_group(delivery.subscription.topic_filter)
        if group is None:
            return []
        return self._candidates(group, attributes_of(delivery.message) if group.predicates() else None)

    def _choose_member(self, candidates: list[Subscription], message: Message) -> Subscription:
        """Return the first member that is connected and has room; otherwise the first that can store it.

        An error ends the connection of the member it concerns, and another one is chosen.
        """
        keeper: Subscription | None = None
        connected: Subscription | None = None
        for subscription in candidates:
            try:
                session = self._sessions[subscription.client_id]
                has_room = self._outbound.has_room_for(session, message)
            except Exception as error:  # concerns one of several members
                self._note(subscription, error)
                continue
            if session.connection:
                if has_room:
                    return subscription
                connected = connected or subscription
            elif has_room and keeper is None and message.qos > 0 and subscription.qos > 0:
                keeper = subscription
        return keeper or connected or candidates[0]

    def _retain(self, message: Message) -> None:
        if not message.payload:
            self._forget_retained(message.topic)
        elif not self._retained.put(message):
            # [MQTT-3.3.1-5]: the old message is no longer the last of its topic, so it must go as well.
            self._forget_retained(message.topic)
            self._counters.retained_refused += 1
            self._counters.alert(
                f"message on {message.topic!r} is not retained: the limit is reached "
                f"({len(self._retained)} messages, {self._retained.size_bytes} bytes)"
            )
        elif not message.topic.startswith("$SYS/"):
            self._durability.add(PutRetained(message))

    def _forget_retained(self, topic: str) -> None:
        if self._retained.remove(topic) and not topic.startswith("$SYS/"):
            self._durability.add(DropRetained(topic))

    def start_replay(self, session: Session, subscription: Subscription) -> RetainedReplay:
        """Begin to send the retained messages that a new subscription selects."""
        replay = RetainedReplay(
            session, subscription, self._retained.walk(subscription.topic_filter), self.sequence
        )
        self._replays[replay] = True
        return replay

    def continue_replay(self, replay: RetainedReplay, steps_max: int, now_ns: int) -> bool:
        """Send the next retained messages; True if none are left."""
        if not _is_current(replay):
            self.stop_replay(replay)
            return True
        for message in replay.walk.take(steps_max):
            self._replay(replay, message, now_ns)
        if replay.walk.is_over():
            self.stop_replay(replay)
            return True
        return False

    def stop_replay(self, replay: RetainedReplay) -> None:
        """End a replay; the rest of it is not sent."""
        self._replays.pop(replay, None)

    def _replay_before(self, topic: str, now_ns: int) -> None:
        """Send what is retained on a topic to unfinished replays, before a new message of that topic."""
        message = self._retained.get(topic)
        if message is None:
            return
        for replay in list(self._replays):
            if not _is_current(replay):
                self.stop_replay(replay)
            elif matches(replay.subscription.topic_filter, topic):
                try:
                    self._replay(replay, message, now_ns)
                except Exception as error:  # must not affect the publisher
                    self._note(replay.subscription, error)
                    self.stop_replay(replay)

    def _replay(self, replay: RetainedReplay, message: Message, now_ns: int) -> None:
        """Send a retained message to a new subscription, unless it was sent or is delivered as a new one."""
        subscription = replay.subscription
        if message.sequence > replay.sequence or message.topic in replay.given:
            return
        if message.is_expired(now_ns):
            self._forget_retained(message.topic)
            return
        if subscription.no_local and subscription.client_id == message.publisher:
            return
        predicate = subscription.predicate
        if predicate is not None and not predicate.matches(attributes_of(message)):
            return
        replay.given.add(message.topic)
        self._deliver(subscription, NO_OTHERS, message, True, now_ns)

    def publish_notices(self, now_ns: int) -> None:
        """Publish the requested notices about pairs that were not delivered."""
        missed = self._account.missed
        if not missed:
            return
        self._account.missed = []
        if not self.sends_notices:
            return
        # Checked first: matching the drops of each topic would fill the cache when memory is short.
        is_watched = self._index.has_below(NOTICE_PREFIX[:-1])
        for miss in missed:
            topic = miss.message.topic
            if topic.startswith(NOTICE_PREFIX):
                continue  # no notice about a lost notice
            subscription = miss.subscription
            if (
                subscription is not None
                and subscription.terms.notify_missed
                and miss.client_id in self._sessions
            ):
                notice = _notice(self._account.trace.name_of(miss.message), MISSED_PREFIX, miss, now_ns)
                self.number(notice)
                # With the default terms: no deadline that it could miss, and no price on an own topic.
                taker = Subscription(client_id=miss.client_id, topic_filter=MISSED_PREFIX + "#")
                self._deliver(taker, NO_OTHERS, notice, False, now_ns)
            if is_watched and self._index.match(DROPS_PREFIX + topic).has_any():
                name = self._account.trace.name_of(miss.message)
                self.route(_notice(name, DROPS_PREFIX, miss, now_ns), now_ns)


def _notice(name: str, prefix: str, missed: Missed, now_ns: int) -> Message:
    message = missed.message
    subscription = missed.subscription
    fields = {
        "topic": message.topic,
        "publisher": message.publisher,
        "subscriber": missed.client_id,
        "topic_filter": subscription.topic_filter if subscription is not None else "",
        "reason": missed.reason.value,
        "age_ms": (missed.time_ns - message.published_ns) / 1_000_000,
        "message": name,
    }
    if subscription is not None and subscription.terms.name:
        fields["name"] = subscription.terms.name
    return Message(prefix + message.topic, json.dumps(fields).encode(), 0, False, now_ns)


def _is_current(replay: RetainedReplay) -> bool:
    """Whether the subscription of a replay still exists."""
    return replay.session.subscriptions.get(replay.subscription.key) is replay.subscription
