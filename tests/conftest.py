"""A real broker process for every test that wants one, and certificates for TLS.

`broker` is one process with the default limits, shared by all tests of a run: use client ids and
topics of your own. `start_broker` starts another, with the configuration a test needs. A
broker whose log shows a traceback fails the test that was using it.
"""

from __future__ import annotations

import copy
import os
import selectors
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
import trustme
from hypothesis import settings

from tests.peer import Endpoint

# A slow machine is no mistake of the code under test; what fails is printed so that it can be repeated.
settings.register_profile("timebound", deadline=None, print_blob=True)
settings.load_profile("timebound")

# The longest groups start first, so that nobody waits for them at the end.
LONG_GROUPS = ("spark-processes", "spark")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process run all tests of a file, so that what they share is made once."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    marker = item.get_closest_marker("xdist_group")
    group = marker.args[0] if marker is not None else ""
    return LONG_GROUPS.index(group) if group in LONG_GROUPS else len(LONG_GROUPS)


# A loaded machine takes some seconds to import everything; a broker that hangs takes for ever.
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
# Figures under $SYS are awaited by tests, so they come often.
DEFAULT_CONFIG = 'sys_interval = "100ms"\n'
# Listeners for the four transports.
FOUR_LISTENERS = """\
[[listeners]]
port = 0
[[listeners]]
port = 0
[listeners.tls]
certificate = "{certificates.certificate}"
key = "{certificates.key}"
[[listeners]]
kind = "websocket"
port = 0
[[listeners]]
kind = "websocket"
port = 0
[listeners.tls]
certificate = "{certificates.certificate}"
key = "{certificates.key}"
"""


class BrokerProcess:
    """One running `timebound serve`."""

    def __init__(self, folder: Path, config_text: str, data: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.data = data if data is not None else folder / "data"
        self.config = folder / "timebound.toml"
        self.config.write_text(config_text)
        self.scheme = ""  # of the listener that tests are to use; empty: the first
        self.tls: ssl.SSLContext | None = None
        self._log_path = folder / "log.txt"
        self._log_checked = 0
        command = [sys.executable, "-m", "timebound", "serve", "--config", str(self.config)]
        if data is not None or "[data]" not in config_text:
            command += ["--data", str(self.data)]
        if "[[listeners]]" not in config_text:
            command += ["--port", "0"]
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        self.urls = self._read_urls()

    @property
    def port(self) -> int:
        """Port of the first listener, or of the one that `over` chose."""
        port = self.port_of(f"{self.scheme}:" if self.scheme else "")
        return Endpoint(port, self.scheme, self.tls) if self.scheme else port

    def over(self, scheme: str, certificates: Certificates) -> BrokerProcess:
        """The same broker, whose `port` is that of another transport."""
        other = copy.copy(self)
        other.scheme = scheme
        other.tls = ssl.create_default_context(cafile=str(certificates.ca))
        return other

    def port_of(self, scheme: str) -> int:
        """Port of the first listener whose URL begins so: `mqtt:`, `mqtts:`, `ws:`, `wss:`."""
        url = next(url for url in self.urls if url.startswith(scheme))
        return int(url.split("/")[2].rpartition(":")[2])

    def log(self) -> str:
        return self._log_path.read_text()

    def wait_logged(self, text: str, timeout_s: float = 10.0) -> None:
        """Wait until the log holds the text."""
        end = time.monotonic() + timeout_s
        while text not in self.log():
            assert time.monotonic() < end, f"{text!r} was not logged in {timeout_s} s: {self.log()[-2000:]}"
            time.sleep(0.01)

    def check(self) -> None:
        """Fail if the broker is not running, or has logged a traceback since the last check."""
        log = self.log()
        new, self._log_checked = log[self._log_checked :], len(log)
        assert "Traceback" not in new, f"the broker logged a traceback:\n{new}"
        assert self.process.poll() is None, f"the broker ended with {self.process.returncode}:\n{new}"

    def stop(self) -> int:
        """Stop as Ctrl-C or a service manager would; gives the exit code."""
        self.process.terminate()
        return self._reap()

    def kill(self) -> None:
        """End it at once; one that has ended already is only cleared away."""
        self.process.kill()
        self._reap()

    def _reap(self) -> int:
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()

    def _read_urls(self) -> list[str]:
        """Read what the broker prints until it has said where it listens."""
        pipe = self.process.stdout
        assert pipe is not None
        printed = b""
        end = time.monotonic() + START_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\ndata in " not in printed:
                left_s = end - time.monotonic()
                piece = os.read(pipe.fileno(), 4096) if left_s > 0 and selector.select(left_s) else b""
                if not piece:
                    self.kill()
                    pytest.fail(f"the broker did not start: {printed.decode()}{self.log()}")
                printed += piece
        prefix = "listening on "
        return [
            line.removeprefix(prefix) for line in printed.decode().splitlines() if line.startswith(prefix)
        ]


class StartBroker(Protocol):
    def __call__(self, config_text: str = ..., data: Path | None = ...) -> BrokerProcess: ...


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), DEFAULT_CONFIG)
    yield process
    process.check()
    assert process.stop() == 0


@pytest.fixture
def broker(shared_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """The broker that all tests share."""
    yield shared_broker
    shared_broker.check()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers with configurations of their own; they are stopped after the test."""
    started: list[BrokerProcess] = []

    def start(config_text: str = DEFAULT_CONFIG, data: Path | None = None) -> BrokerProcess:
        process = BrokerProcess(tmp_path / f"broker-{len(started)}", config_text, data)
        started.append(process)
        return process

    yield start
    logs = []
    for process in started:
        process.kill()
        logs.append(process.log())
    for log in logs:
        assert "Traceback" not in log, f"a broker logged a traceback:\n{log}"


class Certificates:
    """A certificate authority and what it has issued, as PEM files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca))
        self.certificate, self.key = self.issue("127.0.0.1", "localhost")

    def issue(self, *names: str, common_name: str | None = None) -> tuple[Path, Path]:
        """Make a certificate; gives the files of its chain and its key."""
        issued = self._authority.issue_cert(*names, common_name=common_name)
        stem = common_name or names[0]
        chain, key = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        for number, part in enumerate(issued.cert_chain_pems):
            part.write_to_path(str(chain), append=number > 0)
        issued.private_key_pem.write_to_path(str(key))
        return chain, key


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))
