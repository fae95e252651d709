"""A node's lives: what it keeps, what it loses, and how its clock moves."""

from __future__ import annotations

from timebound.sim.deployment.host import Host
from timebound.sim.deployment.node import EPOCH_NS
from timebound.units import SECOND

from .plans import act, plan, publish, run, subscribe


def test_restart_begins_a_new_life_with_what_is_on_disk() -> None:
    deployment = run(plan(subscribe(1, "a/#"), act(3, "crash", "n1"), act(4, "restart", "n1")))
    node = deployment.nodes["n1"]

    assert node.life == 2
    assert [key for key, _ in node.disk.tables.subscriptions] == ["s"]
    session = node.broker.session("s")
    assert session is not None
    assert list(session.subscriptions) == ["a/#"]


def test_clock_that_was_set_shows_after_a_restart() -> None:
    deployment = run(
        plan(
            act(1, "clock", "n1", step_ns=-3_600 * SECOND),
            act(3, "crash", "n1"),
            act(4, "restart", "n1"),
        )
    )
    node = deployment.nodes["n1"]

    assert deployment.history.counts["restart with another clock"] == 1
    assert node.now_ns() == deployment.kernel.now_ns + EPOCH_NS - 3_600 * SECOND


def test_crash_ends_every_connection_and_clients_come_back() -> None:
    deployment = run(plan(act(3, "crash", "n1"), act(4, "restart", "n1")))
    node: Host = deployment.nodes["n1"]

    assert node.connected() == 3  # with the probe
    assert all(client.is_open for client in deployment.clients.values())


def test_failing_disk_holds_back_acknowledgements() -> None:
    failing = (act(2, "disk-fails", "n1"), act(6, "disk-works", "n1"))

    deployment = run(plan(subscribe(1, "a/#"), *failing, publish(3, 1, qos=1)))

    assert deployment.history.messages[1].acked_ns > 6 * SECOND
    assert deployment.history.counts["commit after a failure"] == 1
    assert not deployment.failures
