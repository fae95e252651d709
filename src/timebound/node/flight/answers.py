"""Answers to mistakes and bugs in Flight calls: a message, never a traceback or a path.

Flight passes on its own errors unchanged, and of any other exception the whole traceback. So every call
runs inside `Answers.to`: a mistake of the caller becomes an error with its message alone, and an
unexpected error becomes a reference to the broker's log.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import pyarrow.flight as fl

from timebound.errors import FilterError

logger = logging.getLogger("timebound.flight")

# Subject, start of the log line, and reason; called from any thread.
Note = Callable[[str, str, str], None]

# Offsets and batches are stored as signed 64-bit numbers.
NUMBER_MAX: Final = (1 << 63) - 1

T = TypeVar("T")


class Answers:
    """Answers of one service; `note` logs who was refused."""

    def __init__(self, note: Note) -> None:
        self._note = note

    @contextlib.contextmanager
    def to(self, call: str, caller: str = "an unknown caller") -> Iterator[None]:
        """Turn exceptions of a call into errors of Flight."""
        try:
            yield
        except (fl.FlightUnauthorizedError, fl.FlightUnauthenticatedError) as error:
            self._note(caller, f"refused {call} over Flight to {caller}", str(error))
            raise
        except fl.FlightError:
            raise
        except (ValueError, FilterError) as error:
            raise fl.FlightServerError(str(error)) from None
        except Exception:
            # The outermost frame of a call, which Flight runs in its own thread.
            reference = secrets.token_hex(4)
            logger.exception("internal error %s in %s over Flight", reference, call)
            raise fl.FlightInternalError(
                f"internal error, reference {reference}; see the log of the broker"
            ) from None

    def rows(self, call: str, rows: Iterable[T]) -> Iterator[T]:
        """Yield rows that are made while they are sent."""
        with self.to(call):
            yield from rows


def text(request: dict[str, Any], key: str) -> str:
    """Return a text of a request. Raises: ValueError."""
    value = request.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key!r} must be a text, not {value!r}")
    return value


def number(request: dict[str, Any], key: str) -> int:
    """Return a whole number of a request. Raises: ValueError."""
    value = request.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key!r} must be a whole number, not {value!r}")
    if not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{key!r} must be between 0 and {NUMBER_MAX}")
    return value


def entries(request: dict[str, Any], key: str) -> list[Any]:
    """Return a list of a request; empty if it is omitted. Raises: ValueError."""
    value = request.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"{key!r} must be a list, not {value!r}")
    return value
