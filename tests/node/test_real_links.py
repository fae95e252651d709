"""Deadlines over a real slow interface: what counts is when a message reaches its receiver.

A broker process, a publisher beside it and a receiver behind `tc tbf`, in network namespaces of their own.
Cases of one test run at the same time. What is measured depends on the machine having time for them, so a
case that fails is tried once more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.conftest import Certificates

from timebound.demo.interface import payload_rate, why_not
from timebound.demo.interface_run import CLASSES, Case, InterfaceResult, run
from timebound.node.links.pacing import BUDGET_NS, SEGMENT_BYTES
from timebound.units import SECOND

REASON = why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no real slow interface can be made here: {REASON}")

MEGABIT = 125_000.0
MESSAGE_BYTES_MAX = max(kind.frame_bytes for kind in CLASSES) + 120  # with what brokers add
# Each is idle most of the time, at a megabit per second.
AT_A_TIME = 4


def unsent_max(case: Case) -> float:
    """Two budgets, or one message, beyond which nothing may wait in the kernel."""
    budget = max(case.wire_bytes_per_s * BUDGET_NS / SECOND, SEGMENT_BYTES)
    return max(2 * budget, MESSAGE_BYTES_MAX)


def check(result: InterfaceResult, *, age_s_max: float = 0.1, share_min: float = 0.95) -> str:
    """What is wrong with a result; empty if nothing is."""
    wrong = []
    if result.in_time_share("alerts") < 0.99:
        wrong.append(f"{result.in_time_share('alerts'):.1%} of the alerts are in time")
    if result.age_s("alerts") > age_s_max:
        wrong.append(f"alerts are {result.age_s('alerts') * 1e3:.0f} ms old at the median")
    if result.share_of_best < share_min:
        wrong.append(f"the value is {result.share_of_best:.3f} of the best")
    if result.unsent_max > unsent_max(result.case):
        wrong.append(f"{result.unsent_max} bytes were unsent")
    return f"{result.case}: {', '.join(wrong)}" if wrong else ""


def run_all(cases: list[Case], judge: Callable[[InterfaceResult], str] = check) -> None:
    """Run cases side by side; those that fail once more, one by one."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(run, cases))
    failed = [result.case for result in results if judge(result)]
    wrong = [found for case in failed if (found := judge(run(case)))]
    assert not wrong, "\n".join(wrong)


def tls(certificates: Certificates) -> str:
    return f'[listeners.tls]\ncertificate = "{certificates.certificate}"\nkey = "{certificates.key}"\n'


def test_alerts_pass_a_full_link_whatever_the_transport(certificates: Certificates) -> None:
    case = Case(MEGABIT, 0.4, 2.0, 4.0)

    # A second full core is not to be had everywhere, so here the value may be a little less.
    run_all(
        [
            case,
            replace(case, wire="tls", tls_config=tls(certificates)),
            replace(case, wire="websocket"),
            replace(case, is_mesh=True),
        ],
        lambda result: check(result, share_min=0.88),
    )


def test_a_link_that_falls_to_a_quarter_and_one_whose_speed_is_set() -> None:
    falling = Case(MEGABIT, 0.4, 1.2, 5.0, falls_to=0.25)
    # A faster interface in front of a link that is known to carry a megabit.
    known = Case(10 * MEGABIT, 0.05, 0.2, 4.0, listener_config=f"link_bytes_per_second = {int(MEGABIT)}")

    def judge(result: InterfaceResult) -> str:
        if result.case.falls_to != 1.0:
            return check(result, age_s_max=0.2, share_min=0.88)
        carried = sum(len(one.delays_ns()) * one.kind.frame_bytes for one in result.traffics)
        rate = carried / result.case.seconds
        if not 0.8 * MEGABIT < rate < 1.15 * MEGABIT:
            return f"{rate:.0f} bytes/s went over a link that was said to carry {MEGABIT:.0f}"
        return ""

    run_all([falling, known], judge)


GRID = [
    Case(kilobits * 125.0, buffer_ms / 1_000, load, 6.0)
    for kilobits in (256, 1_000, 3_000, 10_000)
    for buffer_ms in (20, 50, 400, 1_000)
    for load in (1.5, 2.0, 3.0, 5.0)
]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", GRID, ids=str)
def test_every_rate_buffer_and_load(case: Case) -> None:
    # A full segment takes 47 ms at 256 kbit/s, and three of them may be on the way.
    age_s_max = max(0.1, 4 * SEGMENT_BYTES / payload_rate(case.wire_bytes_per_s))

    run_all([case], lambda result: check(result, age_s_max=age_s_max))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("wire", ["tcp", "tls", "websocket", "mesh"])
@pytest.mark.parametrize("falls_to", [1.0, 0.25])
@pytest.mark.parametrize("qos", [0, 1])
def test_every_transport(wire: str, falls_to: float, qos: int, certificates: Certificates) -> None:
    load = 1.5 if falls_to == 1.0 else 1.2
    case = Case(MEGABIT, 0.4, load, 8.0, qos=qos, falls_to=falls_to)
    if wire == "mesh":
        case = replace(case, is_mesh=True)
    elif wire == "tls":
        case = replace(case, wire=wire, tls_config=tls(certificates))
    else:
        case = replace(case, wire=wire)

    run_all([case], lambda result: check(result, age_s_max=0.1 if falls_to == 1.0 else 0.2))
