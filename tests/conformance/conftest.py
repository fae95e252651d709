"""What the standard says holds over every transport: `broker` is each of the four in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import FOUR_LISTENERS, BrokerProcess, Certificates
from tests.peer import SCHEMES


@pytest.fixture(scope="session")
def four_process(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[BrokerProcess]:
    config = 'sys_interval = "100ms"\n' + FOUR_LISTENERS.format(certificates=certificates)
    process = BrokerProcess(tmp_path_factory.mktemp("four"), config)
    yield process
    process.check()
    assert process.stop() == 0


@pytest.fixture(params=SCHEMES)
def broker(
    request: pytest.FixtureRequest, four_process: BrokerProcess, certificates: Certificates
) -> Iterator[BrokerProcess]:
    yield four_process.over(request.param, certificates)
    four_process.check()
