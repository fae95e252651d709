"""Jobs about flows and weights, one after the other: each takes many steps, and begins where the last ended.

A request of a client, the release of a lost client's flows, measured times, a report: whatever looks at all
flows. The driver takes steps when it has time for them. An error, or a client that leaves, ends only its own
job, and what that had tried is taken back.
"""

from __future__ import annotations

from collections import deque

from timebound.core.input.flows import Flows
from timebound.core.input.steps import Steps
from timebound.errors import ProtocolError


class EntranceJob:
    """Something to do in steps, the first of which is taken when its turn comes."""

    __slots__ = ("error", "is_done", "name", "steps")

    def __init__(self, name: str) -> None:
        self.name = name  # whom it is for: a client, or the broker itself
        self.steps: Steps[None] | None = None  # until it is done
        self.is_done = False
        self.error: Exception | None = None  # what ended it, if anything did


class EntranceJobs:
    """The jobs that wait, first come first served.

    A client has one request at most, and a release is of at least one flow: so they are no more than the
    connections and `flows_max` together, and one each for measured times and a report.
    """

    __slots__ = ("_flows", "_is_begun", "_waiting")

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._waiting: deque[EntranceJob] = deque()
        self._is_begun = False  # the first of them

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: EntranceJob) -> None:
        self._waiting.append(job)

    def cancel(self, job: EntranceJob) -> None:
        """Remove a job that nobody waits for any more.

        What it is trying is taken back. What it is changing, such as queues that move, is completed.
        """
        if job.is_done:
            return
        if self._is_begun and self._waiting[0] is job:
            if not self._flows.admission.is_trying():
                return
            self._flows.admission.roll_back()
            self._is_begun = False
        job.is_done = True
        job.steps = None
        self._waiting.remove(job)

    def step(self, now_ns: int) -> EntranceJob | None:
        """Take a step of the first job; return it if that was its last."""
        job = self._waiting[0]
        assert job.steps is not None, "a job that waits has steps"
        self._is_begun = True
        self._flows.now_ns = now_ns
        try:
            next(job.steps)
            return None
        except StopIteration:
            pass
        except ProtocolError as refusal:
            # Without its traceback, which would refer to the job and make a cycle of garbage.
            job.error = refusal.with_traceback(None)
        except Exception as error:
            job.error = error
            self._flows.admission.roll_back()
        self._is_begun = False
        self._waiting.popleft()
        job.is_done = True
        job.steps = None
        return job
