"""The server in process: it starts as a whole or not at all, reloads, and frees what it held."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Certificates
from tests.peer import join

from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.security import SecurityConfig
from timebound.config.storage import DataConfig
from timebound.config.tls import TlsConfig
from timebound.config.values import Config
from timebound.errors import ConfigError
from timebound.node.login.passwords import PasswordFile
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

    with pytest.raises(ConfigError, match=r"^listeners\[0\]\.tls: certificate or key cannot be used"):
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
    assert "the previous access rules and certificates stay" in caplog.text


class Files:
    """Files that a reload reads, of a broker with two TLS listeners."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.folder = folder
        self.certificates = certificates
        self.users = folder / "users"
        self.rules = folder / "rules.acl"
        self.set_password("old")
        self.rules.write_text("allow anyone all a/#\n")
        for number in range(2):
            self.set_certificate(number, "old")

    def set_password(self, password: str) -> None:
        users = PasswordFile(self.users)
        users.set("ann", password)
        users.save()

    def set_certificate(self, number: int, age: str) -> None:
        tls = self.tls(number)
        chain, key = self.certificates.issue("127.0.0.1", common_name=f"{age}-{number}")
        tls.certificate.write_bytes(chain.read_bytes())
        tls.key.write_bytes(key.read_bytes())

    def tls(self, number: int) -> TlsConfig:
        return TlsConfig(self.folder / f"{number}.pem", self.folder / f"{number}.key")

    def config(self) -> Config:
        listeners = [ListenerConfig(port=0, tls=self.tls(number)) for number in range(2)]
        security = SecurityConfig(password_file=self.users, acl_file=self.rules)
        return replace(configure(self.folder, *listeners), security=security)


def common_name(port: int, certificates: Certificates) -> str:
    """Return the name in the certificate that a listener shows."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as shown,
    ):
        subject = dict(part[0] for part in (shown.getpeercert() or {})["subject"])
        return str(subject["commonName"])


def wait_until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.1)


class Reloading:
    """A broker that has reloaded changed files, and what is in force then."""

    def __init__(self, server: Server, files: Files) -> None:
        self.server = server
        self.files = files

    def is_password(self, password: bytes) -> bool:
        assert self.server._passwords is not None
        return self.server._passwords.check("ann", password)

    def may_subscribe(self, topic_filter: str) -> bool:
        return self.server._doors[0].access.may_subscribe("ann", "c", topic_filter)

    async def names(self) -> list[str]:
        ports = [port for _, _, port in self.server.addresses()]
        return [await asyncio.to_thread(common_name, port, self.files.certificates) for port in ports]


@pytest.fixture
async def reloading(tmp_path: Path, certificates: Certificates) -> AsyncIterator[Reloading]:
    files = Files(tmp_path, certificates)
    server = Server(files.config(), is_persistent=False)
    await server.start()
    yield Reloading(server, files)
    await server.stop()


@pytest.mark.parametrize("wrong", ["rules", "users", "certificate", "key"])
async def test_a_reload_with_a_mistake_in_one_file_applies_none(
    reloading: Reloading, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = reloading.files
    files.set_password("new")
    files.rules.write_text("allow anyone all b/#\n")
    for number in range(2):
        files.set_certificate(number, "new")
    last = files.tls(1)
    at = {"rules": files.rules, "users": files.users, "certificate": last.certificate, "key": last.key}
    at[wrong].write_text("nonsense\n")

    reloading.server.reload()

    assert reloading.is_password(b"old")
    assert not reloading.is_password(b"new")
    assert (reloading.may_subscribe("a/x"), reloading.may_subscribe("b/x")) == (True, False)
    assert await reloading.names() == ["old-0", "old-1"]
    assert "reload failed, the previous access rules and certificates stay: " in caplog.text
    if wrong in ("certificate", "key"):
        assert "listeners[1].tls: certificate or key cannot be used" in caplog.text


async def test_a_reload_without_mistakes_applies_all(reloading: Reloading) -> None:
    files = reloading.files
    files.set_password("new")
    files.rules.write_text("allow anyone all b/#\n")
    files.set_certificate(1, "new")

    reloading.server.reload()

    assert reloading.is_password(b"new")
    assert not reloading.is_password(b"old")
    assert (reloading.may_subscribe("a/x"), reloading.may_subscribe("b/x")) == (False, True)
    assert await reloading.names() == ["old-0", "new-1"]


async def test_a_good_password_file_is_applied_on_its_own_after_a_reload_that_failed(
    reloading: Reloading,
) -> None:
    reloading.files.set_password("new")
    reloading.files.rules.write_text("nonsense\n")
    reloading.server.reload()
    assert reloading.is_password(b"old")

    await asyncio.to_thread(wait_until, lambda: reloading.is_password(b"new"))

    assert not reloading.is_password(b"old")


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
