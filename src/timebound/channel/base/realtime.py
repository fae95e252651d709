"""Real-time priorities of the operating system, where it grants them.

Python runs one thread at a time, so all real-time threads of a channel share one processor: there a
waiting thread of lower priority cannot interrupt the running one, and the system's priorities
alone decide. Where permission is missing, the functions return what is needed, and callers carry on.
"""

from __future__ import annotations

import os
import sys
from threading import Lock
from typing import Final

# Linux offers 1..99. Lanes count down from here, one step a lane; kernel threads at 50 and above keep
# their place. The timers come before all lanes: they are short, and all lanes need them.
TIMER_PRIORITY: Final = 48
LANE_PRIORITY_MAX: Final = 47
LANE_PRIORITY_MIN: Final = 2
# Consumers that took more than they stated, behind all lanes.
APART_PRIORITY: Final = 1
# A waiting thread can ask for Python's lock only after this time, however urgent it is; 5 ms by default.
SWITCH_INTERVAL_S: Final = 0.0002


def lane_priority(rank: int, highest: int = LANE_PRIORITY_MAX) -> int:
    """Return the system's priority of the `rank`-th lane, 0 being the most urgent; the last share one."""
    return max(highest - rank, LANE_PRIORITY_MIN)


class SwitchInterval:
    """Python's switch interval, one for the whole process: short while at least one user needs it short."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._before_s = 0.0

    def shorten(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._before_s))
            self._users += 1

    def restore(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                sys.setswitchinterval(self._before_s)


switch_interval: Final = SwitchInterval()


def become_real_time(priority: int, cpu: int | None = None) -> str:
    """Set the calling thread to SCHED_FIFO and pin it; return what went wrong, or an empty text."""
    trouble = set_priority(0, priority)
    if not trouble:
        _pin(cpu)
    return trouble


def set_priority(thread_id: int, priority: int, *, takes_turns: bool = False) -> str:
    """Set a thread (by system id, 0 = the calling one) to SCHED_FIFO; return what went wrong, if anything.

    With `takes_turns` it is SCHED_RR, so that another at the same priority cannot starve it.
    """
    if not hasattr(os, "sched_setscheduler"):
        return "this system has no SCHED_FIFO"
    try:
        policy = os.SCHED_RR if takes_turns else os.SCHED_FIFO
        os.sched_setscheduler(thread_id, policy, os.sched_param(priority))
    except PermissionError:
        return "SCHED_FIFO is not permitted; grant CAP_SYS_NICE or raise the rtprio limit (ulimit -r)"
    except ProcessLookupError:
        return ""  # the thread has ended meanwhile
    except OSError as error:
        return f"SCHED_FIFO was refused: {error.strerror}"
    return ""


def _pin(cpu: int | None) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    # The last one: interrupts and other programs tend to favour the first.
    chosen = allowed[-1] if cpu is None else cpu
    if chosen in allowed:
        os.sched_setaffinity(0, {chosen})
