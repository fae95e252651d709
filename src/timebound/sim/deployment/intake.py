"""The input of a simulated node: what is taken in next, with a virtual time for every quantum.

The broker's entrance decides, as on a network. A turn reads what has arrived, serves quanta for at most the
`turn` of the configuration, and takes some steps of requests; then the node is busy for as long as that
takes, and what arrives meanwhile waits. What a quantum completes is published when its turn begins, so up to
a turn early; how long a message waited counts to the end of its last quantum.

All messages go through the queues. The network's node passes those of a single publisher straight through,
which is faster and changes no order; and it ends a turn early after a message of an admitted flow, to write
it, which takes no time here.
"""

from __future__ import annotations

from typing import Final, Protocol

from timebound.config.input import InputConfig
from timebound.core.broker import Broker
from timebound.core.input.publisher import InputMessage, Publisher
from timebound.core.mesh.message import Copy
from timebound.core.values.message import Message
from timebound.sim.deployment.timers import VirtualClock
from timebound.units import MICROSECOND, SECOND

# What one step of a request about flows or weights takes; measured, most take less.
STEP_NS: Final = 100 * MICROSECOND
# Requests get 1 / this of a turn's time in every turn, beside the messages, as on a network.
REQUEST_TURNS: Final = 2


class Entering(Protocol):
    """A connection, as the node takes its packets in."""

    @property
    def number(self) -> int: ...

    @property
    def publisher(self) -> Publisher: ...

    def take_in(self) -> None:
        """Act on what was read, as far as the queues take it."""

    def publish_queued(self, queued: InputMessage) -> None:
        """Publish a message that got all its quanta."""

    def answer(self) -> None:
        """Answer a request, since the broker is done with it."""


class IntakeWatcher(Protocol):
    """What is told of everything that was taken in."""

    def note_served(self, message: Message, wait_ns: int, *, is_covered: bool) -> None: ...

    def note_copy(self, copy: Copy) -> None: ...


class SimIntake:
    """Input of one life of a node."""

    def __init__(
        self, broker: Broker, config: InputConfig, clock: VirtualClock, watcher: IntakeWatcher
    ) -> None:
        self.entrance = broker.entrance
        self.quantum_ns = broker.entrance.options.quantum_ns
        self._broker = broker
        self._clock = clock
        self._watcher = watcher
        self._turn_ns = int(config.turn_s * SECOND)
        self._free_ns = 0  # until then the node is busy with what it took in
        self._handed_in: dict[int, Entering] = {}  # those with packets to act on, by connection
        # What a delay bound covers, and topics whose queue has excess; neither is iterated.
        self._covered: set[InputMessage] = set()
        self._behind_excess: dict[Publisher, set[str]] = {}
        self._owners: dict[Publisher, Entering] = {}  # connected, or with messages in the queues
        self._leaving: set[Publisher] = set()  # those that are not connected any more; never iterated

    # --- publishers -------------------------------------------------------------------

    def join(self, client_id: str, owner: Entering) -> None:
        """Add a connection's publisher."""
        self._owners[owner.publisher] = owner
        self.entrance.join(client_id, owner.publisher)

    def leave(self, client_id: str, owner: Entering) -> None:
        """Remove a connection's publisher; what it has in the queues is still published."""
        self.entrance.leave(client_id, owner.publisher)
        self._leaving.add(owner.publisher)
        self._forget_if_empty(owner.publisher)

    def _forget_if_empty(self, publisher: Publisher) -> None:
        """Forget a publisher that has left once nothing of it is in the queues.

        One that was replaced by another connection has not left yet: it may still push what it has read.
        """
        if publisher not in self._leaving or publisher.client_input.waiting > 0:
            return
        self._leaving.discard(publisher)
        self._owners.pop(publisher, None)
        self._behind_excess.pop(publisher, None)

    def hand_in(self, one: Entering) -> None:
        """Act on what a connection has read in the next turn."""
        self._handed_in[one.number] = one
        self._clock.schedule()

    def may_push(self, publisher: Publisher) -> bool:
        """Whether a message of a publisher may go into the queues now."""
        entrance = self.entrance
        return (
            not entrance.is_preceded(publisher)
            and publisher.client_input.waiting < entrance.quanta_max
            and entrance.may_queue(publisher)
        )

    def push(self, queued: InputMessage, *, is_excess: bool, is_held: bool) -> None:
        """Queue a message of a publisher that `may_push`; `is_held`: it had to wait for its client before."""
        publisher, topic = queued.publisher, queued.message.topic
        if publisher.client_input.waiting == 0:
            self._behind_excess.pop(publisher, None)
        behind = self._behind_excess.setdefault(publisher, set())
        if is_excess:
            behind.add(topic)
        elif queued.message.promised_ns and not is_held and topic not in behind:
            self._covered.add(queued)
        self.entrance.push(queued, is_excess)

    # --- turns ------------------------------------------------------------------------

    def turn(self) -> None:
        """Take in and serve for a turn, unless the node is busy."""
        now_ns = self._clock.now_ns()
        if now_ns < self._free_ns:
            return  # the next turn is asked for already
        handed_in, self._handed_in = self._handed_in, {}
        for one in handed_in.values():
            one.take_in()
        quanta = self._serve(now_ns)
        busy_ns = quanta * self.quantum_ns + self._continue_jobs(now_ns)
        if busy_ns:
            self.entrance.note_round(busy_ns, quanta)
            self._free_ns = now_ns + busy_ns
            self._clock.call_at_ns(self._free_ns, self._clock.schedule)

    def _serve(self, now_ns: int) -> int:
        """Serve quanta until none is left or the turn is over; return how many."""
        scheduler = self.entrance.scheduler
        count = 0
        while count == 0 or count * self.quantum_ns < self._turn_ns:
            if scheduler.serve() is None:
                break
            count += 1
            queued = scheduler.finished
            if queued is not None:
                self._publish(queued, now_ns + count * self.quantum_ns)
        return count

    def _publish(self, queued: InputMessage, ended_ns: int) -> None:
        publisher = queued.publisher
        owner = self._owners[publisher]
        if queued.copy is not None:
            self._watcher.note_copy(queued.copy)
        else:
            wait_ns = ended_ns - queued.message.published_ns
            self._watcher.note_served(queued.message, wait_ns, is_covered=queued in self._covered)
            self._covered.discard(queued)
        owner.publish_queued(queued)
        self._forget_if_empty(publisher)

    def _continue_jobs(self, now_ns: int) -> int:
        """Take some steps of requests and releases; return how long they take."""
        steps = 0
        while len(self.entrance.jobs) > 0 and (
            steps == 0 or steps * STEP_NS < self._turn_ns // REQUEST_TURNS
        ):
            steps += 1
            done = self._broker.continue_jobs(now_ns)
            if done is not None and done.publisher in self._owners:
                self._owners[done.publisher].answer()
        self.entrance.flows.allowance.take(steps * STEP_NS)
        return steps * STEP_NS
