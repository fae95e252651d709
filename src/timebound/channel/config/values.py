"""What a channel's file states, as values that can be compared section by section.

Nothing is checked here: `reader.py` does that. Durations are in nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from timebound.core.correlation.expression import Dependency

if TYPE_CHECKING:
    from timebound.channel.federation.remote import Address
    from timebound.core.input.schedulability import Operation

# What stands for a section that is left out.
NO_FILTERING: Final = "broadcast"
NO_DISPATCHING: Final = "reactive"


@dataclass(frozen=True, slots=True)
class ModuleConfig:
    """One module: a name of ours or `package.module:name`, and the keyword arguments it is made with."""

    module: str
    options: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """A gateway over a socket; `kind` is `listen` or `dial`."""

    kind: str
    address: Address
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class OperationConfig:
    """A unit of work: what it waits for, what it may cost in each period, and what it supplies.

    `depends_on` is as it is written, for comparing; `dependency` is what it means, None being every event.
    Operations without a period are served after those with one.
    """

    name: str
    period_ns: int = 0
    cost_ns: int = 0
    criticality: int = 0
    depends_on: object = None
    dependency: Dependency | None = field(default=None, compare=False)
    supplies: tuple[str, ...] = ()
    source: str = ""
    queue_max: int = 0
    evict_after: int = 0
    evict_slow: bool = False

    def operation(self) -> Operation | None:
        """Return the operation for the scheduling service; None without a period."""
        if not self.period_ns:
            return None
        from timebound.core.input.schedulability import Operation

        return Operation(
            self.name, period_ns=self.period_ns, cost_ns=self.cost_ns, criticality=self.criticality
        )

    @property
    def timing(self) -> tuple[int, int, int]:
        """What determines its priority."""
        return (self.period_ns, self.cost_ns, self.criticality)


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    """One file. `lane_threads` is by period; `timers` is None when the section is left out."""

    name: str = "channel"
    filtering: ModuleConfig = ModuleConfig(NO_FILTERING)
    dispatching: ModuleConfig = ModuleConfig(NO_DISPATCHING)
    lane_threads: dict[int, int] = field(default_factory=dict)
    timers: ModuleConfig | None = None
    timers_max: int = 1024
    gateways: tuple[GatewayConfig, ...] = ()
    operations: tuple[OperationConfig, ...] = ()

    def operation(self, name: str) -> OperationConfig | None:
        for operation in self.operations:
            if operation.name == name:
                return operation
        return None
