"""Burstiness of arrivals: the smallest burst σ with which a flow fits a rate ρ, for many rates at once.

A flow fits (σ, ρ) if no interval of length t has more than σ + ρ·t messages (docs/bounds.md). So
σ(ρ) is the largest of arrivals(s, t) − ρ·(t − s) over all s <= t: a maximum-subarray problem. A sequence of
arrivals is summarised as a segment, and consecutive segments merge into one, so a flow of any
length needs no more memory than one batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

# Messages per second: 8 values per decade, from one in 100 s to 100,000.
RATES_PER_DECADE: Final = 8
RATES: Final = np.power(10.0, np.arange(-2 * RATES_PER_DECADE, 5 * RATES_PER_DECADE + 1) / RATES_PER_DECADE)
NS_PER_S: Final = 1e9
# Columns of segments, one row per flow, as returned by `segments`.
SEGMENT_FIELDS: Final = (
    "flow long, first_ns long, last_ns long, messages long, receipts long, "
    "prefix array<double>, suffix array<double>, best array<double>"
)


class Segment:
    """A summary of arrivals from `first_ns` to `last_ns`.

    For each rate, `best` is the largest excess arrivals(s, t) − ρ·(t − s) inside, `prefix` the largest that
    begins with the first arrival, and `suffix` the largest that ends with the last.
    """

    __slots__ = ("best", "first_ns", "last_ns", "messages", "prefix", "receipts", "suffix")

    def __init__(
        self, first_ns: int, last_ns: int, messages: int, receipts: int, prefix: Any, suffix: Any, best: Any
    ) -> None:
        self.first_ns = first_ns
        self.last_ns = last_ns
        self.messages = messages
        self.receipts = receipts  # by brokers, of all messages
        self.prefix = prefix
        self.suffix = suffix
        self.best = best

    def followed_by(self, later: Segment) -> Segment:
        """Return this and a later segment merged.

        Segments that overlap, as at midnight, count as adjacent: σ is then too large, never too small.
        """
        lost = RATES * (max(later.first_ns - self.last_ns, 0) / NS_PER_S)
        last_ns = max(self.last_ns, later.last_ns)
        return Segment(
            min(self.first_ns, later.first_ns),
            last_ns,
            self.messages + later.messages,
            self.receipts + later.receipts,
            np.maximum(self.prefix, self._whole() - lost + later.prefix),
            np.maximum(later.suffix, later._whole() - lost + self.suffix),
            np.maximum(np.maximum(self.best, later.best), self.suffix - lost + later.prefix),
        )

    def _whole(self) -> Any:
        return self.messages - RATES * ((self.last_ns - self.first_ns) / NS_PER_S)


def segment_of(times_ns: Any, receipts: int) -> Segment:
    """Summarise arrivals at these times, which are in ascending order."""
    first_ns = int(times_ns[0])
    # Relative to the first: a double cannot tell nanoseconds since the epoch apart.
    passed_s = (times_ns - first_ns) / NS_PER_S
    count = len(times_ns)
    before = np.arange(count) - RATES[:, None] * passed_s
    lowest = np.minimum.accumulate(before, axis=1)
    return Segment(
        first_ns,
        int(times_ns[-1]),
        count,
        receipts,
        before.max(axis=1) + 1.0,
        before[:, -1] + 1.0 - lowest[:, -1],
        (before - lowest).max(axis=1) + 1.0,
    )


def segments(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn rows (flow, published_ns, message_id, hop) into one segment per flow.

    Rows are sorted by flow, time, message and descending hop. A message that several subscriptions matched
    has several rows, of which the first counts.
    """
    last_row: tuple[int, int, int] | None = None
    flow, segment = 0, None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        flows, times, ids, hops = [
            batch.column(name).to_numpy(zero_copy_only=False)
            for name in ("flow", "published_ns", "message_id", "hop")
        ]
        is_new = np.ones(len(flows), dtype=bool)
        is_new[1:] = (flows[1:] != flows[:-1]) | (times[1:] != times[:-1]) | (ids[1:] != ids[:-1])
        is_new[0] = last_row != (flows[0], times[0], ids[0])
        last_row = (int(flows[-1]), int(times[-1]), int(ids[-1]))
        flows, times, hops = flows[is_new], times[is_new], hops[is_new]
        starts = [0, *np.flatnonzero(flows[1:] != flows[:-1]) + 1, len(flows)] if len(flows) else []
        finished: list[tuple[int, Segment]] = []
        for start, end in itertools.pairwise(starts):
            receipts = int(hops[start:end].sum()) + int(end - start)
            found = segment_of(times[start:end], receipts)
            if segment is not None and flow == flows[start]:
                segment = segment.followed_by(found)
                continue
            if segment is not None:
                finished.append((flow, segment))
            flow, segment = int(flows[start]), found
        if finished:
            yield _to_batch(finished)
    if segment is not None:
        yield _to_batch([(flow, segment)])


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge segments, sorted by flow and first_ns, into one per flow."""
    flow, segment = 0, None
    finished: list[tuple[int, Segment]] = []
    for batch in batches:
        for row in batch.to_pylist():
            found = Segment(
                row["first_ns"],
                row["last_ns"],
                row["messages"],
                row["receipts"],
                *[np.array(row[name]) for name in ("prefix", "suffix", "best")],
            )
            if segment is not None and row["flow"] == flow:
                segment = segment.followed_by(found)
                continue
            if segment is not None:
                finished.append((flow, segment))
            flow, segment = row["flow"], found
        if finished:
            yield _to_batch(finished)
            finished = []
    if segment is not None:
        yield _to_batch([(flow, segment)])


def _to_batch(found: list[tuple[int, Segment]]) -> pa.RecordBatch:
    import pyarrow as pa

    whole = {
        "flow": [flow for flow, _ in found],
        "first_ns": [segment.first_ns for _, segment in found],
        "last_ns": [segment.last_ns for _, segment in found],
        "messages": [segment.messages for _, segment in found],
        "receipts": [segment.receipts for _, segment in found],
    }
    curves = {name: [getattr(segment, name) for _, segment in found] for name in ("prefix", "suffix", "best")}
    columns = [pa.array(values, pa.int64()) for values in whole.values()]
    columns += [pa.array(values, pa.list_(pa.float64())) for values in curves.values()]
    return pa.RecordBatch.from_arrays(columns, names=[*whole, *curves])
