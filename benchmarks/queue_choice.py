"""What one decision of an outgoing queue costs, and what one waiting message takes.

    python benchmarks/queue_choice.py [--messages 10000] [--subscriptions 100] [--decisions 3000] [--json]

A full queue: each decision pops the best message and pushes a new one, a message time later.
"shared" draws the subscriptions from 5 deadlines and 4 paths, as published experiments do, so
that they merge to 20 terms; "distinct" gives each of the 100 its own deadline and path. Run it
against a compiled build for the numbers that count; the first line says which one it was. Times
are processor time of the thread, so that a busy machine does not count; reading that clock costs
about 0.3 µs, which is in the numbers.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import tracemalloc
from dataclasses import dataclass

from timebound.core.link import queue as queue_module
from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.link.strategy.registry import STRATEGY_NAMES, strategy_named
from timebound.core.values.delay import LinkDelay, Path
from timebound.units import MILLISECOND, SECOND

SIZE_BYTES = 1_024
MEAN_S_PER_KB = 0.008  # 1 Mbit/s
MESSAGE_NS = 8 * MILLISECOND


@dataclass(frozen=True, slots=True)
class Costs:
    """What a strategy took for each decision, in microseconds, and what it computed."""

    pop_us: float
    pop_us_max: float
    values: float
    bounds: float
    push_us: float


def make_audience(source: random.Random, subscriptions: int, distinct: bool) -> Audience:
    """The subscriptions one message matched, with deadlines that a queue of 10,000 overruns."""
    deviation = 0.1 * MEAN_S_PER_KB
    terms = []
    for _ in range(subscriptions):
        if distinct:
            deadline_ns = source.randint(20 * SECOND, 60 * SECOND)
            mean = source.uniform(0.0, 4.0) * MEAN_S_PER_KB
        else:
            deadline_ns = source.choice((20, 24, 30, 40, 60)) * SECOND
            mean = source.randrange(4) * MEAN_S_PER_KB
        price = source.choice((1.0, 1.5, 2.0, 2.5, 3.0))
        terms.append(Term(deadline_ns, price, 0.1 * price, Path(mean, deviation**2 * 2, 1)))
    return Audience(terms)


def fill(queue: LinkQueue, audiences: list[Audience], messages: int, source: random.Random) -> int:
    """Fill a queue with messages of all ages up to a third of their time."""
    now_ns = 100 * SECOND
    for index in range(messages):
        published_ns = now_ns - source.randint(0, 8 * SECOND)
        queue.push(Entry(index, SIZE_BYTES, published_ns, audiences[index % len(audiences)]), now_ns)
    return now_ns


def measure(name: str, messages: int, subscriptions: int, decisions: int, distinct: bool) -> Costs:
    source = random.Random(1)
    queue = LinkQueue(
        strategy_named(name),
        LinkDelay(MEAN_S_PER_KB, (0.1 * MEAN_S_PER_KB) ** 2),
        messages_max=messages + 1,
        message_bytes=SIZE_BYTES,
    )
    audiences = [make_audience(source, subscriptions, distinct) for _ in range(1_000)]
    now_ns = fill(queue, audiences, messages, source)
    fresh = [
        Entry(index, SIZE_BYTES, now_ns + index * MESSAGE_NS, source.choice(audiences))
        for index in range(4 * decisions)
    ]
    choosing = pushing = 0
    taken = 0
    slowest = 0
    valued = sum(lane.ranking.valued for lane in queue.lanes)
    bounded = sum(lane.ranking.bounded for lane in queue.lanes)
    for _ in range(decisions):
        now_ns += MESSAGE_NS
        before = time.thread_time_ns()
        queue.pop(now_ns)
        chosen = time.thread_time_ns()
        while queue.messages_queued < messages and taken < len(fresh):
            queue.push(fresh[taken], now_ns)
            taken += 1
        pushing += time.thread_time_ns() - chosen
        choosing += chosen - before
        slowest = max(slowest, chosen - before)
        while queue.pop_dropped(now_ns) is not None:
            pass
    valued = sum(lane.ranking.valued for lane in queue.lanes) - valued
    bounded = sum(lane.ranking.bounded for lane in queue.lanes) - bounded
    return Costs(
        choosing / decisions / 1000,
        slowest / 1000,
        valued / decisions,
        bounded / decisions,
        pushing / max(taken, 1) / 1000,
    )


def measure_uncontended(name: str, decisions: int) -> float:
    """Push and pop one message at a time, as on a link that keeps up; return the microseconds of each."""
    queue = LinkQueue(strategy_named(name), LinkDelay(MEAN_S_PER_KB, 0.0))
    audience = Audience([Term(SECOND)])
    entries = [Entry(None, SIZE_BYTES, 0, audience) for _ in range(decisions)]
    before = time.thread_time_ns()
    for entry in entries:
        queue.push(entry, 1_000)
        queue.pop(1_000)
    return (time.thread_time_ns() - before) / decisions / 1000


def memory_per_message(name: str, messages: int, overflowing: bool) -> float:
    """Bytes of one waiting message without its payload, its audience shared by 10 messages."""
    source = random.Random(1)
    audiences = [make_audience(source, 100, False) for _ in range(messages // 10)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    queue = LinkQueue(
        strategy_named(name),
        LinkDelay(MEAN_S_PER_KB, (0.1 * MEAN_S_PER_KB) ** 2),
        messages_max=messages if overflowing else messages + 1,
    )
    fill(queue, audiences, messages + 1 if overflowing else messages, source)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / messages


def print_tables(names: list[str], options: argparse.Namespace) -> None:
    compiled = not str(queue_module.__file__).endswith(".py")
    print(
        f"{'compiled' if compiled else 'not compiled'}; {options.messages} messages, "
        f"{options.subscriptions} subscriptions each, {options.decisions} decisions"
    )
    print(
        f"{'strategy':20} {'terms':9} {'pop µs':>9} {'max µs':>9} {'values':>9} {'bounds':>9} {'push µs':>9}"
    )
    for distinct in (False, True):
        for name in names:
            cost = measure(name, options.messages, options.subscriptions, options.decisions, distinct)
            kind = "distinct" if distinct else "shared"
            print(
                f"{name:20} {kind:9} {cost.pop_us:9.2f} {cost.pop_us_max:9.1f} "
                f"{cost.values:9.2f} {cost.bounds:9.2f} {cost.push_us:9.2f}",
                flush=True,
            )
    print(f"\n{'one at a time':20} {'µs':>9}   (push and pop, nothing waiting)")
    for name in names:
        print(f"{name:20} {measure_uncontended(name, 20_000):9.3f}")
    print("\nbytes per waiting message, audiences not counted")
    for name in ("fifo", "worth", "mtep"):
        plain = memory_per_message(name, 2_000, False)
        full = memory_per_message(name, 2_000, True)
        print(f"{name:20} {plain:9.0f}   after an overflow {full:9.0f}")


def as_json(names: list[str], options: argparse.Namespace) -> str:
    """Return the microseconds of a choice with a push by strategy, in a full queue and an empty one."""
    costs = {}
    for name in names:
        cost = measure(name, options.messages, options.subscriptions, options.decisions, False)
        costs[f"queue {name}"] = cost.pop_us + cost.push_us
        costs[f"queue {name}, nothing waiting"] = measure_uncontended(name, 20_000)
    return json.dumps(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of one decision of an outgoing queue")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--subscriptions", type=int, default=100)
    parser.add_argument("--decisions", type=int, default=3_000)
    parser.add_argument("--strategies", default=",".join(STRATEGY_NAMES))
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    names = options.strategies.split(",")
    if options.json:
        print(as_json(names, options))
    else:
        print_tables(names, options)


if __name__ == "__main__":
    main()
