"""A broker killed with SIGKILL, again and again, under load: nothing acknowledged is lost.

Publisher and subscriber have durable sessions and live on while the broker dies. The moments
of death are drawn from a printed seed; each life of the broker gets a little work to do.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.crash.durable_peer import WAIT_S, DurablePeer

KILLS = 12
MESSAGES_PER_LIFE = 150
IN_FLIGHT_MAX = 40


class KillableBroker:
    """The real program in a process of its own, on one data directory."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "timebound", "serve", "--port", str(self.port), "--data", str(self._data),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert self._process.stdout is not None
        while True:
            line = (await asyncio.wait_for(self._process.stdout.readline(), WAIT_S)).decode()
            assert line, "the broker ended before it listened"
            if found := re.search(r"listening on mqtt://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                return

    async def stop(self, how: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        return await asyncio.wait_for(self._process.wait(), WAIT_S)


@pytest.mark.timeout(180)
async def test_nothing_acknowledged_is_lost_and_no_qos_2_message_comes_twice(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    broker = KillableBroker(tmp_path)
    publisher = DurablePeer("publisher")
    subscriber = DurablePeer("subscriber")
    await broker.start()
    await subscriber.connect("127.0.0.1", broker.port)
    await subscriber.subscribe("one/#", 1)
    await subscriber.subscribe("two/#", 2)
    await publisher.connect("127.0.0.1", broker.port)

    number = 0
    for _ in range(KILLS):
        last = number + rng.randrange(1, MESSAGES_PER_LIFE)
        while number < last:
            number += 1
            qos = 1 + number % 2
            publisher.publish(f"{'one' if qos == 1 else 'two'}/{number % 7}", b"%d" % number, qos)
            await wait_until(lambda: publisher.unfinished < IN_FLIGHT_MAX, publisher)
        await broker.stop(signal.SIGKILL)
        await publisher.lost()
        await subscriber.lost()
        await broker.start()
        # Who comes back first decides what is queued and what is in flight.
        for peer in rng.sample([publisher, subscriber], 2):
            await peer.connect("127.0.0.1", broker.port)
            assert peer.is_session_present

    await wait_until(lambda: publisher.unfinished == 0, publisher)
    everything = {b"%d" % n for n in range(1, number + 1)}
    await wait_until(lambda: everything <= subscriber.received.keys(), subscriber)
    assert publisher.acknowledged == everything
    twice = [n for n in sorted(subscriber.received, key=int) if int(n) % 2 and subscriber.received[n] > 1]
    assert twice == [], f"QoS 2 messages that came more than once (seed {seed})"
    await publisher.close()
    await subscriber.close()
    assert await broker.stop(signal.SIGINT) == 0


async def wait_until(condition, peer: DurablePeer) -> None:  # type: ignore[no-untyped-def]
    """Wait until the peer's state fulfils the condition, looking whenever it changes."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            peer.changed.clear()
            if not condition():
                await peer.changed.wait()
