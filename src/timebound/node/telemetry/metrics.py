"""Metrics for Prometheus, served over HTTP at `/metrics`.

A request is one line and its headers; the response is made from one snapshot of statistics. This needs
so little that an HTTP framework is not worth it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from timebound.core.broker import Broker
from timebound.core.values.subscription import MICRO
from timebound.node.input.input import Input
from timebound.node.trace.writer import TraceWriter
from timebound.units import SECOND

logger = logging.getLogger("timebound.node")

REQUEST_TIMEOUT_S: Final = 5.0
REQUEST_BYTES_MAX: Final = 8_192


# Adds one metric: name, type, help, and its values by label.
Add = Callable[[str, str, str, dict[str, float]], None]


def exposition(broker: Broker, trace: TraceWriter | None, input_: Input | None = None) -> str:
    """Return all metrics in the text format of Prometheus 0.0.4."""
    now = broker.statistics()
    account = broker.account
    lines: list[str] = []

    def add(name: str, kind: str, text: str, values: dict[str, float]) -> None:
        lines.append(f"# HELP timebound_{name} {text}")
        lines.append(f"# TYPE timebound_{name} {kind}")
        lines.extend(f"timebound_{name}{labels} {value}" for labels, value in values.items())

    add("clients_connected", "gauge", "Clients connected now.", {"": now.connected})
    add("sessions", "gauge", "Sessions, connected or not.", {"": now.sessions})
    add("subscriptions", "gauge", "Subscriptions.", {"": now.subscriptions})
    add("filter_cost", "gauge", "Plain tests per message in the worst case.", {"": now.filter_cost})
    add("retained_messages", "gauge", "Retained messages.", {"": now.retained_messages})
    add("queued_messages", "gauge", "Messages waiting to be sent.", {"": now.queued_messages})
    add("queued_bytes", "gauge", "Bytes waiting to be sent.", {"": now.queued_bytes})
    add("inflight_messages", "gauge", "Messages sent and not acknowledged.", {"": now.inflight})
    add("connections_total", "counter", "Connections accepted.", {"": now.connections_total})
    add("connections_refused_total", "counter", "Connections refused.", {"": now.connections_refused})
    add("tls_failures_total", "counter", "Connections ended by TLS errors.", {"": now.tls_failures})
    add("faults_total", "counter", "Internal errors of the broker.", {"": now.faults})
    add("messages_received_total", "counter", "Messages from publishers.", {"": now.messages_received})
    add("messages_sent_total", "counter", "Copies sent to subscribers.", {"": now.messages_sent})
    add("bytes_received_total", "counter", "Bytes received.", {"": now.bytes_received})
    add("bytes_sent_total", "counter", "Bytes sent.", {"": now.bytes_sent})
    add("matched_total", "counter", "Pairs of message and subscription.", {"": account.matched})
    delivered = {'{outcome="in_time"}': account.in_time, '{outcome="late"}': account.late}
    add("delivered_total", "counter", "Pairs delivered, by outcome.", dict(delivered))
    dropped = {f'{{reason="{reason}"}}': count for reason, count in account.dropped.items()}
    add("dropped_total", "counter", "Pairs not delivered, by reason.", dict(dropped))
    add("earned_total", "counter", "Prices earned.", {"": account.earned_micro / MICRO})
    add("penalties_total", "counter", "Penalties paid.", {"": account.paid_micro / MICRO})
    if input_ is not None:
        _add_input(add, input_.figures())
    if trace is not None:
        add("trace_records_total", "counter", "Trace records written.", {"": trace.rows_written})
        add("trace_records_lost_total", "counter", "Trace records lost.", {"": trace.rows_lost})
    return "\n".join(lines) + "\n"


def _add_input(add: Add, figures: dict[str, int]) -> None:
    add("input_quantum_seconds", "gauge", "Measured duration of a quantum.", _seconds(figures["quantum_ns"]))
    add("input_round_seconds", "gauge", "Measured duration of a round.", _seconds(figures["round_ns"]))
    add("input_stop_seconds", "gauge", "A stall that delay bounds include.", _seconds(figures["stop_ns"]))
    add("input_flows", "gauge", "Advertised flows admitted.", {"": figures["flows"]})
    broken = {"": float(figures["flows_broken"])}
    add("input_flows_broken", "gauge", "Flows whose delay bound is no longer guaranteed.", broken)
    excess = {f'{{outcome="{outcome}"}}': figures[f"excess_{outcome}"] for outcome in ("lowered", "refused")}
    add("input_excess_total", "counter", "Messages that exceed their contract.", dict(excess))


def _seconds(duration_ns: int) -> dict[str, float]:
    return {"": duration_ns / SECOND}


class MetricsServer:
    """Answers GET /metrics."""

    def __init__(self, broker: Broker, trace: TraceWriter | None, input_: Input | None = None) -> None:
        self._broker = broker
        self._input = input_
        self._trace = trace
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
            return _response("405 Method Not Allowed", "only GET /metrics is supported\n")
        if words[1].partition(b"?")[0] != b"/metrics":
            return _response("404 Not Found", "metrics are at /metrics\n")
        body = exposition(self._broker, self._trace, self._input)
        return _response("200 OK", body, is_head=words[0] == b"HEAD")


def _response(status: str, body: str, *, is_head: bool = False) -> bytes:
    payload = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else payload)
