"""Metrics for Prometheus, served over HTTP at `/metrics`; beside them `/healthz` and `/readyz`.

A request is one line and its headers; the response is made from one sample of statistics. This needs
so little that an HTTP framework is not worth it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from timebound.node.telemetry.figures import FIGURES, Sample, Sources

logger = logging.getLogger("timebound.node")

REQUEST_TIMEOUT_S: Final = 5.0
REQUEST_BYTES_MAX: Final = 8_192


def exposition(sources: Sources, now_ns: int) -> str:
    """Return all metrics in the text format of Prometheus 0.0.4."""
    sample = Sample(sources, now_ns)
    lines: list[str] = []
    for figure in FIGURES:
        values = figure.metric_values(sample)
        if values:
            name = f"timebound_{figure.metric}"
            lines.append(f"# HELP {name} {figure.meaning}")
            lines.append(f"# TYPE {name} {figure.kind}")
            lines.extend(f"{name}{labels} {value}" for labels, value in values.items())
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Answers GET of metrics and health; `why_not_ready` returns an empty text if the broker is ready."""

    def __init__(self, sources: Sources, clock: Callable[[], int], why_not_ready: Callable[[], str]) -> None:
        self._sources = sources
        self._clock = clock
        self._why_not_ready = why_not_ready
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)

    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_TIMEOUT_S)
            writer.write(self._answer(request))
            await asyncio.wait_for(writer.drain(), REQUEST_TIMEOUT_S)
        writer.close()

    def _answer(self, request: bytes) -> bytes:
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "only GET is supported\n")
        status, body = self._get(words[1].partition(b"?")[0])
        return _response(status, body, is_head=words[0] == b"HEAD")

    def _get(self, path: bytes) -> tuple[str, str]:
        match path:
            case b"/metrics":
                return "200 OK", exposition(self._sources, self._clock())
            case b"/healthz":
                # Whoever can answer is alive: the event loop itself does.
                return "200 OK", "ok\n"
            case b"/readyz":
                reason = self._why_not_ready()
                return ("503 Service Unavailable", f"{reason}\n") if reason else ("200 OK", "ready\n")
            case _:
                return "404 Not Found", "there are /metrics, /healthz and /readyz\n"


def _response(status: str, body: str, *, is_head: bool = False) -> bytes:
    payload = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else payload)
