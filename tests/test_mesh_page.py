"""The pairs of brokers on docs/mesh.md, run as they stand: only addresses and ports are filled in."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import timebound
from tests.node.mesh.live_mesh import free_ports

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "mesh.md").read_text()
TIMEOUT_S = 30.0
# The programs run in a folder of their own: relative paths to the package would not lead to it.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(timebound.__file__).parents[1])}


def write_pair(folder: Path, number: int, changes: dict[str, str]) -> None:
    """Write the page's pair of this number, with some texts replaced."""
    blocks = re.findall(r"```toml\n# (plant-[12]\.toml)\n(.*?)```", PAGE, re.DOTALL)
    for name, text in blocks[2 * number : 2 * number + 2]:
        for old, new in changes.items():
            text = text.replace(old, new)
        (folder / name).write_text(text)


def calls(verb: str) -> list[list[str]]:
    lines = [line.strip() for line in PAGE.splitlines() if line.startswith("    timebound ")]
    found = [shlex.split(line)[1:] for line in lines]
    return [call for call in found if call[0] == verb]


class Started:
    """Programs that were started in a folder, with what they log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, call: list[str]) -> subprocess.Popen[bytes]:
        log = (self.folder / f"log-{len(self.processes)}").open("wb")
        with log:
            command = [sys.executable, "-m", "timebound", *call]
            process = subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, stdout=log, stderr=log)
        self.processes.append(process)
        return self.processes[-1]

    def wait_logged(self, number: int, text: str) -> None:
        end_s = time.monotonic() + TIMEOUT_S
        while text not in (log := (self.folder / f"log-{number}").read_text()):
            assert time.monotonic() < end_s, f"{text!r} is not in {log!r}"
            time.sleep(0.01)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(TIMEOUT_S)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    programs = Started(tmp_path)
    yield programs
    programs.end()


def wait_linked(started: Started) -> None:
    for number in (0, 1):
        started.wait_logged(number, f"link to 'plant-{2 - number}' is up")


def test_the_first_pair_links_and_passes_messages_on(started: Started) -> None:
    ports = dict(zip(("1883", "1884"), map(str, free_ports(2)), strict=True))
    write_pair(started.folder, 0, ports)
    serves, [subscribe], [publish] = calls("serve"), calls("sub"), calls("pub")
    assert len(serves) == 2

    for call in serves:
        started.start(call)
    wait_linked(started)
    [subscribe, publish] = [[ports.get(word, word) for word in call] for call in (subscribe, publish)]
    started.start(subscribe)
    started.wait_logged(1, "connected as")
    end_s = time.monotonic() + TIMEOUT_S
    while b"plant/temp 21" not in (started.folder / "log-2").read_bytes():
        assert time.monotonic() < end_s
        assert started.start(publish).wait(TIMEOUT_S) == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_pair_between_machines_links_with_password_and_the_certificates_of_the_page(
    started: Started,
) -> None:
    folder = started.folder
    [port] = free_ports(1)
    write_pair(folder, 1, {"10.0.0.2": "127.0.0.1", "8883": str(port), "0.0.0.0": "127.0.0.1"})
    with (folder / "plant-1.toml").open("a") as config:
        config.write("[[listeners]]\nport = 0\n")
    [script] = re.findall(r"```sh\n(openssl .*?)```", PAGE, re.DOTALL)
    script = script.replace("10.0.0.2", "127.0.0.1")
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True, capture_output=True, timeout=TIMEOUT_S)
    (folder / "plant-2.password").write_text("let me in\n")
    [set_password] = re.findall(r"`timebound (passwd users plant-1)`", PAGE)
    command = [sys.executable, "-m", "timebound", *shlex.split(set_password)]
    subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, input=b"let me in\n", check=True, capture_output=True
    )

    for number in (1, 2):
        started.start(["serve", "--config", f"plant-{number}.toml", "--data", f"data-{number}"])

    wait_linked(started)
    started.wait_logged(1, "broker 'plant-1' connected as 'plant-1'")
