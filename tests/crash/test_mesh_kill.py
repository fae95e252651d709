"""Two linked brokers, one killed with SIGKILL again and again: nothing that both confirmed is lost.

The publisher is at broker `a`, which lives; the durable subscriber at `b`, which dies under load. A message
is in the memory of `a` until `b` has confirmed it, and on the disk of `b` from then on.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.conftest import BrokerProcess
from tests.crash.durable_peer import DurablePeer
from tests.crash.test_kill import wait_until
from tests.node.mesh.live_mesh import free_ports

KILLS = 10
MESSAGES_PER_LIFE = 300
IN_FLIGHT_MAX = 200
STORING_S = 0.03  # about how long the last messages take from one broker to the disk of the other


class LinkedBrokers:
    """Broker `a` opens the link to `b`; each keeps its data directory over its lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port_a, self.port_b = free_ports(2)
        self.b = self.start_b()
        address = f'host = "127.0.0.1"\nport = {self.port_b}\n'
        self.a = self._start("a", self.port_a, f'[[neighbours]]\nname = "b"\n{address}')

    def start_b(self) -> BrokerProcess:
        self.b = self._start("b", self.port_b, '[[neighbours]]\nname = "a"\n')
        return self.b

    def _start(self, name: str, port: int, neighbour: str) -> BrokerProcess:
        text = f'node_name = "{name}"\n[[listeners]]\nport = {port}\n{neighbour}'
        return BrokerProcess(self._folder / name, text)

    def end(self) -> None:
        for process in (self.a, self.b):
            process.kill()
            assert "Traceback" not in process.log(), process.log()


@pytest.mark.timeout(180)
async def test_a_neighbour_that_is_killed_loses_nothing_that_it_confirmed(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    brokers = LinkedBrokers(tmp_path)
    publisher, subscriber = DurablePeer("publisher"), DurablePeer("subscriber")
    try:
        await subscriber.connect("127.0.0.1", brokers.port_b)
        await subscriber.subscribe("t/#", 1)
        await publisher.connect("127.0.0.1", brokers.port_a)
        number = 0
        for _ in range(KILLS):
            await wait_wanted(publisher)
            last = number + rng.randrange(100, MESSAGES_PER_LIFE)
            while number < last:
                number += 1
                publisher.publish(f"t/{number % 7}", b"%d" % number, 1)
                await wait_until(lambda: publisher.unfinished < IN_FLIGHT_MAX, publisher)
            # In the middle of the copies: some are confirmed, some are being stored.
            await asyncio.sleep(rng.random() * STORING_S)
            brokers.b.kill()
            await subscriber.lost()
            brokers.start_b()
            await subscriber.connect("127.0.0.1", brokers.port_b)
            assert subscriber.is_session_present

        await wait_until(lambda: publisher.unfinished == 0, publisher)
        # While a broker starts, the others do not know its subscriptions yet, and say so in PUBACK.
        promised = {b"%d" % n for n in range(1, number + 1)} - publisher.unwanted
        await wait_until(lambda: promised <= subscriber.received.keys(), subscriber)
        await publisher.close()
        await subscriber.close()
    finally:
        brokers.end()


async def wait_wanted(publisher: DurablePeer) -> None:
    """Publish probes until the subscription of the other broker's client is known."""
    async with asyncio.timeout(20):
        while True:
            publisher.publish("t/probe", b"probe", 1)
            await wait_until(lambda: publisher.unfinished == 0, publisher)
            if b"probe" not in publisher.unwanted:
                return
            publisher.unwanted.discard(b"probe")
            await asyncio.sleep(0.02)
