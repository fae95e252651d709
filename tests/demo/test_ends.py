"""The two ends of an experiment as processes, over loopback to the shared broker."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest
from tests.conftest import BrokerProcess

from timebound.demo import ends
from timebound.demo.traffic import TrafficClass, plan
from timebound.units import SECOND

TIMEOUT_S = 30.0
KIND = TrafficClass("ends", 100, SECOND, 1.0, 1.0)


def start(role: str, settings: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", ends.__name__, role, json.dumps(settings)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("qos", [0, 1])
def test_what_one_end_publishes_arrives_at_the_other(broker: BrokerProcess, qos: int) -> None:
    settings: dict[str, Any] = {
        "classes": [dataclasses.astuple(KIND)],
        "host": "127.0.0.1",
        "port": broker.port,
        "wire": "tcp",
        "qos": qos,
        "timed": True,
        "bytes_per_s": 20_000.0,
        "seconds": 0.3,
        "seed": 1,
        "watched": "",
    }
    planned = len(plan(KIND, 20_000.0, 0.3, 1))

    with start("receive", settings) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        with start("publish", settings) as publisher:
            sent = json.loads(publisher.communicate(timeout=TIMEOUT_S)[0])["published"]
        got = json.loads(receiver.communicate(timeout=TIMEOUT_S)[0])["arrivals"]

    assert [number for _, number, _ in sent] == list(range(planned))
    assert {name for name, _, _ in got} <= {KIND.name}
    published = {number: at_ns for _, number, at_ns in sent}
    assert all(0 < at_ns - published[number] < 30 * SECOND for _, number, at_ns in got)
    # What was still under way when it was told to end may be missing.
    assert len(got) > 0.5 * planned
