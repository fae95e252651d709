"""Reports of a channel about its consumers: failures, overruns, evictions, notices.

None of these is raised: a failing consumer must not affect the supplier that happened to push. A channel
passes each report to one function, which by default writes it to the log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum

_log = logging.getLogger("timebound.channel")


class Kind(Enum):
    FAILED = "failed"  # a consumer or its filter raised
    EVICTED = "evicted"  # a consumer was disconnected because it failed or was too slow
    OVERRUN = "overrun"  # an operation cost more than it stated
    STALLED = "stalled"  # a consumer has taken too long for one event
    QUEUE_FULL = "queue_full"  # a consumer's queue had no room; the event was dropped for it
    NOTICE = "notice"  # something the operator should know, such as missing permissions


@dataclass(frozen=True, slots=True)
class Report:
    """One report; `consumer` is empty when it concerns the channel itself."""

    kind: Kind
    consumer: str
    message: str
    error: BaseException | None = None


def write_to_log(report: Report) -> None:
    level = logging.INFO if report.kind is Kind.NOTICE else logging.WARNING
    who = f"consumer {report.consumer!r}: " if report.consumer else ""
    _log.log(level, "%s%s", who, report.message, exc_info=report.error)
