"""The output side of sessions without a broker around it: every part real, nothing joined."""

from __future__ import annotations

from timebound.core.account.account import Account
from timebound.core.account.counters import Counters
from timebound.core.link.due import DueList
from timebound.core.sessions.durability import Durability
from timebound.core.sessions.faults import Faults
from timebound.core.sessions.outbound import NO_OTHERS, Outbound
from timebound.core.sessions.session import ReadyList, Session
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.terms import Terms
from timebound.units import SECOND

NOW_NS = 1_000 * SECOND


class Alone:
    """An `Outbound`, all that it is made of, and one session, connected."""

    def __init__(self, *, durable: bool = False, **limits: int) -> None:
        self.ready = ReadyList()
        self.durability = Durability(self.ready, durable)
        self.counters = Counters()
        self.account = Account()
        self.faults = Faults()
        self.due = DueList()
        self.outbound = Outbound(
            BrokerLimits(**limits),
            self.ready,
            self.durability,
            self.counters,
            self.account,
            self.faults,
            self.due,
        )
        self.session = self.connected("c", 1)
        self.session.is_durable = durable
        self.sequence = 0

    def connected(self, client_id: str, connection: int) -> Session:
        session = Session(client_id, "", AccessList([]).for_client("", client_id))
        session.connection = connection
        return session

    def message(self, payload: bytes, qos: int = 0, **terms: int) -> Message:
        self.sequence += 1
        return Message("t", payload, qos, False, NOW_NS, "p", sequence=self.sequence, **terms)

    def offer(
        self, *payloads: bytes, qos: int = 0, topic_filter: str = "t", deadline_ns: int = 0, **terms: int
    ) -> list[bool]:
        """Offer copies to the session; which of them were queued."""
        subscription = Subscription(
            client_id="c",
            topic_filter=topic_filter,
            qos=qos,
            terms=Terms(deadline_ns=deadline_ns, price=2.0, penalty=0.5),
        )
        return [
            self.outbound.offer(
                self.session,
                self.message(payload, qos, **terms),
                qos,
                False,
                (),
                subscription,
                NO_OTHERS,
                NOW_NS,
            )
            for payload in payloads
        ]

    def take(self, bytes_max: int = 1 << 20, now_ns: int = NOW_NS) -> list[bytes]:
        taken = self.outbound.take(self.session, bytes_max, now_ns)
        return [delivery.message.payload for delivery in taken]

    def orders(self) -> list[str]:
        """The orders for storage since the last call, by name."""
        batch = self.durability.take()
        if batch is None:
            return []
        self.durability.committed(batch)
        return [type(order).__name__ for order in batch.orders]

    def check(self) -> None:
        """The sums and the account must agree with what the session holds."""
        self.session._check()
        assert self.outbound.queued_bytes == self.session.cost_bytes
        assert self.account.outstanding() == self.session.pairs_owed() + len(self.outbound.orphans)
