"""Delay bounds of described flows, for `timebound bounds`: how long each can wait, and why.

The rotation is described by a TOML file, or inline by a few options; the answer is a list of
rows that a table or JSON can be made of. Example of a file:

    quantum = "51.2us"
    order = "even"                  # or "paper"

    [[topic]]
    name = "alarm"
    weight = 10

    [[client]]
    name = "press"
    publishes = ["alarm"]           # what it publishes without a flow of its own, too

    [[flow]]
    client = "press"
    topic = "alarm"
    rate = 100                      # per second; or period = "10ms"
    burst = 2
    size = 400                      # bytes; or leave it out for messages of one quantum
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Final

from timebound.core.input.bounds import NEVER, UNBOUNDED, Bound, Rotation, flow_bound, printed_bound
from timebound.core.input.cells import EVEN, check_order, check_weight
from timebound.core.input.contract import Contract, rate_of
from timebound.core.input.matrices import InputMatrix
from timebound.core.input.scheduler import QUANTUM_BYTES
from timebound.errors import ConfigError, UnitError
from timebound.units import MILLISECOND, SECOND, parse_duration

# More is a typing mistake: nobody waits for a cell of that many quanta.
CLIENTS_MAX: Final = 100_000
NO_PUBLISHER: Final = "no publisher"


@dataclass(frozen=True, slots=True)
class BoundsRow:
    """One flow, or one topic without a flow: then the bound is that of a lone message.

    A bound is None where the flow asks for more than its share.
    """

    topic: int | str
    client: str
    weight: int
    share: float
    rate: float | None
    burst: int
    bound_printed_ms: float | None
    bound_ms: float | None
    bound_tight_ms: float | None
    dominating: str


@dataclass(frozen=True, slots=True)
class BoundsReport:
    """Rows for flows first, then for topics without one; and the share of each client."""

    rows: list[BoundsRow]
    clients: dict[str, float]

    def as_json(self) -> dict[str, object]:
        return {"rows": [asdict(row) for row in self.rows], "clients": self.clients}


@dataclass(frozen=True, slots=True)
class Description:
    """Topics with weights, how many clients publish each, and the flows to ask about."""

    quantum_ns: int
    weights: dict[int | str, int]
    clients: int
    order: str = EVEN
    quantum_bytes: int = QUANTUM_BYTES
    publishers: dict[int | str, int] = field(default_factory=dict)  # missing: all clients
    flows: list[tuple[int | str, Contract]] = field(default_factory=list)
    client_shares: dict[str, float] = field(default_factory=dict)


def describe_inline(
    *, weights: str, clients: int, quantum: str, order: str = EVEN, flows: list[str] | None = None
) -> Description:
    """Read `4,3,2`, 6, `51.2us` and flows like `topic=1,rate=723.4,burst=2`; topics count from 1.

    Raises:
        ConfigError: a value cannot be used; `key` names it.
    """
    numbers = [_integer(text, "weights") for text in weights.split(",")]
    if not 1 <= clients <= CLIENTS_MAX:
        raise ConfigError(f"{clients} is out of range (1 to {CLIENTS_MAX})", key="clients")
    described = Description(
        quantum_ns=_quantum(quantum),
        weights={index + 1: _weight(weight, "weights") for index, weight in enumerate(numbers)},
        clients=clients,
        order=_order(order),
        client_shares={f"each of {clients}": 1 / clients},
    )
    for text in flows or []:
        terms = _terms(text)
        topic = _integer(terms.pop("topic", ""), "flow: topic")
        if topic not in described.weights:
            raise ConfigError(f"topic {topic} is not one of 1 to {len(numbers)}", key="flow")
        described.flows.append((topic, _contract("", str(topic), terms, "flow")))
    return described


def describe_toml(text: str, path: str = "") -> Description:
    """Read a description from the text of a TOML file.

    Raises:
        ConfigError: the text is not TOML, or a value cannot be used.
    """
    try:
        return _described(tomllib.loads(text))
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"not TOML: {exc}", path=path) from exc
    except (ConfigError, ValueError) as exc:
        raise ConfigError(str(exc), path=path) from exc


def _described(table: dict[str, object]) -> Description:
    members = InputMatrix()
    for topic in _tables(table, "topic"):
        members.set_weight(_name(topic, "topic"), _weight(topic.get("weight", 1), "topic.weight"))
    for client in _tables(table, "client"):
        name = _name(client, "client")
        members.add_client(name)
        for topic_name in _names(client, "publishes"):
            members.advertise(name, topic_name)
    flows: list[tuple[int | str, Contract]] = []
    for flow in _tables(table, "flow"):
        terms = {key: str(value) for key, value in flow.items()}
        client_name, topic_name = terms.pop("client", ""), terms.pop("topic", "")
        members.advertise(client_name, topic_name)
        flows.append((topic_name, _contract(client_name, topic_name, terms, "flow")))
    if not members.weights or not members.clients():
        raise ConfigError("needs at least one [[topic]] and one [[client]] or [[flow]]")
    return Description(
        quantum_ns=_quantum(str(table.get("quantum", ""))),
        weights=dict(members.weights.items()),
        clients=len(members.clients()),
        order=_order(str(table.get("order", EVEN))),
        quantum_bytes=_integer(str(table.get("quantum_bytes", QUANTUM_BYTES)), "quantum_bytes"),
        publishers={topic: len(members.publishers(topic)) for topic in members.weights},
        flows=flows,
        client_shares={client: float(share) for client, share in members.client_shares().items()},
    )


def report(described: Description) -> BoundsReport:
    """Compute the rows: the paper's bound, the corrected one, and the one with real cell lengths."""
    topics = list(described.weights)
    weights = list(described.weights.values())
    publishers = [described.publishers.get(topic, described.clients) for topic in topics]
    corrected = Rotation(weights, [described.clients] * len(topics), described.order)
    tight = Rotation(weights, publishers, described.order)
    asked: list[tuple[int | str, Contract | None]] = list(described.flows)
    with_flow = {topic for topic, _ in described.flows}
    asked += [(topic, None) for topic in topics if topic not in with_flow]
    rows = []
    for topic, flow in asked:
        index = topics.index(topic)
        contract = flow or Contract("", str(topic), interval_ns=NEVER)
        loose = _bound(described, corrected, index, contract, described.clients)
        close = _bound(described, tight, index, contract, publishers[index])
        printed_ns = printed_bound(
            weights,
            index,
            clients=described.clients,
            quantum_ns=described.quantum_ns,
            burst=contract.burst,
            interval_ns=contract.interval_ns,
        )
        rows.append(
            BoundsRow(
                topic=topic,
                client=contract.client,
                weight=weights[index],
                share=weights[index] / sum(weights),
                rate=None if flow is None else rate_of(contract.interval_ns),
                burst=contract.burst,
                bound_printed_ms=_milliseconds(printed_ns),
                bound_ms=_milliseconds(loose.delay_ns),
                bound_tight_ms=_milliseconds(close.delay_ns),
                dominating=close.dominating,
            )
        )
    return BoundsReport(rows, described.client_shares)


def _bound(described: Description, rotation: Rotation, index: int, contract: Contract, clients: int) -> Bound:
    if clients == 0:
        return Bound(UNBOUNDED, 0, NO_PUBLISHER)
    return flow_bound(
        rotation,
        index,
        burst=contract.burst,
        interval_ns=contract.interval_ns,
        quantum_ns=described.quantum_ns,
        clients=clients,
        parts=contract.parts(described.quantum_bytes),
    )


def _milliseconds(delay_ns: int) -> float | None:
    return None if delay_ns == UNBOUNDED else delay_ns / MILLISECOND


def _contract(client: str, topic: str, terms: dict[str, str], key: str) -> Contract:
    rate, period = terms.pop("rate", ""), terms.pop("period", "")
    burst, size = terms.pop("burst", "1"), terms.pop("size", "1")
    if terms:
        raise ConfigError(f"{next(iter(terms))!r} is unknown; use topic, rate, period, burst, size", key=key)
    if bool(rate) == bool(period):
        raise ConfigError("needs either a rate (per second) or a period", key=key)
    try:
        return Contract(
            client,
            topic,
            interval_ns=_interval(rate, period, key),
            burst=_integer(burst, f"{key}: burst"),
            size=_integer(size, f"{key}: size"),
        )
    except ValueError as exc:
        raise ConfigError(str(exc), key=key) from exc


def _interval(rate: str, period: str, key: str) -> int:
    try:
        # A rate is rounded down: a flow a little faster than asked for cannot make the bound too small.
        interval_ns = parse_duration(period) if period else int(SECOND / Fraction(rate))
    except (ValueError, ZeroDivisionError):
        interval_ns = 0
    if interval_ns >= 1:
        return min(interval_ns, NEVER)
    if period:
        raise ConfigError(f"period {period!r} is not a duration above zero like 20ms", key=key)
    raise ConfigError(f"rate {rate!r} is not a number above zero, per second", key=key)


def _terms(text: str) -> dict[str, str]:
    terms = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"{part!r} is not name=value, as in topic=1,rate=100,burst=2", key="flow")
        terms[name.strip()] = value.strip()
    return terms


def _integer(text: str, key: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a whole number", key=key) from None


def _weight(value: object, key: str) -> int:
    if not isinstance(value, int):
        raise ConfigError(f"{value!r} is not a whole number", key=key)
    try:
        check_weight(value)
    except ValueError as exc:
        raise ConfigError(str(exc), key=key) from exc
    return value


def _order(order: str) -> str:
    try:
        check_order(order)
    except ValueError as exc:
        raise ConfigError(str(exc), key="order") from exc
    return order


def _quantum(text: str) -> int:
    try:
        quantum_ns = parse_duration(text)
    except UnitError as exc:
        raise ConfigError(str(exc), key="quantum") from exc
    if quantum_ns < 1:
        raise ConfigError(f"{text!r} is not positive; a quantum is the time one message takes", key="quantum")
    return quantum_ns


def _tables(table: dict[str, object], key: str) -> list[dict[str, object]]:
    tables = table.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(entry, dict) for entry in tables):
        raise ConfigError(f"write it as [[{key}]]", key=key)
    return tables


def _names(table: dict[str, object], key: str) -> list[str]:
    names = table.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{names!r} is not a list of names", key=key)
    return names


def _name(table: dict[str, object], key: str) -> str:
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError("has no name", key=key)
    return name
