"""What `timebound pub` and `timebound sub` do.

Both return the exit code: 0 done, 1 the server refused or too few messages came, 2 the call is wrong.
Messages go to standard output, everything else to standard error. A closed pipe is the
reader's way of saying that it has enough, and no error.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from timebound.client import Client, Message, Subscription
from timebound.client.values import to_ns, to_positive_ns
from timebound.errors import ClientError, PublishError, TimeboundError
from timebound.standard_input import read_all, read_lines
from timebound.terminal import safe, safe_bytes
from timebound.units import SECOND

OK: Final = 0
FAILED: Final = 1
WRONG: Final = 2
INTERRUPTED: Final = 130  # as shells say it: 128 and the number of SIGINT

# Messages with QoS 1 and 2 sent ahead of their acknowledgements: keeps a distant server busy.
AHEAD_MAX: Final = 100
# Retained messages follow a SUBACK without a sign of their end; so long a silence is taken for it.
RETAINED_SILENCE_S: Final = 1.0
_NO_MATCHING_SUBSCRIBERS: Final = 0x10


@dataclass(frozen=True, slots=True)
class Connecting:
    """How to reach the server."""

    host: str | None = None
    port: int | None = None
    url: str | None = None
    user: str | None = None
    password: str | None = None
    password_file: Path | None = None
    tls: bool = False
    cafile: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    client_id: str = ""
    version: int = 5

    def client(self, *, session_expiry: str = "0s") -> Client:
        """Return the client; raises ValueError where the options do not fit together."""
        if self.url is not None and self.host is not None:
            raise ValueError("both --url and --host are given; one of them says where the server is")
        if self.password is not None and self.password_file is not None:
            raise ValueError("both --password and --password-file are given; use one of them")
        if self.key is not None and self.cert is None:
            raise ValueError("--key needs --cert, the certificate that belongs to it")
        keeps = to_ns(session_expiry, "--session-expiry") > 0
        if keeps and not self.client_id:
            raise ValueError("--session-expiry needs --client-id, under which the session is found again")
        return Client(
            self.url or self.host or "127.0.0.1",
            self.port,
            client_id=self.client_id,
            username=self.user,
            password=self._password(),
            tls=self._tls(),
            version=self.version,
            clean_start=not keeps,
            session_expiry=session_expiry if self.version == 5 else 0,
        )

    def _password(self) -> str | None:
        if self.password_file is None:
            return self.password
        with _read("--password-file", self.password_file):
            lines = self.password_file.read_text().splitlines()
        if not lines:
            raise ValueError(f"password file {str(self.password_file)!r} is empty")
        return lines[0]

    def _tls(self) -> bool | ssl.SSLContext:
        if self.cafile is None and self.cert is None:
            return self.tls
        with _read("--cafile", self.cafile):
            context = ssl.create_default_context(cafile=self.cafile)
        if self.cert is not None:
            with _read("--cert", self.cert, *(() if self.key is None else (self.key,))):
                context.load_cert_chain(self.cert, self.key)
        return context


@contextmanager
def _read(option: str, *files: Path | None) -> Iterator[None]:
    """Make a file that an option names, and that cannot be used, a mistake of the call."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        names = " and ".join(str(file) for file in files)
        reason = error.strerror if isinstance(error, OSError) else error.reason
        raise ValueError(f"{option} {names} cannot be used: {reason or error}") from error


@dataclass(frozen=True, slots=True)
class Publishing:
    """What to publish; one of `payload`, `file`, `stdin` and `lines` is given."""

    topic: str
    payload: str | None = None
    file: Path | None = None
    stdin: bool = False
    lines: bool = False
    qos: int = 0
    retain: bool = False
    timeout: str | None = None
    priority: int | None = None
    properties: tuple[str, ...] = ()
    count: int = 1
    interval: str = "0s"

    def check(self) -> None:
        sources = (self.payload is not None) + (self.file is not None) + self.stdin + self.lines
        if sources != 1:
            raise ValueError("give one of PAYLOAD, --file, --stdin and --lines ('' is an empty payload)")
        if self.lines and self.count != 1:
            raise ValueError("--count does not go with --lines; each line is published once")

    async def payloads(self) -> AsyncIterator[bytes]:
        """Give the payloads one by one, as they are to be published."""
        if self.lines:
            async for line in read_lines():
                yield line
            return
        payload = (self.payload or "").encode("utf-8", "surrogateescape")
        if self.file is not None:
            with _read("--file", self.file):
                payload = self.file.read_bytes()
        elif self.stdin:
            payload = await read_all()
        for _ in range(self.count):
            yield payload


@dataclass(frozen=True, slots=True)
class Subscribing:
    """What to subscribe to, how to print it, and when to end."""

    filters: tuple[str, ...]
    qos: int = 0
    where: str | None = None
    deadline: str | None = None
    price: float | None = None
    penalty: float | None = None
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


def run_pub(connecting: Connecting, publishing: Publishing, *, as_json: bool = False) -> int:
    """Publish; gives the exit code."""
    return _run(_publish(connecting, publishing, as_json), as_json=as_json)


def run_request(connecting: Connecting, request: str, payload: str) -> int:
    """Ask the broker itself, by a topic under `$timebound/`; gives the exit code."""
    return _run(_request(connecting, request, payload), as_json=False)


def run_sub(connecting: Connecting, subscribing: Subscribing) -> int:
    """Print messages until there are enough, the time is over, or Ctrl-C; gives the exit code."""
    return _run(_subscribe(connecting, subscribing), as_json=False)


def _run(command: Coroutine[Any, Any, int], *, as_json: bool) -> int:
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
        return _fail(str(error), FAILED, error.reason_code, as_json)
    except ValueError as error:
        return _fail(str(error), WRONG, 0, as_json)
    except (TimeboundError, OSError) as error:
        return _fail(str(error), FAILED, 0, as_json)


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


def _fail(message: str, code: int, reason_code: int, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"ok": False, "error": message, "reason_code": reason_code}), flush=True)
    print(f"error: {safe(message)}", file=sys.stderr)
    return code


def parse_properties(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Read `name=value` texts in order; a value may hold `=` itself."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"property {text!r} is not written as NAME=VALUE")
        pairs.append((name, value))
    return pairs


class _Tally:
    """What was published, for the summary."""

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.reason_code = 0


async def _publish(connecting: Connecting, publishing: Publishing, as_json: bool) -> int:
    publishing.check()
    interval_s = to_ns(publishing.interval, "--interval") / SECOND
    properties = parse_properties(publishing.properties)
    tally = _Tally()
    started = time.monotonic()
    async with connecting.client() as client:
        await _publish_all(client, publishing, properties, interval_s, tally)
        if publishing.qos == 0:
            await _wait_read(client)
    if as_json:
        summary = {
            "ok": True,
            "topic": publishing.topic,
            "messages": tally.messages,
            "bytes": tally.size,
            "reason_code": tally.reason_code,
            "seconds": round(time.monotonic() - started, 6),
        }
        print(json.dumps(summary), flush=True)
    elif tally.reason_code == _NO_MATCHING_SUBSCRIBERS:
        print(f"note: nobody is subscribed to {publishing.topic!r}", file=sys.stderr)
    return OK


async def _wait_read(client: Client) -> None:
    """Wait until the server has read what was sent with QoS 0, which it does not acknowledge.

    Raises:
        PublishError: it ended the connection in between, perhaps over one of the messages.
    """
    try:
        if client.last_failure is None:
            await client.ping()
        failure = client.last_failure
    except ClientError as error:
        failure = error
    if failure is not None:
        raise PublishError(
            f"{failure}; messages with QoS 0 may be lost", reason_code=failure.reason_code
        ) from failure


async def _request(connecting: Connecting, request: str, payload: str) -> int:
    async with connecting.client() as client:
        await client.control(request, payload)
    return OK


async def _publish_all(
    client: Client,
    publishing: Publishing,
    properties: list[tuple[str, str]],
    interval_s: float,
    tally: _Tally,
) -> None:
    """Publish in order, with many unacknowledged at a time; the first refusal ends it."""
    ahead = asyncio.Semaphore(AHEAD_MAX)
    pause_s = 0.0

    async def publish(payload: bytes) -> None:
        try:
            tally.reason_code = await client.publish(
                publishing.topic,
                payload,
                qos=publishing.qos,
                retain=publishing.retain,
                timeout=publishing.timeout,
                priority=publishing.priority,
                user_properties=properties,
            )
        finally:
            ahead.release()
        tally.messages += 1
        tally.size += len(payload)

    try:
        async with asyncio.TaskGroup() as group:
            async for payload in publishing.payloads():
                if pause_s:
                    await asyncio.sleep(pause_s)
                pause_s = interval_s
                await ahead.acquire()
                group.create_task(publish(payload), name="publish")
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


async def _subscribe(connecting: Connecting, subscribing: Subscribing) -> int:
    subscribing.check()
    limit_s: float | None = None
    if subscribing.wait is not None:
        limit_s = to_positive_ns(subscribing.wait, "--wait") / SECOND
    client = connecting.client(session_expiry=subscribing.session_expiry)
    subscription = client.subscribe(
        *subscribing.filters,
        qos=subscribing.qos,
        where=subscribing.where,
        deadline=subscribing.deadline,
        price=subscribing.price,
        penalty=subscribing.penalty,
        retain_handling=2 if subscribing.no_retained else 0,
        properties=parse_properties(subscribing.properties),
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
        print(f"note: {subscription.dropped} messages came faster than they were printed", file=sys.stderr)
    if printer.is_closed or printer.printed >= subscribing.count:
        return OK
    within = "" if subscribing.wait is None else f" within {subscribing.wait}"
    return _fail(f"{printer.printed} of {subscribing.count} messages came{within}", FAILED, 0, as_json=False)


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
