"""Log lines about refusals, limited so that a flood of refusals does not flood the log.

The first line about a client and a reason is written at once. Further ones are counted, and the last of
them is written with the count some seconds later. Clients and reasons are distinguished up to a limit;
beyond it they share one line.
"""

from __future__ import annotations

import logging
from typing import Final

from timebound.units import SECOND

logger = logging.getLogger("timebound.node")

INTERVAL_NS: Final = 10 * SECOND
# Together at most 200 lines per second: from 100 clients with 20 reasons each.
SUBJECTS_MAX: Final = 100
REASONS_MAX: Final = 20
_OTHERS: Final = ""


class _Counted:
    __slots__ = ("count", "level", "line", "until_ns")

    def __init__(self, until_ns: int, level: int) -> None:
        self.until_ns = until_ns
        self.level = level
        self.count = 0  # since the last line
        self.line = ""  # the last of them


class Notices:
    """Counts refusals by client and reason, and logs them."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[str, _Counted]] = {}

    def note(self, subject: str, start: str, reason: str, now_ns: int, level: int = logging.WARNING) -> None:
        """Log `start: reason` about a subject, at once or as one of many."""
        line = f"{start}: {reason}"
        if subject not in self._subjects and len(self._subjects) >= SUBJECTS_MAX:
            subject = _OTHERS
        reasons = self._subjects.setdefault(subject, {})
        if reason not in reasons and len(reasons) >= REASONS_MAX:
            reason = _OTHERS
        found = reasons.get(reason)
        if found is None:
            reasons[reason] = _Counted(now_ns + INTERVAL_NS, level)
            logger.log(level, "%s", line)
        else:
            found.count += 1
            found.line = line

    def patrol(self, now_ns: int) -> None:
        """Log what was counted; called about once a second."""
        for subject, reasons in list(self._subjects.items()):
            for reason, found in list(reasons.items()):
                if found.until_ns > now_ns:
                    continue
                if found.count == 0:
                    del reasons[reason]
                    continue
                text = f"{found.line} ({found.count} times in {INTERVAL_NS // SECOND} s)"
                logger.log(found.level, "%s", text)
                found.count = 0
                found.until_ns = now_ns + INTERVAL_NS
            if not reasons:
                del self._subjects[subject]
