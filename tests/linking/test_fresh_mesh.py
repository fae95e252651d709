"""Under overload what brokers send each other is fresh: a slow link between two of them, in virtual time.

Both brokers, the link's meter and its pacing are those of a node (`hidden_mesh.py`); the receiver's clock
decides. A buffer of 100 KB holds 0.8 s, where alerts are due in 0.5 s.
"""

from __future__ import annotations

import pytest
from tests.core.link.hidden_path import RATE_BYTES_PER_S
from tests.linking.hidden_mesh import HiddenMesh

from timebound.units import MILLISECOND

SECONDS = 8.0


@pytest.mark.parametrize("load", [1.5, 3.0])
@pytest.mark.parametrize("hidden_bytes", [0, 20_000, 100_000])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_full_link_between_brokers_earns_what_it_can(hidden_bytes: int, load: float, qos: int) -> None:
    link = HiddenMesh(hidden_bytes)

    outcome = link.run(load, SECONDS, qos=qos)

    assert outcome.share_in_time("alerts") >= 0.99
    assert outcome.share_of_best() >= 0.97
    assert outcome.late_share() < 0.01
    assert outcome.link_used > 0.94
    ages_ns = outcome.of("alerts").delays_ns()
    assert ages_ns[len(ages_ns) // 2] < 100 * MILLISECOND


def test_order_inside_a_flow_stays() -> None:
    outcome = HiddenMesh(20_000).run(3.0, 4.0)

    for traffic in outcome.traffics:
        arrived = [fate.arrived_ns for fate in traffic.fates if fate.arrived_ns]
        assert arrived == sorted(arrived)


@pytest.mark.parametrize("hidden_bytes", [0, 100_000])
def test_a_link_with_room_loses_nothing(hidden_bytes: int) -> None:
    # A copy is a fifth larger than its message here.
    outcome = HiddenMesh(hidden_bytes).run(0.75, SECONDS)

    for traffic in outcome.traffics:
        assert traffic.in_time() == len(traffic.fates)


def test_a_burst_that_fits_is_sent_completely() -> None:
    outcome = HiddenMesh().run(2.0, 1.0)

    for name in ("alerts", "telemetry"):
        assert outcome.share_in_time(name) == 1.0


def test_a_fast_link_is_not_held_back() -> None:
    link = HiddenMesh(rate_bytes_per_s=20 * RATE_BYTES_PER_S)

    outcome = link.run(0.8, 2.0)

    for traffic in outcome.traffics:
        assert traffic.in_time() == len(traffic.fates)


@pytest.mark.parametrize(("factor", "load"), [(0.25, 1.5), (4.0, 6.0)])
def test_a_rate_that_changes_behind_the_buffer_is_followed(factor: float, load: float) -> None:
    link = HiddenMesh(100_000)
    rate = factor * RATE_BYTES_PER_S
    sent_bytes: list[int] = []
    link.at(5.0, lambda: link.path.set_rate(rate))
    for at_s in (8.0, 12.0):
        link.at(at_s, lambda: sent_bytes.append(link.path.sent_bytes))

    outcome = link.run(load, 12.0)

    assert sent_bytes[1] - sent_bytes[0] > 0.95 * 4.0 * rate
    settled = [fate for fate in outcome.of("alerts").fates if fate.published_ns > link.time_ns(8.0)]
    in_time = sum(outcome.of("alerts").is_in_time(fate) for fate in settled)
    assert in_time >= 0.99 * len(settled)


def test_a_neighbour_that_stores_before_it_confirms_does_not_hold_back_a_fast_link() -> None:
    link = HiddenMesh(rate_bytes_per_s=10 * RATE_BYTES_PER_S, commit_ns=150 * MILLISECOND)

    outcome = link.run(0.75, 3.0, qos=1)

    for traffic in outcome.traffics:
        assert traffic.in_time() >= 0.99 * len(traffic.fates), traffic.kind.name
