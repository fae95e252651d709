"""The channel's examples run and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {
    "channel_correlation.py": [
        "fused: position (52.6, 13.4), speed 13",
        "engine: temperature 88",
        "engine: silent!",
    ],
    "channel_scheduling.py": [
        "operation 'video' is not schedulable (period=20ms, cost=8ms): 'logging' would finish after 80ms, "
        "but its period is 40ms (utilisation 120.0%); available: cost up to 4ms or period from 40ms",
        "control: priority 0, bound 4 ms",
        "logging: priority 1, bound 28 ms",
    ],
    "channel_file.py": [
        "fused [(52.5, 13.4), 13]",
        "line 9 has a mistake: dispatching.module",
        "line 31 has a mistake: operations[1].critical",
        "fused [(52.6, 13.5), 14]",
        "fuse: 2 ms each 20 ms",
    ],
    "channel_federation.py": [
        "bridge: alarm oil pressure from engine room",
        "deck: alarm oil pressure from engine room",
    ],
    "channel_asyncio.py": ["shown 0", "shown 1", "shown 2", "stored 0", "stored 1", "stored 2"],
}


def test_every_example_of_the_channel_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("channel_*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example_prints_what_it_promises(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    result = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=50,
        env=environment,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == EXPECTED[name]
