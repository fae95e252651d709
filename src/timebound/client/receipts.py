"""Incoming messages with QoS 1 and 2: who still has to read them, and what was acknowledged.

A message is acknowledged when every iterator that gets it has handed it to the application.
Until then the server keeps it. A slow reader slows the server down by MQTT's own means: no
more than Receive Maximum messages may be unacknowledged.
"""

from __future__ import annotations

from timebound.client.connection import ClientConnection
from timebound.errors import ProtocolError
from timebound.wire import packet_types as types
from timebound.wire.codec import encode_ack
from timebound.wire.packets import Ack, Publish

_NOT_FOUND = 0x92


class Receipt:
    """One unacknowledged message; `connection` is the one it last arrived on."""

    __slots__ = ("connection", "is_taken", "packet_id", "qos", "takers")

    def __init__(self, publish: Publish, connection: ClientConnection) -> None:
        self.packet_id = publish.packet_id
        self.qos = publish.qos
        self.connection = connection
        self.takers = 1
        self.is_taken = False


class Receipts:
    """The receiving half of the session's state."""

    def __init__(self, receive_maximum: int) -> None:
        self._receive_maximum = receive_maximum
        self._open: dict[int, Receipt] = {}  # not acknowledged yet
        self._recorded: set[int] = set()  # QoS 2: PUBREC was sent, PUBREL has not come
        self._connection: ClientConnection | None = None
        self._held = 0  # messages of this connection counted against the Receive Maximum

    def attach(self, connection: ClientConnection, *, session_present: bool) -> None:
        self._connection = connection
        self._held = 0
        if not session_present:
            self._open.clear()
            self._recorded.clear()

    def accept(self, publish: Publish) -> Receipt | None:
        """Return the receipt of a message with QoS 1 or 2, or None if it was delivered before.

        Raises:
            ProtocolError: the server sends more than the Receive Maximum allows.
        """
        connection = self._connection
        assert connection is not None, "messages come from an attached connection"
        packet_id = publish.packet_id
        if publish.qos == 2 and packet_id in self._recorded:
            connection.write(encode_ack(types.PUBREC, packet_id, 0, connection.version))
            return None
        known = self._open.get(packet_id)
        self._held += 1
        if known is not None and publish.dup and known.qos == publish.qos:
            # Acknowledged on the connection it arrived on, or the server would send it again.
            known.connection = connection
            if known.is_taken:
                self._acknowledge(known)
            return None
        if connection.version == 5 and self._held > self._receive_maximum:
            raise ProtocolError(
                0x93, f"server sent more than {self._receive_maximum} unacknowledged messages"
            )
        receipt = Receipt(publish, connection)
        self._open[packet_id] = receipt
        return receipt

    def take(self, receipt: Receipt) -> None:
        """Note that one reader has the message; acknowledge it after the last one."""
        receipt.takers -= 1
        if receipt.takers > 0 or receipt.is_taken:
            return
        receipt.is_taken = True
        if receipt.connection is self._connection and self._open.get(receipt.packet_id) is receipt:
            self._acknowledge(receipt)

    def forget_unread(self) -> None:
        """Forget unread messages: the server sends them again, and they then count as new."""
        self._open = {packet_id: one for packet_id, one in self._open.items() if one.is_taken}

    def handle_release(self, ack: Ack) -> None:
        """Answer a PUBREL; an unknown one is from an earlier process, and answered with 0x92."""
        connection = self._connection
        assert connection is not None, "acknowledgements come from an attached connection"
        reason_code = 0
        if ack.packet_id in self._recorded:
            self._recorded.discard(ack.packet_id)
            self._held = max(self._held - 1, 0)
        else:
            reason_code = _NOT_FOUND
        connection.write(encode_ack(types.PUBCOMP, ack.packet_id, reason_code, connection.version))

    def _acknowledge(self, receipt: Receipt) -> None:
        connection = receipt.connection
        if not connection.is_open:
            return
        del self._open[receipt.packet_id]
        if receipt.qos == 1:
            self._held -= 1
            connection.write(encode_ack(types.PUBACK, receipt.packet_id, 0, connection.version))
        else:
            self._recorded.add(receipt.packet_id)
            connection.write(encode_ack(types.PUBREC, receipt.packet_id, 0, connection.version))
