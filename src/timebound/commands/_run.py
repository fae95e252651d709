"""Run a coroutine of a command: its errors become one line and an exit code.

Messages go to standard output, everything else to standard error. A closed pipe is the reader's way of
saying that it has enough, and no error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from timebound.errors import ClientError, TimeboundError
from timebound.terminal import safe

OK: Final = 0
FAILED: Final = 1
WRONG: Final = 2
INTERRUPTED: Final = 130  # as shells say it: 128 and the number of SIGINT


def run(command: Coroutine[Any, Any, int], *, as_json: bool) -> int:
    try:
        with _warnings_shown():
            return asyncio.run(command)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at its end, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except ClientError as error:
        return fail(str(error), FAILED, error.reason_code, as_json)
    except ValueError as error:
        return fail(str(error), WRONG, 0, as_json)
    except (TimeboundError, OSError) as error:
        return fail(str(error), FAILED, 0, as_json)


class _Warnings(logging.Handler):
    """Writes what the client warns of, the server's own words among it, to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"warning: {safe(record.getMessage())}", file=sys.stderr)


@contextmanager
def _warnings_shown() -> Iterator[None]:
    logger = logging.getLogger("timebound.client")
    handler = _Warnings(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def fail(message: str, code: int, reason_code: int, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"ok": False, "error": message, "reason_code": reason_code}), flush=True)
    print(f"error: {safe(message)}", file=sys.stderr)
    return code
