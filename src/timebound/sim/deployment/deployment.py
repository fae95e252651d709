"""A deployment: nodes, clients and the ways between them, run by a script and watched by checkers.

Every draw comes from the plan's seed, so the same plan gives the same run. After the script everything is
mended and connected again; then, with nothing new to do, all promises must have been kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from timebound.core.account.trace_log import TraceRecord
from timebound.core.mesh.message import Copy
from timebound.core.values.access import AccessList
from timebound.core.values.message import Message
from timebound.sim.deployment.clients import SimClient
from timebound.sim.deployment.history import History, TracedOutcome, number_in
from timebound.sim.deployment.links import Cable, Route, make_cables
from timebound.sim.deployment.node import SimNode
from timebound.sim.deployment.script import Action, ClientSetting, LinkPlace, Plan
from timebound.sim.deployment.timers import Call, VirtualClock
from timebound.sim.kernel.kernel import Kernel
from timebound.sim.kernel.streams import Streams
from timebound.units import SECOND

FAILURES_MAX: Final = 20  # of one run: more say nothing new
CALM_NS: Final = 10 * SECOND  # after the script, before clients are as fast as they can
FAST_BYTES_PER_S: Final = 1_000_000
PROBE_NS: Final = 8 * SECOND  # before the end, for what is retained
PROBE: Final = "probe-"


@dataclass(frozen=True, slots=True)
class Failure:
    """A promise that was broken."""

    checker: str
    time_ns: int
    text: str

    def __str__(self) -> str:
        return f"{self.checker} at {self.time_ns / SECOND:.3f} s: {self.text}"


class Checker:
    """One kind of promise; it overrides what it looks at, and tells `Deployment.fail` whatever is wrong."""

    name = ""

    def taken(self, deployment: Deployment, node: SimNode, message: Message) -> None:
        """Look at a message that its client's broker has published."""

    def copied(self, deployment: Deployment, node: SimNode, copy: Copy) -> None:
        """Look at a copy from a neighbour, which the broker is about to take."""

    def served(
        self, deployment: Deployment, node: SimNode, message: Message, wait_ns: int, is_covered: bool
    ) -> None:
        """Look at a client's message that is about to be published: its wait, and if a bound covers it."""

    def patrolled(self, deployment: Deployment, node: SimNode) -> None:
        """Look at a running broker."""

    def life_ended(self, deployment: Deployment, node: SimNode) -> None:
        """Look at a broker that has just crashed."""

    def finished(self, deployment: Deployment) -> None:
        """Look at everything, after the quiet time."""


class Deployment:
    """One run of a plan."""

    def __init__(self, plan: Plan, checkers: Iterable[Checker]) -> None:
        self.plan = plan
        self.kernel = Kernel()
        self.history = History()
        self.failures: list[Failure] = []
        self.error: Exception | None = None  # that ended the run
        self._checkers = list(checkers)
        streams = Streams(plan.seed)
        self.nodes = {
            config.node_name: SimNode(
                self.kernel,
                config,
                streams.stream(f"disk {config.node_name}"),
                self,
                self._dial_node,
                plan.commit_delay_ns,
            )
            for config in plan.configs
        }
        self.clients: dict[str, SimClient] = {}
        self._routes = {frozenset((one.one, one.other)): _route(one) for one in plan.links}
        self._client_routes: dict[str, Route] = {}
        self._cables: dict[frozenset[str], list[Cable]] = {}
        self._refusing: set[frozenset[str]] = set()  # links that are cut; never iterated
        for setting in plan.clients:
            self._add_client(setting)

    def _add_client(self, setting: ClientSetting) -> SimClient:
        clock = VirtualClock(self.kernel, lambda: None)
        client = SimClient(setting, clock, self.history, self._dial_client)
        self.clients[setting.name] = client
        return client

    def run(self) -> list[Failure]:
        """Run the plan to its end; return what was wrong."""
        for node in self.nodes.values():
            self.kernel.schedule(0, Call(node.start))
        for action in self.plan.actions:
            self.kernel.schedule(action.time_ns, Call(self._acting(action)))
        end_ns = max((action.time_ns for action in self.plan.actions), default=0) + SECOND
        try:
            self.kernel.run(end_ns)
            if self.plan.is_settled:
                self._mend()
                self.kernel.run(end_ns + CALM_NS)
                self._hurry()
                self.kernel.run(end_ns + self.plan.quiet_ns - PROBE_NS)
                self._probe()
            self.kernel.run(end_ns + self.plan.quiet_ns)
            for node in self.nodes.values():
                node.count_mesh()
            for checker in self._checkers:
                checker.finished(self)
        except Exception as error:
            self.fail("crash", f"{type(error).__name__}: {error}")
            self.error = error
        return self.failures

    def tell(self, time_ns: int, progress: Callable[[float], None], share: float) -> None:
        """Report a share of the run as done at a time; to be called before it."""
        self.kernel.schedule(time_ns, Call(lambda: progress(share)))

    def is_at_rest(self) -> bool:
        """Whether nothing is impaired, and nothing waits at any broker or between them."""
        if self._refusing or any(route.is_impaired() for route in self._routes.values()):
            return False
        return all(
            node.is_up
            and not node.broker.account.outstanding()
            and (node.mesh is None or not node.mesh.member.forwarder.waiting_messages())
            for node in self.nodes.values()
        )

    def fail(self, checker: str, text: str) -> None:
        """Take note of a broken promise."""
        if len(self.failures) < FAILURES_MAX:
            self.failures.append(Failure(checker, self.kernel.now_ns, text))

    # --- what the script does -----------------------------------------------------------

    def _acting(self, action: Action) -> Callable[[], None]:
        return lambda: self._act(action)

    def _act(self, action: Action) -> None:
        kind, who, what = action.kind, action.who, action.what
        if who in self.nodes:
            self._act_on_node(self.nodes[who], kind, what)
        elif who in self.clients:
            self._act_as_client(self.clients[who], kind, what)
        else:
            self._act_on_link(frozenset(who.split("-", 1)), kind, what)

    def _act_as_client(self, client: SimClient, kind: str, what: dict[str, Any]) -> None:
        if kind == "connect":
            client.connect(**what)
        elif kind == "disconnect":
            client.disconnect(**what)
        elif kind == "vanish":
            client.vanish()
        elif kind == "mute":
            client.mute()
        elif kind == "speak":
            client.speak()
        elif kind == "subscribe":
            client.subscribe(**what)
        elif kind == "unsubscribe":
            client.unsubscribe(**what)
        elif kind == "request":
            client.request(**what)
        else:
            assert kind == "publish", kind
            client.publish(what["number"], what)

    def _act_on_node(self, node: SimNode, kind: str, what: dict[str, Any]) -> None:
        if kind == "crash":
            if node.is_up:
                self._fault()
                node.crash()
        elif kind == "restart":
            if not node.is_up:
                self._fault()
                node.start()
        elif kind == "clock":
            node.step_clock(what["step_ns"])
        elif kind == "rules":
            self.history.rules.append((self.kernel.now_ns, node.name, AccessList(list(what["rules"]))))
            node.set_rules(what["rules"])
        elif kind == "disk-fails":
            node.disk.fail()
        else:
            assert kind == "disk-works", kind
            if node.is_up and node.disk.work(node.clock):
                self.count("commit after a failure")

    def _act_on_link(self, pair: frozenset[str], kind: str, what: dict[str, Any]) -> None:
        route = self._routes[pair]
        self._fault()
        if kind == "slow":
            route.slow(what["factor"])
        elif kind == "dead":
            route.is_dead = True
        elif kind == "cut":
            self._refusing.add(pair)
            self._cut(pair)
        else:
            assert kind == "mend", kind
            self._mend_link(pair)

    def _mend_link(self, pair: frozenset[str]) -> None:
        route = self._routes[pair]
        self._refusing.discard(pair)
        if route.is_dead:
            route.is_dead = False
            self._cut(pair)  # they lost bytes, and cannot go on
        route.restore()

    def _cut(self, pair: frozenset[str]) -> None:
        has_copies = any(
            self.nodes[one].has_in_flight(other) for one in sorted(pair) for other in pair if one != other
        )
        for cable in self._cables.pop(pair, []):
            if not cable.is_closing():
                self.count("link cut with copies in flight" if has_copies else "link cut")
                cable.cut()

    def _fault(self) -> None:
        self.history.faults.append(self.kernel.now_ns)

    def _mend(self) -> None:
        """Repair everything and connect every client."""
        self.history.quiet_ns = self.kernel.now_ns
        for pair, route in self._routes.items():
            if pair in self._refusing or route.is_impaired():
                self._fault()
            self._mend_link(pair)
        for node in self.nodes.values():
            if not node.is_up:
                self._fault()
                node.start()
            node.disk.work(node.clock)
        for client in self.clients.values():
            client.speak()
            if not client.is_wanted:
                client.connect(clean=False)

    def _hurry(self) -> None:
        """Let what is left pass quickly: slow clients would need minutes for it."""
        for route in self._client_routes.values():
            route.rate_bytes_per_s = FAST_BYTES_PER_S
        for node in self.nodes.values():
            node.disk.hurry()
        for client in self.clients.values():
            client.hurry()

    def _probe(self) -> None:
        """Ask every broker for what it retains."""
        for name in self.nodes:
            probe = self._add_client(ClientSetting(PROBE + name, name, expiry_s=0))
            probe.connect(clean=True)
            when_ns = self.kernel.now_ns + 2 * SECOND
            self.kernel.schedule(when_ns, Call(_asking(probe)))

    # --- ways ---------------------------------------------------------------------------

    def _dial_node(self, source: str, target: str) -> Cable | None:
        pair = frozenset((source, target))
        node, route = self.nodes.get(target), self._routes.get(pair)
        if node is None or route is None or not node.is_up or pair in self._refusing:
            return None
        near, far = make_cables(self.kernel, route, node.limits.write_buffer_bytes)
        node.accept(far)
        self._cables.setdefault(pair, []).append(near)
        return near

    def _dial_client(self, setting: ClientSetting) -> Cable | None:
        node = self.nodes[setting.node]
        if not node.is_up:
            return None
        route = self._client_routes.setdefault(
            setting.name, Route(setting.rate_bytes_per_s, setting.latency_ns)
        )
        near, far = make_cables(self.kernel, route, node.limits.write_buffer_bytes)
        node.accept(far, setting.listener)
        return near

    # --- what nodes tell ------------------------------------------------------------------

    def count(self, what: str) -> None:
        self.history.count(what)

    def taken(self, node: SimNode, message: Message) -> None:
        number = number_in(message.payload, message.user_properties)
        sent = self.history.messages.get(number)
        if sent is not None and message.sequence:
            sent.taken.append((node.name, node.life, self.kernel.now_ns))
            trace = node.broker.account.trace
            self.history.name(trace.origin, trace.started_ns, message.sequence, number)
        for checker in self._checkers:
            checker.taken(self, node, message)

    def copied(self, node: SimNode, copy: Copy) -> None:
        for checker in self._checkers:
            checker.copied(self, node, copy)

    def served(self, node: SimNode, message: Message, wait_ns: int, is_covered: bool) -> None:
        for checker in self._checkers:
            checker.served(self, node, message, wait_ns, is_covered)

    def traced(self, node: SimNode, record: TraceRecord) -> None:
        message, receiver = record.message, record.receiver
        number = self.history.number_of(message.origin, message.started_ns, record.number)
        self.history.outcomes.append(
            TracedOutcome(
                node.name,
                node.life,
                number,
                receiver.client_id,
                receiver.topic_filter,
                receiver.outcome,
                receiver.reason,
                record.offered_ns - record.published_ns if record.offered_ns else 0,
            )
        )
        if receiver.reason:
            self.count(f"dropped: {receiver.reason}")

    def life_ended(self, node: SimNode) -> None:
        self.history.crashes.append((self.kernel.now_ns, node.name))
        for checker in self._checkers:
            checker.life_ended(self, node)

    def patrolled(self, node: SimNode) -> None:
        for checker in self._checkers:
            checker.patrolled(self, node)


def _route(place: LinkPlace) -> Route:
    return Route(place.rate_bytes_per_s, place.latency_ns)


def _asking(probe: SimClient) -> Callable[[], None]:
    return lambda: probe.subscribe([{"topic_filter": "#", "qos": 1}], {})
