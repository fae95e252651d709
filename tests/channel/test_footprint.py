"""What each configuration loads, measured in fresh processes by `benchmarks/channel_footprint.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import timebound.channel

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "channel_footprint.py"
LANES = {"timebound.channel.dispatch.lane", "timebound.channel.dispatch.lanes"}
TIMERS = {"timebound.channel.timing"}
SCHEDULING = {"timebound.channel.base.scheduling", "timebound.core.input.schedulability"}
SOCKETS = {"timebound.channel.federation.gateway", "timebound.channel.federation.remote", "socket"}
BROKER = {"timebound.channel.federation.brokered"}
LOOPS = {"timebound.channel.dispatch.aio", "asyncio"}
PULLING = {"timebound.channel.pulling"}
FILES = {"timebound.channel.config.reader", "tomllib"}
OPTIONAL = {
    "lanes": LANES,
    "timers": TIMERS,
    "scheduling": SCHEDULING,
    "sockets": SOCKETS,
    "broker": BROKER,
    "loops": LOOPS,
    "pulling": PULLING,
    "files": FILES,
}
EXPECTED = {
    "broadcast": set[str](),
    "broadcast, pulled": {"pulling"},
    "reactive with filtering": set[str](),
    "the same from a file": {"files"},
    "filtering": {"timers"},
    "dispatching": {"lanes", "timers"},
    "full": {"lanes", "timers"},
    "full, with an operation": {"lanes", "timers", "scheduling"},
    "asyncio": {"loops", "timers"},
    "filtering and a socket": {"sockets"},
}
# What asyncio is made of.
LOOPS_USE = {"socket"}


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(SCRIPT), "--runs", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return {
        result["configuration"]: {*result["timebound_modules"], *result["other_modules"]}
        for result in json.loads(done.stdout)
    }


def test_every_measured_configuration_is_expected(loaded: dict[str, set[str]]) -> None:
    assert set(loaded) == set(EXPECTED)


@pytest.mark.parametrize("configuration", sorted(EXPECTED))
def test_configuration_loads_its_own_modules_and_no_others(
    configuration: str, loaded: dict[str, set[str]]
) -> None:
    modules = loaded[configuration]
    if "loops" in EXPECTED[configuration]:
        modules = modules - LOOPS_USE

    for part, names in OPTIONAL.items():
        if part in EXPECTED[configuration]:
            assert names <= modules, part
        else:
            assert not names & modules, part


def test_smallest_configuration_loads_no_system_interfaces(loaded: dict[str, set[str]]) -> None:
    assert not loaded["broadcast"] & {"asyncio", "socket", "ssl", "select", "ctypes", "msgspec", "subprocess"}


def test_every_public_name_is_there() -> None:
    for name in timebound.channel.__all__:
        assert getattr(timebound.channel, name) is not None
        assert name in dir(timebound.channel)


def test_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Chanel'"):
        timebound.channel.Chanel  # noqa: B018  # the look-up is the test
