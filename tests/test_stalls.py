"""The watch over the machine notices a stall, and how long it was."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.stalls import StallWatch


def test_a_stop_is_measured() -> None:
    with StallWatch() as watch:
        os.kill(watch.pid, signal.SIGSTOP)
        began_s = time.monotonic()
        time.sleep(0.1)
        stopped_s = time.monotonic() - began_s
        os.kill(watch.pid, signal.SIGCONT)

    assert watch.longest_s >= 0.09
    assert watch.total_s >= watch.longest_s
    assert watch.longest_s == pytest.approx(stopped_s, abs=0.25)  # it may have to wait for a processor
