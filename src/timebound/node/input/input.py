"""The input of the broker: packets that were read wait here until they are served by topic weight.

Sockets are read as data comes, but packets are only decoded then. Once a turn, messages are served for at
most `turn_ns`; then the loop writes and polls the sockets, and the next turn goes on. So even a long flood
delays the queueing of other messages by one turn at most.

SUBSCRIBE and UNSUBSCRIBE may take long, too. They get a part of every turn, after the messages, round robin;
later packets of the same client wait.

While only one publisher has packets, they pass straight through: there is nothing to schedule. With two or
more, all go through the queues of core/input/scheduler.py.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from timebound.config.input import InputConfig
from timebound.core.input.plan import PAPER_STEP
from timebound.core.input.scheduler import InputScheduler
from timebound.node.input.flows import ROUND_TURNS, Flows
from timebound.node.input.meter import DurationMeter
from timebound.node.input.publisher import InputMessage, Publisher
from timebound.units import SECOND

# Quanta between two readings of the clock; one costs a tenth of a message.
CLOCK_EVERY: Final = 16
# Turns with fewer quanta are not measured: they say little about the quantum.
MEASURED_QUANTA_MIN: Final = 64
# Turns measured, at least, before their times replace the calibrated ones.
MEASURED_TURNS_MIN: Final = 50
# Quantiles of the measured times, and the part of the time that may be spent in longer stalls. A bound has
# many quanta, and two rounds, one of which may include a stall.
MEASURED_QUANTA_PART: Final = 0.99
MEASURED_ROUNDS_PART: Final = 0.95
MEASURED_STALLS_PART: Final = 0.001
# After a message of an admitted flow, a turn continues for 1 / this of its time at most.
FLOW_TURNS: Final = 8
# Long requests get 1 / this of a turn's time in every turn, beside the messages.
REQUEST_TURNS: Final = 2
ROUND_WEIGHT_NS: Final = 100_000  # one unit of weight of a round
# Counted in seconds with enough turns to measure. Delay bounds should not change from hour to hour.
FADE_SECONDS: Final = 300
FADE_WEIGHT: Final = FADE_SECONDS * SECOND // ROUND_WEIGHT_NS
# Until measured: that of a slow machine, uncompiled.
QUANTUM_NS_DEFAULT: Final = 50_000


class Input:
    """Packets of all publishers that were read and not yet served."""

    def __init__(self, config: InputConfig, clock_offset_ns: int, quantum_ns: int = 0) -> None:
        self.scheduler: InputScheduler[InputMessage] = InputScheduler(
            config.order,
            quantum_bytes=config.quantum_bytes,
            client_quanta_max=config.queue_quanta_max,
            step=PAPER_STEP,
        )
        fixed_ns = int(config.quantum_time_s * SECOND)
        self.flows = Flows(self.scheduler, config, fixed_ns or quantum_ns or QUANTUM_NS_DEFAULT)
        self.turn_ns = int(config.turn_s * SECOND)
        self.publishers: dict[str, Publisher] = {}  # connected, by client id
        self.is_contended = False  # several publishers had packets at the last turn
        self.excess_lowered = 0
        self.excess_refused = 0
        self.quanta_meter = DurationMeter()
        self.rounds_meter = DurationMeter()
        self._is_measuring = fixed_ns == 0  # the quantum; rounds are measured in any case
        self._arrivals: list[Publisher] = []
        self._deferred: deque[Publisher] = deque()
        self._clock_offset_ns = clock_offset_ns
        self._quanta = 0  # since the round began
        self._began_ns = 0  # start of this round of reading, serving and writing; 0 = not begun
        self._seconds = 0

    def now_ns(self) -> int:
        return self._clock_offset_ns + time.monotonic_ns()

    # --- publishers -------------------------------------------------------------------

    def join(self, client_id: str, publisher: Publisher) -> None:
        """Add a client that connected; waiting messages of an earlier connection go first."""
        old = self.publishers.get(client_id)
        if old is not None and old is not publisher:
            self.flows.release(old, client_id, self.now_ns())
            if old.client_input.waiting > 0:
                publisher.predecessor = old.client_input
        publisher.client_input.name = client_id
        self.publishers[client_id] = publisher

    def leave(self, client_id: str, publisher: Publisher) -> None:
        """Remove a client: its contracts end, and its queues once they are empty."""
        if self.publishers.get(client_id) is publisher:
            del self.publishers[client_id]
        self.flows.release(publisher, client_id, self.now_ns())

    def arrive(self, publisher: Publisher) -> None:
        """Note that a publisher has packets."""
        if not publisher.is_arrived:
            publisher.is_arrived = True
            self._arrivals.append(publisher)

    def defer(self, publisher: Publisher) -> None:
        """Note that a publisher has a long request under way; its packets wait until that is done."""
        publisher.is_arrived = True
        publisher.is_deferred = True
        self._deferred.append(publisher)

    # --- turns ------------------------------------------------------------------------

    def begin(self, now_ns: int) -> None:
        """Begin a round, if none is under way: something was read."""
        if self._began_ns == 0:
            self._began_ns = now_ns

    def has_more(self) -> bool:
        """Whether the next turn has work, whatever the sockets bring."""
        return self._has_packets() or len(self._deferred) > 0

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
        if self._deferred:
            self._serve_deferred()

    def _serve_deferred(self) -> None:
        """Continue each long request by a step, and further while its time lasts."""
        until_ns = self.now_ns() + self.turn_ns // REQUEST_TURNS
        while self._deferred:
            publisher = self._deferred.popleft()
            if publisher.continue_request(until_ns):
                publisher.is_deferred = False
                publisher.is_arrived = False
                self.arrive(publisher)
            else:
                self._deferred.append(publisher)
            if self.now_ns() >= until_ns:
                return

    def _is_uncontended(self) -> bool:
        """Whether only one publisher has packets or waiting messages."""
        if len(self._arrivals) != 1:
            return len(self._arrivals) == 0
        return self.scheduler.is_empty() or self.scheduler.waits_only_for(self._arrivals[0].client_input)

    def _pass_through(self, publisher: Publisher, now_ns: int, until_ns: int) -> None:
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
                queued = scheduler.finished
                if queued is not None:
                    queued.publisher.publish_queued(queued, now_ns)
                if queue.topic.quanta_max == 0:
                    until_ns = min(until_ns, now_ns + self.turn_ns // FLOW_TURNS)
                if queued is not None and queued.publisher.is_slow:
                    queued.publisher.is_slow = False
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
        elapsed_ns = now_ns - self._began_ns
        if self._quanta >= MEASURED_QUANTA_MIN:
            self.quanta_meter.add(elapsed_ns / self._quanta)
            # Weighted by its length: more messages come during a long round.
            self.rounds_meter.add(elapsed_ns, elapsed_ns // ROUND_WEIGHT_NS + 1)
        self._quanta = 0
        self._began_ns = now_ns if is_flooded or self.has_more() else 0

    def rest(self) -> None:
        """Cancel the round that was begun: its turn had nothing to serve."""
        self._began_ns = 0

    def figures(self) -> dict[str, int]:
        """Return the numbers for `$SYS` and metrics."""
        return {
            "quantum_ns": self.flows.admission.quantum_ns,
            "round_ns": self.flows.round_ns,
            "stop_ns": self.flows.stall_ns,
            "flows": self.flows.admission.flow_count(),
            "flows_broken": len(self.flows.broken),
            "excess_lowered": self.excess_lowered,
            "excess_refused": self.excess_refused,
        }

    def patrol(self) -> None:
        """Update the delay bounds from what was measured; called about once a second."""
        self.flows.settle(self.now_ns())
        if self.quanta_meter.count < MEASURED_TURNS_MIN:
            return
        quantum_ns = self.flows.admission.quantum_ns
        if self._is_measuring:
            quantum_ns = self.quanta_meter.quantile_ns(MEASURED_QUANTA_PART)
        round_ns = max(self.rounds_meter.quantile_ns(MEASURED_ROUNDS_PART), ROUND_TURNS * self.turn_ns)
        stall_ns = self.rounds_meter.overrun_ns(MEASURED_STALLS_PART, FADE_WEIGHT) - round_ns
        self.flows.set_measured(quantum_ns, round_ns, stall_ns)
        self._seconds += 1
        if self._seconds % FADE_SECONDS == 0:
            self.quanta_meter.fade()
            self.rounds_meter.fade()
