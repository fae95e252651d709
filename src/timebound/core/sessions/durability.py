"""Orders for storage, and the replies that must not be sent before they are on disk.

During a turn, orders are collected here together with the replies and QoS 2 deliveries that
depend on them. The shell takes both as one batch, writes the orders, and hands the batch back;
then its replies and deliveries are released in order. A reply also waits while an earlier one of
the same session does, so that replies never overtake each other. A message for a journal is not
an order, but its reply waits in the same way.
"""

from __future__ import annotations

from typing import Final

from timebound.core.sessions.session import ReadyList, Reply, Session
from timebound.core.values.message import Delivery
from timebound.core.values.store_orders import StoreOrder

ALL_SO_FAR: Final = -1  # in place of a mark: everything ordered so far, in this batch or earlier


class Held:
    """One reply or delivery of one connection that waits for storage."""

    __slots__ = ("connection", "delivery", "reply", "session")

    def __init__(self, session: Session, reply: Reply | None, delivery: Delivery | None) -> None:
        self.session = session
        self.connection = session.connection
        self.reply = reply
        self.delivery = delivery


class Batch:
    """Orders to write in one transaction, and what may be sent once they are written."""

    __slots__ = ("held", "is_journaled", "orders")

    def __init__(self, orders: list[StoreOrder], held: list[Held], is_journaled: bool = False) -> None:
        self.orders = orders
        self.held = held
        self.is_journaled = is_journaled  # what it holds waits for the journals as well


class Durability:
    """Collects orders and holds what depends on them."""

    __slots__ = ("_held", "_journaled", "_orders", "_ready", "_unfinished", "batch", "is_enabled", "stored")

    def __init__(self, ready: ReadyList, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        self._ready = ready
        self._orders: list[StoreOrder] = []
        self._held: list[Held] = []
        self._journaled = 0  # messages for a journal that must be acknowledged
        self._unfinished = 0
        self.batch = 1  # number of the batch that is being collected
        self.stored = 0  # of the last one that is on disk

    def add(self, order: StoreOrder) -> None:
        if self.is_enabled:
            self._orders.append(order)

    def expect_journal(self) -> None:
        """Hold the reply to the present message until the journal has it on disk."""
        self._journaled += 1

    def mark(self) -> int:
        """Return a position by which `reply` tells whether orders were added since."""
        return len(self._orders) + self._journaled

    def is_settled(self) -> bool:
        """Whether everything ordered so far is on disk."""
        return not self._orders and not self._unfinished

    def reply(self, session: Session, reply: Reply, mark: int) -> None:
        """Send a reply now, or once the orders added since `mark` are on disk.

        A mark is valid for the batch in which it was taken; ALL_SO_FAR stands for one of an earlier batch.
        """
        if not session.connection:
            return  # closed while its messages waited; the next connection does not expect the reply
        # What goes to a journal alone is not an order, and unfinished only once its batch is taken.
        is_free = self.is_settled() and not self._journaled if mark == ALL_SO_FAR else self.mark() == mark
        if session.held == 0 and is_free:
            session.replies.append(reply)
            self._ready.add(session)
        else:
            session.held += 1
            self._held.append(Held(session, reply, None))

    def deliver(self, session: Session, delivery: Delivery) -> None:
        """Send a delivery after everything ordered so far is on disk."""
        if self.is_settled():
            session.outbox.append(delivery)
            self._ready.add(session)
        else:
            self._held.append(Held(session, None, delivery))

    def take(self) -> Batch | None:
        """Take what was collected since the last call; pass it to `committed` when it is written."""
        is_journaled = self._journaled > 0
        self._journaled = 0
        if not self._orders and not self._held:
            return None
        batch = Batch(self._orders, self._held, is_journaled)
        self._orders = []
        self._held = []
        self._unfinished += 1
        self.batch += 1
        return batch

    def committed(self, batch: Batch) -> None:
        """Release what a batch held, as it is on disk now. Batches must come back in order."""
        assert self._unfinished > 0
        self._unfinished -= 1
        self.stored += 1
        for held in batch.held:
            session = held.session
            is_current = held.connection != 0 and held.connection == session.connection
            if held.reply is not None:
                if is_current:
                    session.held -= 1
                    session.replies.append(held.reply)
            elif is_current and held.delivery is not None:
                session.outbox.append(held.delivery)
            if is_current:
                self._ready.add(session)
