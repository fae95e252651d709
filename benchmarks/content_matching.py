"""How much faster the content index matches than asking every filter, and what it weighs.

    python benchmarks/content_matching.py --subscriptions 100000
    python benchmarks/content_matching.py --json

One run measures both on the same messages and checks that they find the same subscriptions.
It uses whichever package is imported, compiled or plain, and says which.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
import tracemalloc
from collections.abc import Callable

from timebound.core.predicate.index import index as content_index
from timebound.core.predicate.index.index import ContentIndex
from timebound.core.predicate.predicate import Attributes, Predicate, parse

SITES = 500
SCANNED_MESSAGES = 4  # a scan is slow: few of them are enough to time it
INDEXED_MESSAGES = 200
MEASURED_SUBSCRIPTIONS_MAX = 10_000  # tracing memory slows everything down

Message = tuple[tuple[tuple[str, str], ...], bytes]


def mixed_filter(random_: random.Random) -> str:
    """One of the forms that subscriptions take, with its own constants."""
    site = f"site-{random_.randrange(SITES)}"
    low = random_.uniform(-50, 150)
    form = random_.randrange(6)
    if form == 0:
        return f"site = '{site}' AND value > {low:.3f}"
    if form == 1:
        return f"value > {low:.3f} AND value < {low + 0.5:.3f}"
    if form == 2:
        return f"device STARTS WITH 'dev-{random_.randrange(100_000):05}'"
    if form == 3:
        return f"kind = 'temp' AND payload.engine.rpm BETWEEN {low * 40:.0f} AND {low * 40 + 20:.0f}"
    if form == 4:
        return f"site = '{site}' AND kind = 'rpm' OR device = 'dev-{random_.randrange(100_000):05}'"
    return f"site IN ('{site}', 'site-{random_.randrange(SITES)}') AND NOT value <= {low:.3f}"


def narrow_range(random_: random.Random) -> str:
    low = random_.uniform(-50, 150)
    return f"value > {low:.4f} AND value < {low + 0.1:.4f}"


def one_threshold(random_: random.Random) -> str:
    return f"value > {random_.uniform(-50, 150):.4f}"


def message(random_: random.Random) -> Message:
    device = f"dev-{random_.randrange(100_000):05}-{random_.randrange(10)}"
    properties = (("site", f"site-{random_.randrange(SITES)}"), ("device", device), ("kind", "temp"))
    payload = {"value": random_.uniform(0, 100), "engine": {"rpm": random_.randrange(4000)}}
    return properties, json.dumps(payload).encode()


WORKLOADS: dict[str, Callable[[random.Random], str]] = {
    "mixed": mixed_filter,
    "narrow ranges": narrow_range,
    "one threshold": one_threshold,
}


def bytes_per_subscription(texts: list[str]) -> tuple[float, float]:
    """Bytes of one parsed filter, and of its place in the index."""
    texts = texts[:MEASURED_SUBSCRIPTIONS_MAX]
    gc.collect()
    tracemalloc.start()
    predicates = [parse(text) for text in texts]
    gc.collect()
    parsed = tracemalloc.get_traced_memory()[0]
    index = ContentIndex()
    for key, predicate in enumerate(predicates):
        index.insert(key, predicate)
    gc.collect()
    indexed = tracemalloc.get_traced_memory()[0] - parsed
    tracemalloc.stop()
    return parsed / len(texts), indexed / len(texts)


def measure(form: Callable[[random.Random], str], subscriptions: int, seed: int) -> dict[str, float]:
    random_ = random.Random(seed)
    texts = [form(random_) for _ in range(subscriptions)]
    messages = [message(random_) for _ in range(INDEXED_MESSAGES)]

    started = time.process_time()
    predicates: list[Predicate] = [parse(text) for text in texts]
    parse_s = time.process_time() - started

    index = ContentIndex()
    started = time.process_time()
    for key, predicate in enumerate(predicates):
        index.insert(key, predicate)
    insert_s = time.process_time() - started

    scanned: list[list[object]] = []
    started = time.process_time()
    for sent in messages[:SCANNED_MESSAGES]:
        attributes = Attributes(*sent)
        scanned.append([key for key, predicate in enumerate(predicates) if predicate.matches(attributes)])
    scan_s = (time.process_time() - started) / SCANNED_MESSAGES

    found: list[list[object]] = []
    started = time.process_time()
    for sent in messages:
        found.append(index.match(Attributes(*sent)))
    match_s = (time.process_time() - started) / len(messages)
    if found[:SCANNED_MESSAGES] != scanned:
        raise SystemExit("the index and the scan found different subscriptions")

    started = time.process_time()
    for key in range(0, subscriptions, 2):
        index.remove(key)
    remove_s = time.process_time() - started
    parsed_bytes, indexed_bytes = bytes_per_subscription(texts)
    return {
        "scan_us": scan_s * 1e6,
        "match_us": match_s * 1e6,
        "ratio": scan_s / match_s,
        "matches_mean": sum(map(len, found)) / len(found),
        "parse_us": parse_s / subscriptions * 1e6,
        "insert_us": insert_s / subscriptions * 1e6,
        "remove_us": remove_s / (subscriptions / 2) * 1e6,
        "filter_bytes": parsed_bytes,
        "index_bytes": indexed_bytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    compiled = not str(content_index.__file__).endswith(".py")
    results = {
        name: measure(form, arguments.subscriptions, arguments.seed) for name, form in WORKLOADS.items()
    }
    if arguments.json:
        report = {"subscriptions": arguments.subscriptions, "seed": arguments.seed, "compiled": compiled}
        print(json.dumps({**report, "workloads": results}))
        return
    kind = "compiled" if compiled else "plain"
    print(f"{arguments.subscriptions} subscriptions, {kind}, seed {arguments.seed}")
    for name, result in results.items():
        print(f"\n{name}: {result['ratio']:.0f} times faster than a scan")
        for key, value in result.items():
            print(f"  {key:<14}{value:>12.1f}")


if __name__ == "__main__":
    main()
