"""A simulated node: a whole broker with connections, mesh and disk, put together as `node/server.py` does.

A crash ends a life: what is in memory and not committed is gone, and every connection ends. A restart begins
the next from the tables of the disk. A clock that was set shows after a restart, since a running broker
counts the time itself.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

from timebound.config.input import entrance_options
from timebound.config.limits import core_limits
from timebound.config.values import Config
from timebound.core.account.trace_log import TraceRecord
from timebound.core.broker import Broker
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.mesh.message import Copy
from timebound.core.sessions.durability import Batch
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.message import Message
from timebound.linking.greeting import Greeting
from timebound.linking.join import join_mesh
from timebound.linking.mesh import Mesh
from timebound.sim.deployment.host import LinkTerms, Redialling
from timebound.sim.deployment.intake import SimIntake
from timebound.sim.deployment.links import Cable
from timebound.sim.deployment.neighbours import Dialling, LinkEnd
from timebound.sim.deployment.served import ServedClient
from timebound.sim.deployment.storage import LateDisk
from timebound.sim.deployment.timers import Call, VirtualClock
from timebound.sim.kernel.kernel import Kernel
from timebound.units import SECOND
from timebound.wire.codec import Decoder
from timebound.wire.packets import Packet

PATROL_NS: Final = SECOND
# Orders that wait for the disk, from which on publishers are not read.
STORAGE_ORDERS_MAX: Final = 1_000
# Virtual clocks show a time like a real one: 0 has a meaning of its own in many places.
EPOCH_NS: Final = 1_000_000_000 * SECOND


class Watcher(Protocol):
    """What is told everything that the checkers need to know of a node."""

    def count(self, what: str) -> None:
        """Count something rare that has happened."""

    def taken(self, node: SimNode, message: Message) -> None:
        """Take note of a message that a client's broker has published; without a number if it was refused."""

    def copied(self, node: SimNode, copy: Copy) -> None:
        """Take note of a copy from a neighbour, which the broker is about to take."""

    def served(self, node: SimNode, message: Message, wait_ns: int, is_covered: bool) -> None:
        """Take note of a client's message about to be published: its wait, and if a bound covers it."""

    def traced(self, node: SimNode, record: TraceRecord) -> None:
        """Take note of the outcome of a pair."""

    def life_ended(self, node: SimNode) -> None:
        """Take note of a crash; the broker is still there to be looked at."""

    def patrolled(self, node: SimNode) -> None:
        """Look at a running broker; called about once a second."""


class SimNode:
    """One broker of a deployment."""

    def __init__(
        self,
        kernel: Kernel,
        config: Config,
        random: Random,
        watcher: Watcher,
        dial: Callable[[str, str], Cable | None],
        commit_delay_ns: int,
    ) -> None:
        self.config = config
        self.name = config.node_name
        self.limits = config.limits
        self.access = AccessList(list(config.security.rules))
        self.disk = LateDisk(random, commit_delay_ns)
        self.life = 0  # counts starts
        self.is_up = False
        self.connections: dict[int, Any] = {}  # ServedClient or LinkEnd
        self._kernel = kernel
        self._watcher = watcher
        self._dial = dial
        self._offset_ns = EPOCH_NS
        self._last_offset_ns = EPOCH_NS
        self._last_number = 0
        self._dialling: list[Dialling] = []
        self._timer: Call | None = None
        self._timer_ns = 0
        self.clock: VirtualClock
        self.broker: Broker
        self.intake: SimIntake
        self.mesh: Mesh | None

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life, with what the disk has."""
        assert not self.is_up
        self.is_up = True
        self.life += 1
        self.clock = VirtualClock(self._kernel, self.turn, self._offset_ns)
        config, now_ns = self.config, self.clock.now_ns()
        index = WatchedIndex() if config.neighbours else None
        options = entrance_options(config.input)
        self.broker = Broker(core_limits(config.limits), self.access, True, index, options)
        self.intake = SimIntake(self.broker, config.input, self.clock, self)
        self.broker.account.is_tracing = True
        self.broker.identify(config.node_name, now_ns)
        self.mesh = None if index is None else join_mesh(config, self.broker, index, self.clock)
        if self.disk.tables.deliveries:
            self.count("restart with queued messages")
        if self._offset_ns != self._last_offset_ns:
            self._last_offset_ns = self._offset_ns
            self.count("restart with another clock")
        self.broker.restore(self.disk.tables.snapshot(), now_ns)
        self.disk.tables.started_ns = now_ns
        self._dialling = [Dialling(self, one) for one in config.neighbours if one.host]
        self._timer = None
        for one in self._dialling:
            self.clock.call_at_ns(now_ns, one.dial)
        self._call_patrol()
        self.clock.schedule()

    def crash(self) -> None:
        """End at once, as a process that is killed."""
        self.count_mesh()
        self._watcher.life_ended(self)
        self.is_up = False
        self.clock.stop()
        for connection in list(self.connections.values()):
            connection.die()
        for dialling in self._dialling:
            dialling.die()
        self.connections.clear()
        if self.disk.crash():
            self.count("crash before a commit")

    def count_mesh(self) -> None:
        """Count the rare things that the mesh has counted in this life."""
        if self.mesh is None:
            return
        figures = self.mesh.figures()
        for figure, what in (
            ("duplicates", "second copy dropped"),
            ("resent", "copy sent again over another link"),
        ):
            for _ in range(figures[figure]):
                self.count(what)

    def step_clock(self, step_ns: int) -> None:
        """Set the clock of the machine; the broker follows at its next start."""
        self._offset_ns += step_ns

    def set_rules(self, rules: tuple[AccessRule, ...]) -> None:
        """Read other access rules, as a reload does; a node that is down reads them when it starts."""
        self.access = AccessList(list(rules))
        if not self.is_up:
            return
        before = self.broker.statistics().subscriptions
        self.broker.set_access(self.access, self.now_ns())
        if self.broker.statistics().subscriptions < before:
            self.count("subscription ended by new rules")
        self.clock.schedule()

    def now_ns(self) -> int:
        return self.clock.now_ns()

    # --- connections ------------------------------------------------------------------

    def accept(self, cable: Cable, listener: int = 0) -> None:
        """Take a new connection from a client, or from another broker."""
        self._last_number += 1
        client = ServedClient(self, self._last_number, cable, self.config.listeners[listener])
        self.connections[self._last_number] = client

    def connect_to(self, name: str) -> Cable | None:
        """Open a connection to another node; None if it is not there."""
        return self._dial(self.name, name)

    def open_link(
        self,
        greeting: Greeting,
        cable: Cable,
        decoder: Decoder,
        granted: LinkTerms,
        rest: list[Packet],
        dialler: Redialling | None = None,
    ) -> None:
        """Make a connection a link, after its handshake."""
        self._last_number += 1
        number = self._last_number
        end = LinkEnd(self, greeting, number, cable, decoder, granted.keep_alive_s, dialler)
        self.connections[number] = end
        end.open(greeting, granted)
        end.take(rest)

    def connected(self) -> int:
        """Return how many clients are connected."""
        return sum(
            isinstance(one, ServedClient) and one.session is not None for one in self.connections.values()
        )

    def has_in_flight(self, neighbour: str) -> bool:
        """Whether copies were sent to a neighbour that has not confirmed them."""
        return (
            self.is_up
            and self.mesh is not None
            and any(
                copy is not None for copy in self.mesh.member.forwarder.links[neighbour].inflight.values()
            )
        )

    def is_storage_behind(self) -> bool:
        return self.disk.pending_orders > STORAGE_ORDERS_MAX

    def count(self, what: str) -> None:
        self._watcher.count(what)

    # --- in ---------------------------------------------------------------------------

    def note_taken(self, message: Message) -> None:
        """Tell the watcher of a message that was published, or refused."""
        self._watcher.taken(self, message)

    def note_served(self, message: Message, wait_ns: int, *, is_covered: bool) -> None:
        """Tell the watcher how long a client's message has waited."""
        self._watcher.served(self, message, wait_ns, is_covered)

    def note_copy(self, copy: Copy) -> None:
        """Tell the watcher of a copy from a neighbour."""
        self._watcher.copied(self, copy)

    # --- turns ------------------------------------------------------------------------

    def turn(self) -> None:
        """Take in, close, write and store, in the order of the driver."""
        broker = self.broker
        self.intake.turn()
        for close in broker.take_closes():
            connection = self.connections.get(close.connection)
            if connection is not None:
                self.count("take-over")
                connection.close(close.reason_code, close.reason)
        if self.mesh is not None:
            self.mesh.turn()
        for session in broker.take_ready():
            served = self.connections.get(session.connection)
            if served is not None:
                served.flush()
        for fault in broker.take_faults():
            raise fault.error
        batch = broker.take_batch()
        if batch is not None:
            self.disk.submit(batch, self.clock, self._committed)
        if not broker.account.trace.is_empty():
            for record in broker.account.trace.take().records():
                self._watcher.traced(self, record)
        if broker.is_expiring():
            broker.continue_expiry(self.now_ns())
            self.clock.schedule()
        if broker.has_ready():
            self.clock.schedule()
        self._arm_timer()

    def _committed(self, batch: Batch) -> None:
        self.broker.committed(batch)
        self.turn()

    def _arm_timer(self) -> None:
        wakeup_ns = self.broker.next_wakeup_ns()
        if wakeup_ns is None:
            return
        if self._timer is not None:
            if self._timer_ns <= wakeup_ns:
                return
            self._timer.cancel()
        self._timer_ns = wakeup_ns
        self._timer = self.clock.call_at_ns(wakeup_ns, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.broker.wake(max(self._timer_ns, self.now_ns()))
        self.turn()

    def _call_patrol(self) -> None:
        self.clock.call_at_ns(self.now_ns() + PATROL_NS, self._patrol)

    def _patrol(self) -> None:
        now_ns = self.now_ns()
        for connection in list(self.connections.values()):
            connection.patrol(now_ns)
        for dialling in self._dialling:
            dialling.patrol(now_ns)
        self.broker.expire(now_ns)
        self.broker.entrance.update(now_ns)
        self.broker.counters.alerts.clear()
        if self.mesh is not None:
            self.mesh.patrol(now_ns)
            if self.mesh.figures()["parked"]:
                self.count("message parked for a broker out of reach")
        self.turn()
        self._watcher.patrolled(self)
        self._call_patrol()
