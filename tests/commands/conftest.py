"""Commands in the process of the tests, and a broker that they may change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands.shell import Done, Run
from tests.conftest import BrokerProcess

from timebound.cli import main

# A fixed quantum: delay bounds must not depend on how busy the machine is.
CONTROLLED = """
sys_interval = "100ms"
[[listeners]]
name = "field"
port = 0
[[listeners]]
name = "office"
port = 0
[input]
quantum_time = "100us"
[[weights]]
topic = "alarm/#"
weight = 4
[[neighbours]]
name = "hill"
"""


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, as `timebound` would; starting one takes half a second."""
    monkeypatch.setenv("COLUMNS", "200")

    def run_here(*words: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["timebound", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capfdbinary.readouterr()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return Done(code, captured.out, captured.err)

    return run_here


@pytest.fixture(scope="session")
def controlled_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("controlled"), CONTROLLED)
    yield process
    process.check()
    assert process.stop() == 0


@pytest.fixture
def controlled(controlled_process: BrokerProcess) -> Iterator[BrokerProcess]:
    """A broker whose strategies and weights tests may change; each sets what it relies on."""
    yield controlled_process
    controlled_process.check()
