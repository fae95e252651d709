"""What the input scheduler costs per message, over handing messages straight on.

    python benchmarks/input_scheduling.py [--json]

Every case pushes and pops the same number of messages in batches of 64, as a loop turn does.
`pass-through` is a plain deque per batch: what a broker without scheduling needs anyway. Times
are the best of several rounds, so that other work on the machine counts as little as possible.
The figure for a broker that relays a million messages a second is the cost over 1,000 ns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable

from timebound.core.input.cells import EVEN, PAPER
from timebound.core.input.scheduler import ClientInput, InputQueue, InputScheduler

MESSAGES = 8_000
BATCH = 64
ROUNDS = 40


def queues_of(
    scheduler: InputScheduler[int], topics: int, clients: int, weights: int
) -> list[InputQueue[int]]:
    """Open one queue per client and topic pair, topics dealt out in turn."""
    planned = [scheduler.add_topic(f"t{k}", 1 + k % weights) for k in range(topics)]
    return [
        scheduler.open_queue(ClientInput(f"c{i}"), planned[i % topics]) for i in range(max(clients, topics))
    ]


def pass_through() -> Callable[[], None]:
    waiting: deque[int] = deque()

    def run() -> None:
        for _ in range(MESSAGES // BATCH):
            for item in range(BATCH):
                waiting.append(item)
            while waiting:
                waiting.popleft()

    return run


def scheduled(order: str, topics: int, clients: int, active: int, weights: int = 4) -> Callable[[], None]:
    """Return a run in which `active` of the queues share each batch."""
    scheduler: InputScheduler[int] = InputScheduler(order)
    every = queues_of(scheduler, topics, clients, weights)
    chosen = every[:: max(1, len(every) // active)][:active]
    batch = [chosen[i % active] for i in range(max(BATCH, active))]

    def run() -> None:
        push, pop = scheduler.push, scheduler.pop
        for _ in range(MESSAGES // len(batch)):
            for queue in batch:
                push(queue, 1, 100)
            while pop() is not None:
                pass

    return run


def one_at_a_time() -> Callable[[], None]:
    scheduler: InputScheduler[int] = InputScheduler()
    [queue] = queues_of(scheduler, 1, 1, 1)

    def run() -> None:
        push, pop = scheduler.push, scheduler.pop
        for _ in range(MESSAGES):
            push(queue, 1, 100)
            pop()

    return run


def best_ns(run: Callable[[], None]) -> float:
    run()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        run()
        best = min(best, time.perf_counter_ns() - start)
    return best / MESSAGES


CASES: dict[str, Callable[[], Callable[[], None]]] = {
    "pass-through": pass_through,
    "one client, batches": lambda: scheduled(EVEN, 1, 1, 1),
    "one client, one message at a time": one_at_a_time,
    "10 active of 10 topics, even": lambda: scheduled(EVEN, 10, 10, 10),
    "10 active of 10 topics, paper": lambda: scheduled(PAPER, 10, 10, 10),
    "10 active of 5000 topics x 5000 clients, even": lambda: scheduled(EVEN, 5000, 5000, 10),
    "10 active of 5000 topics x 5000 clients, paper": lambda: scheduled(PAPER, 5000, 5000, 10),
    "4000 active of 5000 topics, even": lambda: scheduled(EVEN, 5000, 5000, 4000),
    "1000 active weights, even": lambda: scheduled(EVEN, 1000, 1000, 1000, weights=1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    costs = {name: best_ns(make()) for name, make in CASES.items()}
    base = costs["pass-through"]
    if as_json:
        print(json.dumps({"ns_per_message": costs}))
        return
    for name, cost in costs.items():
        print(f"{name:48} {cost:7.0f} ns   {cost - base:+7.0f} ns   {(cost - base) / 10:+6.1f} % of 1 µs")


if __name__ == "__main__":
    main()
