"""Figures over HTTP: what they say, how they are written, and requests of every kind."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import BrokerProcess
from tests.peer import join

from timebound.core.broker import Broker
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.node.telemetry.figures import Sources
from timebound.node.telemetry.metrics import exposition
from timebound.records import Reason

LINE = re.compile(r'timebound_[a-z_]+(\{[a-z]+="[a-z_]+"\})? -?[0-9.e+-]+')


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def metrics_port(process: BrokerProcess) -> int:
    return int(process.config.read_text().rpartition("port = ")[2])


class Measured:
    """A broker with figures at a port."""

    def __init__(self, process: BrokerProcess, port: int) -> None:
        self.broker = process
        self.port = port

    def figures(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def ask(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(request)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        return answer


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    port = free_port()
    config = f'sys_interval = "0s"\n[metrics]\nport = {port}\n'
    process = BrokerProcess(tmp_path_factory.mktemp("metrics"), config)
    yield Measured(process, port)
    process.check()
    assert process.stop() == 0


def empty_broker() -> Broker:
    return Broker(BrokerLimits(), AccessList([]))


def test_every_line_is_in_the_format_and_every_figure_has_help_and_type() -> None:
    text = exposition(Sources(empty_broker()), 0)

    assert text.endswith("\n")
    names: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            names.add(line.split()[2])
        elif line.startswith("# TYPE "):
            assert line.split()[2] in names
            assert line.split()[3] in ("gauge", "counter")
        else:
            assert LINE.fullmatch(line), line
            assert line.split("{")[0].split()[0] in names
            assert not line.startswith("timebound_trace")


def test_every_reason_has_a_figure() -> None:
    text = exposition(Sources(empty_broker()), 0)

    for reason in Reason:
        assert f'timebound_dropped_total{{reason="{reason.value}"}} 0' in text


def test_the_figures_follow_what_happens(measured: Measured) -> None:
    with join(measured.broker.port) as publisher, join(measured.broker.port) as subscriber:
        subscriber.subscribe("t", user_properties=[("deadline", "10s"), ("price", "2.5"), ("penalty", "0.5")])
        publisher.subscribe("u", user_properties=[("where", "x = 1 AND text LIKE '%a%'")])
        for number in range(4):
            publisher.publish("t", b"%d" % number)
            subscriber.expect_publish("t", b"%d" % number)

        figures = measured.figures()

    assert figures["timebound_clients_connected"] == 2
    assert figures["timebound_subscriptions"] == 2
    assert figures["timebound_filter_cost"] == 34
    assert figures["timebound_messages_received_total"] == 4
    assert figures["timebound_matched_total"] == 4
    assert figures['timebound_delivered_total{outcome="in_time"}'] == 4
    assert figures['timebound_delivered_total{outcome="late"}'] == 0
    assert figures["timebound_earned_total"] == 10.0
    assert figures["timebound_penalties_total"] == 0


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK"),
        (b"GET /metrics?name=all HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /readyz HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", b"405 Method Not Allowed"),
    ],
)
def test_requests_are_answered_by_what_they_ask(
    measured: Measured, request_bytes: bytes, status: bytes
) -> None:
    answer = measured.ask(request_bytes)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert b"Content-Length: %d" % len(body) in head


def test_a_head_request_gets_no_body(measured: Measured) -> None:
    assert measured.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


def test_a_broker_that_stops_is_alive_and_not_ready(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, f"[metrics]\nport = {free_port()}\n")
    stopping = Measured(process, metrics_port(process))
    try:
        assert stopping.ask(b"GET /readyz HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\nready\n")
        # One that reads nothing keeps the broker from ending for two seconds.
        with join(process.port) as deaf, join(process.port) as publisher:
            deaf.subscribe("flood")
            for _ in range(20):
                publisher.publish("flood", b"x" * 1_000_000)
            publisher.expect_silence()
            process.process.terminate()
            publisher.expect_disconnect(0x8B)

            ready = stopping.ask(b"GET /readyz HTTP/1.1\r\n\r\n")
            alive = stopping.ask(b"GET /healthz HTTP/1.1\r\n\r\n")

        assert ready.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert ready.endswith(b"\r\n\r\nstopping\n")
        assert alive.startswith(b"HTTP/1.1 200 OK\r\n")
        assert process.stop() == 0
    finally:
        process.kill()


def test_an_endless_request_is_cut_off_and_the_broker_serves_on(measured: Measured) -> None:
    with socket.create_connection(("127.0.0.1", measured.port), 10) as connection:
        try:
            for _ in range(100):
                connection.sendall(b"x" * 10_000)
            rest = connection.recv(1)
        except (ConnectionResetError, BrokenPipeError):
            rest = b""

    assert rest == b""
    assert measured.figures()["timebound_clients_connected"] == 0
