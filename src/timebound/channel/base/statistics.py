"""Frozen snapshots of a channel's counters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """One consumer: calls that returned, calls that raised, events dropped from a full queue, and waiting.

    `is_set_apart`: it kept others of its lane waiting, and now has a thread of its own.
    """

    name: str
    delivered: int
    failures: int
    dropped: int
    queued: int
    is_set_apart: bool


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    name: str
    suppliers: int
    timers_set: int
    consumers: tuple[ConsumerStatistics, ...]
