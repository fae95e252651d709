"""What the input scheduling knows of a connection, and of a message that waits in its queues.

`Connection` is the one kind of publisher there is. This base exists so that `input.py` and
`flows.py` need not import it, and so that a call costs a jump, not a look-up, when compiled.
"""

from __future__ import annotations

from abc import abstractmethod

from timebound.core.input.policer import Gcra
from timebound.core.input.queues import ClientInput, InputQueue
from timebound.core.sessions.session import Session
from timebound.core.values.message import Message
from timebound.node.input.allowance import Allowance


class InputMessage:
    """A message that was read and waits for its turn; `session` is whose it was then."""

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
        self.is_arrived = False  # stands in the input's list of those with packets to take in
        self.is_slow = False  # what was last taken in may have needed some time: look at the clock
        self.is_deferred = False  # stands in its list of those with a long request under way instead
        # Where messages of a topic wait, found once for each topic; and the topics with a contract.
        self.queues: dict[str, InputQueue[InputMessage]] = {}
        self.flow_queues: dict[str, InputQueue[InputMessage]] = {}
        self.policers: dict[str, Gcra] = {}
        # Of an earlier connection with this client id: its messages go first.
        self.predecessor: ClientInput[InputMessage] | None = None
        self.advertisements: Allowance | None = None  # made with the first

    @abstractmethod
    def pass_through(self, now_ns: int, until_ns: int) -> int:
        """Handle what was read, without queues; nobody else has anything waiting. The packets handled.

        Stops at `until_ns`; `has_packets` then tells that there is more.
        """

    @abstractmethod
    def take_in(self, now_ns: int) -> bool:
        """Put what was read into the input queues; False if some of it has to wait outside."""

    @abstractmethod
    def continue_request(self, until_ns: int) -> bool:
        """Do a part of the request under way; True if it is done, and the packets after it may follow."""

    @abstractmethod
    def has_packets(self) -> bool:
        """Whether packets that were read are not handled yet."""

    @abstractmethod
    def publish_queued(self, queued: InputMessage, now_ns: int) -> None:
        """The turn of a waiting message has come."""
