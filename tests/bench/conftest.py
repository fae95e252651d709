"""A real Mosquitto as the broker under load: plain and with TLS."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

START_S_MAX = 10.0
PROGRAM = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@dataclass(frozen=True)
class Mosquitto:
    port: int
    tls_port: int
    ca_file: str


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    if PROGRAM is None:
        pytest.skip("mosquitto is not installed (Debian: mosquitto)")
    folder = tmp_path_factory.mktemp("mosquitto")
    broker = Mosquitto(free_port(), free_port(), str(folder / "ca.pem"))
    configuration = write_configuration(folder, broker)
    process = subprocess.Popen([PROGRAM, "-c", str(configuration)], stderr=subprocess.PIPE)
    assert process.stderr is not None
    with process, process.stderr:
        try:
            wait_listening(process, broker)
            yield broker
        finally:
            process.terminate()


def write_configuration(folder: Path, broker: Mosquitto) -> Path:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(broker.ca_file)
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    lines = [
        f"user {getpass.getuser()}",  # it must go on reading the key
        "allow_anonymous true",
        "log_type error",
        "max_queued_messages 100000",
        f"listener {broker.port} 127.0.0.1",
        f"listener {broker.tls_port} 127.0.0.1",
        f"certfile {folder / 'cert.pem'}",
        f"keyfile {folder / 'key.pem'}",
    ]
    file = folder / "mosquitto.conf"
    file.write_text("\n".join(lines) + "\n")
    return file


def wait_listening(process: subprocess.Popen[bytes], broker: Mosquitto) -> None:
    end = time.monotonic() + START_S_MAX
    for port in (broker.port, broker.tls_port):
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.02)
