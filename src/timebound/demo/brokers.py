"""Brokers as real processes, for demos and benchmarks: this one with a strategy, and Mosquitto."""

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
from timebound.core.scheduling import STRATEGY_NAMES
from timebound.errors import TimeboundError

START_S_MAX: Final = 20.0
STOP_S_MAX: Final = 10.0
MOSQUITTO: Final = "mosquitto"
# Debian puts servers where the search path of ordinary users does not look.
_SERVER_FOLDERS: Final = "/usr/sbin:/usr/local/sbin"
_TIMEBOUND_CONFIG: Final = """\
sys_interval = "0s"
[[listeners]]
host = "127.0.0.1"
port = {port}
strategy = "{strategy}"
[log]
level = "warning"
"""
# Queues as long as ours: the demo is about order, not about a default limit.
_MOSQUITTO_CONFIG: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 100000
sys_interval 0
log_type error
"""


@dataclass(frozen=True, slots=True)
class Contender:
    """A broker and how it chooses."""

    label: str
    strategy: str  # "" for a broker that has none
    more_config: str = ""  # tables to add to the configuration of ours

    @property
    def is_ours(self) -> bool:
        return bool(self.strategy)


def ours(strategy: str) -> Contender:
    """This broker; raises ValueError for a strategy that does not exist."""
    if strategy not in STRATEGY_NAMES:
        raise ValueError(f"strategy {strategy!r} is unknown; choose one of {', '.join(STRATEGY_NAMES)}")
    return Contender(f"timebound {strategy}", strategy)


def mosquitto_program() -> str | None:
    """Where Mosquitto is installed, or None."""
    return shutil.which(MOSQUITTO, path=f"{os.environ.get('PATH', '')}:{_SERVER_FOLDERS}")


@contextlib.contextmanager
def running(contender: Contender) -> Iterator[int]:
    """Start a broker, wait until it listens, give its port, and stop it in the end.

    Raises:
        TimeboundError: it did not start.
    """
    with tempfile.TemporaryDirectory(prefix="timebound-demo-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a broker that gives up root still has to read its configuration
        port = _free_port()
        command, environment = _command(contender, port, folder)
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder
            )
        try:
            _wait_listening(contender, process, port, log)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S_MAX)


def _command(contender: Contender, port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    config = folder / "broker.conf"
    # The broker runs in a folder of its own, so a relative search path would fail.
    environment = os.environ | {"PYTHONPATH": str(Path(timebound.__file__).parent.parent)}
    if contender.is_ours:
        text = _TIMEBOUND_CONFIG.format(port=port, strategy=contender.strategy)
        config.write_text(text + contender.more_config)
        command = [sys.executable, "-m", "timebound", "serve", "--memory", "--config", str(config)]
        return command, environment
    program = mosquitto_program()
    if program is None:
        raise TimeboundError("mosquitto is not installed (Debian: mosquitto)")
    config.write_text(_MOSQUITTO_CONFIG.format(port=port))
    return [program, "-c", str(config)], environment


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _wait_listening(contender: Contender, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end_s = time.monotonic() + START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > end_s:
                said = log.read_text(errors="replace")[-2_000:]
                raise TimeboundError(f"{contender.label} did not start; it said:\n{said}") from error
            time.sleep(0.05)
