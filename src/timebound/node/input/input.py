"""The input of the node: when packets that were read are handled, and for how long at a time.

Sockets are read as data comes, but packets are only decoded then. Once a turn, messages are served for at
most `turn_ns`; then the loop writes and polls the sockets, and the next turn goes on. So even a long flood
delays the queueing of other messages by one turn at most.

SUBSCRIBE and UNSUBSCRIBE may take long, too. They get a part of every turn, after the messages, round robin;
later packets of the same client wait.

While only one publisher has packets, they pass straight through: there is nothing to schedule. With two or
more, all go through the queues of the broker's entrance (core/input/entrance.py), which decides what is next.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from timebound.core.broker import Broker
from timebound.node.input.reader import InputReader

# Quanta between two readings of the clock; one costs a tenth of a message.
CLOCK_EVERY: Final = 16
# After a message of an admitted flow, a turn continues for 1 / this of its time at most.
FLOW_TURNS: Final = 8
# Long requests get 1 / this of a turn's time in every turn, beside the messages.
REQUEST_TURNS: Final = 2
# A constant: see `driver.py`.
_MONOTONIC_NS: Final[Callable[[], int]] = time.monotonic_ns


class Input:
    """Packets of all publishers that were read and not yet served."""

    def __init__(self, broker: Broker, clock_offset_ns: int, turn_ns: int) -> None:
        self._broker = broker
        self.entrance = broker.entrance
        self.scheduler = broker.entrance.scheduler
        self.turn_ns = turn_ns
        self.is_contended = False  # several publishers had packets at the last turn
        self._arrivals: list[InputReader] = []
        self._deferred: deque[InputReader] = deque()
        self._clock_offset_ns = clock_offset_ns
        self._quanta = 0  # since the round began
        self._began_ns = 0  # start of this round of reading, serving and writing; 0 = not begun

    def now_ns(self) -> int:
        return self._clock_offset_ns + _MONOTONIC_NS()

    # --- publishers -------------------------------------------------------------------

    def arrive(self, publisher: InputReader) -> None:
        """Note that a publisher has packets."""
        if not publisher.is_arrived:
            publisher.is_arrived = True
            self._arrivals.append(publisher)

    def defer(self, publisher: InputReader) -> None:
        """Note that a publisher has a long request under way, which is continued in turn with others."""
        self.wait(publisher)
        self._deferred.append(publisher)

    def wait(self, publisher: InputReader) -> None:
        """Note that a publisher waits for a request under way; so do its packets."""
        publisher.is_arrived = True
        publisher.is_deferred = True

    # --- turns ------------------------------------------------------------------------

    def begin(self, now_ns: int) -> None:
        """Begin a round, if none is under way: something was read."""
        if self._began_ns == 0:
            self._began_ns = now_ns

    def has_more(self) -> bool:
        """Whether the next turn has work, whatever the sockets bring."""
        return self._has_packets() or len(self._deferred) > 0 or len(self.entrance.jobs) > 0

    def _has_packets(self) -> bool:
        return len(self._arrivals) > 0 or not self.scheduler.is_empty()

    def serve(self) -> None:
        """Serve messages by topic weight until none is left or the turn is over."""
        now_ns = self.now_ns()
        until_ns = now_ns + self.turn_ns
        self.begin(now_ns)
        self.is_contended = not self._is_uncontended()
        while now_ns < until_ns and self._has_packets():
            if not self._is_uncontended():
                # A part at a time: queueing a packet takes time before its position is decided.
                self._take_in(now_ns)
            elif self.scheduler.is_empty():
                self._pass_through(self._arrivals[0], now_ns, until_ns)
            if not self.scheduler.is_empty():
                until_ns = self._serve_queues(now_ns, until_ns)
            now_ns = self.now_ns()
        if self._deferred or len(self.entrance.jobs) > 0:
            self._serve_long()

    def _serve_long(self) -> None:
        """Continue what takes long: requests of clients in turn, the broker's jobs one after the other."""
        now_ns = self.now_ns()
        until_ns = now_ns + self.turn_ns // REQUEST_TURNS
        if len(self.entrance.jobs) > 0:
            self._serve_jobs(now_ns + (until_ns - now_ns) // 2 if self._deferred else until_ns)
        if self._deferred:
            self._serve_deferred(until_ns)

    def _serve_jobs(self, until_ns: int) -> None:
        """Continue the jobs by a step, and further while their time lasts; count the time."""
        began_ns = time.thread_time_ns()
        try:
            while len(self.entrance.jobs) > 0:
                now_ns = self.now_ns()
                request = self._broker.continue_jobs(now_ns)
                if request is not None:
                    reader = request.publisher
                    assert isinstance(reader, InputReader), "publishers of a node read packets"
                    reader.is_deferred = False  # also if what follows fails
                    self._try_resume(reader, until_ns)
                if now_ns >= until_ns:
                    return
        finally:
            self.entrance.flows.allowance.take(time.thread_time_ns() - began_ns)

    def _serve_deferred(self, until_ns: int) -> None:
        """Continue each long request by a step, and further while its time lasts."""
        while self._deferred:
            publisher = self._deferred.popleft()
            publisher.is_deferred = False  # also if what follows fails
            if not self._try_resume(publisher, until_ns):
                self._deferred.append(publisher)
            if self.now_ns() >= until_ns:
                return

    def _try_resume(self, publisher: InputReader, until_ns: int) -> bool:
        """Continue a publisher's request as `_resume` does; an error ends this publisher."""
        try:
            return self._resume(publisher, until_ns)
        except Exception as error:
            publisher.failed(error)
            return True

    def _resume(self, publisher: InputReader, until_ns: int) -> bool:
        """Continue a publisher's request; return whether it is done, and its packets are handled again."""
        publisher.is_arrived = False
        if publisher.continue_request(until_ns):
            self.arrive(publisher)
            return True
        self.wait(publisher)
        return False

    def _is_uncontended(self) -> bool:
        """Whether only one publisher has packets or waiting messages."""
        if len(self._arrivals) != 1:
            return len(self._arrivals) == 0
        return self.scheduler.is_empty() or self.scheduler.waits_only_for(self._arrivals[0].client_input)

    def _pass_through(self, publisher: InputReader, now_ns: int, until_ns: int) -> None:
        self._arrivals.clear()
        publisher.is_arrived = False
        self._quanta += publisher.pass_through(now_ns, until_ns)
        if publisher.has_packets():
            self.arrive(publisher)

    def _take_in(self, now_ns: int) -> None:
        arrivals = self._arrivals
        self._arrivals = []
        for publisher in arrivals:
            if publisher.take_in(now_ns):
                publisher.is_arrived = False
            elif not publisher.is_deferred:
                self._arrivals.append(publisher)

    def _serve_queues(self, now_ns: int, until_ns: int) -> int:
        """Serve quanta until none is left or the turn is over; return the end of the turn.

        A message of an admitted flow moves the end of the turn closer: it should be written soon.
        """
        scheduler = self.scheduler
        count = 0
        while now_ns < until_ns:
            for _ in range(CLOCK_EVERY):
                queue = scheduler.serve()
                if queue is None:
                    self._quanta += count
                    return until_ns
                count += 1
                if queue.topic.quanta_max == 0:
                    until_ns = min(until_ns, now_ns + self.turn_ns // FLOW_TURNS)
                queued = scheduler.finished
                if queued is not None:
                    reader = queued.publisher
                    assert isinstance(reader, InputReader), "publishers of a node read packets"
                    reader.publish_queued(queued, now_ns)
                    if reader.is_slow:
                        reader.is_slow = False
                        break
            now_ns = self.now_ns()
        self._quanta += count
        return until_ns

    def end(self, is_flooded: bool) -> None:
        """End a round after its turn has written, and note how long it took.

        The next round begins now if there is more to do: waiting packets, or unread sockets. The caller then
        takes a turn as soon as possible.
        """
        now_ns = self.now_ns()
        self.entrance.note_round(now_ns - self._began_ns, self._quanta)
        self._quanta = 0
        self._began_ns = now_ns if is_flooded or self.has_more() else 0

    def rest(self) -> None:
        """Cancel the round that was begun: its turn had nothing to serve."""
        self._began_ns = 0
