"""The experiments with two processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from timebound.bench import channel_federated

# Beside each other they would delay each other, at the same priorities of one processor.
pytestmark = pytest.mark.xdist_group("real-time")


def test_failure_of_a_measuring_process_carries_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    child = ["-c", 'print(\'{"error": "channel left did not learn"}\')']
    monkeypatch.setattr(
        channel_federated,
        "_start",
        lambda *_: subprocess.Popen(
            [sys.executable, *child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ),
    )

    with pytest.raises(RuntimeError, match="measuring process failed: channel left did not learn"):
        channel_federated.measure_two_processes(3)


def test_two_processes_time_local_and_remote_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_federated, "SUPPLIERS", (2,))
    monkeypatch.setattr(channel_federated, "CONSUMERS", (5,))

    (row,) = channel_federated.measure_two_processes(3)

    assert row.near.count == row.far.count == 2 * 2 * 5 * 3
    assert row.far.min_us > row.near.min_us
