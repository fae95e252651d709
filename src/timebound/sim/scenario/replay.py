"""Replay of a broker's observed load in the simulator, under other strategies.

Every (message, link) of the trace arrives at the same time with the same size, for the same subscriptions
at the same price and with the same time left. Filters are not evaluated again: each set of subscriptions
that received a message gets a topic of its own. Each link of the broker is a link here, with the measured
rate. Only the order in the queues differs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from timebound.core.link.queue import EPSILON
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, STRATEGIES, strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.message import MeshMessage
from timebound.core.mesh.options import MeshOptions
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.message import Message
from timebound.core.values.subscription import MICRO
from timebound.records import Reason
from timebound.sim.kernel.kernel import Event
from timebound.sim.kernel.streams import Streams
from timebound.sim.mesh.cluster import Cluster
from timebound.sim.mesh.network import SimLink
from timebound.terms import Terms

BROKER: Final = "broker"
# Of the strategies that mix two aims, the shares to try.
MIXES: Final = (0.25, 0.5, 0.75)
MIXING: Final = tuple(name for name, kind in STRATEGIES.items() if kind.takes_mix)
# The first of equals is recommended, so the broker's own default comes first.
CHOICES: Final = (
    (DEFAULT_STRATEGY, -1.0),
    *((name, -1.0) for name in STRATEGIES if name != DEFAULT_STRATEGY and name not in MIXING),
    *((name, mix) for name in MIXING for mix in MIXES),
)
RESULTS: Final = (
    ("matched", "int64"),
    ("in_time", "int64"),
    ("late", "int64"),
    ("dropped", "int64"),
    ("earning", "float64"),
)
# For the pipeline's tuning: the path of `open_runs`, its result columns, and the choices to try.
REPLAY: Final = ("timebound.sim.scenario.replay:open_runs", RESULTS, CHOICES)
# Rates that are not positive are drawn again; with deviations up to this share of the mean, hardly ever.
_DEVIATION_SHARE_MAX: Final = 0.3

# Subscriber, deadline, price and penalty of one subscription; money in millionths.
_Member = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a broker: columns of equal length, ordered by arrival, and its links.

    `links` has mean and deviation in milliseconds per KB, by name. Times count from the first arrival;
    `allowed_ns` is the time left at arrival, 0 = no limit.
    """

    links: dict[str, tuple[float, float]]
    until_ns: int
    message_id: list[int]
    link: list[str]
    subscriber: list[str]
    arrival_ns: list[int]
    size_bytes: list[int]
    allowed_ns: list[int]
    price_micro: list[int]
    penalty_micro: list[int]


def open_runs(context: bytes) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return the function that replays a load; `context` has the pickled fields of a Load for each node."""
    loads = {node: Load(**fields) for node, fields in pickle.loads(context).items()}

    def run_row(values: Mapping[str, Any]) -> dict[str, Any]:
        load = loads[values["node"]]
        return replay(load, values["strategy"], values["weight"], values["seed"])

    return run_row


def replay(load: Load, strategy: str, mix: float, seed: int) -> dict[str, Any]:
    """Replay a load under a strategy; return the columns of RESULTS."""
    # A load does not name publishers and topics, so it has no flows.
    options = MeshOptions(strategy_named(strategy, mix=mix), epsilon=EPSILON, thrift=0.0, keeps_order=False)
    account = MeshAccount()
    cluster = Cluster(options, account, load.until_ns)
    streams = Streams(seed)
    cluster.add_broker(BROKER)
    for name, (mean_ms, deviation_ms) in load.links.items():
        cluster.add_broker(_place(name))
        deviation_ms = min(deviation_ms, _DEVIATION_SHARE_MAX * mean_ms)
        cluster.add_link(SimLink(BROKER, _place(name), mean_ms, deviation_ms, streams.stream(f"link {name}")))
    arrivals = _arrivals(load, cluster)
    cluster.kernel.schedule(arrivals[0].message.published_ns, _Arrivals(cluster, arrivals))
    cluster.kernel.run(load.until_ns)
    for broker in cluster.brokers.values():
        broker.wake(cluster.kernel.now_ns)
    account.close(Reason.HOPELESS)
    return {
        "matched": account.matched,
        "in_time": account.in_time,
        "late": account.late,
        "dropped": account.dropped_total(),
        "earning": (account.earned_micro - account.paid_micro) / MICRO,
    }


class _Arrivals(Event):
    """Arrival of the messages of the trace, one after the other."""

    __slots__ = ("_cluster", "_messages", "_next")

    def __init__(self, cluster: Cluster, messages: list[MeshMessage]) -> None:
        self._cluster = cluster
        self._messages = messages
        self._next = 0

    def happen(self, now_ns: int) -> None:
        message = self._messages[self._next]
        self._next += 1
        if self._next < len(self._messages):
            at_ns = self._messages[self._next].message.published_ns
            self._cluster.kernel.schedule(max(at_ns, now_ns), self)
        self._cluster.enter(message, now_ns)


def _arrivals(load: Load, cluster: Cluster) -> list[MeshMessage]:
    """Make one message for each (message, link) of the trace, and the subscriptions it is for."""
    rows: dict[tuple[int, str], list[int]] = {}
    for index, key in enumerate(zip(load.message_id, load.link, strict=True)):
        rows.setdefault(key, []).append(index)
    topics: dict[tuple[str, tuple[_Member, ...]], str] = {}
    messages = []
    for sequence, ((_, link), indexes) in enumerate(rows.items(), 1):
        timeout_ns, members = _members(load, indexes)
        topic = topics.get((link, members))
        if topic is None:
            topic = topics[(link, members)] = f"replay/{len(topics)}"
            _subscribe(cluster, link, topic, members)
        first = indexes[0]
        message = Message(
            topic,
            b"",
            0,
            False,
            load.arrival_ns[first],
            "",
            timeout_ns=timeout_ns,
            sequence=sequence,
        )
        messages.append(MeshMessage(message, BROKER, load.size_bytes[first]))
    messages.sort(key=_arrival_ns)
    return messages


def _members(load: Load, indexes: list[int]) -> tuple[int, tuple[_Member, ...]]:
    """Return the time left to all subscriptions of a message, or one deadline each where they differ."""
    limits = {load.allowed_ns[index] for index in indexes}
    timeout_ns = limits.pop() if len(limits) == 1 else 0
    members = tuple(
        (
            load.subscriber[index],
            0 if timeout_ns else load.allowed_ns[index],
            load.price_micro[index],
            load.penalty_micro[index],
        )
        for index in indexes
    )
    return timeout_ns, members


def _subscribe(cluster: Cluster, link: str, topic: str, members: tuple[_Member, ...]) -> None:
    for subscriber, deadline_ns, price_micro, penalty_micro in members:
        cluster.table.insert(
            MeshSubscription(
                client_id=subscriber,
                home=_place(link),
                topic_filter=topic,
                terms=Terms(
                    deadline_ns=deadline_ns, price=price_micro / MICRO, penalty=penalty_micro / MICRO
                ),
            )
        )


def _arrival_ns(what: MeshMessage) -> int:
    return what.message.published_ns


def _place(link: str) -> str:
    """Return the broker at the far end of a link, by a name that no real broker has."""
    return f"link {link}"
