"""`$SYS` topics: figures of the broker as retained messages, under names common to brokers."""

from __future__ import annotations

import json

from timebound.core.broker import Broker
from timebound.core.values.message import Message
from timebound.core.values.subscription import MICRO
from timebound.node.control.input import BOUNDS_TOPIC
from timebound.node.input.input import Input
from timebound.node.mesh.mesh import Mesh
from timebound.units import SECOND
from timebound.version import VERSION


class SysTopics:
    """Publishes the figures that have changed."""

    def __init__(self, broker: Broker, node_name: str, started_ns: int, input_: Input | None = None) -> None:
        self._broker = broker
        self._input = input_
        self.mesh: Mesh | None = None  # if the broker has neighbours
        self._started_ns = started_ns
        self._last: dict[str, str] = {}
        self._fixed = {
            "$SYS/broker/version": f"timebound version {VERSION}",
            "$SYS/broker/node": node_name,
        }

    def withdraw(self) -> None:
        """Remove what was published; call `publish` at once."""
        for topic in self._last:
            self._broker.forget_own_retained(topic)
        self._last = {}

    def publish(self, now_ns: int) -> None:
        """Publish every figure whose value has changed."""
        for topic, value in self.figures(now_ns).items():
            if self._last.get(topic) != value:
                self._last[topic] = value
                self._broker.route(Message(topic, value.encode(), 0, True, now_ns), now_ns)

    def figures(self, now_ns: int) -> dict[str, str]:
        """Return all figures by topic."""
        now = self._broker.statistics()
        account = self._broker.account
        figures = dict(self._fixed)
        numbers = {
            "uptime": (now_ns - self._started_ns) // SECOND,
            "clients/connected": now.connected,
            "clients/disconnected": now.sessions - now.connected,
            "clients/total": now.sessions,
            "connections/total": now.connections_total,
            "connections/refused": now.connections_refused,
            "connections/tls_failed": now.tls_failures,
            "faults": now.faults,
            "messages/received": now.messages_received,
            "messages/sent": now.messages_sent,
            "messages/refused": now.publishes_refused,
            "messages/inflight": now.inflight,
            "messages/stored": now.queued_messages,
            "store/messages/bytes": now.queued_bytes,
            "bytes/received": now.bytes_received,
            "bytes/sent": now.bytes_sent,
            "subscriptions/count": now.subscriptions,
            "subscriptions/filter_cost": now.filter_cost,
            "retained messages/count": now.retained_messages,
            "publish/messages/dropped": sum(now.dropped.values()),
            "account/matched": account.matched,
            "account/in_time": account.in_time,
            "account/late": account.late,
            "account/dropped": sum(account.dropped.values()),
        }
        for name, number in numbers.items():
            figures[f"$SYS/broker/{name}"] = str(number)
        for reason, count in now.dropped.items():
            figures[f"$SYS/broker/dropped/{reason}"] = str(count)
        figures["$SYS/broker/account/earned"] = _amount(account.earned_micro)
        figures["$SYS/broker/account/paid"] = _amount(account.paid_micro)
        if self._input is not None:
            for name, figure in self._input.figures().items():
                figures[f"$SYS/broker/input/{name}"] = str(figure)
            figures[BOUNDS_TOPIC] = json.dumps(self._input.flows.report())
        if self.mesh is not None:
            for name, figure in self.mesh.figures().items():
                figures[f"$SYS/broker/mesh/{name}"] = str(figure)
        return figures


def _amount(micro: int) -> str:
    """Format an amount exactly, without the rounding of a float."""
    return f"{micro // MICRO}.{micro % MICRO:06d}"
