"""Progress of Spark jobs: the share of finished tasks in the current step.

A thread polls Spark several times per second about the jobs of the step's job group. With Spark
Connect, which cannot be polled, the server reports progress.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from timebound.pipeline.spark.session import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.2

# Called with the share of the current step that is done, 0 to 1, from a thread.
OnShare = Callable[[float], None]


@contextlib.contextmanager
def watched(spark: SparkSession, title: str, on_share: OnShare) -> Iterator[None]:
    """Report the progress of Spark jobs that run inside."""
    if is_remote(spark):
        with _told_by_server(spark, on_share):
            yield
        return
    context = spark.sparkContext
    group = f"timebound-{uuid.uuid4()}"
    context.setJobGroup(group, title)
    ended = threading.Event()
    thread = threading.Thread(
        target=_ask, args=(context.statusTracker(), group, ended, on_share), name="timebound-progress"
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        context.setLocalProperty("spark.jobGroup.id", "")
        on_share(1.0)


def _ask(tracker: Any, group: str, ended: threading.Event, on_share: OnShare) -> None:
    while not ended.wait(POLL_S):
        tasks = done = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                counted = tracker.getStageInfo(stage)
                if counted is not None:
                    tasks += counted.numTasks
                    done += counted.numCompletedTasks
        if tasks:
            on_share(done / tasks)


@contextlib.contextmanager
def _told_by_server(spark: SparkSession, on_share: OnShare) -> Iterator[None]:
    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        stages = list(stages or ())
        tasks = sum(stage.num_tasks for stage in stages)
        if tasks:
            on_share(sum(stage.num_completed_tasks for stage in stages) / tasks)

    handler: Any = handle
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
        on_share(1.0)
