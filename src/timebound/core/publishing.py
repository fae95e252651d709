"""Messages in: what clients publish, with the rights, duplicates and acknowledgements of QoS 1 and 2.

An acknowledgement waits for the disk where copies are stored, for links that are full (`Pressure`), and for
a message that is matched in steps. Where copies go is decided in `distribution.py`.
"""

from __future__ import annotations

from typing import Final

from timebound.core.account.counters import Counters
from timebound.core.distribution import HELD, Distribution
from timebound.core.matching.gradual import HeldMessage
from timebound.core.matching.retained import RetainedStore
from timebound.core.mesh.message import PackReceipt
from timebound.core.sessions.durability import ALL_SO_FAR, Durability
from timebound.core.sessions.faults import Faults
from timebound.core.sessions.pressure import NO_HOMES, NO_LEVELS, Pressure
from timebound.core.sessions.session import PUBACK, PUBREC, Reply, Session
from timebound.core.values.message import Message
from timebound.core.values.reason_codes import NO_MATCHING_SUBSCRIBERS, NOT_AUTHORIZED, SUCCESS
from timebound.core.values.store_orders import PutInbound
from timebound.records import Reason

MATCHING: Final = "matching"  # in place of a client id, for errors that concern no client

# Results of `publish`.
TAKEN: Final = 0
DENIED: Final = 1
REFUSED: Final = 2


class Publishing:
    """Takes messages of clients, and decides when they are acknowledged."""

    __slots__ = (
        "_copies",
        "_counters",
        "_distribution",
        "_durability",
        "_faults",
        "_pressure",
        "_retained",
        "_sessions",
    )

    def __init__(
        self,
        sessions: dict[str, Session],
        retained: RetainedStore,
        distribution: Distribution,
        durability: Durability,
        pressure: Pressure,
        counters: Counters,
        faults: Faults,
    ) -> None:
        self._sessions = sessions
        self._retained = retained
        self._distribution = distribution
        self._durability = durability
        self._pressure = pressure
        self._counters = counters
        self._faults = faults
        # Links, packet ids and receipts of copies from other brokers, by the name of the message that they
        # wait for.
        self._copies: dict[str, list[tuple[Session, int, PackReceipt | None]]] = {}

    def confirm_copy(
        self,
        link: Session,
        packet_id: int,
        receipt: PackReceipt | None,
        held: HeldMessage | None,
        mark: int,
    ) -> None:
        """Confirm a copy from another broker once `held` has been matched, and stored where it must be.

        One with a receipt is confirmed with the last copy of its pack.
        """
        if held is not None:
            self._copies.setdefault(held.name, []).append((link, packet_id, receipt))
        elif receipt is not None:
            self._note_receipt(link, receipt, mark)
        else:
            self._durability.reply(link, Reply(PUBACK, packet_id), mark)

    def _note_receipt(self, link: Session, receipt: PackReceipt, mark: int) -> None:
        """Confirm a pack with its last copy; `mark` is that of this copy."""
        receipt.left -= 1
        if mark == ALL_SO_FAR or mark != self._durability.mark():
            receipt.is_stored = True
        if not receipt.left:
            # Orders of earlier copies may be in earlier batches.
            mark = ALL_SO_FAR if receipt.is_stored else self._durability.mark()
            self._durability.reply(link, Reply(PUBACK, receipt.packet_id), mark)

    def publish(self, session: Session, message: Message, packet_id: int, now_ns: int) -> int:
        """Publish a message of a client; with QoS 1 or 2, queue the reply.

        Return TAKEN; DENIED (already answered); or REFUSED: nothing was done, `refusal` returns why, and
        the caller must answer.
        """
        self._counters.messages_received += 1
        qos = message.qos
        mesh = self._distribution.mesh
        if qos == 0:
            if not session.access.may_publish(message.topic):
                self._counters.refuse(Reason.NOT_AUTHORIZED)
                return DENIED
            if self._distribution.route(message, now_ns) == HELD:
                self._pressure.slow(session, self.pressed())
            elif mesh is not None and mesh.pressed:
                self._pressure.slow(session, mesh.pressed)
            return TAKEN
        mark = self._durability.mark()
        reason = session.remarks.pop(packet_id, "") if session.remarks else ""
        if qos == 2 and packet_id in session.inbound:
            # MQTT 5, 4.3.3: resent before it was released; it was routed the first time, or is being matched.
            held = self._distribution.last_held(session.client_id)
            homes = NO_HOMES if held is None else held.homes
            self._pressure.acknowledge(session, Reply(PUBREC, packet_id), homes, mark)
            return TAKEN
        kind = PUBACK if qos == 1 else PUBREC
        if not session.access.may_publish(message.topic):
            self._counters.refuse(Reason.NOT_AUTHORIZED)
            reason = f"{Reason.NOT_AUTHORIZED.value}: publishing to {message.topic!r} is not allowed"
            denied = Reply(kind, packet_id, NOT_AUTHORIZED, reason)
            self._pressure.acknowledge(session, denied, NO_HOMES, mark)
            return DENIED
        if mesh is not None and mesh.refusal(message):
            return REFUSED
        count = self._distribution.route(message, now_ns)
        if qos == 2:
            session.inbound[packet_id] = True
            if session.is_durable and count != HELD:
                self._durability.add(PutInbound(session.client_id, packet_id))
        reason_code = SUCCESS if count else NO_MATCHING_SUBSCRIBERS
        if message.retain and message.payload and self._retained.get(message.topic) is not message:
            reason = (
                f"{Reason.QUOTA.value}: delivered, but not retained; retained messages are at their limit"
            )
        reply = Reply(kind, packet_id, reason_code, reason)
        held = self._distribution.held if count == HELD else None
        if held is None:
            homes = NO_HOMES if mesh is None else mesh.pressed
            self._pressure.acknowledge(session, reply, homes, mark)
        else:
            held.packet_id = packet_id if qos == 2 else 0
            self._pressure.acknowledge(session, reply, held.homes, ALL_SO_FAR)
            self._pressure.slow(session, held.homes)
        return TAKEN

    def refusal(self, message: Message) -> str:
        """Return why a QoS 1 or 2 message cannot be accepted; empty if it can."""
        mesh = self._distribution.mesh
        return "" if mesh is None else mesh.refusal(message)

    def refuse_publish(
        self, session: Session, qos: int, packet_id: int, reason_code: int, reason: str
    ) -> None:
        """Refuse a QoS 1 or 2 message that the shell did not accept."""
        kind = PUBACK if qos == 1 else PUBREC
        mark = self._durability.mark()
        self._pressure.acknowledge(session, Reply(kind, packet_id, reason_code, reason), NO_HOMES, mark)

    def accept_request(self, session: Session, qos: int, packet_id: int, answer: str = "") -> None:
        """Acknowledge a QoS 1 or 2 request to the broker itself, with a text as answer.

        No packet id is kept for QoS 2: a request that is resent is repeated, with the same result.
        """
        kind = PUBACK if qos == 1 else PUBREC
        reply = Reply(kind, packet_id, SUCCESS, answer)
        self._pressure.acknowledge(session, reply, NO_HOMES, self._durability.mark())

    # --- what acknowledgements wait for ------------------------------------------------

    def is_matching(self) -> bool:
        """Whether messages are being matched in steps; `wake` does the next one."""
        return len(self._distribution.holding()) > 0

    def continue_matching(self, now_ns: int) -> None:
        """Do one step for messages that are held; release the publisher of one that has been matched."""
        held = self._distribution.continue_matching(now_ns)
        if held is not None:
            for link, packet_id, receipt in self._copies.pop(held.name, ()):
                self.confirm_copy(link, packet_id, receipt, None, ALL_SO_FAR)
            if held.error is None and not held.is_copy:
                try:
                    self._matched(held)
                except Exception as error:  # concerns one message
                    held.error = error
            if held.error is not None:
                self._faults.note(MATCHING, 0, held.error)
        self._pressure.relieve(self._full())

    def _matched(self, held: HeldMessage) -> None:
        """Let the acknowledgement of a message wait for what it would have waited for at once."""
        message = held.selection.message
        session = self._sessions.get(message.publisher)
        if session is None:
            return
        if held.packet_id in session.inbound and session.is_durable:
            self._durability.add(PutInbound(message.publisher, held.packet_id))
        mesh = self._distribution.mesh
        if mesh is not None and mesh.pressed:
            held.homes.extend(mesh.pressed)
            if not message.qos:
                self._pressure.slow(session, mesh.pressed)

    def _full(self) -> dict[str, int]:
        """Return what publishers wait for: full brokers, and messages that are being matched."""
        mesh = self._distribution.mesh
        levels = NO_LEVELS if mesh is None else mesh.full()
        holding = self._distribution.holding()
        return {**levels, **holding} if holding else levels

    def pressed(self) -> list[str]:
        """Return what the last message published here waits for: full brokers it goes to, or its matching."""
        if self._distribution.held is not None:
            return self._distribution.held.homes
        mesh = self._distribution.mesh
        return mesh.pressed if mesh is not None else NO_HOMES

    def has_room(self, homes: list[str]) -> bool:
        """Whether none of these brokers is full."""
        full = self._full()
        return not any([home in full for home in homes])

    def relieve_publishers(self) -> None:
        """Send the acknowledgements that waited for links which have room again."""
        if len(self._pressure):
            self._pressure.relieve(self._full())
