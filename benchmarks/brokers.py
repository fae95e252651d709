"""Brokers as real processes, for the benchmarks: how each is started, and what it costs.

Each gets a configuration that a fair person would give it: TCP_NODELAY, no disk where nothing has
to be kept, queues long enough that a benchmark is not decided by a default limit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import timebound
from timebound.bench.handshake import open_connections
from timebound.bench.options import LoadOptions
from timebound.errors import ConnectError
from timebound.version import VERSION, is_compiled

SOURCE: Final = Path(__file__).resolve().parent.parent / "src"
START_S_MAX: Final = 20.0
STOP_S_MAX: Final = 10.0
# Debian puts servers where the search path of ordinary users does not look.
_SERVER_FOLDERS: Final = "/usr/sbin:/usr/local/sbin"

_MOSQUITTO: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_inflight_messages {window}
max_queued_messages 100000
log_type error
"""
_NATS: Final = """\
server_name: bench
listen: "127.0.0.1:-1"
jetstream {{ store_dir: "{folder}" }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: {window} }}
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of broker: the command that starts it, or why it cannot be started."""

    name: str
    version: str
    missing: str = ""  # why it is left out; empty = it can run
    program: str = ""
    mqtt_versions: tuple[int, ...] = (4, 5)
    is_compiled: bool = False
    packages: str = ""  # the folder that Timebound is imported from; empty = as this process does
    settings: str = ""  # a configuration in TOML, for Timebound


class RunningBroker:
    """A started broker process, with what it has used so far."""

    def __init__(self, kind: Kind, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.kind = kind
        self.port = port
        self.process = process
        self._log = log

    def cpu_s(self) -> float:
        """Return the processor time that its threads have used so far, in user code and kernel."""
        # To the nanosecond; /proc/PID/stat counts whole ticks of 10 ms, as they happen to strike.
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def rss_bytes(self) -> int:
        """Return the memory it holds now."""
        return self._status_bytes("VmRSS")

    def rss_bytes_max(self) -> int:
        """Return the most memory it ever held."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise ValueError(f"/proc/{self.process.pid}/status has no {name}")

    def wait_ready(self) -> None:
        """Wait until it answers a CONNECT, at most START_S_MAX."""
        end = time.monotonic() + START_S_MAX
        version = self.kind.mqtt_versions[0]
        while True:
            try:
                options = LoadOptions(port=self.port, mqtt_version=version, timeout_s=1.0)
                open_connections(options, ["ready"])[0].sock.close()
                return
            except ConnectError as error:
                is_over = self.process.poll() is not None
                if is_over or time.monotonic() > end:
                    said = self._log.read_text(errors="replace")[-2000:]
                    raise RuntimeError(
                        f"{self.kind.name} did not start ({error}); it said:\n{said}"
                    ) from error
                time.sleep(0.05)


def find_kinds(names: list[str]) -> list[Kind]:
    """Look up brokers by name: timebound, timebound-pure, mosquitto, nats."""
    finders = {
        "timebound": _find_timebound,
        "timebound-pure": _find_pure,
        "mosquitto": _find_mosquitto,
        "nats": _find_nats,
    }
    unknown = [name for name in names if name not in finders]
    if unknown:
        raise ValueError(f"broker {unknown[0]!r} is unknown ({', '.join(finders)})")
    return [finders[name]() for name in names]


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout + done.stderr).strip().partition("\n")[0]


def _find_timebound() -> Kind:
    how = "compiled" if is_compiled() else "uncompiled"
    return Kind("timebound", f"timebound {VERSION}, {how}", program=sys.executable, is_compiled=is_compiled())


def _find_pure() -> Kind:
    return Kind("timebound-pure", "timebound from src, uncompiled", program=sys.executable)


def _find_program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SERVER_FOLDERS}")


def _find_mosquitto() -> Kind:
    program = _find_program("mosquitto")
    if program is None:
        return Kind("mosquitto", "", missing="not installed (Debian: mosquitto)")
    return Kind("mosquitto", _first_line([program, "-h"]), program=program)


def _find_nats() -> Kind:
    program = _find_program("nats-server")
    if program is None:
        return Kind("nats", "", missing="not installed (Debian: nats-server)")
    return Kind("nats", _first_line([program, "--version"]), program=program, mqtt_versions=(4,))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def running(kind: Kind, *, window: int = 1000) -> Iterator[RunningBroker]:
    """Start a broker in a folder of its own, wait until it answers, and stop it in the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a broker that gives up root still has to read its configuration
        port = free_port()
        command, environment = _command(kind, port, folder, window)
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder
            )
        broker = RunningBroker(kind, port, process, log)
        try:
            broker.wait_ready()
            yield broker
        finally:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S_MAX)


def _command(kind: Kind, port: int, folder: Path, window: int) -> tuple[list[str], dict[str, str]]:
    # Not the folder we were started in: the broker has its own, so a relative search path would fail.
    packages = kind.packages or str(Path(timebound.__file__).parent.parent)
    environment = os.environ | {"PYTHONPATH": packages}
    if kind.name.startswith("timebound"):
        if kind.name == "timebound-pure":
            # A copy without compiled modules, wherever a build may have left some.
            sources = folder / "src"
            shutil.copytree(SOURCE, sources, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
            environment["PYTHONPATH"] = str(sources)
        serve = [
            kind.program,
            "-m",
            "timebound",
            "serve",
            "--port",
            str(port),
            "--data",
            str(folder / "data"),
        ]
        if kind.settings:
            file = folder / "broker.toml"
            file.write_text(kind.settings)
            serve += ["--config", str(file)]
        return serve, environment
    template = _MOSQUITTO if kind.name == "mosquitto" else _NATS
    file = folder / "broker.conf"
    file.write_text(template.format(port=port, folder=folder, window=window))
    return [kind.program, "-c", str(file)], environment
