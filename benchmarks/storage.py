"""How fast storage takes batches of deliveries, with and without syncing every commit.

Each batch puts N messages of 64 bytes with one delivery each, and drops those of the batch
before, as a subscriber that keeps up makes it. `alone` waits for each batch before the next, which shows
the cost of one commit; `piled up` keeps 64 batches waiting, which shows what grouping gains.

    python benchmarks/storage.py [--seconds 1.0] [--data DIR] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

from timebound.core.values.message import Delivery, Message
from timebound.core.values.store_orders import (
    DropDelivery,
    DropMessage,
    PutDelivery,
    PutMessage,
    PutSession,
    StoreOrder,
)
from timebound.core.values.subscription import Subscription
from timebound.node.storage.storage import Storage

WAIT_S = 60.0


def plain_subscription(client_id: str, topic_filter: str, *terms: object) -> Subscription:
    return Subscription(client_id=client_id, topic_filter=topic_filter)


def make_batch(first: int, size: int) -> list[StoreOrder]:
    """Put deliveries first .. first + size - 1, and drop as many before them."""
    orders: list[StoreOrder] = []
    for sequence in range(first, first + size):
        message = Message("plant/7/temp", bytes(64), 1, False, 1, sequence=sequence)
        orders += [PutMessage(message), PutDelivery("c", Delivery(message, 1, False, sequence=sequence))]
        orders += [DropDelivery("c", sequence - size), DropMessage(sequence - size)]
    return orders


def measure(path: Path, *, size: int, waiting: int, fsync: bool, seconds: float) -> tuple[float, float]:
    """Batches per second with at most `waiting` unacknowledged, and microseconds of processor time each."""
    with Storage.open(path, plain_subscription, fsync=fsync) as storage:
        storage.submit([PutSession("c", 60, 0, "")], lambda: None)
        room = threading.Semaphore(waiting)
        start_s = time.perf_counter()
        start_cpu_s = time.process_time()
        count = 0
        while time.perf_counter() - start_s < seconds:
            room.acquire(timeout=WAIT_S)
            storage.submit(make_batch(1 + count * size, size), room.release)
            count += 1
        for _ in range(waiting):
            room.acquire(timeout=WAIT_S)
        cpu_us = (time.process_time() - start_cpu_s) * 1e6
        return count / (time.perf_counter() - start_s), cpu_us / count


def main() -> None:
    parser = argparse.ArgumentParser(description="measure storage")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line")
    parser.add_argument("--data", type=Path, help="directory on the device to measure")
    parser.add_argument("--json", action="store_true", help="print one JSON object: line -> CPU µs per order")
    options = parser.parse_args()
    costs = {}
    if not options.json:
        print(
            f"{'fsync':>5} {'deliveries':>10} {'batches':>9} {'batches/s':>10} {'orders/s':>10} {'CPU µs':>7}"
        )
    for fsync in (True, False):
        for size in (1, 100, 1000):
            for name, waiting in (("alone", 1), ("piled up", 64)):
                with tempfile.TemporaryDirectory(dir=options.data) as directory:
                    rate, cpu_us = measure(
                        Path(directory), size=size, waiting=waiting, fsync=fsync, seconds=options.seconds
                    )
                orders = size * 4
                costs[f"storage {'fsync' if fsync else 'no fsync'}, {size} {name}"] = cpu_us / orders
                if not options.json:
                    print(
                        f"{fsync!s:>5} {size:>10} {name:>9} {rate:>10.0f} {rate * orders:>10.0f}"
                        f" {cpu_us / orders:>7.2f}"
                    )
    if options.json:
        print(json.dumps(costs))


if __name__ == "__main__":
    main()
