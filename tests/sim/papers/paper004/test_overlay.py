"""The overlay: a key leads to the same broker from everywhere, in few hops, which get nearer."""

from __future__ import annotations

import math

import pytest

from timebound.sim.papers.paper004.network import Network, make_network
from timebound.sim.papers.paper004.overlay import PrefixOverlay, id_of, make_overlay
from timebound.sim.papers.paper004.readings import Assumptions

KEYS = [id_of(f"key {number}") for number in range(12)]


@pytest.fixture(scope="module")
def network() -> Network:
    return make_network("single", Assumptions(), 1)


@pytest.mark.parametrize("dht", ["base16", "base2", "direct"])
def test_a_key_leads_to_one_broker_from_everywhere(network: Network, dht: str) -> None:
    overlay = make_overlay(network, dht)
    for key in KEYS:
        routes = [overlay.route(name, key) for name in network.brokers()]
        assert len({route[-1] for route in routes}) == 1
        assert all(len(set(route)) == len(route) for route in routes), "no broker twice"


@pytest.mark.parametrize(("bits", "longest"), [(4, 4), (1, 8)])
def test_hops_grow_with_the_logarithm(network: Network, bits: int, longest: int) -> None:
    overlay = PrefixOverlay(network, bits)
    lengths = [len(overlay.route(name, key)) - 1 for key in KEYS for name in network.brokers()]

    assert sum(lengths) / len(lengths) <= math.log(252, 2**bits) + 1
    assert max(lengths) <= math.ceil(math.log(252, 2**bits)) + longest


def test_the_home_of_a_key_has_the_nearest_id(network: Network) -> None:
    overlay = PrefixOverlay(network, 4)
    ring = 1 << 64
    for key in KEYS:
        gaps = {
            name: min((id_of(name) - key) % ring, (key - id_of(name)) % ring) for name in network.brokers()
        }
        assert overlay.home(key) == min(gaps, key=gaps.__getitem__)
