"""The meter of a link, over a real slow link: how fast it learns, how little is out of reach.

The server runs in the test's own loop, so that what it knows can be looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from timebound.client import Client
from timebound.core.broker import Broker
from timebound.core.delay import LinkDelay, link_of_rate
from timebound.core.message import Message
from timebound.demo.relay import ShapingRelay
from timebound.node.config import load_config
from timebound.node.link import BUDGET_BYTES_MAX, BUDGET_BYTES_MIN, START_BUDGET_BYTES, LinkMeter
from timebound.node.server import Server
from timebound.units import MILLISECOND, SECOND

TIMEOUT_S = 20.0
STEP_S = 0.01
MESSAGE_BYTES = 500


class Feed:
    """A broker, a reader behind a slow link, and messages at a multiple of what it carries."""

    def __init__(self, server: Server, relay: ShapingRelay) -> None:
        self.server = server
        self.relay = relay
        self.excess = 2.0
        self.beyond_reach_max = 0
        self.published = 0

    @property
    def broker(self) -> Broker:
        assert self.server.driver is not None
        return self.server.driver.broker

    def rate_bytes_per_s(self) -> float:
        """What the broker takes the reader's link for."""
        session = self.broker.session("reader")
        assert session is not None
        return 1_024 / session.delay.mean_s_per_kb

    async def run(self, *, until: Callable[[], bool] | None = None, seconds: float = TIMEOUT_S) -> float:
        """Publish until something holds or the time is over; gives the seconds it took."""
        driver = self.server.driver
        assert driver is not None
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        offered = 0.0
        while (passed_s := loop.time() - started_s) < seconds:
            if until is not None and until():
                break
            offered += self.excess * self.relay.rate_bytes_per_s * STEP_S
            while offered > MESSAGE_BYTES:
                offered -= MESSAGE_BYTES
                now_ns = driver.now_ns()
                self.broker.route(Message("t", b"x" * (MESSAGE_BYTES - 9), 0, False, now_ns), now_ns)
                self.published += 1
            driver.schedule()
            await asyncio.sleep(STEP_S)
            beyond = self.broker.counters.bytes_sent - self.relay.bytes_carried
            self.beyond_reach_max = max(self.beyond_reach_max, beyond)
        return passed_s


@contextlib.asynccontextmanager
async def feeding(tmp_path: Path, rate_bytes_per_s: float) -> AsyncIterator[Feed]:
    config = tmp_path / "timebound.toml"
    config.write_text('sys_interval = "0s"\n[[listeners]]\nhost = "127.0.0.1"\nport = 0\n')
    server = Server(load_config(config), is_persistent=False)
    await server.start()
    try:
        port = server.addresses()[0][2]
        with ShapingRelay(port, rate_bytes_per_s) as relay:
            async with Client(port=relay.port, client_id="reader", topic_alias_maximum=0) as reader:
                await reader.subscribe("t", deadline="500ms", queue_size=1_000_000)
                yield Feed(server, relay)
    finally:
        await server.stop()


async def test_a_rate_that_changes_fourfold_is_followed_in_seconds(tmp_path: Path) -> None:
    async with feeding(tmp_path, 100_000) as feed:
        first_s = await feed.run(until=lambda: 80_000 < feed.rate_bytes_per_s() < 125_000)
        feed.relay.rate_bytes_per_s = 25_000
        slower_s = await feed.run(until=lambda: feed.rate_bytes_per_s() < 32_000)
        feed.relay.rate_bytes_per_s = 100_000
        faster_s = await feed.run(until=lambda: feed.rate_bytes_per_s() > 78_000)

    # Measured 0.3, 0.8 and 0.6 s.
    assert first_s < 5
    assert slower_s < 5
    assert faster_s < 5


async def test_little_is_beyond_reach_on_a_slow_link(tmp_path: Path) -> None:
    async with feeding(tmp_path, 50_000) as feed:
        await feed.run(until=lambda: feed.rate_bytes_per_s() < 65_000)
        feed.beyond_reach_max = 0
        await feed.run(seconds=1.5)
        account = feed.broker.account

        # Measured 4.1 to 4.4 KB, of which the relay's own buffers hold up to 3.5; at the start, before
        # anything is known of the link, 6.8 KB. A session without time limits had 1.9 MB.
        assert feed.beyond_reach_max < 10_000
        assert account.in_time > 0
        assert account.dropped["hopeless"] + account.dropped["timed_out"] + account.dropped["replaced"] > 0


async def test_an_idle_link_is_found_fast_and_nothing_is_lost_on_it(tmp_path: Path) -> None:
    async with feeding(tmp_path, 1_000_000) as feed:
        feed.excess = 0.1
        await feed.run(seconds=1.0)
        account = feed.broker.account

        assert account.matched == feed.published
        assert account.in_time == account.matched


class FakeTransport:
    """A transport without a socket, as under TLS on some loops: nothing can be asked of the kernel."""

    def __init__(self) -> None:
        self.limits: list[int] = []
        self.buffered = 0

    def get_extra_info(self, name: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        self.limits.append(high)

    def get_write_buffer_size(self) -> int:
        return self.buffered


def test_without_a_socket_the_start_value_stands() -> None:
    transport = FakeTransport()
    meter = LinkMeter(transport, link_of_rate(125_000.0))

    meter.written(0)
    meter.paused(10 * MILLISECOND)
    assert meter.resumed(SECOND) is None
    transport.buffered = 1_250

    assert transport.limits == [0]
    assert meter.budget() == START_BUDGET_BYTES
    assert meter.ahead_ns() == pytest.approx(10 * MILLISECOND, rel=0.01)


@pytest.mark.parametrize(
    ("rate", "budget"), [(125_000.0, 1_250), (1_000.0, BUDGET_BYTES_MIN), (1e9, BUDGET_BYTES_MAX)]
)
def test_what_is_handed_over_at_once_is_ten_milliseconds_of_the_link(rate: float, budget: int) -> None:
    meter = LinkMeter(FakeTransport(), LinkDelay(1_024 / rate, 0.0))
    meter._estimator.add(1_024, int(1_024 / rate * SECOND))

    assert meter.budget() == pytest.approx(budget, rel=0.01)
