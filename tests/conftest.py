"""A real broker process for every test that wants one, and certificates for TLS.

`broker` is one process with the default limits, shared by all tests of a run: use client ids and
topics of your own. `start_broker` starts another, with the configuration a test needs. A
broker whose log shows a traceback fails the test that was using it.

What is delivered, kept or refused holds over every transport. A test of that takes `broker_over`,
`share_over` or `start_over`: it then runs four times, and the `port` of its broker is that of another
transport each time.
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

from tests.peer import SCHEMES, Endpoint

# A slow machine is no mistake of the code under test. The examples of `make test` are the same in each run, so that it
# judges the change alone; `make test-slow` searches with others, and prints what fails so that it can be repeated.
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=400)
settings.load_profile("repeat")

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
LISTENER = '[[listeners]]\nkind = "{kind}"\nport = 0\n{more}'
LISTENER_TLS = '[listeners.tls]\ncertificate = "{certificates.certificate}"\nkey = "{certificates.key}"\n'


def four_listeners(certificates: Certificates, more: str = "") -> str:
    """Give the configuration of listeners for the four transports, in the order of `SCHEMES`."""
    text = ""
    for scheme in SCHEMES:
        kind = "websocket" if scheme.startswith("ws") else "tcp"
        text += LISTENER.format(kind=kind, more=more)
        if scheme in ("mqtts", "wss"):
            text += LISTENER_TLS.format(certificates=certificates)
    return text


class BrokerProcess:
    """One running `timebound serve`."""

    def __init__(
        self,
        folder: Path,
        config_text: str,
        data: Path | None = None,
        *,
        options: tuple[str, ...] = (),
        variables: dict[str, str] | None = None,
    ) -> None:
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
        command += options
        environment = {**os.environ, **(variables or {})}
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
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


class StartOver(Protocol):
    """`listener` is added to each of the four listeners."""

    def __call__(
        self, config_text: str = ..., data: Path | None = ..., *, listener: str = ...
    ) -> BrokerProcess: ...


class ShareOver(Protocol):
    def __call__(self, config_text: str) -> BrokerProcess: ...


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


# --- each of the four transports in turn ------------------------------------------------


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    """Each of the four transports in turn."""
    found: str = request.param
    return found


@pytest.fixture(scope="session")
def four_process(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[BrokerProcess]:
    config_text = DEFAULT_CONFIG + four_listeners(certificates)
    process = BrokerProcess(tmp_path_factory.mktemp("four"), config_text)
    yield process
    process.check()
    assert process.stop() == 0


@pytest.fixture
def broker_over(
    four_process: BrokerProcess, scheme: str, certificates: Certificates
) -> Iterator[BrokerProcess]:
    """One broker that all tests share, over each transport in turn."""
    yield four_process.over(scheme, certificates)
    four_process.check()


@pytest.fixture
def start_over(start_broker: StartBroker, scheme: str, certificates: Certificates) -> StartOver:
    """Start brokers for this test alone, as `start_broker` does, over each transport in turn."""

    def start(
        config_text: str = DEFAULT_CONFIG, data: Path | None = None, *, listener: str = ""
    ) -> BrokerProcess:
        text = config_text + four_listeners(certificates, listener)
        return start_broker(text, data).over(scheme, certificates)

    return start


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerProcess]]:
    """The brokers that the tests of a module share, by their configuration."""
    started: dict[str, BrokerProcess] = {}
    yield started
    for process in started.values():
        process.check()
        assert process.stop() == 0


@pytest.fixture
def share_over(
    processes: dict[str, BrokerProcess],
    tmp_path_factory: pytest.TempPathFactory,
    scheme: str,
    certificates: Certificates,
) -> Iterator[ShareOver]:
    """Share one broker of a configuration with the other tests of the module, over each transport in turn."""
    used: list[BrokerProcess] = []

    def share(config_text: str) -> BrokerProcess:
        text = config_text + four_listeners(certificates)
        if text not in processes:
            processes[text] = BrokerProcess(tmp_path_factory.mktemp("shared"), text)
        used.append(processes[text])
        return processes[text].over(scheme, certificates)

    yield share
    for process in used:
        process.check()


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
