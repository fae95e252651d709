"""A run of the overload experiment with known arrivals, for what is made of results."""

from __future__ import annotations

from timebound.demo.best import best_possible
from timebound.demo.brokers import ReportedDeliveries, ours
from timebound.demo.overload import OverloadResult, OverloadSetting
from timebound.demo.traffic import CLASSES, Traffic, plan
from timebound.units import SECOND

RATE = 125_000.0
STARTED_NS = 1_000 * SECOND


def example_result() -> OverloadResult:
    """Return one second at twice the link's rate: of each class a third is in time, late and lost.

    Bulk has no deadline, so nothing of it is late.
    """
    traffics = [Traffic(kind) for kind in CLASSES]
    for traffic in traffics:
        limit_ns = traffic.kind.deadline_ns or SECOND
        for number, at_s in enumerate(plan(traffic.kind, 2 * RATE, 1.0, 1)):
            published_ns = STARTED_NS + int(at_s * SECOND)
            payload = traffic.publish(published_ns)
            if number % 3:
                traffic.arrive(payload, published_ns + number % 3 * limit_ns * 2 // 3)
    setting = OverloadSetting(RATE, 1.0, qos=1, buffer_s=0.2)
    best = best_possible(traffics, RATE, STARTED_NS + 2 * SECOND)
    account = ReportedDeliveries(in_time=20, late=5, under_way=2)
    return OverloadResult(ours("worth"), 2.0, setting, STARTED_NS, traffics, best, 0.98, account)
