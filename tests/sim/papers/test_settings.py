"""The settings of the two papers on bounded delay, number by number as printed."""

from __future__ import annotations

import pytest

from timebound.core.mesh.options import MESH_EPSILON, PREFERENCE, WAITING_SHARE
from timebound.sim.mesh.setting import MeshSetting
from timebound.sim.papers.settings import PAPER_THRIFT, SIZE_BYTES, paper_001, paper_002, product
from timebound.units import HOUR, MILLISECOND, SECOND


def test_paper_002_has_32_brokers_4_publishers_and_160_subscribers() -> None:
    setting = paper_002("psd", 15.0, "eb")

    layers = setting.topology.layers
    assert (sum(layers), setting.topology.parents) == (32, 2)
    assert setting.publishers[0].count * layers[0] == 4
    assert setting.subscriptions[0].count * layers[-1] == 160
    assert (setting.links.mean_ms.numbers, setting.links.deviation_ms) == ((50, 100), 20.0)
    assert (setting.epsilon, setting.duration_ns, setting.processing_ns) == (
        0.0005,
        2 * HOUR,
        2 * MILLISECOND,
    )


def test_paper_001_has_128_brokers_40_publishers_and_640_subscribers() -> None:
    setting = paper_001(5.0, "mtep", 0.4)

    layers = setting.topology.layers
    assert (sum(layers), setting.topology.parents) == (128, 2)
    assert setting.publishers[0].count * layers[0] == 40
    assert setting.subscriptions[0].count * layers[-1] == 640
    assert (setting.links.mean_ms.numbers, setting.links.deviation_ms) == ((40, 80), 20.0)
    assert (setting.epsilon, setting.strategy, setting.mix) == (0.04, "mtep", 0.4)
    assert [
        (one.deadline_ns // SECOND, one.price, one.penalty) for one in setting.subscriptions[0].terms
    ] == [
        (20, 3.0, 0.3),
        (24, 2.5, 0.25),
        (30, 2.0, 0.2),
        (40, 1.5, 0.15),
        (60, 1.0, 0.1),
    ]


def test_publishers_specify_delays_in_psd_and_subscribers_in_ssd() -> None:
    psd, ssd = paper_002("psd", 1.0, "eb"), paper_002("ssd", 1.0, "eb")

    timeouts = psd.publishers[0].timeout_ms
    assert timeouts is not None
    assert timeouts.numbers == (10_000, 30_000)
    assert [one.deadline_ns for one in psd.subscriptions[0].terms] == [0]
    assert ssd.publishers[0].timeout_ms is None
    assert [(one.deadline_ns // SECOND, one.price) for one in ssd.subscriptions[0].terms] == [
        (10, 3.0),
        (30, 2.0),
        (60, 1.0),
    ]


@pytest.mark.parametrize("setting", [paper_002("ssd", 15.0, "fifo"), paper_001(5.0, "fifo")])
def test_the_product_changes_how_brokers_decide_and_nothing_else(setting: MeshSetting) -> None:
    own = product(setting)

    assert (own.strategy, own.epsilon, own.preference) == ("worth", MESH_EPSILON, PREFERENCE)
    assert (own.waiting_share, own.thrift, own.reading.routing) == (WAITING_SHARE, PAPER_THRIFT, "late")
    kept = ("topology", "links", "publishers", "subscriptions", "duration_ns", "message_bytes")
    assert all(getattr(own, name) == getattr(setting, name) for name in kept)
    assert product(own) == own


def test_every_message_has_50_kb() -> None:
    assert SIZE_BYTES == 51_200
    for setting in (paper_002("psd", 1.0, "eb"), paper_001(1.0, "eb")):
        assert setting.publishers[0].size_bytes.numbers == (SIZE_BYTES,)
        assert setting.message_bytes == SIZE_BYTES
