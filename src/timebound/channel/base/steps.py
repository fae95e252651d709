"""Timing a coroutine step by step: what it costs, and how long it blocks its event loop.

Between two steps it waits and other tasks run, so only the steps count. Not compiled: it is a generator
that stands between the loop and the coroutine, and passes on whatever goes either way.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Generator


class Steps:
    """Await it in place of the awaitable; the figures are complete afterwards, also after an exception."""

    def __init__(self, awaitable: Awaitable[object]) -> None:
        self._awaitable = awaitable
        self.cost_ns = 0  # processor time of the loop's thread
        self.longest_ns = 0  # the longest step, during which no other task ran

    def __await__(self) -> Generator[object, object, object]:
        inner = self._awaitable.__await__()
        value: object = None
        error: BaseException | None = None
        while True:
            begin_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
            try:
                if error is not None:
                    waits_for = inner.throw(error)
                else:
                    waits_for = inner.send(value)
            except StopIteration as end:
                return end.value
            finally:
                self.cost_ns += time.thread_time_ns() - cpu_ns
                self.longest_ns = max(self.longest_ns, time.monotonic_ns() - begin_ns)
            error = None
            try:
                value = yield waits_for
            except BaseException as thrown:  # cancellation among others: it is the coroutine's to handle
                error = thrown
