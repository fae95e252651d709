"""`$SYS` topics: figures of the broker as retained messages, under names common to brokers."""

from __future__ import annotations

from timebound.core.input.requests import BOUNDS_TOPIC
from timebound.core.values.message import Message
from timebound.node.telemetry.figures import FIGURES, Sample, Sources
from timebound.version import VERSION


class SysTopics:
    """Publishes the figures that have changed."""

    def __init__(self, sources: Sources, node_name: str) -> None:
        self._sources = sources
        self._broker = sources.broker
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
        sample = Sample(self._sources, now_ns)
        found = dict(self._fixed)
        for figure in FIGURES:
            for topic, value in figure.topic_values(sample).items():
                found[f"$SYS/broker/{topic}"] = value
        found[BOUNDS_TOPIC] = self._broker.entrance.flows.last_report
        return found
