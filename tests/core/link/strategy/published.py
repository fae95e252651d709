"""A link as published, on which success can be read from a table of Φ, and entries on it."""

from __future__ import annotations

from timebound.core.link.strategy.audience import Audience, LinkModel, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.values.delay import LinkDelay

MS = 1_000_000
SECOND = 1_000_000_000


def published_link(epsilon: float = 0.0005) -> LinkModel:
    """60 ms/KB, ±20 ms/KB; messages of 50 KB take 3 s ± 1 s, so FT is 3 s."""
    link = LinkModel(LinkDelay(0.060, 0.020**2), epsilon, 2 * MS, 0)
    link.first_ns = 3.0 * SECOND
    return link


def entry_of(
    link: LinkModel,
    *terms: Term,
    timeout_ns: int = 0,
    priority: int = 0,
    size_kb: int = 50,
    published_ns: int = 0,
) -> Entry:
    entry = Entry(
        None, size_kb * 1024, published_ns, Audience(terms), timeout_ns=timeout_ns, priority=priority
    )
    entry.fit(link)
    return entry
