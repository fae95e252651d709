"""Rare paths are counted from what clients and traces saw."""

from __future__ import annotations

from tests.sim.deployment.plans import act, calm, plan, publish, run, subscribe

from timebound.sim.deployment.script import ClientSetting
from timebound.sim.deployment.swarm.paths import PATHS, count_paths

P, S = ClientSetting("p", "n1"), ClientSetting("s", "n1")


def test_calm_run_takes_none_of_them() -> None:
    counts = count_paths(calm())

    assert {path: counts[path] for path in PATHS if counts[path]} == {}


def test_ticks_alarms_correlations_and_retained_messages_are_told_apart() -> None:
    deployment = run(
        plan(
            publish(1, 1, retain=True, topic="b"),
            subscribe(2, "a/#", correlate="all(a/x, a/y)", watchdog="2s", every="5s"),
            subscribe(2.5, "b"),
            publish(3, 2, topic="a/x"),
            publish(3.5, 3, topic="a/y"),
            clients=(P, S),
        )
    )

    counts = count_paths(deployment)

    assert counts["retained replay"] == 1
    assert counts["correlation"] == 2
    assert counts["watchdog"] >= 2
    assert counts["tick"] >= 1


def test_message_that_another_member_got_counts_as_shared_redelivery() -> None:
    members = (
        ClientSetting("m1", "n1", expiry_s=0, ack_delay_ns=10**10),
        ClientSetting("m2", "n1", expiry_s=0),
    )
    deployment = run(
        plan(
            subscribe(1, "$share/g/a/#", who="m1"),
            publish(2, 1, qos=1),
            subscribe(3, "$share/g/a/#", who="m2"),
            act(4, "vanish", "m1"),
            clients=(P, *members),
        )
    )

    assert [one.client for one in deployment.history.arrivals if one.number == 1] == ["m1", "m2"]
    assert count_paths(deployment)["shared redelivery"] == 1
