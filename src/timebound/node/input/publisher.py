"""A connection as the input scheduler sees it, and a message in its queues.

`Connection` is the only subclass of `Publisher`. The base exists so that `input.py` and `flows.py` need not
import it, and so that a compiled call is a jump, not a look-up.
"""

from __future__ import annotations

from abc import abstractmethod

from timebound.core.input.policer import Gcra
from timebound.core.input.queues import ClientInput, InputQueue
from timebound.core.sessions.session import Session
from timebound.core.values.message import Message


class InputMessage:
    """A message in an input queue; `session` is the publisher's at the time it was read."""

    __slots__ = ("message", "packet_id", "publisher", "session")

    def __init__(self, publisher: Publisher, session: Session, message: Message, packet_id: int) -> None:
        self.publisher = publisher
        self.session = session
        self.message = message
        self.packet_id = packet_id


class Publisher:
    """A connection as the input sees it."""

    def __init__(self) -> None:
        self.client_input: ClientInput[InputMessage] = ClientInput("")
        self.is_arrived = False  # in the input's list of publishers with packets
        self.is_slow = False  # the last message may have taken long: check the clock
        self.is_deferred = False  # in the input's list of publishers with a long request
        # Queues by topic, each looked up once; and those of topics with a contract.
        self.queues: dict[str, InputQueue[InputMessage]] = {}
        self.flow_queues: dict[str, InputQueue[InputMessage]] = {}
        self.policers: dict[str, Gcra] = {}
        # The queues of an earlier connection with this client id: its messages go first.
        self.predecessor: ClientInput[InputMessage] | None = None
        self.source = ""  # its user, or its address where it is anonymous: flows count for it

    @abstractmethod
    def pass_through(self, now_ns: int, until_ns: int) -> int:
        """Handle packets without queues, since no other publisher has any; return how many.

        Stops at `until_ns`; `has_packets` then tells whether there are more.
        """

    @abstractmethod
    def take_in(self, now_ns: int) -> bool:
        """Put packets into the input queues; return False if some have to wait outside."""

    @abstractmethod
    def continue_request(self, until_ns: int) -> bool:
        """Continue the request under way; return True if it is done, and later packets may follow."""

    @abstractmethod
    def has_packets(self) -> bool:
        """Whether there are packets that were read and not handled yet."""

    @abstractmethod
    def publish_queued(self, queued: InputMessage, now_ns: int) -> None:
        """Publish a message that got all its quanta."""
