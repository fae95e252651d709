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
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import timebound
from timebound.core.link.strategy.registry import kind_named
from timebound.demo.slow_link import LOOPBACK, SlowLink
from timebound.errors import TimeboundError

START_S_MAX: Final = 20.0
STOP_S_MAX: Final = 10.0
MOSQUITTO: Final = "mosquitto"
# Debian installs servers outside the search path of ordinary users.
_SERVER_FOLDERS: Final = "/usr/sbin:/usr/local/sbin"
_TIMEBOUND_CONFIG: Final = """\
sys_interval = "0s"
[[listeners]]
host = "{host}"
port = {port}
strategy = "{strategy}"
allow_anonymous = true
{listener_config}
[metrics]
port = {metrics_port}
[log]
level = "warning"
"""
# Queues as long as this broker's: the demo compares order, not default limits.
MOSQUITTO_CONFIG: Final = """\
listener {port} {host}
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 100000
sys_interval 0
log_type error
"""


@dataclass(frozen=True, slots=True)
class Contender:
    """A broker and its strategy."""

    label: str
    strategy: str  # "" = it has none
    more_config: str = ""  # tables added to the configuration of this broker
    listener_config: str = ""  # keys added to its listener

    @property
    def is_ours(self) -> bool:
        return bool(self.strategy)


def ours(strategy: str) -> Contender:
    """Return this broker with a strategy; raises ValueError for an unknown one."""
    kind_named(strategy)
    return Contender(f"timebound {strategy}", strategy)


def mosquitto_program() -> str | None:
    """Return the path of Mosquitto, or None if it is not installed."""
    return shutil.which(MOSQUITTO, path=f"{os.environ.get('PATH', '')}:{_SERVER_FOLDERS}")


@dataclass(frozen=True, slots=True)
class ReportedDeliveries:
    """Deliveries as the broker counts them; unacknowledged ones are only in `under_way`."""

    in_time: int
    late: int
    under_way: int


@contextlib.contextmanager
def running(contender: Contender, link: SlowLink | None = None) -> Iterator[int]:
    """Start a broker, wait until it listens, yield its port, and stop it at the end.

    This broker serves its metrics on the next port (`read_account`).

    Raises:
        TimeboundError: it did not start.
    """
    with tempfile.TemporaryDirectory(prefix="timebound-demo-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a broker that drops root must still read its configuration
        link = link if link is not None else SlowLink(0.0, 0.0)
        with link.beside_broker():
            port = _free_ports()
        command, environment = _command(contender, port, folder, link.listen_host)
        command = link.command(command)
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder
            )
        try:
            _wait_listening(contender, process, port, log, link)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S_MAX)


def read_account(port: int, link: SlowLink) -> ReportedDeliveries:
    """Return the deliveries that this broker has counted so far; `port` is from `running`."""
    with link.beside_broker():
        url = f"http://{LOOPBACK}:{port + 1}/metrics"
        with urllib.request.urlopen(url, timeout=START_S_MAX) as answer:
            text = answer.read().decode()
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return ReportedDeliveries(
        int(float(figures['timebound_delivered_total{outcome="in_time"}'])),
        int(float(figures['timebound_delivered_total{outcome="late"}'])),
        int(float(figures["timebound_inflight_messages"])),
    )


def _command(contender: Contender, port: int, folder: Path, host: str) -> tuple[list[str], dict[str, str]]:
    config = folder / "broker.conf"
    # The broker runs in a folder of its own, where a relative search path would fail.
    environment = os.environ | {"PYTHONPATH": str(Path(timebound.__file__).parent.parent)}
    if contender.is_ours:
        text = _TIMEBOUND_CONFIG.format(
            host=host,
            port=port,
            metrics_port=port + 1,
            strategy=contender.strategy,
            listener_config=contender.listener_config,
        )
        config.write_text(text + contender.more_config)
        command = [sys.executable, "-m", "timebound", "serve", "--memory", "--config", str(config)]
        return command, environment
    program = mosquitto_program()
    if program is None:
        raise TimeboundError("mosquitto is not installed (Debian: mosquitto)")
    config.write_text(MOSQUITTO_CONFIG.format(port=port, host=host))
    return [program, "-c", str(config)], environment


def _free_ports() -> int:
    """Return the first of two adjacent free ports."""
    while True:
        with socket.create_server((LOOPBACK, 0)) as server:
            port: int = server.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError), socket.create_server((LOOPBACK, port + 1)):
                return port


def _wait_listening(
    contender: Contender, process: subprocess.Popen[bytes], port: int, log: Path, link: SlowLink
) -> None:
    end_s = time.monotonic() + START_S_MAX
    ports = [port, port + 1] if contender.is_ours else [port]  # metrics are served last
    while True:
        try:
            with link.beside_broker():
                for one in ports:
                    socket.create_connection((LOOPBACK, one), 1.0).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > end_s:
                said = log.read_text(errors="replace")[-2_000:] or "(nothing)"
                how = (
                    f"did not listen within {START_S_MAX:g} s" if process.poll() is None else "ended at once"
                )
                raise TimeboundError(f"{contender.label} {how}; its output:\n{said}") from error
            time.sleep(0.05)
