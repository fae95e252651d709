"""Requests about the input, as they come and as they are answered: their rights, refusals and answers.

What is decided about them is in core/input/requests.py. That takes longer than a turn may, so the packet
waits while the broker works on it, and so do later ones of the same client.
"""

from __future__ import annotations

from typing import Final

from timebound.core.broker import Broker
from timebound.core.input.publisher import Publisher
from timebound.core.input.requests import InputRequest
from timebound.core.sessions.session import Session
from timebound.errors import ProtocolError
from timebound.records import Reason
from timebound.topics import REQUESTS, reserved_fault
from timebound.wire.packets import Publish
from timebound.wire.reasons import ReasonCode

# Reason string of accepted requests: other brokers acknowledge such messages without one, so clients can
# tell that nobody acted on them.
DONE: Final = "done"


class Inquiry:
    """A request about the input under way; the broker has it among its jobs."""

    def __init__(
        self, broker: Broker, publisher: Publisher, session: Session, packet: Publish, topic: str
    ) -> None:
        self.packet = packet
        self._broker = broker
        self._session = session
        self._request = InputRequest(
            broker.entrance, publisher, session, topic, packet.user_properties, packet.payload
        )
        broker.entrance.jobs.add(self._request)

    def continue_request(self, until_ns: int) -> bool:
        """Answer if the broker is done with it and did not refuse it; return whether it is done."""
        request = self._request
        if not request.is_done:
            return False
        if request.error is None and self.packet.qos:
            answer = request.answer or DONE
            self._broker.accept_request(self._session, self.packet.qos, self.packet.packet_id, answer)
        return True

    def note(self) -> str:
        """Return what the log should tell of a request that is done; empty if nothing."""
        return self._request.note

    def error(self) -> Exception | None:
        """Return why it was refused (ProtocolError), or the bug that ended it.

        It is not raised here: its traceback would refer to this request, which refers to it, and under a
        flood of refusals the garbage collector would stop the broker for tens of milliseconds.
        """
        return self._request.error

    def cancel(self) -> None:
        """Stop, since the client has left."""
        self._broker.entrance.jobs.cancel(self._request)


def check_request(session: Session, topic: str) -> None:
    """Check that a client may send a request on a topic below `$timebound/`.

    Raises:
        ProtocolError: with the reason code and text for the refusal.
    """
    fault = reserved_fault(topic, REQUESTS)
    if fault:
        raise ProtocolError(ReasonCode.TOPIC_NAME_INVALID, fault)
    if not session.access.may_publish(topic):
        raise ProtocolError(ReasonCode.NOT_AUTHORIZED, f"not_authorized: publishing to {topic!r}")


def reason_of(error: ProtocolError) -> Reason:
    """Return the reason under which a refused request is counted."""
    if error.reason_code == ReasonCode.NOT_AUTHORIZED:
        return Reason.NOT_AUTHORIZED
    return Reason.NOT_ADMITTED if error.reason_code == ReasonCode.QUOTA_EXCEEDED else Reason.MALFORMED
