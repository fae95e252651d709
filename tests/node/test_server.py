"""The server in process: it starts as a whole or not at all, reloads, and frees what it held."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.peer import join

from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.security import SecurityConfig
from timebound.config.storage import DataConfig
from timebound.config.tls import TlsConfig
from timebound.config.values import Config
from timebound.errors import ConfigError
from timebound.node.server import Server
from timebound.wire.packets import Publish


def configure(tmp_path: Path, *listeners: ListenerConfig) -> Config:
    return Config(
        data=DataConfig(path=tmp_path / "data"),
        listeners=listeners or (ListenerConfig(port=0),),
        limits=Limits(connections_max=100),
    )


async def test_start_and_stop_free_the_address(tmp_path: Path) -> None:
    config = configure(tmp_path)
    for _ in range(2):  # the second time with the data of the first
        server = Server(config)
        await server.start()
        [(_, host, port)] = server.addresses()
        peer = await asyncio.to_thread(join, port)
        await server.stop()

        assert host == "127.0.0.1"
        assert await asyncio.to_thread(peer.expect_disconnect, 0x8B)
        peer.close()
        with socket.create_server(("127.0.0.1", port), backlog=1):
            pass


async def test_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        port, taken_port = free.getsockname()[1], taken.getsockname()[1]
        free.close()
        config = configure(tmp_path, ListenerConfig(port=port), ListenerConfig(port=taken_port))
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{taken_port}"):
            await Server(config).start()

    # Both the first address and the data can be used again.
    server = Server(configure(tmp_path, ListenerConfig(port=port)))
    await server.start()
    await server.stop()


async def test_certificate_that_cannot_be_used_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    tls = TlsConfig(tmp_path / "bad.pem", tmp_path / "bad.pem")

    with pytest.raises(ConfigError, match="certificate or key cannot be used"):
        await Server(configure(tmp_path, ListenerConfig(port=0, tls=tls))).start()
    assert not (tmp_path / "data").exists()


async def test_reload_replaces_access_rules_or_keeps_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = tmp_path / "rules.acl"
    rules.write_text("allow anyone all a/#\n")
    config = replace(configure(tmp_path), security=SecurityConfig(acl_file=rules))
    server = Server(config, is_persistent=False)
    await server.start()
    [(_, _, port)] = server.addresses()
    peer = await asyncio.to_thread(join, port)
    codes = []
    for text in ("allow anyone all b/#\n", "nonsense\n"):
        rules.write_text(text)
        server.reload()
        suback = await asyncio.to_thread(peer.subscribe, "a/x", "b/x")
        codes.append(suback.reason_codes)
    await server.stop()
    peer.close()

    assert codes == [[0x87, 0], [0x87, 0]]
    assert "the previous settings stay" in caplog.text


async def test_figures_are_published_from_the_start(tmp_path: Path) -> None:
    server = Server(configure(tmp_path), is_persistent=False)
    await server.start()
    [(_, _, port)] = server.addresses()
    peer = await asyncio.to_thread(join, port)
    await asyncio.to_thread(peer.subscribe, "$SYS/broker/version")
    packet = await asyncio.to_thread(peer.expect, Publish)
    await server.stop()
    peer.close()

    assert packet.payload.startswith(b"timebound version")
    assert not (tmp_path / "data").exists()
