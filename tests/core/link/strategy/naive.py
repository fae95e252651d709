"""Oracles: the formulas of docs/model.md written out, and the choice by looking at everything.

Written from the model, in seconds and KB, without a look at how the strategies compute them.
"""

from __future__ import annotations

import math
import random

from timebound.core.link.queue import LinkQueue
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.values.delay import LinkDelay, Path, normal_cdf

MS = 1_000_000
SECOND = 1_000_000_000


def success(
    entry: Entry, term: Term, now_ns: int, link: LinkDelay, processing_ns: int, later_s: float
) -> float:
    limits = [limit for limit in (entry.timeout_ns, term.deadline_ns) if limit]
    if not limits:
        return 1.0
    path = term.path
    slack_s = (min(limits) - (now_ns - entry.published_ns)) / 1e9 - later_s
    slack_s -= (path.brokers * processing_ns + path.last_mile_ns) / 1e9
    size_kb = entry.size_bytes / 1024
    mean = link.mean_s_per_kb + path.mean_s_per_kb
    deviation = math.sqrt(link.variance + path.variance)
    spread = max(size_kb * deviation, 1e-9)
    return normal_cdf((slack_s - size_kb * mean) / spread)


def value(
    name: str,
    entry: Entry,
    terms: list[Term],
    now_ns: int,
    link: LinkDelay,
    *,
    first_s: float,
    epsilon: float,
    processing_ns: int = 0,
    weight: float = 0.5,
) -> float:
    """EB, PC, EBPC and MTEP as the model has them, over the subscriptions as they came."""
    eb = eb_second = ee = ee_second = ep = ep_second = 0.0
    for term in terms:
        first = success(entry, term, now_ns, link, processing_ns, 0.0)
        second = success(entry, term, now_ns, link, processing_ns, first_s)
        eb += term.price * first
        eb_second += term.price * second
        if first >= epsilon:
            ee += term.price * first
            ep += term.penalty * (1 - first)
            if second >= epsilon:
                ee_second += term.price * second
                ep_second += term.penalty * (1 - second)
    if name == "eb":
        return eb
    if name == "pc":
        return eb - eb_second
    if name == "ebpc":
        return weight * eb + (1 - weight) * (eb - eb_second)
    assert name == "mtep"
    postponing = (ee - ep) - (ee_second - ep_second)
    return weight * ee + (1 - weight) * (postponing + ep)


def choice(queue: LinkQueue, now_ns: int) -> Entry | None:
    """The entry that goes next by valuing every waiting one: largest value, then first come."""
    waiting = [entry for entry in queue.entries() if entry.drop_ns > now_ns]
    if not waiting:
        return None
    strategy = queue.strategy
    return min(waiting, key=lambda entry: (-strategy.value(entry, now_ns, queue.link), entry.sequence))


def victim(queue: LinkQueue, newcomer: Entry, now_ns: int) -> Entry:
    """The entry of least worth by looking at every one; of equals the newest."""
    everyone = [*queue.entries(), newcomer]
    strategy = queue.strategy
    return min(everyone, key=lambda entry: (strategy.worth(entry, now_ns, queue.link), -entry.sequence))


def random_audience(source: random.Random) -> Audience:
    """A few terms: near and far deadlines, none at all, short and long paths, with and without penalty."""
    terms = []
    for _ in range(source.randint(1, 6)):
        deadline_ns = source.choice((0, 50 * MS, 200 * MS, source.randint(1, 2_000) * MS))
        path = Path(
            source.choice((0.0, 0.002, 0.010)), source.choice((0.0, 0.001, 0.005)) ** 2, source.randint(0, 3)
        )
        price = source.choice((0.5, 1.0, 3.0))
        terms.append(Term(deadline_ns, price, source.choice((0.0, 0.3, 2.0)), path))
    return Audience(terms)


def random_entry(source: random.Random, audiences: list[Audience], now_ns: int, flows: int = 0) -> Entry:
    return Entry(
        None,
        source.choice((100, 1_024, 4_096, 20_000)),
        now_ns - source.choice((0, source.randint(0, 300) * MS)),
        source.choice(audiences),
        timeout_ns=source.choice((0, 0, source.randint(1, 1_500) * MS)),
        priority=source.randint(0, 9),
        flow=source.randrange(flows) if flows else None,
    )
