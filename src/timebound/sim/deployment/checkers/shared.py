"""Shared subscriptions: no acknowledged message is lost for a group, and none with QoS 2 reaches two members.

A group is the members of one filter at one broker. It is owed a message if it is owed to a member that was
there from before to the end; whoever of the group gets it, or a record of the group's filter gives a reason
that fits. Not promised, and not checked:

* what `losses.py` leaves out, for every single subscription;
* groups with a member of QoS 0, or one that correlates: the message may be its;
* after a crash of the broker, groups with a member whose session did not outlive its connection: the message
  may have been its, and is not stored;
* a message with QoS 2 that was sent to a member whose session ended (MQTT 5, 4.8.2: nobody else may get it);
* twice: what was published again after a crash.
"""

from __future__ import annotations

from timebound.records import Outcome, Reason
from timebound.sim.deployment.checkers.losses import is_allowed, is_owed, is_promised, may_be_checked
from timebound.sim.deployment.checkers.oracle import selects, share_of
from timebound.sim.deployment.deployment import Checker, Deployment
from timebound.sim.deployment.history import AskedSubscription, History, SentMessage, TracedOutcome

SESSION_OVER = (Reason.SESSION_EXPIRED.value, Reason.DISCONNECTED.value)

Group = tuple[str, str]  # broker and filter


class Shared(Checker):
    """Looks for each promised message at each group."""

    name = "shared"

    def finished(self, deployment: Deployment) -> None:
        if not may_be_checked(deployment):
            return
        history = deployment.history
        groups: dict[Group, list[AskedSubscription]] = {}
        for one in history.subscriptions:
            if share_of(one.topic_filter)[0]:
                groups.setdefault((one.node, one.topic_filter), []).append(one)
        records: dict[int, list[TracedOutcome]] = {}
        for outcome in history.outcomes:
            records.setdefault(outcome.number, []).append(outcome)
        for sent in history.messages.values():
            if not is_promised(sent):
                continue
            for members in groups.values():
                found = [
                    one for one in records.get(sent.number, []) if self._concerns(history, one, sent, members)
                ]
                takers = self._takers(history, sent, members, found)
                if self._is_twice(history, sent, members, takers):
                    told = f"{', '.join(sorted(takers))} all got QoS 2 message {sent.number}"
                    deployment.fail(self.name, f"{told} by {members[0].topic_filter!r}")
                if not takers and self._is_owed(deployment, sent, members):
                    self._check_reasons(deployment, sent, members, found)

    def _concerns(
        self, history: History, record: TracedOutcome, sent: SentMessage, members: list[AskedSubscription]
    ) -> bool:
        """Whether a record is of a group's copy: at its broker, or on the way to it, of no member yet."""
        node, topic_filter = members[0].node, members[0].topic_filter
        if record.client.startswith("$share/"):
            return f"{record.client}/{record.topic_filter}" == topic_filter
        if record.node != node:
            return False
        is_member = record.client in {one.client for one in members}
        return record.topic_filter == topic_filter or (is_member and was_restarted(history, node, sent))

    def _takers(
        self,
        history: History,
        sent: SentMessage,
        members: list[AskedSubscription],
        found: list[TracedOutcome],
    ) -> set[str]:
        """Return who of a group got a message by it; the trace tells, where a member selects it otherwise."""
        topic_filter = members[0].topic_filter
        otherwise = {
            one.client
            for one in history.subscriptions
            if one.topic_filter != topic_filter and selects(one, sent)
        }
        names = {one.client for one in members} - otherwise
        names |= {one.client for one in found if one.outcome != Outcome.DROPPED.value}
        return {one.client for one in history.arrivals if one.number == sent.number and one.client in names}

    def _is_owed(self, deployment: Deployment, sent: SentMessage, members: list[AskedSubscription]) -> bool:
        if not self._is_checked(members) or not any(is_owed(deployment, sent, one) for one in members):
            return False
        settings = [deployment.clients[one.client].setting for one in members]
        if sent.is_empty and any(one.version != 5 for one in settings):
            return False  # nothing in the packet tells its taker which one it is
        is_kept = all(one.expiry_s > 0 for one in settings)
        crashes = [name for time_ns, name in deployment.history.crashes if time_ns >= sent.sent_ns]
        if not is_kept and members[0].node in crashes:
            return False
        deployment.history.counts["group promises checked"] += 1
        return True

    def _is_checked(self, members: list[AskedSubscription]) -> bool:
        """Whether every member acknowledges messages, and gets them one by one."""
        return all(one.code != 0 and "correlate" not in one.terms for one in members)

    def _check_reasons(
        self,
        deployment: Deployment,
        sent: SentMessage,
        members: list[AskedSubscription],
        found: list[TracedOutcome],
    ) -> None:
        for record in found:
            if record.outcome != Outcome.DROPPED.value:
                continue
            if record.reason in SESSION_OVER and sent.qos == 2:
                return
            is_on_the_way = record.client.startswith("$share/")
            of_client = [one for one in members if is_on_the_way or one.client == record.client]
            if any(is_allowed(deployment, record.reason, sent, one) for one in of_client):
                return
        why = ", ".join(one.reason or one.outcome for one in found) or "without a record"
        deployment.fail(
            self.name,
            f"nobody of {members[0].topic_filter!r} at {members[0].node} got {sent.number} of {sent.client}"
            f" on {sent.topic!r} ({why})",
        )

    def _is_twice(
        self, history: History, sent: SentMessage, members: list[AskedSubscription], takers: set[str]
    ) -> bool:
        """Whether a message with QoS 2 reached several members that can only have it by this group."""
        if sent.qos != 2 or len(takers) < 2 or len(sent.taken) > 1 or sent.is_will:
            return False
        if any(time_ns >= sent.sent_ns for time_ns, _ in history.crashes):
            return False
        return all(one.code in (2, -1) and "correlate" not in one.terms for one in members)


def was_restarted(history: History, node: str, sent: SentMessage) -> bool:
    """Whether a broker has forgotten by which filter of a session a message was matched."""
    return any(name == node and time_ns >= sent.sent_ns for time_ns, name in history.crashes)
