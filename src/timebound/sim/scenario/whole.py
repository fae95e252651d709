"""A scenario with whole brokers: its load, links and faults as a plan of a deployment, and what came out.

The brokers are those of live configuration files, or made from the scenario's topology and strategy.
Publishers and subscribers are clients with connections of their own, and draw the same load as on a mesh.
Links take the same time for each byte, so deviations and losses are not simulated here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from timebound.config.listeners import ListenerConfig
from timebound.config.mesh import MeshConfig, NeighbourConfig
from timebound.config.values import Config
from timebound.core.account.trace_log import TraceRecord
from timebound.core.input.requests import ADVERTISE_PREFIX
from timebound.core.mesh.account import TraceRow
from timebound.core.mesh.member import COPY_BYTES
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.subscription import MICRO
from timebound.errors import TimeboundError
from timebound.records import Outcome
from timebound.sim.deployment.checkers.registry import all_checkers
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.history import ID_PROPERTY
from timebound.sim.deployment.node import SimNode
from timebound.sim.deployment.script import Action, ClientSetting, LinkPlace, Plan
from timebound.sim.kernel.streams import Streams
from timebound.sim.mesh.experiment import RunResult, make_topology
from timebound.sim.mesh.setting import FaultSetting, LoginSetting, MeshSetting, PublisherSetting
from timebound.sim.mesh.topology import Topology
from timebound.sim.mesh.workload import Source, make_sources, make_subscriptions
from timebound.sim.scenario.live import listener_number
from timebound.terms import DEFAULT_TERMS, TERM_PROPERTIES, Terms
from timebound.units import MILLISECOND, SECOND, format_duration

# Time for clients to connect and for brokers to learn of each other and of all subscriptions.
START_NS: Final = 5 * SECOND
SUBSCRIBE_NS: Final = SECOND
DRAIN_NS: Final = 60 * SECOND  # after the last message
# The connections of clients: as good as not limited.
CLIENT_BYTES_PER_S: Final = 10**15
_STEPS: Final = 100


def simulate(
    setting: MeshSetting,
    seed: int,
    configs: tuple[Config, ...] = (),
    progress: Callable[[float], None] | None = None,
) -> RunResult:
    """Run a scenario with whole brokers; without configurations, they follow from the setting.

    Raises:
        TimeboundError: a broker broke a promise: a bug of the broker, or of the simulation.
    """
    started = time.process_time()
    plan = plan_of(setting, seed, configs)
    deployment = _Traced(plan)
    if progress is not None:
        end_ns = START_NS + setting.duration_ns
        for step in range(1, _STEPS + 1):
            deployment.tell(end_ns * step // _STEPS, progress, step / _STEPS)
    failures = deployment.run()
    if deployment.error is not None:
        raise deployment.error
    if failures:
        told = "; ".join(str(failure) for failure in failures)
        raise TimeboundError(f"promises of brokers were broken (seed {seed}), please report it: {told}")
    return _result(deployment, seed, time.process_time() - started, is_tracing=setting.is_tracing)


class _Traced(Deployment):
    """A deployment that keeps the records of all traces."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, all_checkers())
        self.rows: list[TraceRow] = []
        self.copies = 0  # from neighbours, in lives that have ended too

    def traced(self, node: SimNode, record: TraceRecord) -> None:
        super().traced(node, record)
        self.rows.append(_row(record))

    def life_ended(self, node: SimNode) -> None:
        super().life_ended(node)
        self.copies += 0 if node.mesh is None else node.mesh.member.received


def _row(record: TraceRecord) -> TraceRow:
    message, receiver = record.message, record.receiver
    ended_ns = record.sent_ns or record.time_ns
    return (
        record.time_ns,
        record.message_id,
        message.topic,
        message.publisher,
        receiver.client_id,
        receiver.topic_filter,
        receiver.qos,
        record.size_bytes,
        record.published_ns,
        ended_ns - record.offered_ns,
        receiver.allowed_ns,
        receiver.outcome,
        receiver.reason,
        receiver.price_micro,
        receiver.penalty_micro,
        message.hops,
        receiver.link or receiver.client_id,
        record.sent_ns,
        message.promised_ns,
        message.origin,
        message.started_ns,
        record.number,
        message.traceparent,
    )


def _result(deployment: _Traced, seed: int, seconds: float, *, is_tracing: bool) -> RunResult:
    outcomes: dict[str, int] = {}
    dropped: dict[str, int] = {}
    earned_micro = 0
    for row in deployment.rows:
        outcome, reason, price_micro, penalty_micro = row[11], row[12], row[13], row[14]
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        earned_micro += price_micro if outcome == Outcome.IN_TIME.value else -penalty_micro
        if reason:
            dropped[reason] = dropped.get(reason, 0) + 1
    members = [node.mesh.member for node in deployment.nodes.values() if node.mesh is not None]
    published = sum(len(sent.taken) > 0 for sent in deployment.history.messages.values())
    open_pairs = sum(node.broker.account.outstanding() for node in deployment.nodes.values())
    return RunResult(
        seed=seed,
        published=published,
        matched=len(deployment.rows) + open_pairs,
        in_time=outcomes.get(Outcome.IN_TIME.value, 0),
        late=outcomes.get(Outcome.LATE.value, 0),
        dropped=dropped,
        earning=earned_micro / MICRO,
        traffic=published + deployment.copies + sum(member.received for member in members),
        duplicates=deployment.history.counts["second copy dropped"],
        events=deployment.kernel.events,
        seconds=seconds,
        rows=deployment.rows if is_tracing else [],
        refused=_refused(deployment),
    )


def _refused(deployment: Deployment) -> dict[str, int]:
    """Return what brokers refused their clients; those that are refused to connect try again and again."""
    counts = deployment.history.counts
    requests = counts["refused admission"] + counts["refused request"]
    found = {
        "connect": counts["refused connect"],
        "subscribe": counts["refused subscribe"],
        "advertise": requests,
        "publish": counts["refused publish"] - requests,  # a refused request counts there, too
    }
    return {what: count for what, count in found.items() if count}


def plan_of(setting: MeshSetting, seed: int, configs: tuple[Config, ...] = ()) -> Plan:
    """Return the run of a setting with a seed."""
    streams = Streams(seed)
    topology = make_topology(setting.topology, streams)
    means = streams.stream("link means")
    places = []
    for one, other in dict.fromkeys((min(link), max(link)) for link in topology.links):
        rate = int(1_024_000 / setting.links.mean_ms.draw(means))
        places.append(LinkPlace(one, other, max(rate, 1), setting.links.latency_ns))
    made = configs or _configs(setting, topology, places)
    subscriptions = make_subscriptions(setting.subscriptions, topology, streams)
    wanted = [
        one
        for one in setting.subscriptions
        for _ in range(one.count * len(one.brokers or topology.at_layer(one.layer)))
    ]
    sources = make_sources(setting.publishers, topology, streams)
    homes = {config.node_name: config for config in made}
    clients = [
        _client(one.client_id, homes[one.home], one.last_mile_ns, its.login)
        for one, its in zip(subscriptions, wanted, strict=True)
    ]
    clients += [_client(source.client_id, homes[source.home], 0, its.login) for source, its in sources]
    actions = [Action(0, "connect", client.name) for client in clients]
    actions += [_subscribing(one, its.qos) for one, its in zip(subscriptions, wanted, strict=True)]
    number = 0
    for source, its in sources:
        if its.advertise:
            number += 1
            actions.append(_advertising(source, its, number))
        for action in _publishing(source, its, setting.duration_ns, number):
            actions.append(action)
            number += 1
    for fault in setting.faults:
        actions += _faulting(fault)
    actions.sort(key=lambda action: action.time_ns)
    return Plan(
        seed,
        made,
        tuple(places),
        tuple(clients),
        tuple(actions),
        commit_delay_ns=MILLISECOND,
        quiet_ns=DRAIN_NS,
        is_settled=False,
    )


def _configs(setting: MeshSetting, topology: Topology, places: list[LinkPlace]) -> tuple[Config, ...]:
    """Make a configuration for each broker of a topology."""
    percent = round(100 * setting.mix) if setting.mix >= 0 else None
    listener = ListenerConfig(strategy=setting.strategy, strategy_mix_percent=percent)
    mesh = MeshConfig(
        routing="late" if setting.reading.routing == "late" else "single-path",
        epsilon=setting.epsilon,
        preference=setting.preference,
        waiting_share=setting.waiting_share,
        thrift=setting.thrift,
    )
    configs = []
    for name in topology.brokers:
        neighbours = tuple(
            NeighbourConfig(
                name=place.other if place.one == name else place.one,
                host=place.other if place.one == name else "",
                link_bytes_per_second=place.rate_bytes_per_s,
                strategy=setting.strategy,
                strategy_mix_percent=percent,
            )
            for place in places
            if name in (place.one, place.other)
        )
        configs.append(Config(node_name=name, listeners=(listener,), mesh=mesh, neighbours=neighbours))
    return tuple(configs)


def _client(name: str, home: Config, latency_ns: int, login: LoginSetting) -> ClientSetting:
    return ClientSetting(
        name,
        home.node_name,
        user=login.user,
        listener=listener_number(home, login.listener),
        expiry_s=login.session_expiry_ns // SECOND,
        receive_maximum=65_535,
        rate_bytes_per_s=CLIENT_BYTES_PER_S,
        latency_ns=latency_ns,
        renews=True,
    )


def _subscribing(one: MeshSubscription, qos: int) -> Action:
    entries = [{"topic_filter": one.topic_filter, "qos": qos}]
    what: dict[str, Any] = {"entries": entries, "terms": term_texts(one.terms)}
    return Action(SUBSCRIBE_NS, "subscribe", one.client_id, what)


def term_texts(terms: Terms) -> dict[str, str]:
    """Return terms as User Properties of a SUBSCRIBE: those that differ from the defaults."""
    found: dict[str, str] = {}
    for name, term in TERM_PROPERTIES.items():
        value = getattr(terms, term.attribute)
        if value == getattr(DEFAULT_TERMS, term.attribute):
            continue
        if isinstance(term.form, tuple):
            found[name] = term.form[0] if value else term.form[1]
        elif term.attribute.endswith("_ns"):
            found[name] = format_duration(value)
        else:
            found[name] = str(value)
    return found


def _advertising(source: Source, its: PublisherSetting, number: int) -> Action:
    """Return the request for a delay bound; it is answered before the first message."""
    what = {"number": number, "topic": ADVERTISE_PREFIX + its.topic, "terms": dict(its.advertise)}
    return Action(SUBSCRIBE_NS, "request", source.client_id, what)


def _publishing(source: Source, its: PublisherSetting, duration_ns: int, number: int) -> list[Action]:
    """Return all messages of a publisher, numbered from the one after `number`."""
    actions: list[Action] = []
    time_ns = source.first_ns()
    while time_ns < duration_ns:
        number += 1
        drawn = source.message(number, time_ns)
        message = drawn.message
        properties = dict(message.user_properties)
        if message.timeout_ns:
            properties["timeout"] = format_duration(message.timeout_ns)
        if message.priority:
            properties["priority"] = str(min(message.priority, 9))
        # As large on a link of the mesh as drawn, with topic and properties.
        around = COPY_BYTES + 8 + len(message.topic)
        told_apart_by = {ID_PROPERTY: str(number)}
        around += sum(5 + len(name) + len(text) for name, text in (properties | told_apart_by).items())
        what = {
            "number": number,
            "topic": message.topic,
            "size": max(drawn.size_bytes - around, 0),
            "properties": properties,
            "qos": its.qos,
            "retain": its.retain,
        }
        actions.append(Action(START_NS + time_ns, "publish", source.client_id, what))
        time_ns = source.next_ns(time_ns)
    return actions


def _faulting(fault: FaultSetting) -> list[Action]:
    who = fault.broker if fault.kind == "crash" else "-".join(fault.link)
    what = {"factor": fault.factor} if fault.kind == "slow" else {}
    actions = [Action(START_NS + fault.at_ns, fault.kind, who, what)]
    if fault.until_ns:
        end = "restart" if fault.kind == "crash" else "mend"
        actions.append(Action(START_NS + fault.until_ns, end, who))
    return actions
