"""A service manager is told that the broker is ready, alive and stopping, on a real socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import BrokerProcess

from timebound.node.service_manager import READY, ServiceManager

TIMEOUT_S = 20.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a manager, in a file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(TIMEOUT_S)
        yield receiver


def told(receiver: socket.socket) -> str:
    return receiver.recv(4_096).decode()


def drained(receiver: socket.socket) -> set[str]:
    """What comes until nothing does."""
    found: set[str] = set()
    try:
        while True:
            found.add(told(receiver))
    except TimeoutError:
        return found


def test_a_broker_is_ready_then_alive_and_at_last_stopping(manager: socket.socket, tmp_path: Path) -> None:
    variables = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "100000"}
    broker = BrokerProcess(tmp_path / "broker", "", variables=variables)
    try:
        assert told(manager) == "READY=1"
        began = time.monotonic()
        assert [told(manager) for _ in range(5)] == ["WATCHDOG=1"] * 5
        assert time.monotonic() - began >= 0.19  # four intervals of half the time limit
        assert broker.stop() == 0
        rest = []
        while not rest or rest[-1] != "STOPPING=1":
            rest.append(told(manager))
        assert set(rest[:-1]) <= {"WATCHDOG=1"}
    finally:
        broker.kill()


def test_a_broker_that_does_not_run_feeds_no_watchdog(manager: socket.socket, tmp_path: Path) -> None:
    variables = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "100000"}
    broker = BrokerProcess(tmp_path / "broker", "", variables=variables)
    try:
        assert told(manager) == "READY=1"
        broker.process.send_signal(signal.SIGSTOP)
        manager.settimeout(0.5)
        assert drained(manager) <= {"WATCHDOG=1"}  # what was under way, then nothing
        broker.process.send_signal(signal.SIGCONT)
        manager.settimeout(TIMEOUT_S)
        assert told(manager) == "WATCHDOG=1"
    finally:
        broker.kill()


async def test_a_loop_that_is_held_up_feeds_no_watchdog(manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "40000"}
    feeding = asyncio.create_task(ServiceManager(environment).feed_watchdog())
    await asyncio.sleep(0)
    assert told(manager) == "WATCHDOG=1"
    manager.settimeout(0.2)

    # It waits here in place of the loop.
    with pytest.raises(TimeoutError):
        told(manager)

    feeding.cancel()


def test_an_abstract_socket_is_reached() -> None:
    name = f"timebound-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        receiver.settimeout(TIMEOUT_S)

        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).tell(READY)

        assert told(receiver) == READY


def test_without_a_manager_and_with_one_that_has_gone_nothing_happens(tmp_path: Path) -> None:
    ServiceManager({}).tell(READY)
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell(READY)


@pytest.mark.parametrize(
    ("environment", "beat_s"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "10000000"}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({"WATCHDOG_USEC": "-5"}, 0.0),
    ],
)
def test_the_watchdog_is_fed_twice_within_its_time_if_it_watches_this_process(
    environment: dict[str, str], beat_s: float
) -> None:
    assert ServiceManager(environment).beat_s == beat_s


async def test_feeding_returns_at_once_if_nobody_watches() -> None:
    await asyncio.wait_for(ServiceManager({}).feed_watchdog(), TIMEOUT_S)
