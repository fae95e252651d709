"""Options of a forwarder: what they refuse, and what follows from them."""

from __future__ import annotations

import math

import pytest

from timebound.core.link.strategy.fifo import Fifo
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.options import LATE, LocalDelivery, MeshOptions, Send
from timebound.core.mesh.table import HomeGroup, MeshSubscription
from timebound.core.values.message import Message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preference": 1.5}, "preference=1.5, waiting_share=0.4; both must be between 0 and 1"),
        ({"waiting_share": -0.1}, "waiting_share=-0.1; both must be between 0 and 1"),
        ({"send_cost": -1.0}, "send_cost=-1.0 is not a finite number of at least 0"),
        ({"send_cost": math.inf}, "send_cost=inf"),
        ({"thrift": -1.0}, "thrift=-1.0 is not a finite number of at least 0"),
        ({"thrift": math.nan}, "thrift=nan"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MeshOptions(Fifo(), **options)


def test_a_broker_binds_late_and_spends_freely_unless_told_otherwise() -> None:
    options = MeshOptions(Fifo())

    assert (options.routing, options.is_thrifty, options.is_lossless) == (LATE, False, False)


def test_either_a_cost_or_thrift_makes_a_broker_thrifty() -> None:
    assert MeshOptions(Fifo(), send_cost=0.1).is_thrifty
    assert MeshOptions(Fifo(), thrift=0.1).is_thrifty


def test_orders_name_their_copy_and_where_it_goes() -> None:
    copy = Copy(MeshMessage(Message("t", b"", 0, False, 0, "p"), "a", 10), ("a",), 1, {"d"})
    group = HomeGroup(0, [MeshSubscription(client_id="s", home="d", topic_filter="t")])

    send, delivery = Send("b", copy, 5, 7), LocalDelivery(copy, group)

    assert (send.neighbour, send.copy, send.queued_ns, send.packet_id) == ("b", copy, 5, 7)
    assert (delivery.copy, delivery.group) == (copy, group)
