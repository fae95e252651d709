"""One experiment over a real slow interface: a broker, a publisher beside it, a receiver behind the link.

All three are processes of their own. In a mesh the slow link lies between two brokers: the publisher is
beside the first one, the receiver beside the second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any, Final

import timebound
from timebound.demo.best import SendJob, most_bytes
from timebound.demo.brokers import MOSQUITTO_CONFIG, mosquitto_program
from timebound.demo.interface import FAR_ADDRESS, NEAR_ADDRESS, ShapedInterface, payload_rate
from timebound.demo.traffic import Fate, Traffic, TrafficClass
from timebound.errors import TimeboundError
from timebound.units import MILLISECOND, SECOND

CLASSES: Final = (
    TrafficClass("alerts", 200, 500 * MILLISECOND, 10.0, 0.03),
    TrafficClass("telemetry", 400, 2 * SECOND, 1.0, 0.57),
    TrafficClass("bulk", 1_200, 8 * SECOND, 1.0, 0.40),
)
PORT: Final = 1883
# What a copy between brokers adds to the message: its packet id, and the property `mesh`.
COPY_BYTES: Final = 75
_START_S_MAX: Final = 20.0
_STOP_S_MAX: Final = 10.0
# After the last message, so that messages in transit arrive.
_AFTER_S: Final = 0.5
# The broker's estimate of the link has settled after this; only then its socket is judged.
SETTLED_S: Final = 1.0

_LISTENER: Final = """\
[[listeners]]
host = "{host}"
port = {port}
kind = "{kind}"
allow_anonymous = true
{more}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One experiment; rates count bytes on the wire."""

    wire_bytes_per_s: float
    buffer_s: float
    load: float
    seconds: float
    wire: str = "tcp"  # or tls, websocket
    qos: int = 0
    falls_to: float = 1.0  # share of the rate in the second half of the time
    is_mesh: bool = False  # the slow link is one between brokers
    is_mosquitto: bool = False
    listener_config: str = ""  # more keys for this broker
    tls_config: str = ""  # the table with the certificate, for TLS
    seed: int = 1


@dataclass(frozen=True, slots=True)
class InterfaceResult:
    """What arrived, and what the sending socket held."""

    case: Case
    traffics: list[Traffic]
    value_best: float
    held: list[tuple[int, int]]  # unacknowledged bytes, unsent bytes; in the first half, settled

    @property
    def value(self) -> float:
        return sum(traffic.in_time() * traffic.kind.price for traffic in self.traffics)

    @property
    def share_of_best(self) -> float:
        return self.value / self.value_best

    @property
    def unsent_max(self) -> int:
        return max((unsent for _, unsent in self.held), default=0)

    @property
    def held_median(self) -> float:
        return median(held for held, _ in self.held) if self.held else 0.0

    def in_time_share(self, name: str) -> float:
        traffic = self._of(name)
        return traffic.in_time() / len(traffic.fates)

    def late_share(self, name: str) -> float:
        """Return the share of the arrived messages that were late."""
        traffic = self._of(name)
        return traffic.late() / max(len(traffic.delays_ns()), 1)

    def age_s(self, name: str, part: float = 0.5) -> float:
        ages = self._of(name).delays_ns()
        return ages[min(int(len(ages) * part), len(ages) - 1)] / SECOND if ages else float("inf")

    def _of(self, name: str) -> Traffic:
        return next(traffic for traffic in self.traffics if traffic.kind.name == name)


def run(case: Case) -> InterfaceResult:
    """Run one case; raises TimeboundError if one of its processes does not start."""
    with (
        tempfile.TemporaryDirectory(prefix="timebound-link-") as name,
        ShapedInterface(case.wire_bytes_per_s, case.buffer_s) as link,
    ):
        folder = Path(name)
        folder.chmod(0o755)  # a broker that drops root must still read its configuration
        with _brokers(case, link, folder):
            return _drive(case, link)


def _drive(case: Case, link: ShapedInterface) -> InterfaceResult:
    settings: dict[str, Any] = {
        "classes": [dataclasses.astuple(kind) for kind in CLASSES],
        "host": "127.0.0.1" if case.is_mesh else NEAR_ADDRESS,
        "port": PORT + 1 if case.wire != "tcp" else PORT,
        "wire": case.wire,
        "qos": case.qos,
        "timed": not case.is_mosquitto,
    }
    with _process(link.far_command, "receive", settings) as receiver:
        _expect(receiver, "ready")
        settings |= {
            "host": "127.0.0.1",
            "port": PORT,
            "bytes_per_s": case.load * payload_rate(case.wire_bytes_per_s),
            "seconds": case.seconds,
            "seed": case.seed,
            "watched": FAR_ADDRESS,
        }
        started_ns = time.monotonic_ns()
        with _process(link.near_command, "publish", settings) as publisher:
            time.sleep(case.seconds / 2)
            if case.falls_to != 1.0:
                link.shape(case.wire_bytes_per_s * case.falls_to)
            fallen_ns = time.monotonic_ns()
            sent = _answer(publisher)
        time.sleep(_AFTER_S)
        until_ns = time.monotonic_ns()
        assert receiver.stdin is not None
        receiver.stdin.close()
        got = _answer(receiver)
    traffics = _traffics(sent["published"], got["arrivals"])
    settled_ns = started_ns + int(SETTLED_S * SECOND)
    held = [(all_, unsent) for at_ns, all_, unsent in sent["held"] if settled_ns < at_ns < fallen_ns]
    return InterfaceResult(case, traffics, _best_value(case, traffics, fallen_ns, until_ns), held)


def _best_value(case: Case, traffics: list[Traffic], fallen_ns: int, until_ns: int) -> float:
    """Return the most value that the link could carry until the end of the observation (`best.py`).

    A link that becomes slower is treated as one of the same rate whose time passes more slowly.
    """

    def link_time(at_ns: int) -> int:
        at_ns = min(at_ns, until_ns)
        return min(at_ns, fallen_ns) + int(max(at_ns - fallen_ns, 0) * case.falls_to)

    value = before = 0.0
    jobs: list[SendJob] = []
    for traffic in sorted(traffics, key=lambda one: -one.kind.value_per_byte):
        kind = traffic.kind
        size = kind.frame_bytes + (COPY_BYTES if case.is_mesh else 0)
        for fate in traffic.fates:
            due_ns = link_time(fate.published_ns + kind.deadline_ns)
            jobs.append(SendJob(link_time(fate.published_ns), due_ns, size))
        most = most_bytes(jobs, payload_rate(case.wire_bytes_per_s))
        value += max(most - before, 0.0) / size * kind.price
        before = most
    return value


def _traffics(published: list[tuple[str, int, int]], arrivals: list[tuple[str, int, int]]) -> list[Traffic]:
    by_name = {kind.name: Traffic(kind) for kind in CLASSES}
    for name, _, at_ns in published:
        by_name[name].fates.append(Fate(at_ns))
    for name, number, at_ns in arrivals:
        fate = by_name[name].fates[number]
        if not fate.arrived_ns:
            fate.arrived_ns = at_ns
    return list(by_name.values())


@contextlib.contextmanager
def _brokers(case: Case, link: ShapedInterface, folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if case.is_mosquitto:
            config = folder / "mosquitto.conf"
            config.write_text(MOSQUITTO_CONFIG.format(port=PORT, host="0.0.0.0"))
            program = mosquitto_program()
            if program is None:
                raise TimeboundError("mosquitto is not installed (Debian: mosquitto)")
            stack.enter_context(_broker(link.near_command(program, "-c", str(config)), folder / "near"))
        elif case.is_mesh:
            near = f'[[neighbours]]\nname = "far"\nhost = "{FAR_ADDRESS}"\nport = {PORT}\n'
            far = '[[neighbours]]\nname = "near"\n'
            for name, more, command in (("far", far, link.far_command), ("near", near, link.near_command)):
                text = f'node_name = "{name}"\n' + _config(case) + more
                stack.enter_context(_broker(command(*_ours(folder, name, text)), folder / name))
        else:
            stack.enter_context(
                _broker(link.near_command(*_ours(folder, "near", _config(case))), folder / "near")
            )
        yield


def _config(case: Case) -> str:
    text = 'sys_interval = "0s"\n[log]\nlevel = "warning"\n'
    text += _LISTENER.format(host="0.0.0.0", port=PORT, kind="tcp", more=case.listener_config)
    if case.wire != "tcp":
        kind = "websocket" if case.wire == "websocket" else "tcp"
        text += _LISTENER.format(host="0.0.0.0", port=PORT + 1, kind=kind, more=case.listener_config)
        text += case.tls_config
    return text


def _ours(folder: Path, name: str, text: str) -> list[str]:
    config = folder / f"{name}.toml"
    config.write_text(text)
    return [sys.executable, "-m", "timebound", "serve", "--memory", "--config", str(config)]


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(timebound.__file__).parent.parent)}


@contextlib.contextmanager
def _broker(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_environment(),
            cwd=log.parent,
        )
    try:
        _wait_listening(process, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S_MAX)


def _wait_listening(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the process has a listening socket in its namespace."""
    end_s = time.monotonic() + _START_S_MAX
    wanted = f":{PORT:04X} "
    while True:
        table = Path(f"/proc/{process.pid}/net/tcp")
        if table.exists() and any(
            wanted in line and line.split()[3] == "0A" for line in table.read_text().splitlines()[1:]
        ):
            return
        if process.poll() is not None or time.monotonic() > end_s:
            raise TimeboundError(
                f"a broker did not start; its output:\n{log.read_text(errors='replace')[-2_000:]}"
            )
        time.sleep(0.02)


@contextlib.contextmanager
def _process(
    place: Callable[..., list[str]], role: str, settings: dict[str, Any]
) -> Iterator[subprocess.Popen[str]]:
    command = place(sys.executable, "-m", "timebound.demo.ends", role, json.dumps(settings))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _expect(process: subprocess.Popen[str], word: str) -> None:
    said = _output(process).readline().strip()
    if said != word:
        raise TimeboundError(f"an end of the experiment printed {said!r}, not {word!r}")


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    said = _output(process).readline()
    if not said:
        raise TimeboundError(
            f"an end of the experiment printed no result (exit code {process.wait(_STOP_S_MAX)})"
        )
    found: dict[str, Any] = json.loads(said)
    return found


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout
