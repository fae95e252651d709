"""Deliveries on their way out: queued, sent, acknowledged, dropped.

Every copy of a message that a session is owed enters by `offer` and leaves by exactly one
of: sent (QoS 0), acknowledged (QoS 1 and 2), or dropped with a reason. What is owed to a
durable session is ordered into storage when it is offered and out of it when it leaves.
"""

from __future__ import annotations

from typing import Final

from timebound.core.durability import Durability
from timebound.core.effects import DropDelivery, DropMessage, PutDelivery, PutMessage
from timebound.core.limits import BrokerLimits
from timebound.core.message import RELEASED, SENT, Delivery, Message
from timebound.core.session import PUBACK, PUBCOMP, PUBREC, PUBREL, ReadyList, Reply, Session
from timebound.core.stats import Counters
from timebound.records import Reason

PACKET_ID_NOT_FOUND: Final = 0x92


class Outbound:
    """The output side of all sessions."""

    __slots__ = ("_counters", "_durability", "_limits", "_ready", "queued_bytes")

    def __init__(
        self, limits: BrokerLimits, ready: ReadyList, durability: Durability, counters: Counters
    ) -> None:
        self._limits = limits
        self._ready = ready
        self._durability = durability
        self._counters = counters
        self.queued_bytes = 0  # of all sessions

    def offer(
        self, session: Session, message: Message, qos: int, retain: bool, subscription_ids: tuple[int, ...]
    ) -> bool:
        """Queue a copy for the session; False if it was dropped instead."""
        if session.connection == 0 and qos == 0:
            self._counters.drop(Reason.DISCONNECTED)
            return False
        size = message.size()
        limits = self._limits
        if (
            session.queue_bytes + size > limits.queue_bytes_per_client_max
            or len(session.queue) + len(session.waiting) >= limits.queue_messages_per_client_max
            or self.queued_bytes + size > limits.queue_bytes_total_max
        ):
            self._counters.drop(Reason.QUEUE_FULL)
            return False
        session.last_sequence += 1
        delivery = Delivery(message, qos, retain, subscription_ids, session.last_sequence)
        session.queue.append(delivery)
        session.queue_bytes += size
        self.queued_bytes += size
        if qos and session.is_durable and self._durability.is_enabled:
            self._store(session, delivery)
        if not session.is_ready:
            self._ready.add(session)
        return True

    def take(self, session: Session, bytes_max: int, now_ns: int) -> list[Delivery]:
        """Deliveries to write now, about `bytes_max` of them; what they leave behind is recorded."""
        taken: list[Delivery] = []
        budget = bytes_max
        while session.outbox and budget > 0:
            delivery = session.outbox.popleft()
            budget -= delivery.message.size()
            taken.append(delivery)
        while session.resend and session.send_quota > 0 and budget > 0:
            delivery = session.resend.popleft()
            session.send_quota -= 1
            budget -= delivery.message.size()
            taken.append(delivery)
        while session.waiting and session.send_quota > 0 and budget > 0:
            delivery = session.waiting.popleft()
            budget -= self._leave_queue(session, delivery)
            if not self._drop_if_expired(session, delivery, now_ns):
                self._start(session, delivery, taken)
        queue = session.queue
        while queue and budget > 0:
            delivery = queue.popleft()
            if delivery.qos and (session.send_quota <= 0 or session.waiting):
                session.waiting.append(delivery)
                continue
            budget -= self._leave_queue(session, delivery)
            if delivery.message.expires_ns and self._drop_if_expired(session, delivery, now_ns):
                continue
            if delivery.qos:
                self._start(session, delivery, taken)
            else:
                taken.append(delivery)
        self._counters.messages_sent += len(taken)
        return taken

    def acknowledge(self, session: Session, kind: int, packet_id: int, reason_code: int) -> bool:
        """Take a PUBACK, PUBREC or PUBCOMP; False if it contradicts the delivery's QoS."""
        delivery = session.inflight.get(packet_id)
        if delivery is None:
            if kind == PUBREC:
                mark = self._durability.mark()
                reply = Reply(PUBREL, packet_id, PACKET_ID_NOT_FOUND)
                self._durability.reply(session, reply, mark)
            return True
        if (kind == PUBACK) != (delivery.qos == 1):
            return False
        if kind == PUBREC and reason_code < 0x80:
            self._release(session, delivery)
            return True
        if kind == PUBCOMP and delivery.state != RELEASED:
            return False
        if reason_code >= 0x80 and kind != PUBCOMP:
            self._counters.drop(Reason.REFUSED)
        self._finish(session, delivery)
        return True

    def abandon(self, session: Session, delivery: Delivery, reason: Reason) -> None:
        """Give up a delivery that was taken and turned out unsendable."""
        self._counters.messages_sent -= 1
        self._counters.drop(reason)
        if delivery.qos:
            self._finish(session, delivery)

    def resume(self, session: Session) -> None:
        """Send again, on a new connection, what the last one left without an answer (4.4)."""
        for delivery in session.inflight.values():
            if delivery.state == RELEASED:
                mark = self._durability.mark()
                self._durability.reply(session, Reply(PUBREL, delivery.packet_id), mark)
            else:
                delivery.dup = True
                session.resend.append(delivery)
        if session.has_work():
            self._ready.add(session)

    def suspend(self, session: Session) -> None:
        """The connection is gone: what was only for it goes too."""
        session.replies.clear()
        session.outbox.clear()
        session.resend.clear()
        session.held = 0
        kept = [delivery for delivery in session.queue if delivery.qos]
        for delivery in session.queue:
            if delivery.qos == 0:
                self._leave_queue(session, delivery)
                self._counters.drop(Reason.DISCONNECTED)
        session.queue.clear()
        session.queue.extendleft(reversed(kept))
        session.queue.extendleft(reversed(session.waiting))
        session.waiting.clear()

    def discard(self, session: Session, reason: Reason) -> None:
        """The session ends: everything still owed to it is dropped."""
        for delivery in list(session.queue) + list(session.waiting):
            self._leave_queue(session, delivery)
            self._forget(session, delivery)
            self._counters.drop(reason)
        for delivery in session.inflight.values():
            self._forget(session, delivery)
            self._counters.drop(reason)
        session.queue.clear()
        session.waiting.clear()
        session.inflight.clear()

    def restore(self, session: Session, delivery: Delivery) -> None:
        """Put back a delivery read from storage."""
        session.last_sequence = max(session.last_sequence, delivery.sequence)
        if delivery.packet_id:
            session.inflight[delivery.packet_id] = delivery
        else:
            session.queue.append(delivery)
            session.queue_bytes += delivery.message.size()
            self.queued_bytes += delivery.message.size()

    def _start(self, session: Session, delivery: Delivery, taken: list[Delivery]) -> None:
        delivery.packet_id = session.next_packet_id()
        delivery.state = SENT
        session.inflight[delivery.packet_id] = delivery
        session.send_quota -= 1
        if not delivery.stored:
            taken.append(delivery)
            return
        self._durability.add(PutDelivery(session.client_id, delivery))
        if delivery.qos == 1:
            taken.append(delivery)
        else:
            # After a crash a QoS 2 message must come again under the same packet id,
            # or the receiver takes it for a new one: so the id goes to disk first.
            self._durability.deliver(session, delivery)

    def _release(self, session: Session, delivery: Delivery) -> None:
        mark = self._durability.mark()
        if delivery.state != RELEASED:
            delivery.state = RELEASED
            if delivery.stored:
                self._durability.add(PutDelivery(session.client_id, delivery))
        # PUBREL makes the receiver forget the packet id: a PUBLISH sent again after it would
        # count as new. So it waits until storage knows that the message was received.
        self._durability.reply(session, Reply(PUBREL, delivery.packet_id), mark)

    def _finish(self, session: Session, delivery: Delivery) -> None:
        del session.inflight[delivery.packet_id]
        if session.send_quota < session.receive_maximum:
            session.send_quota += 1
        self._forget(session, delivery)
        if session.waiting or session.resend:
            self._ready.add(session)

    def _drop_if_expired(self, session: Session, delivery: Delivery, now_ns: int) -> bool:
        if not delivery.message.is_expired(now_ns):
            return False
        self._counters.drop(Reason.EXPIRED)
        self._forget(session, delivery)
        return True

    def _leave_queue(self, session: Session, delivery: Delivery) -> int:
        size = delivery.message.size()
        session.queue_bytes -= size
        self.queued_bytes -= size
        return size

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
