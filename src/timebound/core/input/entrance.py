"""The entrance of the broker: what is taken in next, at which weight, and with which guarantee.

    entrance = broker.entrance
    entrance.join(client_id, publisher)              # a client connected
    if publisher.policers:                           # it advertised flows
        verdict = broker.police(publisher, ...)      # CONFORMING, EXCESS or TURNED_DOWN
    if entrance.may_queue(publisher):                # else serve what waits first
        entrance.push(InputMessage(publisher, session, message, packet_id), verdict == EXCESS)
    ...
    queue = entrance.scheduler.serve()               # one quantum; None: nothing waits
    queued = entrance.scheduler.finished             # the message it completed; `broker.publish` takes it
    ...
    entrance.note_round(elapsed_ns, quanta)          # what the driver measured
    entrance.leave(client_id, publisher)

A driver has sockets, a clock and a budget of time; what it does not have is an opinion on whose message goes
first. Weights and contracts are in `flows.py`, requests of clients about them in `requests.py`. What takes
long is a job (`jobs.py`): call `broker.continue_jobs` while `jobs` has any and there is time.
"""

from __future__ import annotations

from typing import Final

from timebound.core.account.counters import Counters
from timebound.core.input.flows import Flows
from timebound.core.input.jobs import EntranceJob, EntranceJobs
from timebound.core.input.meter import DurationMeter
from timebound.core.input.options import EntranceOptions
from timebound.core.input.plan import PAPER_STEP
from timebound.core.input.policer import LOWER
from timebound.core.input.publisher import InputMessage, Publisher
from timebound.core.input.scheduler import InputScheduler
from timebound.core.input.steps import Steps
from timebound.records import Reason
from timebound.units import SECOND

# Verdicts of `police`.
CONFORMING: Final = 0  # within its contract, or of no flow
EXCESS: Final = 1
TURNED_DOWN: Final = 2  # excess, which is refused

# The name of jobs that are no client's.
OF_BROKER: Final = "the broker"
# Rounds with fewer quanta are not measured: they say little about the quantum.
MEASURED_QUANTA_MIN: Final = 64
# Rounds measured, at least, before their times replace the calibrated ones.
MEASURED_ROUNDS_MIN: Final = 50
# Quantiles of the measured times, and the part of the time that may be spent in longer stalls. A bound has
# many quanta, and two rounds, one of which may include a stall.
MEASURED_QUANTA_PART: Final = 0.99
MEASURED_ROUNDS_PART: Final = 0.95
MEASURED_STALLS_PART: Final = 0.001
ROUND_WEIGHT_NS: Final = 100_000  # one unit of weight of a round
# Counted in updates with enough rounds to measure. Delay bounds should not change from hour to hour.
FADE_UPDATES: Final = 300
FADE_WEIGHT: Final = FADE_UPDATES * SECOND // ROUND_WEIGHT_NS


class Entrance:
    """The input of one broker: its publishers, their queues, weights and flows."""

    def __init__(self, options: EntranceOptions, counters: Counters) -> None:
        self.options = options
        self.scheduler: InputScheduler[InputMessage] = InputScheduler(
            options.order,
            quantum_bytes=options.quantum_bytes,
            client_quanta_max=options.queue_quanta_max,
            step=PAPER_STEP,
        )
        self.flows = Flows(self.scheduler, options, counters)
        self.jobs = EntranceJobs(self.flows)
        self.quanta_max = options.queue_quanta_max  # that wait of one publisher
        self.publishers: dict[str, Publisher] = {}  # connected, by client id
        self.excess_lowered = 0
        self.excess_refused = 0
        self.quanta_meter = DurationMeter()
        self.rounds_meter = DurationMeter()
        self._counters = counters
        self._updates = 0  # with enough rounds to measure

    # --- publishers -------------------------------------------------------------------

    def join(self, client_id: str, publisher: Publisher) -> None:
        """Add a client that connected; waiting messages of an earlier connection go first."""
        old = self.publishers.get(client_id)
        if old is not None and old is not publisher:
            self._retire(client_id, old)
            if old.client_input.waiting > 0:
                publisher.predecessor = old.client_input
        publisher.client_input.name = client_id
        self.publishers[client_id] = publisher

    def leave(self, client_id: str, publisher: Publisher) -> None:
        """Remove a client: its contracts end soon, and its queues once they are empty."""
        if self.publishers.get(client_id) is publisher:
            del self.publishers[client_id]
        self._retire(client_id, publisher)

    def _retire(self, client_id: str, publisher: Publisher) -> None:
        if publisher.flow_queues:
            release = EntranceJob(client_id)
            release.steps = self.flows.releasing(publisher, client_id)
            self.jobs.add(release)
        self.flows.close_queues(publisher)

    def is_preceded(self, publisher: Publisher) -> bool:
        """Whether messages of an earlier connection of this client still wait."""
        predecessor = publisher.predecessor
        if predecessor is None:
            return False
        if predecessor.waiting > 0:
            return True
        publisher.predecessor = None
        return False

    # --- messages ---------------------------------------------------------------------

    def police(self, publisher: Publisher, topic: str, size: int, arrived_ns: int) -> int:
        """Check a message against its flow's contract; needed only of publishers with `policers`.

        `promised_ns` of the publisher is then the delay bound of the message.
        """
        policer = publisher.policers.get(topic)
        publisher.promised_ns = 0
        if policer is None:
            return CONFORMING
        if policer.conforms(size, arrived_ns):
            publisher.promised_ns = policer.guaranteed_ns
            return CONFORMING
        if policer.mode == LOWER:
            self.excess_lowered += 1
            return EXCESS
        self.excess_refused += 1
        self._counters.refuse(Reason.NOT_ADMITTED)
        return TURNED_DOWN

    def may_queue(self, publisher: Publisher) -> bool:
        """Whether a message may be queued now.

        After a change of weights a topic may have moved to another queue: its messages must not overtake
        earlier ones, so they wait until these are served.
        """
        if publisher.generation == self.flows.generation:
            return True
        if publisher.client_input.waiting > 0:
            return False
        publisher.generation = self.flows.generation
        self.flows.forget_queues(publisher)
        return True

    def push(self, queued: InputMessage, is_excess: bool) -> bool:
        """Queue a message of a publisher that `may_queue`; False: `quanta_max` wait, so serve these first.

        A driver then keeps the message, and leaves the publisher's socket unread.
        """
        publisher = queued.publisher
        message = queued.message
        queue = publisher.queues.get(message.topic)
        if queue is None:
            queue = self.flows.queue_for(publisher, message.topic)
        return self.scheduler.push(queue, queued, len(message.payload), is_excess)

    # --- measurements -----------------------------------------------------------------

    def note_round(self, elapsed_ns: int, quanta: int) -> None:
        """Note how long a round of reading, serving and writing took."""
        if quanta >= MEASURED_QUANTA_MIN:
            self.quanta_meter.add(elapsed_ns / quanta)
            # Weighted by its length: more messages come during a long round.
            self.rounds_meter.add(elapsed_ns, elapsed_ns // ROUND_WEIGHT_NS + 1)

    def update(self, now_ns: int) -> None:
        """Begin to update and report the delay bounds, if they changed; call it about once a second."""
        if len(self.jobs) > 0:
            return  # next time: jobs see one state from their beginning to their end
        self.flows.settle(now_ns)
        if self.quanta_meter.count >= MEASURED_ROUNDS_MIN:
            self._measure()
        if self.flows.is_report_due:
            job = EntranceJob(OF_BROKER)
            job.steps = _reporting(self.flows)
            self.jobs.add(job)

    def _measure(self) -> None:
        """Begin to compute the bounds from what was measured, if that differs."""
        options = self.options
        quantum_ns = self.flows.admission.quantum_ns
        if not options.is_quantum_fixed:
            quantum_ns = self.quanta_meter.quantile_ns(MEASURED_QUANTA_PART)
        round_ns = max(self.rounds_meter.quantile_ns(MEASURED_ROUNDS_PART), options.round_ns_min)
        stall_ns = self.rounds_meter.overrun_ns(MEASURED_STALLS_PART, FADE_WEIGHT) - round_ns
        if self.flows.has_changed(quantum_ns, round_ns, stall_ns):
            job = EntranceJob(OF_BROKER)
            job.steps = self.flows.measuring(quantum_ns, round_ns, stall_ns)
            self.jobs.add(job)
        self._updates += 1
        if self._updates % FADE_UPDATES == 0:
            self.quanta_meter.fade()
            self.rounds_meter.fade()

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


def _reporting(flows: Flows) -> Steps[None]:
    yield from flows.reporting()
