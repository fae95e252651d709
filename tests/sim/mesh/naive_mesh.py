"""A mesh written down as simply as possible, to check the real one against.

One path tree, queues as plain lists, every value worked out anew for every subscription at every
choice. It draws from the same streams as the real simulation, so all totals must be equal.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from itertools import pairwise

from tests.core.mesh.doubles import path_to

from timebound.core.mesh.message import MeshMessage
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.delay import phi
from timebound.sim.kernel.streams import Streams
from timebound.sim.mesh.experiment import build, make_topology
from timebound.sim.mesh.setting import MeshSetting
from timebound.sim.mesh.topology import Topology
from timebound.sim.mesh.workload import make_sources

KB = 1_024


@dataclass
class NaiveLink:
    """One link: what waits for it, in order of arrival, and whether it is sending."""

    source: str
    target: str
    mean: float  # s per KB
    variance: float
    waiting: list[tuple[int, MeshMessage]] = field(default_factory=list)
    is_busy: bool = False


class NaiveMesh:
    """EB, PC or FIFO over the path tree of each message's origin, with the ε-drop."""

    def __init__(self, setting: MeshSetting, seed: int) -> None:
        self.setting = setting
        self.real = build(setting, seed)  # for its topology, link streams and subscriptions only
        self.subscriptions = self.real.table.subscriptions()
        self.links = {
            (source, target): NaiveLink(source, target, link.mean_ms / 1e3, (link.deviation_ms / 1e3) ** 2)
            for (source, target), link in self.real.sim_links.items()
        }
        self.events: list[tuple[int, int, str, tuple[object, ...]]] = []
        self.counter = 0
        self.matched = self.in_time = self.traffic = 0
        self.sources = make_sources(setting.publishers, _topology(setting, seed), Streams(seed))

    def run(self) -> tuple[int, int, int]:
        sequence = 0
        for source, _ in self.sources:
            now = source.first_ns()
            while now < self.setting.duration_ns:
                sequence += 1
                what = source.message(sequence, now)
                self.matched += len(self._matching(what))
                self._at(now + self.setting.processing_ns, "arrive", (what.origin, what))
                now = source.next_ns(now)
        while self.events:
            now, _, kind, details = heapq.heappop(self.events)
            if kind == "arrive":
                self._arrive(now, *details)  # type: ignore[arg-type]  # the tuple was made by _at
            else:
                link = details[0]
                assert isinstance(link, NaiveLink)
                link.is_busy = False
                self._next(now, link)
        return self.matched, self.in_time, self.traffic

    def _at(self, time_ns: int, kind: str, details: tuple[object, ...]) -> None:
        self.counter += 1
        heapq.heappush(self.events, (time_ns, self.counter, kind, details))

    def _matching(self, what: MeshMessage) -> list[MeshSubscription]:
        values = {name: float(text) for name, text in what.message.user_properties}
        found = []
        for subscription in self.subscriptions:
            assert subscription.predicate is not None
            conditions = subscription.predicate.text.split(" AND ")
            parts = [condition.split(" < ") for condition in conditions]
            if all(values[name] < float(limit) for name, limit in parts):
                found.append(subscription)
        return found

    def _arrive(self, now: int, broker: str, what: MeshMessage) -> None:
        self.traffic += 1
        for subscription in self._matching(what):
            allowed = what.message.allowed_ns(subscription)
            is_here = subscription.home == broker
            if is_here and now + subscription.last_mile_ns - what.message.published_ns <= allowed:
                self.in_time += 1
        for (source, _), link in self.links.items():
            if source == broker and self._behind(link, what):
                self.counter += 1
                link.waiting.append((self.counter, what))
                if not link.is_busy:
                    self._next(now, link)

    def _behind(self, link: NaiveLink, what: MeshMessage) -> list[tuple[MeshSubscription, list[str]]]:
        """The subscriptions whose path in the origin's tree leads over this link, with the path from here."""
        tree = self.real.links.tree(what.origin)
        found = []
        for subscription in self._matching(what):
            path = path_to(tree, subscription.home)
            for index in range(len(path) - 1):
                if (path[index], path[index + 1]) == (link.source, link.target):
                    found.append((subscription, path[index:]))
        return found

    def _chances(self, now: int, link: NaiveLink, what: MeshMessage) -> list[tuple[float, float, bool]]:
        chances = []
        for subscription, path in self._behind(link, what):
            hops = list(pairwise(path))
            mean = sum(self.links[hop].mean for hop in hops)
            deviation = math.sqrt(sum(self.links[hop].variance for hop in hops))
            size = what.size_bytes / KB
            slack = what.message.allowed_ns(subscription) - (now - what.message.published_ns)
            slack -= len(hops) * self.setting.processing_ns + subscription.last_mile_ns
            chance = phi((slack / 1e9 - size * mean) / (size * deviation))
            is_over = now - what.message.published_ns >= what.message.allowed_ns(subscription)
            chances.append((subscription.price, chance, is_over))
        return chances

    def _next(self, now: int, link: NaiveLink) -> None:
        alive = [
            item
            for item in link.waiting
            if any(
                chance > self.setting.epsilon and not is_over
                for _, chance, is_over in self._chances(now, link, item[1])
            )
        ]
        link.waiting = alive
        if not alive:
            return
        chosen = alive[0]
        if self.setting.strategy != "fifo":
            chosen = max(alive, key=lambda item: (round(self._value(now, link, item[1]), 9), -item[0]))
        link.waiting.remove(chosen)
        link.is_busy = True
        real = self.real.sim_links[(link.source, link.target)]
        end = now + real.duration_ns(chosen[1].size_bytes)
        self._at(end, "free", (link,))
        self._at(end + self.setting.processing_ns, "arrive", (link.target, chosen[1]))

    def _value(self, now: int, link: NaiveLink, what: MeshMessage) -> float:
        first = sum(price * chance for price, chance, _ in self._chances(now, link, what))
        if self.setting.strategy == "eb":
            return first
        later = now + int(self.setting.message_bytes / KB * link.mean * 1e9)
        return first - sum(price * chance for price, chance, _ in self._chances(later, link, what))


def _topology(setting: MeshSetting, seed: int) -> Topology:

    return make_topology(setting.topology, Streams(seed))
