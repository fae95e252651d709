"""What the standard says holds over every transport: `broker` is each of the four in turn."""

from __future__ import annotations

import pytest
from tests.conftest import BrokerProcess


@pytest.fixture
def broker(broker_over: BrokerProcess) -> BrokerProcess:
    return broker_over
