"""Live queries: started again where only a worker was late, and given up for any other reason."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

from timebound.errors import TimeboundError
from timebound.pipeline.stream import STARTS_MAX, WORKER_IS_LATE, Restarted

LATE = PySparkException(f"Python worker {WORKER_IS_LATE}.")


class PlannedQuery:
    """A query that ends as the test says."""

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure

    def exception(self) -> Exception | None:
        return self._failure


def starting(*plan: Exception | PlannedQuery) -> tuple[Any, list[object]]:
    """Something that starts as planned, and what is left of the plan."""
    left: list[object] = list(plan)

    def start() -> Any:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return start, left


def test_a_query_is_started_until_its_worker_calls_back() -> None:
    good = PlannedQuery(None)
    start, left = starting(LATE, PlannedQuery(LATE), good)

    restarted = Restarted(start)
    restarted.check()
    restarted.check()

    last: object = restarted.query
    assert last is good
    assert left == []


def test_a_worker_that_never_calls_back_ends_it() -> None:
    start, _ = starting(*[LATE] * STARTS_MAX)

    with pytest.raises(TimeboundError, match=r"a live query failed: .*failed to connect back"):
        Restarted(start)


def test_any_other_failure_ends_it_at_once() -> None:
    start, left = starting(PlannedQuery(PySparkException("no journal\nat Spark")), PlannedQuery(None))

    with pytest.raises(TimeboundError, match=r"a live query failed: '?no journal'?$"):
        Restarted(start).check()

    assert len(left) == 1
