"""What each strategy earns: the networks of both papers, and mixed traffic on one slow link.

    python benchmarks/strategy_earnings.py [--minutes 20] [--seeds 3] [--scenario NAME]

The queues are the broker's own; only the sending is simulated, with the sending time of each
message drawn from the link's normal distribution. Prints one table per scenario, with the mean
over the seeds and the half width of its 95 % interval.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import math
import random
import statistics
from collections.abc import Callable, Iterable

from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, Entry, Term, flow_key
from timebound.core.link.strategy.base import Strategy
from timebound.core.link.strategy.registry import STRATEGY_NAMES, strategy_named
from timebound.core.values.delay import KILOBYTE, LinkDelay, Path, success
from timebound.units import MILLISECOND, SECOND

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    name: functools.partial(strategy_named, name) for name in STRATEGY_NAMES
}
# The default as sessions have it: what is beyond the link's capacity is given up early.
FRESH = "worth, kept fresh"


class Subscriber:
    """One subscription of a published experiment: takes messages whose attributes are all below its own."""

    def __init__(self, edge: int, below: list[float], deadline_ns: int, price: float, penalty: float) -> None:
        self.edge = edge
        self.below = below
        self.deadline_ns = deadline_ns
        self.price = price
        self.penalty = penalty


class Sent:
    """One published message and the subscribers that a copy of it is meant for."""

    def __init__(self, published_ns: int, timeout_ns: int, priority: int, takers: list[int]) -> None:
        self.published_ns = published_ns
        self.timeout_ns = timeout_ns
        self.priority = priority
        self.takers = takers


class Paper:
    """The sizes and numbers of one published experiment."""

    def __init__(
        self,
        *,
        layers: list[int],
        publishers_each: int,
        attributes: int,
        mean_ms: tuple[float, float],
        last_mile_ms: int,
        epsilon: float,
        classes: list[tuple[int, float, float]],
        timeout_s: tuple[float, float] | None,
    ) -> None:
        self.layers = layers
        self.publishers_each = publishers_each
        self.attributes = attributes
        self.mean_ms = mean_ms
        self.last_mile_ms = last_mile_ms
        self.epsilon = epsilon
        self.classes = classes  # (deadline in seconds, price, penalty); 0 = no deadline
        self.timeout_s = timeout_s


SUBSCRIBER_DELAY = Paper(
    layers=[4, 4, 8, 16],
    publishers_each=1,
    attributes=2,
    mean_ms=(50.0, 100.0),
    last_mile_ms=0,
    epsilon=0.0005,
    classes=[(10, 3.0, 0.0), (30, 2.0, 0.0), (60, 1.0, 0.0)],
    timeout_s=None,
)
PUBLISHER_DELAY = Paper(
    layers=[4, 4, 8, 16],
    publishers_each=1,
    attributes=2,
    mean_ms=(50.0, 100.0),
    last_mile_ms=0,
    epsilon=0.0005,
    classes=[(0, 1.0, 0.0)],
    timeout_s=(10.0, 30.0),
)
PENALTIES = Paper(
    layers=[4, 4, 8, 16, 32, 64],
    publishers_each=10,
    attributes=4,
    mean_ms=(40.0, 80.0),
    last_mile_ms=20,
    epsilon=0.04,
    classes=[(20, 3.0, 0.3), (24, 2.5, 0.25), (30, 2.0, 0.2), (40, 1.5, 0.15), (60, 1.0, 0.1)],
    timeout_s=None,
)
DEVIATION_S = 0.020
SIZE_KB = 50
PROCESSING_NS = 2 * MILLISECOND


class Network:
    """The layered brokers of a published experiment, one queue per link, run to the end."""

    def __init__(self, paper: Paper, make: Callable[[], Strategy], seed: int) -> None:
        self.paper = paper
        self.make = make
        self.random = random.Random(seed)
        self.events: list[tuple[int, int, int, int, Sent]] = []
        self.count = 0
        self.earned = 0.0
        self.matched = 0
        self.in_time = 0
        self.links: dict[tuple[int, int], float] = {}
        self.queues: dict[tuple[int, int], LinkQueue] = {}
        self.busy: set[tuple[int, int]] = set()
        self._build()
        self._route()

    def _build(self) -> None:
        layers = self.paper.layers
        starts = [sum(layers[:i]) for i in range(len(layers))]
        low, high = self.paper.mean_ms
        for depth in range(1, len(layers)):
            above = list(range(starts[depth - 1], starts[depth]))
            for broker in range(starts[depth], starts[depth] + layers[depth]):
                parents = above if depth == 1 else self.random.sample(above, 2)
                for parent in parents:
                    self.links[parent, broker] = self.random.uniform(low, high) / 1000.0
        self.first_edge = starts[-1]
        self.brokers = sum(layers)
        self.subscribers = []
        for edge in range(self.first_edge, self.brokers):
            for _ in range(10):
                deadline, price, penalty = self.random.choice(self.paper.classes)
                below = [self.random.uniform(0, 10) for _ in range(self.paper.attributes)]
                self.subscribers.append(Subscriber(edge, below, deadline * SECOND, price, penalty))

    def _route(self) -> None:
        """Single path of the smallest Σμ, worked out from the edges up; links only lead downwards."""
        self.best: dict[tuple[int, int], tuple[float, int, int]] = {}
        for edge in range(self.first_edge, self.brokers):
            self.best[edge, edge] = (0.0, 0, edge)
        for broker in range(self.first_edge - 1, -1, -1):
            for (parent, child), mean in self.links.items():
                if parent != broker:
                    continue
                for edge in range(self.first_edge, self.brokers):
                    known = self.best.get((child, edge))
                    if known is None:
                        continue
                    found = (known[0] + mean, known[1] + 1, child)
                    if (broker, edge) not in self.best or found < self.best[broker, edge]:
                        self.best[broker, edge] = found

    def run(self, rate_per_minute: float, minutes: float) -> None:
        end_ns = int(minutes * 60) * SECOND
        publishers = self.paper.layers[0] * self.paper.publishers_each
        for publisher in range(publishers):
            at = 0.0
            while True:
                at += self.random.expovariate(rate_per_minute / 60.0)
                if at * 1e9 >= end_ns:
                    break
                self._publish(int(at * 1e9), publisher // self.paper.publishers_each)
        while self.events:
            now_ns, _, kind, broker, sent = heapq.heappop(self.events)
            if kind < 0:
                self._arrive(sent, broker, now_ns)
            else:
                self.busy.discard((broker, kind))
                self._send(broker, kind, now_ns)

    def _publish(self, now_ns: int, broker: int) -> None:
        values = [self.random.uniform(0, 10) for _ in range(self.paper.attributes)]
        takers = [
            index
            for index, subscriber in enumerate(self.subscribers)
            if all(value < limit for value, limit in zip(values, subscriber.below, strict=True))
            and (broker, subscriber.edge) in self.best
        ]
        timeout_ns = 0
        if self.paper.timeout_s is not None:
            timeout_ns = int(self.random.uniform(*self.paper.timeout_s) * 1e9)
        self.matched += len(takers)
        for taker in takers:
            self.earned -= self.subscribers[taker].penalty
        sent = Sent(now_ns, timeout_ns, self.random.randint(1, 5), takers)
        self._at(now_ns, -1, broker, sent)

    def _at(self, at_ns: int, kind: int, broker: int, sent: Sent) -> None:
        self.count += 1
        heapq.heappush(self.events, (at_ns, self.count, kind, broker, sent))

    def _arrive(self, sent: Sent, broker: int, now_ns: int) -> None:
        now_ns += PROCESSING_NS
        onward: dict[int, list[int]] = {}
        for taker in sent.takers:
            subscriber = self.subscribers[taker]
            if subscriber.edge == broker:
                self._deliver(sent, subscriber, now_ns)
            else:
                onward.setdefault(self.best[broker, subscriber.edge][2], []).append(taker)
        for child in sorted(onward):
            self._queue(sent, broker, child, onward[child], now_ns)

    def _deliver(self, sent: Sent, subscriber: Subscriber, now_ns: int) -> None:
        age_ns = now_ns + self.paper.last_mile_ms * MILLISECOND - sent.published_ns
        allowed = [limit for limit in (sent.timeout_ns, subscriber.deadline_ns) if limit]
        if age_ns <= min(allowed):
            self.in_time += 1
            self.earned += subscriber.price + subscriber.penalty

    def _queue(self, sent: Sent, broker: int, child: int, takers: list[int], now_ns: int) -> None:
        link = (broker, child)
        queue = self.queues.get(link)
        if queue is None:
            queue = LinkQueue(
                self.make(),
                LinkDelay(self.links[link], DEVIATION_S**2),
                epsilon=self.paper.epsilon,
                processing_ns=PROCESSING_NS,
                shares=(0.0,),
            )
            self.queues[link] = queue
        terms = []
        kept = []
        for taker in takers:
            subscriber = self.subscribers[taker]
            mean, hops, _ = self.best[child, subscriber.edge]
            path = Path(mean, hops * DEVIATION_S**2, hops + 1, self.paper.last_mile_ms * MILLISECOND)
            allowed = min(limit for limit in (sent.timeout_ns, subscriber.deadline_ns) if limit)
            slack = allowed - (now_ns - sent.published_ns) - path.brokers * PROCESSING_NS - path.last_mile_ns
            whole = mean + self.links[link]
            if success(slack / 1e9, SIZE_KB, whole, DEVIATION_S * math.sqrt(hops + 1)) <= self.paper.epsilon:
                continue
            kept.append(taker)
            terms.append(Term(subscriber.deadline_ns, subscriber.price, subscriber.penalty, path))
        if not terms:
            return
        copy = Sent(sent.published_ns, sent.timeout_ns, sent.priority, kept)
        entry = Entry(
            copy,
            SIZE_KB * KILOBYTE,
            sent.published_ns,
            Audience(terms),
            timeout_ns=sent.timeout_ns,
            priority=sent.priority,
        )
        queue.push(entry, now_ns)
        if link not in self.busy:
            self._send(broker, child, now_ns)

    def _send(self, broker: int, child: int, now_ns: int) -> None:
        queue = self.queues[broker, child]
        entry = queue.pop(now_ns)
        while queue.pop_dropped(now_ns) is not None:
            pass
        if entry is None:
            return
        sent = entry.item
        assert isinstance(sent, Sent)
        per_kb = max(self.random.gauss(self.links[broker, child], DEVIATION_S), 0.001)
        done_ns = now_ns + int(per_kb * SIZE_KB * 1e9)
        self.busy.add((broker, child))
        self._at(done_ns, child, broker, sent)
        self._at(done_ns, -1, child, sent)


class Class:
    """One kind of message in the mixed traffic."""

    def __init__(
        self, name: str, size: int, deadline_ms: int, price: float, part: float, topics: int
    ) -> None:
        self.name = name
        self.size = size
        self.deadline_ms = deadline_ms
        self.price = price
        self.part = part  # of the offered bytes
        self.topics = topics


MIXED = [
    Class("alerts", 256, 250, 10.0, 0.05, 50),
    Class("telemetry", 512, 1_000, 1.0, 0.45, 100),
    Class("images", 8_192, 5_000, 6.0, 0.30, 5),
    Class("bulk", 16_384, 0, 1.0, 0.20, 5),
]
RATE_BYTES_PER_S = 125_000.0
BURST_S = 2.0


def run_mixed(
    make: Callable[[], Strategy], load: float, seconds: float, seed: int, flows: bool, is_fresh: bool
) -> dict[str, float]:
    """Offer `load` times a link of 1 Mbit/s, in bursts; what share of each class came in time."""
    source = random.Random(seed)
    arrivals: list[tuple[int, int, int]] = []
    for index, kind in enumerate(MIXED):
        rate = load * kind.part * RATE_BYTES_PER_S / kind.size
        at = 0.0
        while at < seconds:
            # Two seconds at 1.4 times the rate, two at 0.6: what queues are for.
            factor = 1.4 if int(at / BURST_S) % 2 == 0 else 0.6
            at += source.expovariate(rate * factor)
            arrivals.append((int(at * 1e9), index, source.randrange(kind.topics)))
    arrivals.sort()
    mean = KILOBYTE / RATE_BYTES_PER_S
    delay = LinkDelay(mean, (0.1 * mean) ** 2)
    queue = LinkQueue(make(), delay, messages_max=5_000, wants_fresh=is_fresh)
    audiences = [Audience([Term(kind.deadline_ms * MILLISECOND, kind.price)]) for kind in MIXED]
    in_time = [0.0] * len(MIXED)
    offered = [0.0] * len(MIXED)
    free_ns = 0
    position = 0
    end_ns = int(seconds * 1e9)
    while free_ns < end_ns:
        while position < len(arrivals) and arrivals[position][0] <= free_ns:
            at_ns, index, topic = arrivals[position]
            kind = MIXED[index]
            flow = flow_key(kind.name, str(topic), 0, 0, audiences[index]) if flows else None
            queue.push(
                Entry(index, kind.size, at_ns, audiences[index], priority=4 - index, flow=flow), free_ns
            )
            offered[index] += 1
            position += 1
        entry = queue.pop(free_ns)
        while queue.pop_dropped(free_ns) is not None:
            pass
        if entry is None:
            if position == len(arrivals):
                break
            free_ns = max(free_ns, arrivals[position][0])
            continue
        free_ns += int(max(source.gauss(mean, 0.1 * mean), 0.1 * mean) * entry.size_bytes / KILOBYTE * 1e9)
        index = entry.item
        assert isinstance(index, int)
        limit_ns = MIXED[index].deadline_ms * MILLISECOND
        if limit_ns == 0 or free_ns - entry.published_ns <= limit_ns:
            in_time[index] += 1
    result = {kind.name: 100.0 * in_time[i] / max(offered[i], 1.0) for i, kind in enumerate(MIXED)}
    result["value/s"] = sum(in_time[i] * kind.price for i, kind in enumerate(MIXED)) / seconds
    result["best/s"] = best_value(offered, seconds)
    return result


def best_value(offered: list[float], seconds: float) -> float:
    """What the link could carry at best: by value per byte, whatever the deadlines."""
    room = RATE_BYTES_PER_S * seconds
    value = 0.0
    for index in sorted(range(len(MIXED)), key=lambda i: -MIXED[i].price / MIXED[i].size):
        kind = MIXED[index]
        sent = min(offered[index], room / kind.size)
        room -= sent * kind.size
        value += sent * kind.price
    return value / seconds


def interval(samples: Iterable[float]) -> str:
    """Mean and half width of the 95 % interval."""
    values = list(samples)
    if len(values) < 2:
        return f"{values[0]:10.1f}"
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):10.1f} ±{half:6.1f}"


def show_paper(title: str, paper: Paper, rate: float, minutes: float, seeds: int, names: list[str]) -> None:
    print(f"\n{title}, {rate:g} messages/minute each, {minutes:g} minutes, {seeds} seeds")
    print(f"{'strategy':20} {'earning':>18} {'in time %':>18}")
    for name in names:
        earned, arrived = [], []
        for seed in range(seeds):
            network = Network(paper, STRATEGIES[name], seed)
            network.run(rate, minutes)
            earned.append(network.earned)
            arrived.append(100.0 * network.in_time / network.matched)
        print(f"{name:20} {interval(earned):>18} {interval(arrived):>18}", flush=True)


def show_mixed(load: float, seconds: float, seeds: int, flows: bool, names: list[str]) -> None:
    print(
        f"\nmixed traffic at {load:g}× of 1 Mbit/s, {seconds:g} s, {seeds} seeds, "
        f"flows {'kept' if flows else 'free'}"
    )
    print(f"{'strategy':20} {'value/s':>18} {'of best %':>9}  " + "  ".join(f"{k.name:>9}" for k in MIXED))
    for name in [*names, FRESH] if "worth" in names else names:
        make = STRATEGIES["worth" if name == FRESH else name]
        runs = [run_mixed(make, load, seconds, seed, flows, name == FRESH) for seed in range(seeds)]
        of_best = statistics.fmean(100 * run["value/s"] / run["best/s"] for run in runs)
        parts = "  ".join(f"{statistics.fmean(run[k.name] for run in runs):9.1f}" for k in MIXED)
        print(f"{name:20} {interval(run['value/s'] for run in runs):>18} {of_best:9.1f}  {parts}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="what each strategy earns")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scenario", choices=["all", "ssd", "psd", "mtep", "mixed"], default="all")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    options = parser.parse_args()
    names = options.strategies.split(",")
    chosen = options.scenario
    if chosen in ("all", "ssd"):
        for rate in (5.0, 10.0, 15.0):
            show_paper(
                "subscribers' deadlines", SUBSCRIBER_DELAY, rate, options.minutes, options.seeds, names
            )
    if chosen in ("all", "psd"):
        for rate in (5.0, 10.0, 15.0):
            show_paper("publishers' deadlines", PUBLISHER_DELAY, rate, options.minutes, options.seeds, names)
    if chosen in ("all", "mtep"):
        for rate in (1.0, 3.0):
            show_paper("prices and penalties", PENALTIES, rate, options.minutes, options.seeds, names)
    if chosen in ("all", "mixed"):
        for load in (0.8, 1.0, 1.2, 1.5, 2.0, 3.0):
            show_mixed(load, options.seconds, options.seeds, True, names)


if __name__ == "__main__":
    main()
