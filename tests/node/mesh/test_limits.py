"""What is large for a link: advertisements and messages near the packet size limit, and unequal limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.node.mesh.live_mesh import TIMEOUT_S, Mesh, read, wait_wanted

from timebound.wire.packets import Ack, Publish
from timebound.wire.reasons import ReasonCode

PACKET_SIZE_MAX = 65_536
LIMITS = f"[limits]\npacket_size_max = {PACKET_SIZE_MAX}\ntopic_length_max = 65_535\n"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    mesh = Mesh(tmp_path_factory.mktemp("pair"), {("a", "b"): ""}, LIMITS)
    yield mesh
    mesh.end()


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Clients of a may send more than b takes."""
    less = {"b": "[limits]\npacket_size_max = 16384\n"}
    mesh = Mesh(tmp_path_factory.mktemp("uneven"), {("a", "b"): ""}, LIMITS, tops=less)
    yield mesh
    mesh.end()


def ups(mesh: Mesh) -> int:
    """How often the link has come up."""
    return sum(process.log().count("is up") for process in mesh.brokers.values())


def test_many_filters_that_grow_in_json_do_not_end_the_link(pair: Mesh) -> None:
    where = "x = '" + 900 * '"' + "'"  # nearly two kilobytes in JSON: 300 of them are more than any packet
    with pair.join("b", "greedy") as subscriber, pair.join("a") as publisher:
        filters = [f"many/{number}" for number in range(300)]
        subscriber.subscribe(*filters, user_properties=[("where", where)])
        subscriber.subscribe("many/last")
        wait_wanted(publisher, "many/last")

        publisher.publish("many/7", b"found", user_properties=[("x", 900 * '"')])

        assert read(subscriber, 1)[0].payload == b"found"
        assert ups(pair) == 2


def test_a_message_as_large_as_packets_may_be_passes_a_link(pair: Mesh) -> None:
    size = PACKET_SIZE_MAX - 40
    with pair.join("b") as subscriber, pair.join("a") as publisher:
        subscriber.subscribe("large")
        wait_wanted(publisher, "large")

        publisher.publish("large", size * b"x", qos=1)

        assert publisher.expect(Ack).reason_code == 0
        assert len(read(subscriber, 1)[0].payload) == size
        assert ups(pair) == 2


def test_a_subscription_that_can_never_be_advertised_is_refused(pair: Mesh) -> None:
    with pair.join("b", 1_000 * "\N{MATHEMATICAL BOLD SMALL X}") as subscriber:
        codes = subscriber.subscribe(62_000 * '"')  # twice as long in JSON, as the client id is

        assert codes.reason_codes == [ReasonCode.QUOTA_EXCEEDED]
        assert "packet_size_max" in (codes.properties.reason_string or "")
        assert ups(pair) == 2


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_neighbour_cannot_take_is_refused_before_it_is_acknowledged(uneven: Mesh, qos: int) -> None:
    with uneven.join("b") as subscriber, uneven.join("a") as publisher, uneven.join("a") as near:
        subscriber.subscribe("t")
        near.subscribe("t/near")
        wait_wanted(publisher, "t")

        publisher.publish("t", 20_000 * b"x", qos=qos)
        answer = publisher.expect(Ack)
        publisher.publish("t/near", 20_000 * b"x", qos=1)

        assert answer.reason_code == ReasonCode.QUOTA_EXCEEDED
        assert "packet_size_max" in (answer.reason_string or "")
        assert publisher.expect(Ack).reason_code == 0
        assert len(near.expect(Publish, TIMEOUT_S).payload) == 20_000
        assert ups(uneven) == 2
