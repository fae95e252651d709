"""A publisher at the entrance, and a message in its queues: state only.

`Entrance` and `Flows` change it. A driver may derive from `Publisher`, so that a message it takes from the
queues leads it straight to the connection.
"""

from __future__ import annotations

from timebound.core.input.policer import Gcra
from timebound.core.input.queues import ClientInput, InputQueue
from timebound.core.mesh.message import Copy
from timebound.core.sessions.session import Session
from timebound.core.values.message import Message


class InputMessage:
    """A message in an input queue; `session` is the publisher's at the time it was read.

    From a neighbour broker it comes as a `copy`.
    """

    __slots__ = ("copy", "message", "packet_id", "publisher", "session")

    def __init__(
        self,
        publisher: Publisher,
        session: Session,
        message: Message,
        packet_id: int,
        copy: Copy | None = None,
    ) -> None:
        self.publisher = publisher
        self.session = session
        self.message = message
        self.packet_id = packet_id
        self.copy = copy


class Publisher:
    """A connection of a client, or of a neighbour broker, as the entrance sees it."""

    def __init__(self) -> None:
        self.client_input: ClientInput[InputMessage] = ClientInput("")
        # Queues by topic, each looked up once; and those of topics with a contract.
        self.queues: dict[str, InputQueue[InputMessage]] = {}
        self.flow_queues: dict[str, InputQueue[InputMessage]] = {}
        self.policers: dict[str, Gcra] = {}
        self.generation = 0  # of the weights for which `queues` is valid
        self.promised_ns = 0  # delay bound of the message that was policed last; 0 = none
        # The queues of an earlier connection with this client id: its messages go first.
        self.predecessor: ClientInput[InputMessage] | None = None
        self.source = ""  # its user, or its address where it is anonymous: flows count for it
