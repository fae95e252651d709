"""Short runs of the demo with a real broker.

How much is in time depends on the machine, so only what must hold on any is asserted here.
"""

from __future__ import annotations

import subprocess

import pytest

from timebound.demo.brokers import ours
from timebound.demo.overload import OverloadResult, OverloadSetting, run
from timebound.demo.report import notes
from timebound.demo.slow_link import why_no_interface

RATE = 125_000.0


@pytest.fixture(scope="module")
def outcome() -> OverloadResult:
    passed: list[float] = []
    found = run(ours("worth"), 2.0, OverloadSetting(RATE, 1.0, qos=1, buffer_s=0.2), passed.append)
    assert sum(passed) == pytest.approx(found.setting.run_s, rel=0.2)
    return found


def test_every_message_offered_is_judged(outcome: OverloadResult) -> None:
    offered = sum(len(traffic.fates) * traffic.kind.frame_bytes for traffic in outcome.traffics)

    assert offered == pytest.approx(2 * RATE * 1.0, rel=0.25)
    for traffic in outcome.traffics:
        arrived = sum(fate.arrived_ns > 0 for fate in traffic.fates)
        assert arrived == traffic.in_time() + traffic.late()
        assert all(fate.arrived_ns >= fate.published_ns for fate in traffic.fates if fate.arrived_ns)
    assert outcome.traffics[0].in_time() > 0


def test_the_account_agrees_with_the_receiver(outcome: OverloadResult) -> None:
    account = outcome.account
    in_time = sum(traffic.in_time() for traffic in outcome.traffics)
    late = sum(traffic.late() for traffic in outcome.traffics)

    assert account is not None
    # What arrived is acknowledged or on its way back; what was late for the receiver is late here.
    assert account.in_time <= in_time
    assert account.in_time + account.late <= in_time + late
    assert in_time + late - account.in_time - account.late <= account.under_way
    assert "acknowledged" in notes([outcome])[0]


@pytest.mark.skipif(bool(why_no_interface()), reason=why_no_interface() or "possible")
def test_a_real_interface_is_used_and_removed() -> None:
    before = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout

    setting = OverloadSetting(RATE, 1.0, qos=1, buffer_s=0.1, wants_interface=True)
    found = run(ours("worth"), 0.5, setting, lambda _: None)

    assert all(traffic.in_time() + traffic.late() for traffic in found.traffics)
    after = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert len(after.split()) <= len(before.split())


def test_nothing_earns_more_than_the_best(outcome: OverloadResult) -> None:
    assert 0 < outcome.value <= outcome.value_best * 1.001
    assert outcome.link_used < 1.05
