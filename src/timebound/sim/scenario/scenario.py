"""Scenario files: a deployment, its load and its faults in one TOML file (docs/simulation.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from timebound.config.values import Config
from timebound.core.input.requests import read_contract
from timebound.core.link.queue import EPSILON
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, STRATEGY_NAMES
from timebound.core.mesh.options import MESH_EPSILON, PREFERENCE, THRIFT, WAITING_SHARE
from timebound.core.predicate.predicate import parse
from timebound.core.values.subscription import Subscription
from timebound.errors import FilterError, ProtocolError
from timebound.sim.kernel.streams import Streams
from timebound.sim.mesh.experiment import build, make_topology
from timebound.sim.mesh.setting import (
    ARRIVALS,
    ESTIMATES,
    SAMPLINGS,
    TRUNCATIONS,
    FaultSetting,
    LinkSetting,
    LoginSetting,
    MeshSetting,
    PublisherSetting,
    SubscriptionSetting,
    TopologySetting,
)
from timebound.sim.mesh.topology import Topology
from timebound.sim.papers.brokers.reading import DROPS, LIFETIMES, ROUTINGS, Reading
from timebound.sim.papers.readings import read_as
from timebound.sim.scenario.live import links_of, listener_number, login_note
from timebound.sim.scenario.reader import ScenarioTable, read_document
from timebound.terms import DEFAULT_TERMS, TERM_PROPERTIES, Terms
from timebound.toml.renames import Renamed
from timebound.topics import check_filter, split_share
from timebound.wire.terms import parse_subscribe_terms

_KINDS: Final = ("layered", "tree", "ring", "transit-stub", "file")
FIDELITIES: Final = ("mesh", "broker")
# Keys that only the simulation of a mesh without clients has, and those that live configurations replace.
ONLY_MESH: Final = ("processing", "estimates", "send_cost", "reading")
ONLY_MADE: Final = ("topology", "strategy", "mix", "epsilon", "preference", "waiting_share", "thrift")
ONLY_MESH_LINKS: Final = ("deviation_ms_per_kb", "loss", "sampling", "truncation")
ONLY_MESH_PUBLISHERS: Final = ("connection", "link_costs", "link_queues")
# Those that need clients with connections of their own, and those that need live configurations.
ONLY_CLIENTS: Final = ("qos", "retain", "advertise", "session_expiry")
ONLY_LIVE: Final = ("user", "listener")
QOS_MAX: Final = 2
# Terms that a mesh without clients knows, too; the others are read as on the wire.
MESH_TERMS: Final = ("deadline", "price", "penalty")
CLIENT_TERMS: Final = tuple(name for name in TERM_PROPERTIES if name not in (*MESH_TERMS, "where"))
_FAULTS: Final = ("crash", "cut", "slow")
# Old names of keys, still read.
RENAMED: Final = (Renamed("", "weight", "mix"),)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named setting with the seeds to run it with."""

    name: str
    setting: MeshSetting
    seeds: tuple[int, ...]
    fidelity: str = "mesh"  # or broker: whole brokers with their clients
    notices: tuple[str, ...] = ()  # of old names of keys, and of what differs from a network


def load_scenario(path: Path, configs: tuple[Config, ...] = ()) -> Scenario:
    """Read and check a scenario file; with live configurations, for their brokers and links.

    Raises:
        ConfigError: something is wrong or impossible; names file, line and key.
    """
    ways = links_of(configs)
    document = read_document(path, RENAMED)
    name = document.text("name", path.stem)
    seeds = document.whole_list("seeds", (1,))
    fidelity = document.text("fidelity", "broker" if configs else "mesh", FIDELITIES)
    _check_fidelity(document, fidelity, is_configured=bool(configs))
    table = document.table("topology")
    topology = _topology(table, path)
    if configs:
        topology = TopologySetting(
            kind="links", links=ways, names=tuple(config.node_name for config in configs)
        )
    links = _links(document.table("links"))
    publishers = tuple(_publisher(one) for one in document.tables("publishers", is_needed=True))
    subscriptions = tuple(
        _subscription(one, is_whole=fidelity == "broker")
        for one in document.tables("subscriptions", is_needed=True)
    )
    fault_tables = document.tables("faults")
    faults = tuple(_fault(one) for one in fault_tables)
    setting = _setting(document, topology, links, publishers, subscriptions, faults)
    document.finish()
    shape = table.checked("kind", lambda: make_topology(topology, Streams(seeds[0])))
    _check_places(document, setting, shape)
    notices = [str(notice) for config in configs for notice in config.notices]
    notices += [*document.notices, *_check_logins(document, setting, configs, shape)]
    _check_faults(fault_tables, faults, shape)
    _check_reach(document, setting, seeds[0])
    return Scenario(name, setting, seeds, fidelity, tuple(notices))


def _check_fidelity(document: ScenarioTable, fidelity: str, *, is_configured: bool) -> None:
    """Refuse keys that would have no effect with this fidelity, or with live configurations."""
    if fidelity == "mesh" and is_configured:
        document.fail("fidelity", "configurations are simulated by whole brokers; write 'broker'")
    if not is_configured:
        _refuse_keys(document, ONLY_LIVE, "needs live configurations; name them with --config")
    if fidelity == "mesh":
        _refuse_keys(document, ONLY_CLIENTS, "needs clients; write fidelity = 'broker'")
        return
    for key in (*ONLY_MESH, *(ONLY_MADE if is_configured else ())):
        if document.has(key):
            why = "the configurations say it" if key in ONLY_MADE else "whole brokers do not have it"
            document.fail(key, f"has no effect with fidelity 'broker': {why}")
    for table, keys in ((document.table("links"), ONLY_MESH_LINKS), *_publisher_keys(document)):
        for key in keys:
            if table.has(key):
                table.fail(key, "has no effect with fidelity 'broker': links take equal time for each byte")


def _refuse_keys(document: ScenarioTable, keys: tuple[str, ...], why: str) -> None:
    """Refuse keys of publishers and subscriptions."""
    for table in [*document.tables("publishers"), *document.tables("subscriptions")]:
        for key in keys:
            if table.has(key):
                table.fail(key, why)


def _publisher_keys(document: ScenarioTable) -> list[tuple[ScenarioTable, tuple[str, ...]]]:
    return [(table, ONLY_MESH_PUBLISHERS) for table in document.tables("publishers")]


def _setting(
    document: ScenarioTable,
    topology: TopologySetting,
    links: LinkSetting,
    publishers: tuple[PublisherSetting, ...],
    subscriptions: tuple[SubscriptionSetting, ...],
    faults: tuple[FaultSetting, ...],
) -> MeshSetting:
    table = document.table("reading")
    reading = _reading(table)
    is_late = reading.routing == "late"
    duration_ns = document.duration("duration", "10m")
    if not duration_ns:
        document.fail("duration", "0 is too short")
    setting = MeshSetting(
        topology=topology,
        links=links,
        publishers=publishers,
        subscriptions=subscriptions,
        strategy=document.text("strategy", DEFAULT_STRATEGY, STRATEGY_NAMES),
        mix=document.number("mix", -1.0, least=0.0, most=1.0) if document.has("mix") else -1.0,
        epsilon=document.number("epsilon", MESH_EPSILON if is_late else EPSILON, least=1e-12, most=0.99),
        duration_ns=duration_ns,
        processing_ns=document.duration("processing", "0"),
        estimates=document.text("estimates", "known", ESTIMATES),
        faults=faults,
        reading=reading,
        preference=document.number("preference", PREFERENCE if is_late else 0.0, most=1.0),
        waiting_share=document.number("waiting_share", WAITING_SHARE if is_late else 0.0, most=1.0),
        send_cost=document.number("send_cost", 0.0, most=1e12),
        thrift=document.number("thrift", THRIFT, most=1e3),
        keeps_order=not table.has("names"),  # named readings are those of the papers, which know no order
        keeps_fresh=not table.has("names"),
    )
    for name in table.text_list("names"):
        setting = table.checked("names", partial(read_as, setting, name))
    table.finish()
    return setting


def _reading(table: ScenarioTable) -> Reading:
    # Named readings are those of the papers, which route by path tree unless told otherwise.
    routing = "tree" if table.has("names") else "late"
    return Reading(
        routing=table.text("routing", routing, tuple(ROUTINGS)),
        drops=table.text("drops", "hopeless", DROPS),
        lifetime=table.text("lifetime", "all", LIFETIMES),
    )


def _topology(table: ScenarioTable, path: Path) -> TopologySetting:
    kind = table.text("kind", "layered", _KINDS)
    setting = TopologySetting(kind=kind)
    if kind == "layered":
        layers = table.whole_list("layers", (4, 4, 8, 16))
        setting = TopologySetting(kind=kind, layers=layers, parents=table.whole("parents", 2, least=1))
    elif kind == "tree":
        brokers = table.whole("brokers", 7, least=1)
        setting = TopologySetting(kind=kind, brokers=brokers, children=table.whole("children", 2, least=1))
    elif kind == "ring":
        setting = TopologySetting(kind=kind, brokers=table.whole("brokers", 7, least=2))
    elif kind == "transit-stub":
        setting = TopologySetting(
            kind=kind,
            transit=table.whole("transit", 4, least=1),
            stubs=table.whole("stubs", 3, least=1),
            stub_brokers=table.whole("stub_brokers", 5, least=1),
        )
    else:
        file = path.parent / table.text("file")
        links = table.checked("file", lambda: _read_links(file))
        setting = TopologySetting(kind="links", links=links, both_ways=table.flag("both_ways", True))
    table.finish()
    return setting


def _read_links(file: Path) -> tuple[tuple[str, str], ...]:
    """Read one link per line: two broker names; blank lines and comments after `#` are skipped."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"file cannot be read: {error}") from error
    links = []
    for number, line in enumerate(lines, 1):
        names = line.split("#")[0].split()
        if names and (len(names) != 2 or names[0] == names[1]):
            raise ValueError(f"line {number} of {file.name} is {line!r}; expected two different broker names")
        if names:
            links.append((names[0], names[1]))
    if not links:
        raise ValueError(f"{file.name} has no links")
    return tuple(links)


def _links(table: ScenarioTable) -> LinkSetting:
    setting = LinkSetting(
        mean_ms=table.draw("ms_per_kb", least=0.0),
        deviation_ms=table.number("deviation_ms_per_kb", 0.0),
        latency_ns=table.duration("latency", "0"),
        loss=table.number("loss", 0.0, most=0.99),
        sampling=table.text("sampling", "message", SAMPLINGS),
        truncation=table.text("truncation", "resample", TRUNCATIONS),
    )
    if setting.mean_ms.lowest() <= 0.0:
        table.fail("ms_per_kb", "a link would take no time; expected more than 0 ms per KB")
    table.finish()
    return setting


def _publisher(table: ScenarioTable) -> PublisherSetting:
    setting = PublisherSetting(
        rate_per_minute=table.number("rate_per_minute", least=1e-9),
        size_bytes=table.draw("size_bytes", least=1.0),
        name=table.text("name", "p"),
        topic=table.text("topic", "sim"),
        layer=table.whole("layer", 0, least=-1),
        brokers=table.text_list("brokers"),
        count=table.whole("count", 1, least=1),
        arrivals=table.text("arrivals", "poisson", ARRIVALS),
        burst=table.whole("burst", 10, least=1),
        attributes=table.draws("attributes"),
        timeout_ms=table.draw("timeout_ms", least=0.0) if table.has("timeout_ms") else None,
        priority=table.draw("priority", least=0.0) if table.has("priority") else None,
        connection_ns=table.duration("connection", "0"),
        link_costs=table.flag("link_costs", False),
        link_queues=table.flag("link_queues", True),
        login=_login(table),
        qos=table.whole("qos", 0, most=QOS_MAX),
        retain=table.flag("retain", False),
        advertise=_advertise(table.table("advertise")),
    )
    table.finish()
    return setting


def _login(table: ScenarioTable) -> LoginSetting:
    return LoginSetting(
        user=table.text("user", ""),
        listener=table.text("listener", ""),
        session_expiry_ns=table.duration("session_expiry", "0"),
    )


def _advertise(table: ScenarioTable) -> tuple[tuple[str, str], ...]:
    """Return the properties by which a publisher advertises its flow; none without the table."""
    found = table.plain_texts()
    if found:
        table.checked("", lambda: _check_contract(found))
    return found


def _check_contract(terms: tuple[tuple[str, str], ...]) -> None:
    try:
        read_contract("", "", terms, 0)
    except ProtocolError as error:
        raise ValueError(str(error)) from error


def _subscription(table: ScenarioTable, *, is_whole: bool) -> SubscriptionSetting:
    terms = tuple(_terms(one, is_whole=is_whole) for one in table.tables("terms")) or (DEFAULT_TERMS,)
    setting = SubscriptionSetting(
        name=table.text("name", "s"),
        topic_filter=table.text("topic_filter", "#"),
        layer=table.whole("layer", -1, least=-1),
        brokers=table.text_list("brokers"),
        count=table.whole("count", 1, least=1),
        where=table.text("where", ""),
        draws=table.draws("draws"),
        terms=terms,
        last_mile_ns=table.duration("last_mile", "0"),
        login=_login(table),
        qos=table.whole("qos", 0, most=QOS_MAX),
    )
    where = setting.where
    for name, _ in setting.draws:
        where = where.replace("{" + name + "}", "1")
    try:
        check_filter(setting.topic_filter)
    except FilterError as error:
        table.fail("topic_filter", str(error))
    if split_share(setting.topic_filter)[0] and not is_whole:
        table.fail("topic_filter", "shared subscriptions need clients; write fidelity = 'broker'")
    try:
        if where:
            parse(where)
    except FilterError as error:
        table.fail("where", str(error))
    for one in terms:
        make = partial(Subscription, client_id="", topic_filter=setting.topic_filter, terms=one)
        table.checked("terms", make)
    table.finish()
    return setting


def _terms(table: ScenarioTable, *, is_whole: bool) -> Terms:
    deadline_ns = table.duration("deadline", "0")
    price = table.number("price", 1.0)
    penalty = table.number("penalty", 0.0)
    further = DEFAULT_TERMS
    if is_whole:
        further = table.checked("", lambda: _read_terms(table))
    table.finish()
    return replace(further, deadline_ns=deadline_ns, price=price, penalty=penalty)


def _read_terms(table: ScenarioTable) -> Terms:
    """Read the terms that only clients have, as the texts of their User Properties."""
    pairs = [(name, table.text(name)) for name in CLIENT_TERMS if table.may_have(name)]
    try:
        return parse_subscribe_terms(pairs)
    except ProtocolError as error:
        raise ValueError(str(error)) from error


def _fault(table: ScenarioTable) -> FaultSetting:
    kind = table.text("kind", choices=_FAULTS)
    at_ns = table.duration("at")
    until_ns = table.duration("until", "0")
    if until_ns and until_ns <= at_ns:
        table.fail("until", "the fault would end before it begins")
    broker = table.text("broker") if kind == "crash" else ""
    names = table.text_list("link") if kind != "crash" else ("", "")
    if len(names) != 2:
        table.fail("link", f"{list(names)} does not name two brokers")
    factor = table.number("factor", least=1e-6) if kind == "slow" else 1.0
    table.finish()
    return FaultSetting(kind, at_ns, until_ns, broker, (names[0], names[1]), factor)


def _check_places(document: ScenarioTable, setting: MeshSetting, topology: Topology) -> None:
    layers = max(topology.layers) + 1
    members: list[PublisherSetting | SubscriptionSetting] = [*setting.publishers, *setting.subscriptions]
    tables = document.tables("publishers") + document.tables("subscriptions")
    for table, member in zip(tables, members, strict=True):
        for broker in member.brokers:
            if broker not in topology.brokers:
                table.fail("brokers", f"broker {broker!r} is not in the topology")
        if member.layer >= layers:
            table.fail("layer", f"{member.layer} is too deep; the topology has layers 0 to {layers - 1}")


def _check_logins(
    document: ScenarioTable, setting: MeshSetting, configs: tuple[Config, ...], topology: Topology
) -> list[str]:
    """Refuse listeners that brokers do not have; return notes on logins that a network would not accept."""
    by_name = {config.node_name: config for config in configs}
    notes: dict[str, None] = {}
    members: list[PublisherSetting | SubscriptionSetting] = [*setting.publishers, *setting.subscriptions]
    tables = document.tables("publishers") + document.tables("subscriptions")
    for table, member in zip(tables, members, strict=True):
        homes = member.brokers or topology.at_layer(member.layer)
        for config in [by_name[broker] for broker in homes if broker in by_name]:
            find = partial(listener_number, config, member.login.listener)
            listener = config.listeners[table.checked("listener", find)]
            note = login_note(config, listener, member.login.user)
            if note:
                notes[note] = None
    return list(notes)


def _check_faults(tables: list[ScenarioTable], faults: tuple[FaultSetting, ...], topology: Topology) -> None:
    for table, fault in zip(tables, faults, strict=True):
        if fault.kind == "crash" and fault.broker not in topology.brokers:
            table.fail("broker", f"broker {fault.broker!r} is not in the topology")
        if fault.kind != "crash" and fault.link not in topology.links:
            table.fail("link", f"no link leads from {fault.link[0]!r} to {fault.link[1]!r}")


def _check_reach(document: ScenarioTable, setting: MeshSetting, seed: int) -> None:
    """Refuse a subscriber that no publisher's messages can reach."""
    cluster = build(setting, seed)
    topology = make_topology(setting.topology, Streams(seed))
    origins: dict[str, None] = {}
    for one in setting.publishers:
        for broker in one.brokers or topology.at_layer(one.layer):
            origins[broker] = None
    reached = dict(origins)
    for origin in origins:
        for broker in cluster.links.tree(origin).parents:
            reached[broker] = None
    for table, member in zip(document.tables("subscriptions"), setting.subscriptions, strict=True):
        for broker in member.brokers or topology.at_layer(member.layer):
            if broker not in reached:
                key = "brokers" if member.brokers else "layer"
                table.fail(key, f"subscribers at {broker!r} cannot be reached from any publisher's broker")
