"""Channels built from a file: gateways, operations, and the modules it names."""

from __future__ import annotations

from pathlib import Path
from socket import AF_INET, socket

import pytest
from tests.channel.doubles import LIMIT_S, push_all, wait_until

from timebound.channel import (
    ChannelBuilder,
    ChannelError,
    ChannelFileError,
    DiallingGateway,
    Event,
    EventChannel,
    Lanes,
    NotSchedulable,
)
from timebound.channel.config.reader import SECTIONS, load
from timebound.channel.config.running import Configuration
from timebound.channel.federation.gateway import hub_of

MODULES = """
name = "plant"
[filtering]
[dispatching]
module = "lanes"
real_time = false
[timers]
module = "manual"
timers_max = 3
"""
OPERATIONS = """
[[operations]]
name = "fuse"
period = "20ms"
cost = "3ms"
criticality = 2
depends_on = { all = ["a", "b"] }
supplies = ["c", "d"]
[[operations]]
name = "show"
queue_max = 5
evict_after = 6
evict_slow = true
[[operations]]
name = "gps"
supplies = ["a", "b"]
source = "satellite"
"""


def built(tmp_path: Path, text: str) -> EventChannel:
    path = tmp_path / "channel.toml"
    path.write_text(text, encoding="utf-8")
    return ChannelBuilder.from_file(path).on_report(lambda report: None).build()


def test_operations_are_connected_as_their_file_states_them(tmp_path: Path) -> None:
    got: list[Event] = []
    with built(tmp_path, MODULES + OPERATIONS) as channel:
        fuse = channel.connect_operation("fuse", got.append, where=lambda e: e.payload != 0)
        show = channel.connect_operation("show", lambda e: None)
        push_all(channel.operation_supplier("gps"), "a", [0, 1])
        channel.supplier("other", "b").push("b", 2)
        wait_until(lambda: len(got) == 1)

        assert [(part.payload, part.source) for part in got[0].parts] == [(1, "satellite"), (2, "other")]
        assert (fuse.name, fuse.sub_priority, fuse.lane_key) == ("fuse", -2, 20_000_000)
        assert (show.meter, show.queue_max, show.evict_after, show.evict_slow) == (None, 5, 6, True)
        (report,) = channel.scheduler.report()
        assert (report.name, report.period_ns, report.cost_ns_stated) == ("fuse", 20_000_000, 3_000_000)


def test_configuration_knows_who_is_connected_and_which_modules_are_the_programs(tmp_path: Path) -> None:
    path = tmp_path / "channel.toml"
    path.write_text(OPERATIONS.replace('depends_on = { all = ["a", "b"] }\n', ""), encoding="utf-8")
    configuration = Configuration(load(path))
    channel = ChannelBuilder("c").build()
    consumer = configuration.connect(channel, "show", lambda e: None, None)
    supplier = configuration.supplier(channel, "gps")
    with channel:
        assert configuration.connected() == {"show": consumer}
        assert configuration.supplying() == {"gps": supplier}
        consumer.disconnect()
        supplier.disconnect()
        assert (configuration.connected(), configuration.supplying()) == ({}, {})

    configuration.note_override(["timers"])
    configuration.note_override(list(SECTIONS))
    assert configuration.overridden == set(SECTIONS)


def test_operation_is_connected_once_at_a_time(tmp_path: Path) -> None:
    with built(tmp_path, MODULES + OPERATIONS) as channel:
        consumer = channel.connect_operation("show", lambda e: None)
        supplier = channel.operation_supplier("gps")
        with pytest.raises(ChannelError, match="'show' is already connected"):
            channel.connect_operation("show", lambda e: None)
        with pytest.raises(ChannelError, match="'gps' already has a supplier"):
            channel.operation_supplier("gps")
        consumer.disconnect()
        supplier.disconnect()

        assert channel.connect_operation("show", lambda e: None).name == "show"
        assert channel.operation_supplier("gps").source == "satellite"


def test_operation_that_is_not_in_the_file_is_refused(tmp_path: Path) -> None:
    with built(tmp_path, MODULES + OPERATIONS) as channel:
        with pytest.raises(
            ChannelError, match=r"'fused' is not in .*channel.toml \(it has: fuse, show, gps\)"
        ):
            channel.connect_operation("fused", lambda e: None)
        with pytest.raises(ChannelError, match="'show' supplies nothing"):
            channel.operation_supplier("show")


def test_operation_that_does_not_fit_is_refused_when_it_is_connected(tmp_path: Path) -> None:
    text = MODULES + OPERATIONS + '[[operations]]\nname = "more"\nperiod = "20ms"\ncost = "19ms"\n'
    with built(tmp_path, text) as channel:
        channel.connect_operation("fuse", lambda e: None)
        with pytest.raises(NotSchedulable, match="'more' is not schedulable"):
            channel.connect_operation("more", lambda e: None)


def test_lanes_have_the_threads_of_their_file(tmp_path: Path) -> None:
    text = MODULES + '[[lanes]]\nperiod = "20ms"\nthreads = 3\n[[lanes]]\nthreads = 2\n' + OPERATIONS
    with built(tmp_path, text) as channel:
        channel.connect_operation("fuse", lambda e: None)
        channel.connect_operation("show", lambda e: None)
        lanes = channel.dispatcher
        assert isinstance(lanes, Lanes)

        assert [len(lane.workers) for lane in lanes._context.ranked] == [3, 2]


def test_gateways_open_with_the_channel_and_close_with_it(tmp_path: Path) -> None:
    near = built(tmp_path, MODULES + '[[gateways]]\nkind = "listen"\naddress = "./near.sock"\n')
    far = ChannelBuilder("far").filtering().build()
    got: list[object] = []
    assert near.gateways() == []
    with near, far:
        (gateway,) = near.gateways()
        assert gateway.address == str(tmp_path / "near.sock")
        with DiallingGateway(far, gateway.address):
            assert gateway.wait_joined(LIMIT_S)
            near.connect(lambda e: got.append(e.payload), "x")
            wait_until(lambda: hub_of(far).next_hops("x", "s") == ("plant",) and hub_of(far).has_settled())
            far.supplier("s", "x").push("x", 1)
            wait_until(lambda: got == [1])

    assert near.gateways() == []
    assert not (tmp_path / "near.sock").exists()


def test_files_join_each_other(tmp_path: Path) -> None:
    near = built(tmp_path, 'name = "near"\n[filtering]\n[[gateways]]\nkind="listen"\naddress="127.0.0.1:0"\n')
    with near:
        address = near.gateways()[0].address
        assert isinstance(address, tuple)
        host, port = address
        far_text = (
            f'name = "far"\n[filtering]\n[[gateways]]\nkind="dial"\naddress="{host}:{port}"\npriority=3\n'
        )
        with built(tmp_path, far_text) as far:
            assert far.gateways()[0].wait_joined(LIMIT_S)
            puller = near.pull_consumer("x")
            wait_until(lambda: hub_of(far).next_hops("x", "s") == ("near",) and hub_of(far).has_settled())
            far.supplier("s", "x").push("x", 1)
            event = puller.pull("20s")

    assert event is not None
    assert event.origin == "far"


def test_gateway_that_cannot_be_opened_is_told_and_the_channel_is_closed(tmp_path: Path) -> None:
    with socket(AF_INET) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        channel = built(
            tmp_path,
            '[[gateways]]\nkind = "listen"\naddress = "./x.sock"\n'
            f'[[gateways]]\nkind = "listen"\naddress = "127.0.0.1:{port}"\n',
        )

        with pytest.raises(
            ChannelFileError, match=rf"channel.toml:6: gateways\[1\].address: .*{port}.* cannot be"
        ):
            channel.start()
    assert not channel.is_running
    assert channel.gateways() == []
    assert not (tmp_path / "x.sock").exists()
