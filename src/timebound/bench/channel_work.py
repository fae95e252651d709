"""Work that uses the processor, and which missed deadlines a shared machine explains.

A virtual machine loses its processor now and then, and every program inside is late then. Such *stalls* are
detected: intervals in which a worker was busy and no thread of the program had processor time. A missed
deadline is *explained* if the work left at the deadline is no more than the stalls since the processor was
last idle: without them, it would have been done in time.
"""

from __future__ import annotations

import resource
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from timebound.bench.channel_results import Laxity

# Shorter gaps come from the system's accounting: they even out, and explain nothing.
STALL_NS_MIN: Final = 100_000
# Clock readings further apart than this do not belong together; reading both takes 2 µs.
READ_NS_MAX: Final = 50_000


# Time of release, time of completion, work left at the deadline.
Job = tuple[int, int, int]
# Time of its end, and length.
Stall = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Figures:
    """The jobs of one pair, and the processor time they used."""

    period_ns: int
    jobs: list[Job]
    used_ns: int
    unfinished: int = 0  # the last ones of the jobs

    def laxities_ns(self) -> list[int]:
        """Return the time left at each completion; negative if the deadline, the next release, was missed."""
        return [released_ns + self.period_ns - done_ns for released_ns, done_ns, _ in self.jobs]

    def utilisation(self) -> float:
        """Return the share of the processor that the work used."""
        finished = len(self.jobs) - self.unfinished
        return self.used_ns / (finished * self.period_ns) if finished else 0.0


class StallDetector:
    """Detects the stalls of one program; shared by its workers, of which one runs at a time.

    `alone` means that no other program uses the processor at such priorities: time that no thread of this
    program got is then a stall, even if another thread runs after it. If not alone, a stall must lie between
    two readings of one thread without a switch to another; stalls at a switch are not detected.
    """

    def __init__(self, *, alone: bool) -> None:
        self.found: list[Stall] = []
        self._alone = alone
        self._working = 0
        self._last = (0, 0, 0)

    def begin(self) -> None:
        """Note that a worker begins."""
        if self._working and self._alone:
            self.look()
        self._working += 1
        self._last = self._read()

    def end(self) -> None:
        self._working -= 1

    def look(self) -> int:
        """Note a stall since the last look, if there was one; return the time."""
        now = self._read()
        last = self._last
        if last[0] > now[0]:
            return now[0]  # another thread ran in between, and has looked
        self._last = now
        gone_ns = (now[0] - last[0]) - (now[1] - last[1])
        if gone_ns > STALL_NS_MIN and now[2] == last[2]:
            self.found.append((now[0], gone_ns))
        return now[0]

    def _read(self) -> tuple[int, int, int]:
        """Return the time, the processor time used, and the thread switches so far."""
        while True:
            begin_ns = time.monotonic_ns()
            used_ns = time.process_time_ns() if self._alone else time.thread_time_ns()
            switches = 0 if self._alone else _switches()
            clock_ns = time.monotonic_ns()
            # Otherwise a stall, or another thread, came between the two.
            if clock_ns - begin_ns < READ_NS_MAX:
                return (clock_ns, used_ns, switches)


def _switches() -> int:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_nvcsw + usage.ru_nivcsw


class BusyWorker:
    """Uses the processor for a given time; for one thread only."""

    def __init__(self, period_ns: int, cost_ns: int, stalls: StallDetector) -> None:
        self.period_ns = period_ns
        self.cost_ns = cost_ns
        self.jobs: list[Job] = []
        self.used_ns = 0
        self._stalls = stalls
        self._left_ns = cost_ns  # of the current job: now, or at its deadline once that has passed

    def work(self, released_ns: int) -> None:
        """Do one job."""
        deadline_ns = released_ns + self.period_ns
        self._left_ns = self.cost_ns
        begin_ns = cpu_ns = time.thread_time_ns()
        until_ns = begin_ns + self.cost_ns
        self._stalls.begin()
        clock_ns = 0
        while cpu_ns < until_ns:
            clock_ns = self._stalls.look()
            cpu_ns = time.thread_time_ns()
            if clock_ns <= deadline_ns:
                self._left_ns = max(until_ns - cpu_ns, 0)
        self._stalls.end()
        self.used_ns += cpu_ns - begin_ns
        self.jobs.append((released_ns, clock_ns, self._left_ns))

    def figures(self, now_ns: int = 0, released_ns: Sequence[int] = ()) -> Figures:
        """Return the figures; unfinished jobs whose deadline has passed count as done now."""
        jobs = list(self.jobs)
        late = [moment_ns for moment_ns in released_ns[len(jobs) :] if moment_ns + self.period_ns < now_ns]
        for number, moment_ns in enumerate(late):
            jobs.append((moment_ns, now_ns, self.cost_ns if number else self._left_ns))
        return Figures(self.period_ns, jobs, self.used_ns, len(late))


def laxity_of(figures: Figures, more_urgent: Sequence[Figures], stalls: Sequence[Stall]) -> Laxity:
    """Return the laxity of a pair; `more_urgent` are the pairs with higher priority."""
    values = figures.laxities_ns()
    if not values:
        return Laxity(0, 0.0, 0.0, 0.0, 0, 0)
    delays = _Delays([job for pair in (figures, *more_urgent) for job in pair.jobs], stalls)
    late = [job for job, value in zip(figures.jobs, values, strict=True) if value < 0]
    unexplained = sum(
        left_ns > delays.stalled_ns(begin_ns, begin_ns + figures.period_ns) for begin_ns, _, left_ns in late
    )
    mean = sum(values) / len(values)
    return Laxity(len(values), min(values) / 1e6, mean / 1e6, max(values) / 1e6, len(late), unexplained)


def join_laxities(parts: Sequence[Laxity]) -> Laxity:
    """Combine several bursts into one."""
    runs = sum(part.runs for part in parts)
    if not runs:
        return parts[0]
    return Laxity(
        runs,
        min(part.min_ms for part in parts if part.runs),
        sum(part.mean_ms * part.runs for part in parts) / runs,
        max(part.max_ms for part in parts if part.runs),
        sum(part.misses for part in parts),
        sum(part.unexplained for part in parts),
    )


class _Delays:
    """Stalls while there was work to do."""

    def __init__(self, jobs: Sequence[Job], stalls: Sequence[Stall]) -> None:
        self._jobs = jobs
        self._stalls = sorted(stalls)
        self._ends = [end_ns for end_ns, _ in self._stalls]

    def stalled_ns(self, released_ns: int, deadline_ns: int) -> int:
        """Return the stalls that delayed a job: those since the processor was last free for it."""
        begin_ns = self._busy_since(released_ns)
        # Of a stall that began earlier, or went on after the deadline, only the part between counts.
        return sum(
            max(min(end_ns, deadline_ns) - max(end_ns - length_ns, begin_ns), 0)
            for end_ns, length_ns in self._stalls[bisect_right(self._ends, begin_ns) :]
        )

    def _busy_since(self, moment_ns: int) -> int:
        """Return the latest release, up to a moment, at which all older jobs were done."""
        while True:
            open_ns = [job[0] for job in self._jobs if job[0] < moment_ns < job[1]]
            if not open_ns:
                return moment_ns
            moment_ns = min(open_ns)
