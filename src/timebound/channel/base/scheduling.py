"""The scheduling service: what operations need, whether all fit, and what they were measured to take.

One scheduler stands for one processor and may serve several channels. An operation takes part from the
moment its consumer is connected until it is disconnected.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from timebound.channel.base.dependency import Duration, nanoseconds
from timebound.channel.base.errors import ChannelError, NotSchedulable
from timebound.channel.base.measure import Meter
from timebound.core.input.schedulability import (
    OPERATIONS_MAX,
    Available,
    Operation,
    Verdict,
    available,
    judge,
    rank,
    response_ns,
)


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether an operation would fit, and if not, what would."""

    operation: Operation
    verdict: Verdict
    available: Available

    @property
    def is_accepted(self) -> bool:
        return self.verdict.schedulable


@dataclass(frozen=True, slots=True)
class OperationReport:
    """Stated and measured, side by side; times in nanoseconds, `bound_ns` is the analysed response time."""

    name: str
    priority: int
    sub_priority: int
    period_ns: int
    cost_ns_stated: int
    cost_ns_max: int
    cost_ns_p50: int
    cost_ns_p99: int
    response_ns_max: int
    response_ns_p99: int
    bound_ns: int
    runs: int
    overruns: int
    misses: int


class Scheduler:
    """Admits operations by rate-monotonic analysis."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._meters: dict[str, Meter] = {}

    def operation(self, name: str, *, period: Duration, cost: Duration, criticality: int = 0) -> Operation:
        """State what a consumer needs: `cost` of processor time in each `period`."""
        return Operation(
            name, period_ns=nanoseconds(period), cost_ns=nanoseconds(cost), criticality=criticality
        )

    def admission(self, operation: Operation) -> Admission:
        """Judge an operation without admitting it."""
        with self._lock:
            return self._judge(operation)

    def admit(self, operation: Operation) -> Meter:
        """Admit an operation.

        Raises:
            NotSchedulable: a deadline would be missed; carries what would fit.
            ChannelError: its name is taken, or there are too many operations.
        """
        with self._lock:
            return self._admit(operation)

    def _admit(self, operation: Operation) -> Meter:
        if operation.name in self._meters:
            raise ChannelError(f"operation {operation.name!r} is already connected; names must be unique")
        if len(self._meters) >= OPERATIONS_MAX:
            raise ChannelError(
                f"operation {operation.name!r} exceeds the limit of {OPERATIONS_MAX} operations"
            )
        admission = self._judge(operation)
        if not admission.is_accepted:
            raise NotSchedulable(operation, admission.verdict, admission.available)
        meter = Meter(operation)
        self._meters[operation.name] = meter
        return meter

    def release(self, operation: Operation) -> None:
        with self._lock:
            self._meters.pop(operation.name, None)

    def replace(self, leaving: list[Operation], coming: list[Operation]) -> list[Meter]:
        """Replace operations by others, all at once; return the meters of the new ones.

        Raises:
            NotSchedulable: a deadline would be missed; nothing was replaced.
            ChannelError: a name is taken, or there are too many operations; nothing was replaced.
        """
        with self._lock:
            before = self._meters
            gone = {operation.name for operation in leaving}
            self._meters = {name: meter for name, meter in before.items() if name not in gone}
            try:
                return [self._admit(operation) for operation in coming]
            except ChannelError:
                self._meters = before
                raise

    def utilisation(self) -> float:
        with self._lock:
            return judge(self._operations()).utilisation

    def report(self) -> list[OperationReport]:
        """Return a report of each operation, the most urgent first."""
        with self._lock:
            ranks = rank(self._operations())
            meters = [self._meters[entry.operation.name] for entry in ranks]
        return [
            OperationReport(
                name=entry.operation.name,
                priority=entry.priority,
                sub_priority=entry.sub_priority,
                period_ns=entry.operation.period_ns,
                cost_ns_stated=entry.operation.cost_ns,
                cost_ns_max=meter.cost.max_ns,
                cost_ns_p50=meter.cost.percentile_ns(50),
                cost_ns_p99=meter.cost.percentile_ns(99),
                response_ns_max=meter.response.max_ns,
                response_ns_p99=meter.response.percentile_ns(99),
                bound_ns=response_ns(ranks, index) or 0,
                runs=meter.cost.count,
                overruns=meter.overruns,
                misses=meter.misses,
            )
            for index, (entry, meter) in enumerate(zip(ranks, meters, strict=True))
        ]

    def _operations(self) -> list[Operation]:
        return [meter.operation for meter in self._meters.values()]

    def _judge(self, operation: Operation) -> Admission:
        admitted = self._operations()
        verdict = judge([*admitted, operation])
        if verdict.schedulable:
            return Admission(operation, verdict, Available(operation.cost_ns, operation.period_ns))
        return Admission(operation, verdict, available(admitted, operation))
