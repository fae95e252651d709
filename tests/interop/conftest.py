"""A broker with every kind of listener, for real clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import BrokerProcess, Certificates

CONFIG = """\
sys_interval = "100ms"
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
"""


@pytest.fixture(scope="session")
def open_process(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("open"), CONFIG.format(certificates=certificates))
    yield process
    process.check()
    process.stop()


@pytest.fixture
def opened(open_process: BrokerProcess) -> Iterator[BrokerProcess]:
    """The broker with listeners `mqtt:`, `mqtts:` and `ws:`."""
    yield open_process
    open_process.check()
