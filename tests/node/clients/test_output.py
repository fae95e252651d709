"""What a connection's transport is told while messages have time limits, and after, over real sockets.

The server runs in the test's own loop, so that its transports can be looked at; the client in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.conftest import Certificates, four_listeners
from tests.peer import SCHEMES, Endpoint, Peer, join

from timebound.node.clients.output import ConnectionOutput
from timebound.node.config import load_config
from timebound.node.links.meter import TCP_NOTSENT_LOWAT
from timebound.node.server import Server
from timebound.wire.packets import Publish, make_publish

DEADLINE = [("deadline", "10s")]


class Line:
    """A client and the broker's side of its connection."""

    def __init__(self, peer: Peer, output: ConnectionOutput) -> None:
        self.peer = peer
        self.output = output

    def told(self) -> tuple[int, int, int]:
        """When writing pauses and goes on again, and how much the kernel takes ahead (0: as it likes)."""
        transport = self.output._transport
        low, high = transport.get_write_buffer_limits()
        sock = transport.get_extra_info("socket")
        return low, high, sock.getsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT)

    async def call(self, function: Callable[..., object], *args: Any, **more: Any) -> None:
        await asyncio.to_thread(function, *args, **more)

    async def exchange(self, count: int) -> None:
        """Send the client its own messages."""
        await self.call(self.peer.send, *[make_publish("t", b"x" * 500)] * count)
        for _ in range(count):
            await self.call(self.peer.expect, Publish)


@contextlib.asynccontextmanager
async def lined_up(config: Path, scheme: str, certificates: Certificates) -> AsyncIterator[Line]:
    server = Server(load_config(config), is_persistent=False)
    await server.start()
    try:
        port = server.addresses()[SCHEMES.index(scheme)][2]
        tls = ssl.create_default_context(cafile=str(certificates.ca))
        peer = await asyncio.to_thread(join, Endpoint(port, scheme, tls))
        assert server.driver is not None
        [output] = server.driver.connections.values()
        assert isinstance(output, ConnectionOutput)
        with peer:
            yield Line(peer, output)
    finally:
        await server.stop()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_whose_last_time_limit_has_gone_writes_as_before_the_first(
    tmp_path: Path,
    certificates: Certificates,
    scheme: str,
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    config = tmp_path / "timebound.toml"
    config.write_text('sys_interval = "0s"\n' + four_listeners(certificates))

    async def scene() -> None:
        async with lined_up(config, scheme, certificates) as line:
            before = line.told()
            for end in (line.peer.unsubscribe, line.peer.subscribe):  # gone, or without a limit
                await line.call(line.peer.subscribe, "t", user_properties=DEADLINE)
                await line.exchange(3)
                timed = line.told()
                await line.call(end, "t")
                after = line.told()
                await line.call(line.peer.subscribe, "t")
                await line.exchange(100)

                assert timed[1] == 1
                assert timed[2] > 0
                assert after == before == line.told()
                assert line.output._meter is None

    run(scene())
