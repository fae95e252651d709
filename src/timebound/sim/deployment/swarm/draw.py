"""From a seed to a plan: topology, limits, clients, subscriptions with all their terms, load and faults.

Each run leaves out some kinds of things at random, so that each combination is met without all of them always
hiding each other. Times are in whole milliseconds and differ, so no two things happen at once by the script.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

from timebound.config.input import InputConfig, WeightEntry
from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.mesh import MeshConfig, NeighbourConfig
from timebound.config.security import SecurityConfig
from timebound.config.values import Config
from timebound.core.link.strategy.registry import STRATEGY_NAMES
from timebound.core.values.access import ALL, ANYONE, SUBSCRIBE, AccessRule
from timebound.core.values.access import PUBLISH as PUBLISHING
from timebound.sim.deployment.checkers.oracle import WHERE
from timebound.sim.deployment.script import Action, ClientSetting, LinkPlace, Plan
from timebound.sim.kernel.streams import Streams
from timebound.terms import DURATION, NUMBER, TERM_PROPERTIES, TIMER, Form
from timebound.units import MILLISECOND, SECOND

TOPICS: Final = ("a/x", "a/y", "a/z", "b/x", "b/y", "c")
FILTERS: Final = ("a/x", "a/+", "a/#", "#", "+/x", "b/y", "c", "b/#")
SHARED: Final = ("$share/g/a/#", "$share/h/+/x", "$share/g/c")
CORRELATIONS: Final = ("all(a/x, a/y)", "any(a/z, all(a/x, a/y))", "all(a/+, a/z)")
LIMITED: Final = "limited"  # a user that may not do everything
FORBIDDEN: Final = "b/y"  # to it
RULES: Final = (
    AccessRule(LIMITED, SUBSCRIBE, FORBIDDEN, False),
    AccessRule(LIMITED, PUBLISHING, FORBIDDEN, False),
    AccessRule(ANYONE, ALL, "#", True),
)
TERMS_SHARE: Final = 0.25  # of subscriptions with each single term
FIRST_OF_FLOWS: Final = 10_000  # number of a message; those of wills are larger
FIRST_OF_FLOODS: Final = 20_000
FLOOD_SHARE: Final = 0.1  # of clients
LAST_MS: Final = 16_000  # of the script
QUIET_NS: Final = 60 * SECOND  # enough for a flood over the slowest connection
_KINDS: Final = ("red", "green", "blue")
# What terms are drawn from; one that is not here is drawn by its form, after all others.
VALUES: Final[dict[str, tuple[str, ...]]] = {
    "name": ("hot", "cold"),
    "where": tuple(WHERE),
    "deadline": ("150ms", "1s", "20s"),
    "price": ("0", "3", "0.5"),
    "penalty": ("2", "7.5"),
    "keep": ("last", "all"),
    "ordered": ("true", "false"),
    "notify": ("missed", "none"),
    "correlate": CORRELATIONS,
    "within": ("500ms", "5s"),
    "watchdog": ("700ms", "3s"),
    "every": ("900ms", "5s"),
}
VALUES_OF_FORMS: Final[dict[Form, tuple[str, ...]]] = {
    DURATION: ("300ms", "4s"),
    TIMER: ("800ms", "4s"),
    NUMBER: ("0", "1", "12.5"),
}
_SHAPES: Final = {
    1: (("n1",), ()),
    2: (("n1", "n2"), (("n1", "n2"),)),
    3: (("n1", "n2", "n3"), (("n1", "n2"), ("n2", "n3"))),
    4: (("n1", "n2", "n3"), (("n1", "n2"), ("n2", "n3"), ("n1", "n3"))),
}


def draw_plan(seed: int) -> Plan:
    """Return the plan of a seed: always the same."""
    random = Streams(seed).stream("swarm")
    nodes, links = _SHAPES[random.choice((1, 1, 2, 2, 3, 4))]
    configs = _configs(random, nodes, links)
    clients = tuple(_client(random, f"c{number}", nodes) for number in range(random.randint(3, 6)))
    actions: list[Action] = []
    for client in clients:
        actions += _connections(random, client)
        actions += _subscriptions(random, client)
    actions += _publications(random, clients)
    actions += _flows(random, clients)
    actions += _floods(random, clients)
    if random.random() < 0.8:
        actions += _node_faults(random, nodes)
        actions += _link_faults(random, links)
    actions += _rule_changes(Streams(seed).stream("rules"), nodes)
    _draw_further_terms(Streams(seed), actions)
    actions.sort(key=lambda one: (one.time_ns, one.who))
    places = tuple(
        LinkPlace(one, other, random.choice((5_000, 30_000, 1_000_000)), random.randint(1, 40) * MILLISECOND)
        for one, other in links
    )
    delay_ns = random.choice((0, 5, 50, 400)) * MILLISECOND
    return Plan(seed, configs, places, clients, tuple(actions), delay_ns, QUIET_NS)


def _configs(
    random: Random, nodes: tuple[str, ...], links: tuple[tuple[str, str], ...]
) -> tuple[Config, ...]:
    limits = Limits(
        queue_messages_per_client_max=random.choice((8, 100_000, 100_000)),
        retained_messages_max=random.choice((3, 500_000, 500_000)),
        subscriptions_per_client_max=random.choice((4, 1_000)),
        outgoing_inflight_max=random.choice((2, 1_024)),
        inflight_max=random.choice((3, 1_024)),
    )
    mesh = MeshConfig(
        routing=random.choice(("late", "single-path")),
        queue_messages_max=random.choice((4, 10_000, 10_000)),
    )
    turn_s = random.choice((0.001, 0.02))
    entrance = InputConfig(
        default_weight=random.choice((1, 3)),
        quantum_bytes=random.choice((64, 2_048)),
        queue_quanta_max=random.choice((16, 256)),
        turn_s=turn_s,
        quantum_time_s=random.choice((0.0, turn_s / 8, turn_s)),
        stall_allowance_s=random.choice((0.0005, 0.02)),  # no virtual machine stalls
        order=random.choice(("even", "paper")),
        excess=random.choice(("lower", "refuse")),
        flows_per_client_max=random.choice((1, 50)),
        weights=random.choice(((), (WeightEntry("a/#", 4), WeightEntry("a/x", 2)))),
    )
    return tuple(
        Config(
            node_name=name,
            limits=limits,
            input=entrance,
            mesh=mesh,
            security=SecurityConfig(password_file=Path("users"), rules=RULES),
            listeners=(ListenerConfig(strategy=random.choice(STRATEGY_NAMES), allow_anonymous=True),),
            neighbours=_neighbours(random, name, links),
        )
        for name in nodes
    )


def _neighbours(random: Random, name: str, links: tuple[tuple[str, str], ...]) -> tuple[NeighbourConfig, ...]:
    found = []
    for one, other in links:
        if name not in (one, other):
            continue
        peer = other if name == one else one
        dials = name == one or random.random() < 0.3  # sometimes both dial
        rate = random.choice((0, 0, 4_000, 20_000))
        found.append(
            NeighbourConfig(
                name=peer,
                host=peer if dials else "",
                user=name,
                link_bytes_per_second=rate,
                strategy=random.choice(STRATEGY_NAMES),
            )
        )
    return tuple(found)


def _client(random: Random, name: str, nodes: tuple[str, ...]) -> ClientSetting:
    will: dict[str, Any] | None = None
    if random.random() < 0.4:
        will = {
            "number": 100_000 + int(name[1:]),
            "topic": random.choice((f"will/{name}", f"will/{name}", "a/x", "a/x", FORBIDDEN)),
            "qos": random.randint(0, 2),
            "retain": False,
            "delay_s": random.choice((0, 0, 1, 4)),
        }
    version = random.choice((5, 5, 5, 4))
    return ClientSetting(
        name,
        random.choice(nodes),
        user=random.choice(("", LIMITED, "other")),
        version=version,
        clean_start=False,
        expiry_s=random.choice((0, 2, 3_600, 3_600)),
        receive_maximum=random.choice((1, 3, 100)),
        packet_size_max=random.choice((0, 0, 0, 300)) if version == 5 else 0,
        keep_alive_s=random.choice((0, 2, 5)),
        ack_delay_ns=random.choice((0, 0, 30, 700)) * MILLISECOND,
        rate_bytes_per_s=random.choice((1_500, 20_000, 1_000_000)),
        latency_ns=random.randint(1, 30) * MILLISECOND,
        will=will,
    )


def _at(random: Random, first_ms: int, last_ms: int = LAST_MS) -> int:
    return random.randint(first_ms, last_ms) * MILLISECOND


def _connections(random: Random, client: ClientSetting) -> list[Action]:
    """Draw when a client comes and goes."""
    name = client.name
    actions = [Action(_at(random, 0, 1_500), "connect", name)]
    for _ in range(random.choice((0, 0, 1, 2))):
        start_ns = _at(random, 3_000)
        gone_ns = random.randint(100, 6_000) * MILLISECOND
        kind = random.choice(("disconnect", "disconnect", "vanish", "mute", "take-over"))
        if kind == "mute":
            actions += [Action(start_ns, "mute", name), Action(start_ns + gone_ns, "speak", name)]
            continue
        if kind != "take-over":
            what = {"code": random.choice((0, 4))} if kind == "disconnect" else {}
            actions.append(Action(start_ns, kind, name, what))
        actions.append(Action(start_ns + gone_ns, "connect", name, {"clean": random.random() < 0.15}))
    return actions


def _subscriptions(random: Random, client: ClientSetting) -> list[Action]:
    actions: list[Action] = []
    for _ in range(random.randint(0, 4)):
        entries = [_entry(random) for _ in range(random.choice((1, 1, 2)))]
        terms = _terms(random, entries)
        what: dict[str, Any] = {"entries": entries, "terms": terms}
        if random.random() < 0.3:
            what["identifier"] = random.randint(1, 200)
        time_ns = _at(random, 1_600, 9_000)
        actions.append(Action(time_ns, "subscribe", client.name, what))
        if random.random() < 0.2:
            ended: dict[str, Any] = {
                "topic_filter": entries[0]["topic_filter"],
                "name": random.choice((None, terms.get("name", ""))),
            }
            actions.append(Action(_at(random, time_ns // MILLISECOND), "unsubscribe", client.name, ended))
    return actions


def _entry(random: Random) -> dict[str, Any]:
    is_shared = random.random() < 0.2
    return {
        "topic_filter": random.choice(SHARED if is_shared else FILTERS),
        "qos": random.choice((0, 1, 2, 2)),
        "no_local": not is_shared and random.random() < 0.15,
        "retain_as_published": random.random() < 0.3,
        "retain_handling": random.choice((0, 0, 1, 2)),
    }


def _terms(random: Random, entries: list[dict[str, Any]]) -> dict[str, str]:
    """Draw any combination of terms."""
    if random.random() < 0.4:
        return {}
    terms = {
        name: random.choice(choices) for name, choices in VALUES.items() if random.random() < TERMS_SHARE
    }
    # Parts of a correlation lie within the subscription's own filter, or it is refused: often enough not.
    if "correlate" in terms and random.random() < 0.8:
        for entry in entries:
            entry["topic_filter"] = random.choice(("a/#", "#", "$share/g/a/#"))
            entry["no_local"] = entry["no_local"] and not entry["topic_filter"].startswith("$share")
    if "correlate" not in terms and random.random() < 0.9:
        terms.pop("within", None)
    return terms


def _draw_further_terms(streams: Streams, actions: list[Action]) -> None:
    """Draw the terms without values of their own, so that a new one changes nothing else of a seed's plan."""
    for name, term in TERM_PROPERTIES.items():
        if name in VALUES:
            continue
        random = streams.stream(f"term {name}")
        choices = term.form if isinstance(term.form, tuple) else VALUES_OF_FORMS[term.form]
        for action in actions:
            if action.kind == "subscribe" and random.random() < TERMS_SHARE:
                action.what["terms"][name] = random.choice(choices)


def _publications(random: Random, clients: tuple[ClientSetting, ...]) -> list[Action]:
    actions: list[Action] = []
    number = 0
    for client in clients:
        for _ in range(random.randint(0, 3)):  # bursts
            start_ms = random.randint(2_000, LAST_MS - 1_000)
            gap_ms = random.choice((0, 20, 250))
            topic = random.choice(TOPICS)
            qos = random.randint(0, 2)
            for place in range(random.randint(1, 12)):
                number += 1
                what = _message(random, number, topic if random.random() < 0.7 else random.choice(TOPICS))
                what["qos"] = qos if random.random() < 0.8 else random.randint(0, 2)
                time_ns = (start_ms + place * gap_ms) * MILLISECOND
                actions.append(Action(time_ns, "publish", client.name, what))
    return actions


def _flows(random: Random, clients: tuple[ClientSetting, ...]) -> list[Action]:
    """Draw flows that are advertised, some too large, and used within their contracts and beyond; weights."""
    actions: list[Action] = []
    number = FIRST_OF_FLOWS
    for client in clients:
        if random.random() < 0.5:
            continue
        start_ms = random.randint(1_600, 8_000)
        topic = random.choice(TOPICS)
        period_ms = random.choice((5, 100, 400))
        terms = {"period": f"{period_ms}ms", "burst": str(random.choice((1, 5))), "size": "500"}
        if random.random() < 0.4:
            terms["delay"] = random.choice(("1ms", "80ms", "5s"))
        advertised = {"number": number, "topic": f"$timebound/advertise/{topic}", "terms": terms}
        actions.append(Action(start_ms * MILLISECOND, "request", client.name, advertised))
        gap_ms = random.choice((period_ms, period_ms, period_ms // 5))
        for place in range(random.randint(0, 15)):
            number += 1
            what = _message(random, number, topic)
            what |= {"qos": random.randint(0, 2), "size": random.choice((0, 60, 400))}
            time_ns = (start_ms + 150 + place * gap_ms) * MILLISECOND
            actions.append(Action(time_ns, "publish", client.name, what))
        number += 1
        actions.append(_request(random, number, client.name, topic))
        number += 1
    return actions


def _floods(random: Random, clients: tuple[ClientSetting, ...]) -> list[Action]:
    """Draw more at once than a turn can take in, but not more than slow links carry before the end."""
    actions: list[Action] = []
    number = FIRST_OF_FLOODS
    for client in clients:
        if random.random() < FLOOD_SHARE:
            time_ns = _at(random, 2_500, LAST_MS - 1_000)
            topic = random.choice(TOPICS)
            size = random.choice((0, 200))
            for _ in range(random.choice((20, 60))):
                number += 1
                what = {"number": number, "topic": topic, "level": 1, "size": size, "qos": 0}
                actions.append(Action(time_ns, "publish", client.name, what))
    return actions


def _request(random: Random, number: int, name: str, topic: str) -> Action:
    """Draw another request about the input, right or wrong."""
    wanted: dict[str, Any] = random.choice(
        (
            {"topic": f"$timebound/advertise/{topic}"},  # ends the flow
            {"topic": "$timebound/control/weight", "payload": "a/# 3"},
            {"topic": "$timebound/control/weight", "payload": "a/# -"},
            {"topic": "$timebound/control/weight", "payload": "b/x many"},
            {"topic": "$timebound/control/bounds"},
        )
    )
    return Action(_at(random, 3_000), "request", name, {"number": number} | wanted)


def _message(random: Random, number: int, topic: str) -> dict[str, Any]:
    what: dict[str, Any] = {"number": number, "topic": topic, "level": random.randint(0, 100)}
    what["size"] = random.choice((0, 0, 60, 400, 3_000))
    if random.random() < 0.8:
        what["kind"] = random.choice(_KINDS)
    if random.random() < 0.15:
        what["retain"] = True
        what["is_empty"] = random.random() < 0.2
    if random.random() < 0.1:
        what["timeout"] = random.choice(("100ms", "2s", "30s"))
    if random.random() < 0.1:
        what["expiry_s"] = random.choice((0, 1, 3, 60))
    if random.random() < 0.1:
        what["priority"] = str(random.randint(0, 9))
    return what


def _node_faults(random: Random, nodes: tuple[str, ...]) -> list[Action]:
    actions: list[Action] = []
    for name in nodes:
        if random.random() < 0.4:
            start_ns = _at(random, 3_000)
            back_ns = start_ns + random.choice((1, 300, 2_500)) * MILLISECOND
            actions.append(Action(start_ns, "crash", name))
            if random.random() < 0.4:
                step_ns = random.choice((-3_600, -2, 2, 3_600)) * SECOND
                actions.append(Action(start_ns, "clock", name, {"step_ns": step_ns}))
            actions.append(Action(back_ns, "restart", name))
        if random.random() < 0.25:
            start_ns = _at(random, 2_000)
            actions.append(Action(start_ns, "disk-fails", name))
            actions.append(Action(start_ns + random.randint(200, 4_000) * MILLISECOND, "disk-works", name))
    return actions


def _rule_changes(random: Random, nodes: tuple[str, ...]) -> list[Action]:
    """Draw other access rules, for a while or for good, at some of the nodes."""
    actions: list[Action] = []
    if random.random() < 0.7:
        return actions
    user = random.choice((LIMITED, "other"))  # not those who look at everything in the end
    forbidden = AccessRule(user, SUBSCRIBE, random.choice(("a/x", "a/#", "b/x", "c")), False)
    for name in nodes:
        start_ns = _at(random, 4_000)
        actions.append(Action(start_ns, "rules", name, {"rules": (forbidden, *RULES)}))
        if random.random() < 0.3:
            back_ns = start_ns + random.randint(100, 4_000) * MILLISECOND
            actions.append(Action(back_ns, "rules", name, {"rules": RULES}))
    return actions


def _link_faults(random: Random, links: tuple[tuple[str, str], ...]) -> list[Action]:
    actions: list[Action] = []
    for one, other in links:
        for _ in range(random.choice((0, 0, 1, 2))):
            start_ns = _at(random, 3_000)
            kind = random.choice(("cut", "cut", "slow", "dead"))
            what = {"factor": random.choice((3.0, 20.0))} if kind == "slow" else {}
            link = f"{one}-{other}"
            actions.append(Action(start_ns, kind, link, what))
            actions.append(Action(start_ns + random.randint(1, 8_000) * MILLISECOND, "mend", link))
    return actions
