"""The table of figures: every number that a broker publishes, once, with its names, kind and meaning.

`$SYS` topics and Prometheus metrics are made from this table, so they cannot disagree. A figure is read from
the parts that know it; one whose part does not exist (no mesh, no trace) is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from timebound.core.account.account import Account
from timebound.core.account.counters import Statistics
from timebound.core.broker import Broker
from timebound.core.values.subscription import MICRO
from timebound.linking.mesh import Mesh
from timebound.node.trace.writer import TraceWriter
from timebound.units import SECOND

COUNTER: Final = "counter"
GAUGE: Final = "gauge"

# A number, or several by the value of one label; None without its part. Integers, so sums are exact.
Reading = int | dict[str, int] | None


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of a node that figures are read from."""

    broker: Broker
    mesh: Mesh | None = None
    trace: TraceWriter | None = None
    started_ns: int = 0


class Sample:
    """All sources at one moment."""

    __slots__ = ("account", "input_", "mesh", "now", "trace", "uptime_s")

    def __init__(self, sources: Sources, now_ns: int) -> None:
        self.now: Statistics = sources.broker.statistics()
        self.account: Account = sources.broker.account
        self.input_ = sources.broker.entrance.figures()
        self.mesh = sources.mesh.figures() if sources.mesh is not None else {}
        trace = sources.trace
        self.trace = {"written": trace.rows_written, "lost": trace.rows_lost} if trace is not None else {}
        self.uptime_s = (now_ns - sources.started_ns) // SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFigure:
    """One number, or one for each value of a label.

    `topic` is its `$SYS` topic below `$SYS/broker/`, `metric` its Prometheus name below `timebound_`; either
    may be empty. Metrics are in base units: `unit` of what is read is one second, or one of money.
    """

    topic: str
    metric: str
    meaning: str
    read: Callable[[Sample], Reading]
    kind: str
    label: str = ""
    unit: int = 1

    def topic_values(self, sample: Sample) -> dict[str, str]:
        """Return the figure's `$SYS` topics, below `$SYS/broker/`, with their payloads."""
        reading = self.read(sample)
        if not self.topic or reading is None:
            return {}
        write = _amount if self.unit == MICRO else str
        if isinstance(reading, int):
            return {self.topic: write(reading)}
        return {f"{self.topic}/{value}": write(number) for value, number in reading.items()}

    def metric_values(self, sample: Sample) -> dict[str, float]:
        """Return the figure's values for Prometheus by their labels."""
        reading = self.read(sample)
        if not self.metric or reading is None:
            return {}
        if isinstance(reading, int):
            return {"": self._in_units(reading)}
        return {f'{{{self.label}="{value}"}}': self._in_units(number) for value, number in reading.items()}

    def _in_units(self, number: int) -> float:
        return number if self.unit == 1 else number / self.unit


def _amount(micro: int) -> str:
    """Format an amount exactly, without the rounding of a float."""
    return f"{micro // MICRO}.{micro % MICRO:06d}"


def _gauge(
    topic: str, metric: str, meaning: str, read: Callable[[Sample], Reading], unit: int = 1
) -> NodeFigure:
    return NodeFigure(topic=topic, metric=metric, meaning=meaning, read=read, kind=GAUGE, unit=unit)


def _counter(
    topic: str,
    metric: str,
    meaning: str,
    read: Callable[[Sample], Reading],
    label: str = "",
    unit: int = 1,
) -> NodeFigure:
    return NodeFigure(
        topic=topic, metric=metric, meaning=meaning, read=read, kind=COUNTER, label=label, unit=unit
    )


def _of_input(name: str) -> Callable[[Sample], Reading]:
    return lambda one: one.input_.get(name)


def _of_mesh(name: str) -> Callable[[Sample], Reading]:
    return lambda one: one.mesh.get(name)


def _of_trace(name: str) -> Callable[[Sample], Reading]:
    return lambda one: one.trace.get(name)


def _excess(one: Sample) -> Reading:
    return {outcome: one.input_[f"excess_{outcome}"] for outcome in ("lowered", "refused")}


def _mesh(name: str, meaning: str) -> NodeFigure:
    return _gauge(f"mesh/{name}", f"mesh_{name}", meaning, _of_mesh(name))


def _mesh_total(name: str, meaning: str) -> NodeFigure:
    return _counter(f"mesh/{name}", f"mesh_{name}_total", meaning, _of_mesh(name))


CLIENTS: Final = (
    _gauge("uptime", "uptime_seconds", "Time since the broker started.", lambda one: one.uptime_s),
    _gauge("clients/connected", "clients_connected", "Clients connected now.", lambda one: one.now.connected),
    _gauge(
        "clients/disconnected",
        "",
        "Sessions whose client is not connected.",
        lambda one: one.now.sessions - one.now.connected,
    ),
    _gauge("clients/total", "sessions", "Sessions, connected or not.", lambda one: one.now.sessions),
    _counter(
        "connections/total",
        "connections_total",
        "Connections accepted.",
        lambda one: one.now.connections_total,
    ),
    _counter(
        "connections/refused",
        "connections_refused_total",
        "Connections refused.",
        lambda one: one.now.connections_refused,
    ),
    _counter(
        "connections/tls_failed",
        "tls_failures_total",
        "Connections ended by TLS errors.",
        lambda one: one.now.tls_failures,
    ),
    _counter("faults", "faults_total", "Internal errors of the broker.", lambda one: one.now.faults),
    _gauge("subscriptions/count", "subscriptions", "Subscriptions.", lambda one: one.now.subscriptions),
    _gauge(
        "subscriptions/filter_cost",
        "filter_cost",
        "Plain tests per message in the worst case.",
        lambda one: one.now.filter_cost,
    ),
)
MESSAGES: Final = (
    _counter(
        "messages/received",
        "messages_received_total",
        "Messages from publishers.",
        lambda one: one.now.messages_received,
    ),
    _counter(
        "messages/sent",
        "messages_sent_total",
        "Copies sent to subscribers.",
        lambda one: one.now.messages_sent,
    ),
    _counter(
        "messages/refused",
        "messages_refused_total",
        "Messages refused before they matched a subscription.",
        lambda one: one.now.refused,
    ),
    _counter(
        "publish/messages/dropped",
        "",
        "Pairs dropped and messages refused.",
        lambda one: sum(one.now.dropped.values()),
    ),
    _gauge(
        "messages/inflight",
        "inflight_messages",
        "Messages sent and not acknowledged.",
        lambda one: one.now.inflight,
    ),
    _gauge(
        "messages/stored",
        "queued_messages",
        "Messages waiting to be sent.",
        lambda one: one.now.queued_messages,
    ),
    _gauge(
        "store/messages/bytes",
        "queued_bytes",
        "Memory of copies that wait or are not acknowledged.",
        lambda one: one.now.queued_bytes,
    ),
    _counter("bytes/received", "bytes_received_total", "Bytes received.", lambda one: one.now.bytes_received),
    _counter("bytes/sent", "bytes_sent_total", "Bytes sent.", lambda one: one.now.bytes_sent),
    _gauge(
        "retained messages/count",
        "retained_messages",
        "Retained messages.",
        lambda one: one.now.retained_messages,
    ),
    _gauge(
        "retained messages/bytes",
        "retained_bytes",
        "Bytes of retained messages.",
        lambda one: one.now.retained_bytes,
    ),
    _counter(
        "retained messages/refused",
        "retained_refused_total",
        "Messages delivered but not retained, because of a limit.",
        lambda one: one.now.retained_refused,
    ),
)
ACCOUNT: Final = (
    _counter(
        "account/matched",
        "matched_total",
        "Pairs of message and subscription.",
        lambda one: one.account.matched,
    ),
    _counter("account/in_time", "", "Pairs delivered in time.", lambda one: one.account.in_time),
    _counter("account/late", "", "Pairs delivered late.", lambda one: one.account.late),
    _counter(
        "",
        "delivered_total",
        "Pairs delivered, by outcome.",
        lambda one: {"in_time": one.account.in_time, "late": one.account.late},
        label="outcome",
    ),
    _counter("account/dropped", "", "Pairs not delivered.", lambda one: sum(one.account.dropped.values())),
    _counter(
        "dropped",
        "dropped_total",
        "Pairs not delivered and messages refused, by reason.",
        lambda one: one.now.dropped,
        label="reason",
    ),
    _counter(
        "account/earned", "earned_total", "Prices earned.", lambda one: one.account.earned_micro, unit=MICRO
    ),
    _counter(
        "account/paid", "penalties_total", "Penalties paid.", lambda one: one.account.paid_micro, unit=MICRO
    ),
)
INPUT: Final = (
    _gauge(
        "input/quantum_ns",
        "input_quantum_seconds",
        "Measured duration of a quantum.",
        _of_input("quantum_ns"),
        unit=SECOND,
    ),
    _gauge(
        "input/round_ns",
        "input_round_seconds",
        "Measured duration of a round.",
        _of_input("round_ns"),
        unit=SECOND,
    ),
    _gauge(
        "input/stop_ns",
        "input_stop_seconds",
        "A stall that delay bounds include.",
        _of_input("stop_ns"),
        unit=SECOND,
    ),
    _gauge("input/flows", "input_flows", "Advertised flows admitted.", _of_input("flows")),
    _gauge(
        "input/flows_broken",
        "input_flows_broken",
        "Flows whose delay bound is no longer guaranteed.",
        _of_input("flows_broken"),
    ),
    _counter(
        "input/excess_lowered",
        "",
        "Messages beyond their contract, without a delay bound.",
        _of_input("excess_lowered"),
    ),
    _counter(
        "input/excess_refused", "", "Messages beyond their contract, refused.", _of_input("excess_refused")
    ),
    _counter(
        "", "input_excess_total", "Messages beyond their contract, by outcome.", _excess, label="outcome"
    ),
)
MESH: Final = (
    _mesh("links_up", "Links to neighbours that work now."),
    _mesh("neighbours", "Neighbours configured."),
    _mesh("subscriptions", "Subscriptions of clients of other brokers."),
    _mesh_total("published", "Messages of this broker's clients with a subscriber elsewhere."),
    _mesh_total("received", "Copies from neighbours."),
    _mesh("waiting", "Entries in the queues of all links."),
    _mesh_total("dropped", "Pairs given up in transit."),
    _mesh_total("unreachable", "Pairs given up because no path led to their subscriber."),
    _mesh_total("duplicates", "Copies recognised as second ones."),
    _mesh_total("resent", "Copies sent again because a link failed."),
    _mesh_total("refused", "Announcements that could not be sent to a neighbour or read."),
    _mesh("full", "Brokers to which every path is full now."),
    _mesh("parked", "Messages that wait for unreachable brokers."),
    _mesh("gone", "Brokers that no broker has a link to."),
    _mesh("cut_off", "Brokers that cannot be reached, but that others have links to."),
)
TRACE: Final = (
    _counter("", "trace_records_total", "Trace records written.", _of_trace("written")),
    _counter("", "trace_records_lost_total", "Trace records lost.", _of_trace("lost")),
)

FIGURES: Final[tuple[NodeFigure, ...]] = (*CLIENTS, *MESSAGES, *ACCOUNT, *INPUT, *MESH, *TRACE)
