"""What `timebound pub` does; `run_pub` returns the exit code.

0 done, 1 the server refused, 2 the call is wrong.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from timebound.client import Client
from timebound.client.values import to_ns
from timebound.commands._connection import Connecting, reading
from timebound.commands._options import parse_properties
from timebound.commands._run import OK, run
from timebound.commands._standard_input import read_all, read_lines
from timebound.errors import ClientError, PublishError
from timebound.units import SECOND

# Messages with QoS 1 and 2 sent ahead of their acknowledgements: keeps a distant server busy.
AHEAD_MAX: Final = 100
_NO_MATCHING_SUBSCRIBERS: Final = 0x10


@dataclass(frozen=True, slots=True)
class PublishSource:
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
            raise ValueError("--count cannot be combined with --lines; each line is published once")

    async def payloads(self) -> AsyncIterator[bytes]:
        """Yield the payloads in the order to publish."""
        if self.lines:
            async for line in read_lines():
                yield line
            return
        payload = (self.payload or "").encode("utf-8", "surrogateescape")
        if self.file is not None:
            with reading("--file", self.file):
                payload = self.file.read_bytes()
        elif self.stdin:
            payload = await read_all()
        for _ in range(self.count):
            yield payload


def run_pub(connecting: Connecting, publishing: PublishSource, *, as_json: bool = False) -> int:
    """Publish; return the exit code."""
    return run(_publish(connecting, publishing, as_json), as_json=as_json)


class _Tally:
    """Counts of what was published, for the summary."""

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.reason_code = 0


async def _publish(connecting: Connecting, publishing: PublishSource, as_json: bool) -> int:
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
        print(f"note: no subscription matches {publishing.topic!r}", file=sys.stderr)
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


async def _publish_all(
    client: Client,
    publishing: PublishSource,
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
