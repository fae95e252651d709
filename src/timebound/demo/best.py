"""The most that a link can earn from given traffic, with everything known in advance.

Let f(S) be the most bytes of the messages S that the link can send between their publication
and their deadlines, if it may interrupt a message and continue it later; earliest deadline first
reaches it. f is the rank function of a polymatroid (sending is a flow from messages to moments),
so the most value is found greedily: with classes of falling value per byte v1 >= v2 >= ..., it is
the sum of v_k · (f(S_k) - f(S_k-1)), where S_k holds the first k classes.
Parts of messages count here, which no broker can send; so no broker can earn more.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from timebound.demo.traffic import Traffic
from timebound.units import SECOND


@dataclass(frozen=True, slots=True)
class SendJob:
    """Bytes that can be sent from `release_ns` until `due_ns`."""

    release_ns: int
    due_ns: int
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Best:
    """The share of one class in a schedule that earns most."""

    name: str
    messages: float  # parts count
    value: float


def best_possible(
    traffics: Sequence[Traffic], rate_bytes_per_s: float, until_ns: int, added_bytes: int = 0
) -> list[Best]:
    """Return the most value by class, in the given order; `until_ns` is the end of the observation.

    A message has `added_bytes` more on the link than its frame.
    """
    by_value = sorted(traffics, key=lambda traffic: -traffic.kind.value_per_byte)
    found: dict[str, Best] = {}
    jobs: list[SendJob] = []
    before = 0.0
    for traffic in by_value:
        kind = traffic.kind
        size = kind.frame_bytes + added_bytes
        for fate in traffic.fates:
            due_ns = fate.published_ns + kind.deadline_ns if kind.deadline_ns else until_ns
            jobs.append(SendJob(fate.published_ns, min(due_ns, until_ns), size))
        most = most_bytes(jobs, rate_bytes_per_s)
        messages = max(most - before, 0.0) / size  # below zero by rounding only
        found[kind.name] = Best(kind.name, messages, messages * kind.price)
        before = most
    return [found[traffic.kind.name] for traffic in traffics]


def most_bytes(jobs: Sequence[SendJob], rate_bytes_per_s: float) -> float:
    """Return f: the most bytes of these jobs that can be sent in time, earliest deadline first."""
    coming = sorted(jobs, key=lambda job: job.release_ns)
    ready: list[tuple[int, float]] = []  # deadline, bytes left
    sent = 0.0
    now_ns = 0.0
    index = 0
    while index < len(coming) or ready:
        if not ready:
            now_ns = max(now_ns, coming[index].release_ns)
        while index < len(coming) and coming[index].release_ns <= now_ns:
            heapq.heappush(ready, (coming[index].due_ns, coming[index].size_bytes))
            index += 1
        due_ns, left = heapq.heappop(ready)
        if due_ns <= now_ns:
            continue
        end_ns = min(now_ns + left * SECOND / rate_bytes_per_s, float(due_ns))
        if index < len(coming):
            end_ns = min(end_ns, float(coming[index].release_ns))  # it may be more urgent
        carried = (end_ns - now_ns) * rate_bytes_per_s / SECOND
        sent += carried
        # A rest below a thousandth of a byte is rounding.
        if left - carried > 0.001:
            heapq.heappush(ready, (due_ns, left - carried))
        now_ns = end_ns
    return sent
