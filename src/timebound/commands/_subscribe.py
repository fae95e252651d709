"""What `timebound sub` does; `run_sub` returns the exit code.

0 done, 1 the server refused or too few messages came, 2 the call is wrong.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from timebound.client import Message, Subscription
from timebound.client.values import to_positive_ns
from timebound.commands._connection import Connecting
from timebound.commands._options import parse_properties
from timebound.commands._run import FAILED, OK, fail, run
from timebound.terminal import safe, safe_bytes
from timebound.terms import TermArguments
from timebound.units import SECOND

# Retained messages follow a SUBACK without a sign of their end; this much silence is taken for it.
RETAINED_SILENCE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Subscribing:
    """What to subscribe to, how to print it, and when to end."""

    filters: tuple[str, ...]
    qos: int = 0
    terms: TermArguments = field(default_factory=TermArguments)
    properties: tuple[str, ...] = ()
    count: int = 0  # 0 = no limit
    wait: str | None = None
    retained_only: bool = False
    no_retained: bool = False
    payload_only: bool = False
    session_expiry: str = "0s"
    as_json: bool = False

    def check(self) -> None:
        if self.retained_only and self.no_retained:
            raise ValueError("--retained-only and --no-retained leave nothing to print")
        if self.as_json and self.payload_only:
            raise ValueError("--json and --payload-only are two ways to print; use one of them")


def run_sub(connecting: Connecting, subscribing: Subscribing) -> int:
    """Print messages until there are enough, the time is over, or Ctrl-C; return the exit code."""
    return run(_subscribe(connecting, subscribing), as_json=False)


async def _subscribe(connecting: Connecting, subscribing: Subscribing) -> int:
    subscribing.check()
    limit_s: float | None = None
    if subscribing.wait is not None:
        limit_s = to_positive_ns(subscribing.wait, "--wait") / SECOND
    client = connecting.client(session_expiry=subscribing.session_expiry)
    subscription = client.subscribe(
        *subscribing.filters,
        qos=subscribing.qos,
        retain_handling=2 if subscribing.no_retained else 0,
        properties=parse_properties(subscribing.properties),
        **subscribing.terms,
    )
    printer = _Printer(subscribing)
    async with client:
        await subscription
        printer.when_closed(lambda: subscription.end(None))
        try:
            async with asyncio.timeout(limit_s):
                await _print_messages(subscription, subscribing, printer)
        except TimeoutError:
            pass
        if not printer.is_closed:
            printer.flush()
    if subscription.dropped:
        print(
            f"note: {subscription.dropped} messages were dropped: printing was too slow",
            file=sys.stderr,
        )
    if printer.is_closed or printer.printed >= subscribing.count:
        return OK
    within = "" if subscribing.wait is None else f" within {subscribing.wait}"
    return fail(f"{printer.printed} of {subscribing.count} messages came{within}", FAILED, 0, as_json=False)


async def _print_messages(subscription: Subscription, subscribing: Subscribing, printer: _Printer) -> None:
    """Print until there are enough, or, of retained messages, no more come."""
    silence_s = RETAINED_SILENCE_S if subscribing.retained_only and subscribing.wait is None else None
    while True:
        try:
            async with asyncio.timeout(silence_s):
                message = await anext(subscription)
        except (TimeoutError, StopAsyncIteration):
            return
        if subscribing.retained_only and not message.retain:
            continue
        printer.print(message)
        if subscribing.count and printer.printed >= subscribing.count:
            return
        if not subscription.waiting:
            printer.flush()


class _Printer:
    """Writes messages to standard output as they were asked for."""

    def __init__(self, subscribing: Subscribing) -> None:
        self.printed = 0
        self.is_closed = False  # nobody reads the pipe any more
        self._as_json = subscribing.as_json
        self._payload_only = subscribing.payload_only
        self._out = sys.stdout.buffer
        # Programs get the bytes as they were published; a person's terminal must not be steered by them.
        self._is_terminal = sys.stdout.isatty()

    def print(self, message: Message) -> None:
        self._out.write(self._line(message) + b"\n")
        self.printed += 1

    def _line(self, message: Message) -> bytes:
        if self._as_json:
            text = json.dumps(message_fields(message), ensure_ascii=False)
            return (_safe_json(text) if self._is_terminal else text).encode("utf-8")
        payload = safe_bytes(message.payload).encode() if self._is_terminal else message.payload
        if self._payload_only:
            return payload
        topic = safe(message.topic) if self._is_terminal else message.topic
        return f"{topic} ".encode() + payload

    def flush(self) -> None:
        self._out.flush()

    def when_closed(self, act: Callable[[], None]) -> None:
        """Act when the reader of a pipe goes away, instead of finding out at the next message."""
        descriptor = self._out.fileno()
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return
        loop = asyncio.get_running_loop()

        def closed() -> None:
            loop.remove_reader(descriptor)
            self.is_closed = True
            act()

        # The writing end of a pipe never becomes readable: this fires only on its error condition.
        loop.add_reader(descriptor, closed)


def _safe_json(text: str) -> str:
    """Return JSON for a terminal that is still JSON: what steers one stands in strings, and is escaped."""
    return "".join(char if safe(char) == char else f"\\u{ord(char):04x}" for char in text)


def message_fields(message: Message) -> dict[str, Any]:
    """Return a message for programs; `encoding` says whether the payload is text or base64."""
    try:
        payload, encoding = message.text(), "text"
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(message.payload).decode("ascii"), "base64"
    return {
        "topic": message.topic,
        "payload": payload,
        "encoding": encoding,
        "qos": message.qos,
        "retain": message.retain,
        "user_properties": [list(pair) for pair in message.user_properties],
        "age": message.age,
    }
