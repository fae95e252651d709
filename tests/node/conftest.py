"""Brokers in process, for tests of single parts of the node."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.node.doubles import Build, House

from timebound.config.limits import Limits


@pytest.fixture
async def build() -> AsyncIterator[Build]:
    houses: list[House] = []

    def make(limits: Limits | None = None, **more: object) -> House:
        house = House(limits or Limits(), **more)  # type: ignore[arg-type]  # passed on as they are
        houses.append(house)
        return house

    yield make
    for house in houses:
        house.driver.stop()
        house.logins.shutdown()
