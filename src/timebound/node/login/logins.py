"""Password checks in threads, fair between addresses; answers are delivered on the event loop.

`queue.py` decides who is next, who waits and who is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from timebound.errors import ConfigError
from timebound.node.login.passwords import PasswordFile
from timebound.node.login.queue import WAIT_NS_MAX, WAITING_PER_ADDRESS_MAX, Login, LoginQueue
from timebound.units import SECOND
from timebound.wire.reasons import ReasonCode

logger = logging.getLogger("timebound.node")

# Parallel checks; each takes tens of milliseconds of processor time and 32 MB.
THREADS: Final = 2

# A reason code and its text; SUCCESS = the password is correct.
Answer = Callable[[int, str], None]

_NEVER_NS: Final = 1 << 62
_RIGHT: Final = (ReasonCode.SUCCESS, "")
_WRONG: Final = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, "bad user name or password")
_CROWDED: Final = (
    ReasonCode.QUOTA_EXCEEDED,
    f"{WAITING_PER_ADDRESS_MAX} logins of this address already wait; try again later",
)
_OVERDUE: Final = (ReasonCode.SERVER_BUSY, "the password could not be checked in time; try again later")
_FAILED: Final = (ReasonCode.SERVER_UNAVAILABLE, "the password could not be checked")
_STOPPING: Final = (ReasonCode.SERVER_UNAVAILABLE, "the broker is stopping")


class Question:
    """A user name and a password, the file to check them against, and the callback."""

    def __init__(self, passwords: PasswordFile, name: str, password: bytes, answer: Answer) -> None:
        self.passwords = passwords
        self.name = name
        self.password = password
        self.answer = answer

    def check(self) -> bool:
        # A file that has become unreadable is reported by the patrol; the previous users stay.
        with contextlib.suppress(ConfigError):
            self.passwords.reload_if_changed()
        return self.passwords.check(self.name, self.password)


class Logins:
    """All password checks of a broker; belongs to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = THREADS) -> None:
        self._loop = loop
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="timebound-password")
        self._queue: LoginQueue[Question] = LoginQueue()
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def ask(self, address: str, question: Question) -> None:
        """Check a password, and deliver the answer on the loop."""
        if self._is_stopped:
            question.answer(*_STOPPING)
            return
        now_ns = self._now_ns()
        crowded = self._queue.push(Login(address, question.name, question, now_ns), now_ns)
        if crowded is not None:
            crowded.item.answer(*_CROWDED)
        self._serve()

    def ask_from_thread(
        self, address: str, passwords: PasswordFile, name: str, password: bytes
    ) -> tuple[int, str]:
        """Check a password and wait for the answer; for other threads than the event loop's."""
        answers: list[tuple[int, str]] = []
        answered = threading.Event()

        def answer(code: int, reason: str) -> None:
            answers.append((code, reason))
            answered.set()

        question = Question(passwords, name, password, answer)
        try:
            self._loop.call_soon_threadsafe(self.ask, address, question)
        except RuntimeError:  # the loop is closed
            return _STOPPING
        # Twice the limit: the loop itself may be late.
        answered.wait(2 * WAIT_NS_MAX / SECOND)
        return answers[0] if answers else _OVERDUE

    def shutdown(self) -> None:
        """Start no more checks; answer those that still wait."""
        self._is_stopped = True
        for waiting in self._queue.take_overdue(_NEVER_NS):
            waiting.item.answer(*_STOPPING)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _now_ns(self) -> int:
        return int(self._loop.time() * SECOND)

    def _serve(self) -> None:
        now_ns = self._now_ns()
        for overdue in self._queue.take_overdue(now_ns):
            overdue.item.answer(*_OVERDUE)
        while self._running < self._threads:
            login = self._queue.pop(now_ns)
            if login is None:
                break
            self._running += 1
            self._start(login)
        self._arm()

    def _start(self, login: Login[Question]) -> None:
        def finish(future: asyncio.Future[bool]) -> None:
            self._running -= 1
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                logger.error("could not check the password of %r: %s", login.name, error)
            is_right = error is None and future.result()
            self._queue.done(login, is_right=is_right or error is not None, now_ns=self._now_ns())
            if not self._is_stopped:
                self._serve()
            login.item.answer(*(_FAILED if error is not None else _RIGHT if is_right else _WRONG))

        self._loop.run_in_executor(self._pool, login.item.check).add_done_callback(finish)

    def _arm(self) -> None:
        """Set the timer for the next end of a delay or of a time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ns = self._queue.next_ns()
        if next_ns and self._running < self._threads:
            self._timer = self._loop.call_later(max(next_ns / SECOND - self._loop.time(), 0.0), self._serve)
