"""A broker with every kind of listener, for real clients; `reached` is over each transport in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import DEFAULT_CONFIG, BrokerProcess, Certificates, four_listeners


@pytest.fixture(scope="session")
def open_process(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("open"), DEFAULT_CONFIG + four_listeners(certificates))
    yield process
    process.check()
    process.stop()


@pytest.fixture
def opened(open_process: BrokerProcess) -> Iterator[BrokerProcess]:
    """The broker with listeners `mqtt:`, `mqtts:`, `ws:` and `wss:`."""
    yield open_process
    open_process.check()


@pytest.fixture
def reached(opened: BrokerProcess, scheme: str, certificates: Certificates) -> BrokerProcess:
    """The same broker, over each of the four transports in turn."""
    return opened.over(scheme, certificates)
