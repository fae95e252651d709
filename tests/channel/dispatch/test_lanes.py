"""Lanes: order, isolation of slow and failing consumers, and real-time priorities."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from threading import get_ident, get_native_id

import pytest
from tests.channel.doubles import (
    LIMIT_S,
    Blocker,
    laned,
    patient,
    push_all,
    real_time_is_permitted,
    wait_until,
)

from timebound.channel import ChannelBuilder, ChannelError, Event, Kind, Lanes, Report
from timebound.channel.base.realtime import LANE_PRIORITY_MAX, LANE_PRIORITY_MIN, lane_priority
from timebound.channel.dispatch.lanes import LANES_MAX
from timebound.units import SECOND


def test_consumer_runs_in_its_lanes_thread_and_the_supplier_goes_on() -> None:
    gate = Blocker()
    with laned() as channel:
        channel.connect(gate, "a")
        supplier = channel.supplier("s", "a")
        supplier.push("a")
        supplier.push("a")
        assert gate.entered.wait(LIMIT_S)

        assert len(gate.payloads) == 1
        gate.release.set()
        wait_until(lambda: len(gate.payloads) == 2)


def test_inside_a_lane_sub_priority_decides_then_arrival() -> None:
    order: list[object] = []
    gate = Blocker()
    with laned() as channel:
        operation = channel.scheduler.operation
        hold = operation("gate", period="1s", cost="1ms")
        plain = operation("plain", period="1s", cost="1ms")
        critical = operation("critical", period="1s", cost="1ms", criticality=1)
        # Nobody is served by another thread meanwhile.
        patient(channel.connect(gate, "hold", operation=hold))
        patient(channel.connect(lambda e: order.append(("plain", e.payload)), "a", operation=plain))
        patient(channel.connect(lambda e: order.append(("critical", e.payload)), "b", operation=critical))
        supplier = channel.supplier("s", "hold", "a", "b")
        supplier.push("hold")
        assert gate.entered.wait(LIMIT_S)
        for event_type, payload in (("a", 1), ("a", 2), ("b", 1), ("b", 2)):
            supplier.push(event_type, payload)
        gate.release.set()
        wait_until(lambda: len(order) == 4)

    assert order == [("critical", 1), ("critical", 2), ("plain", 1), ("plain", 2)]


def test_each_period_has_a_lane_and_it_goes_with_its_last_consumer() -> None:
    threads: dict[str, int] = {}
    lanes = Lanes(real_time=False)
    with ChannelBuilder("c").filtering().dispatching(lanes).build() as channel:
        operation = channel.scheduler.operation
        for name, period in (("fast", "10ms"), ("fast too", "10ms"), ("slow", "1s")):
            consumer = channel.connect(
                lambda e, name=name: threads.__setitem__(name, get_ident()),  # type: ignore[misc]  # mypy cannot type the default
                "a",
                name=name,
                operation=operation(name, period=period, cost="1ms"),
            )
            patient(consumer)
        none = channel.connect(lambda e: threads.__setitem__("none", get_ident()), "a")
        assert len(lanes._lanes) == 3
        channel.supplier("s", "a").push("a")
        wait_until(lambda: len(threads) == 4)
        none.disconnect()

        assert len(lanes._lanes) == 2
    assert threads["fast"] == threads["fast too"]
    assert len(set(threads.values())) == 3


def test_consumer_never_runs_in_two_threads_and_keeps_its_order() -> None:
    inside = 0
    overlaps = 0
    order: list[object] = []

    def consumer(event: Event) -> None:
        nonlocal inside, overlaps
        inside += 1
        overlaps += inside > 1
        os.sched_yield()
        order.append(event.payload)
        inside -= 1

    with laned(threads=4) as channel:
        channel.connect(consumer, "a")
        supplier = channel.supplier("s", "a")
        push_all(supplier, "a", range(500))
        wait_until(lambda: len(order) == 500)

    assert order == list(range(500))
    assert overlaps == 0


def test_long_filter_holds_up_neither_the_supplier_nor_a_more_critical_consumer() -> None:
    order: list[str] = []
    gate = Blocker()

    def slow_filter(event: Event) -> bool:
        gate(event)
        return True

    with laned() as channel:
        operation = channel.scheduler.operation
        filtered = operation("filtered", period="1s", cost="1ms")
        critical = operation("critical", period="1s", cost="1ms", criticality=1)
        patient(
            channel.connect(lambda e: order.append("filtered"), "a", where=slow_filter, operation=filtered)
        )
        patient(channel.connect(lambda e: order.append("critical"), "b", operation=critical))
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a")
        assert gate.entered.wait(LIMIT_S)
        supplier.push("b")
        gate.release.set()
        wait_until(lambda: len(order) == 2)

    # The filter's event went back into the queue, behind what is more critical.
    assert order == ["critical", "filtered"]


def test_failing_consumer_even_one_that_exits_leaves_its_lane_running() -> None:
    reports: list[Report] = []
    got: list[object] = []

    def exits(event: Event) -> None:
        raise SystemExit(3)

    with laned(reports) as channel:
        failing = channel.connect(exits, "a", name="exits")
        channel.connect(lambda e: got.append(e.payload), "a")
        supplier = channel.supplier("s", "a")
        push_all(supplier, "a", [1, 2])
        # One may be kept from the processor and overtaken by the other.
        wait_until(lambda: got == [1, 2] and failing.failures == 2)

    assert [r.consumer for r in reports if r.kind is Kind.FAILED] == ["exits"] * 2


def test_full_queue_drops_for_that_consumer_alone_and_says_so() -> None:
    reports: list[Report] = []
    gate = Blocker()
    got: list[object] = []
    with laned(reports) as channel:
        channel.connect(gate, "a", name="slow", queue_max=3)
        channel.connect(lambda e: got.append(e.payload), "a")
        supplier = channel.supplier("s", "a")
        push_all(supplier, "a", range(6))
        wait_until(lambda: len(got) == 6)
        slow = next(c for c in channel.statistics().consumers if c.name == "slow")
        gate.release.set()
        wait_until(lambda: len(gate.payloads) == 3)

    assert slow.dropped == 3
    full = [r for r in reports if r.kind is Kind.QUEUE_FULL]
    assert [r.consumer for r in full] == ["slow", "slow"]
    assert "queue_max=3" in full[0].message


def test_slow_consumer_can_be_evicted_for_a_full_queue_or_for_holding_its_lane() -> None:
    reports: list[Report] = []
    flooded, stuck = Blocker(), Blocker()
    with laned(reports, threads=2) as channel:
        for_queue = channel.connect(flooded, "a", name="flooded", queue_max=2, evict_slow=True)
        for_queue.stall_ns = 3600 * SECOND  # not for its time as well, if the supplier is kept from pushing
        channel.connect(stuck, "b", name="stuck", evict_slow=True)
        supplier = channel.supplier("s", "a", "b")
        supplier.push("b")
        push_all(supplier, "a", range(3))
        wait_until(lambda: channel.statistics().consumers == ())
        flooded.release.set()
        stuck.release.set()

    evicted = {r.consumer: r.message for r in reports if r.kind is Kind.EVICTED}
    assert evicted == {
        "flooded": "evicted because its queue was full (queue_max=2)",
        "stuck": "evicted because it has been processing one event for over 50 ms",
    }


def test_consumer_may_leave_from_its_own_lane() -> None:
    calls: list[object] = []
    with laned() as channel:

        def once(event: Event) -> None:
            calls.append(event.payload)
            consumer.disconnect()

        consumer = channel.connect(once, "a")
        supplier = channel.supplier("s", "a")
        push_all(supplier, "a", [1, 2])
        wait_until(lambda: channel.statistics().consumers == ())
        supplier.push("a", 3)

    assert calls == [1]


def test_threads_can_be_added_and_removed_while_events_flow() -> None:
    lanes = Lanes(real_time=False)
    gates = [Blocker(), Blocker(), Blocker()]
    with ChannelBuilder("c").filtering().dispatching(lanes).build() as channel:
        for number, gate in enumerate(gates):
            channel.connect(gate, str(number))
        supplier = channel.supplier("s", "0", "1", "2")
        lanes.set_threads(3)
        for number in range(3):
            supplier.push(str(number))

        assert all(gate.entered.wait(LIMIT_S) for gate in gates)
        lanes.set_threads(1)
        for gate in gates:
            gate.release.set()
        supplier.push("0")
        wait_until(lambda: len(gates[0].payloads) == 2)
    with pytest.raises(ValueError, match="out of range"):
        lanes.set_threads(0)


def test_there_is_a_limit_to_lanes() -> None:
    with laned() as channel:
        operation = channel.scheduler.operation
        for number in range(LANES_MAX):
            name = f"op{number}"
            channel.connect(print, "a", operation=operation(name, period=10**9 + number, cost=1))

        with pytest.raises(ChannelError, match="needs another lane, but the limit is 64"):
            channel.connect(print, "a", operation=operation("last", period=10**10, cost=1))


def test_lanes_serve_only_one_channel() -> None:
    lanes = Lanes(real_time=False)
    with (
        ChannelBuilder("1").dispatching(lanes).build(),
        pytest.raises(ChannelError, match="started before"),
        ChannelBuilder("2").dispatching(lanes).build(),
    ):
        pass


def test_shorter_periods_get_higher_system_priorities_also_when_they_come_later() -> None:
    if not real_time_is_permitted():
        pytest.skip("SCHED_FIFO is not permitted here")
    seen: dict[str, int] = {}

    def note(name: str) -> Callable[[Event], None]:
        def consumer(event: Event) -> None:
            seen[name] = os.sched_getparam(get_native_id()).sched_priority

        return consumer

    with ChannelBuilder("c").filtering().lanes().build() as channel:
        operation = channel.scheduler.operation
        channel.connect(note("slow"), "a", operation=operation("slow", period="1s", cost="1ms"))
        channel.connect(note("fast"), "a", operation=operation("fast", period="1ms", cost=1000))
        supplier = channel.supplier("s", "a")
        supplier.push("a")
        wait_until(lambda: len(seen) == 2)

    assert seen == {"fast": LANE_PRIORITY_MAX, "slow": LANE_PRIORITY_MAX - 1}
    assert lane_priority(1000) == LANE_PRIORITY_MIN


def test_missing_permission_is_noticed_once_and_the_lanes_work_all_the_same() -> None:
    program = """
        import os
        from threading import Event as Signal
        from timebound.channel import ChannelBuilder, Kind
        reports, done = [], Signal()
        channel = ChannelBuilder("c").filtering().lanes().on_report(reports.append).build()
        operation = channel.scheduler.operation("b", period=10**9, cost=9)
        # Built before: modules are imported when they are chosen, and may not be readable any more.
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        with channel:
            channel.connect(lambda e: None, "b", operation=operation)
            channel.connect(lambda e: done.set(), "a")
            channel.supplier("s", "a").push("a")
            assert done.wait(10)
        notices = [r.message for r in reports if r.kind is Kind.NOTICE]
        print(len(notices), notices[0])
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}

    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S * 3,
        env=environment,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(
        "1 lanes run at normal priority: SCHED_FIFO is not permitted; grant CAP_SYS_NICE"
    )
