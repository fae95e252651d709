"""What the channel offers beside carrying events: pulling once, files, swaps."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from tests.channel.doubles import LIMIT_S, wait_until

from timebound.channel.base.errors import ChannelError
from timebound.channel.base.event import Event
from timebound.channel.base.filtering import Broadcast
from timebound.channel.base.reports import Report
from timebound.channel.builder import ChannelBuilder
from timebound.channel.carrier import Carrier
from timebound.channel.channel import EventChannel
from timebound.channel.dispatch.dispatcher import Reactive
from timebound.channel.timing import Timing
from timebound.units import SECOND

LIMIT_NS = int(LIMIT_S * SECOND)
GATEWAY = '[[gateways]]\nkind = "listen"\naddress = "./x.sock"\n'


@pytest.fixture
def channel() -> EventChannel:
    return ChannelBuilder("c").filtering().build()


def file_with(folder: Path, text: str) -> Path:
    path = folder / "channel.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_with_statement_gives_the_channel_itself(channel: EventChannel) -> None:
    with channel as entered:
        assert entered is channel
        assert entered.is_running
    assert isinstance(channel, Carrier)
    assert not channel.is_running


# --- pulling ----------------------------------------------------------------------------


def test_pull_returns_the_next_event_and_leaves_nothing_behind(channel: EventChannel) -> None:
    found: list[Event | None] = []
    with channel:
        supplier = channel.supplier("s", "a")
        supplier.push("a", "missed")
        thread = Thread(target=lambda: found.append(channel.pull("a", timeout=LIMIT_NS)))
        thread.start()
        wait_until(lambda: len(channel.statistics().consumers) == 1)
        supplier.push("a", "found")
        thread.join(LIMIT_S)

        assert channel.statistics().consumers == ()
        assert channel.pull("a", timeout=0) is None
    assert [event.payload for event in found if event is not None] == ["found"]


def test_pull_is_refused_when_the_channel_is_not_running(channel: EventChannel) -> None:
    with pytest.raises(ChannelError, match="is not running"):
        channel.pull("a")


def test_pull_consumers_are_named_by_number_unless_named(channel: EventChannel) -> None:
    channel.connect(print, "a")

    assert channel.pull_consumer("a").name == "pull#2"
    assert channel.pull_consumer("a", name="p").name == "p"


# --- files ------------------------------------------------------------------------------


def test_channel_without_a_file_has_neither_operations_nor_gateways(channel: EventChannel) -> None:
    with channel:
        with pytest.raises(ChannelError, match="'fuse' is unknown: channel 'c' was built without a file"):
            channel.connect_operation("fuse", print)
        with pytest.raises(ChannelError, match="was built without a file"):
            channel.operation_supplier("fuse")
        assert channel.gateways() == []


def test_gateways_of_a_file_are_open_while_the_channel_runs(channel: EventChannel, tmp_path: Path) -> None:
    address = tmp_path / "x.sock"
    with channel:
        channel.reconfigure(file_with(tmp_path, f'name = "c"\n{GATEWAY}'))
        assert [gateway.address for gateway in channel.gateways()] == [str(address)]
        assert address.exists()

    assert channel.gateways() == []
    assert not address.exists()


# --- swaps ------------------------------------------------------------------------------


def test_file_and_modules_are_not_given_together(channel: EventChannel, tmp_path: Path) -> None:
    file = file_with(tmp_path, "")
    with channel, pytest.raises(ChannelError, match=r"not both \(got filtering, dispatching, timers\)"):
        channel.reconfigure(file, filtering=Broadcast(), dispatching=Reactive(), timing=Timing())


def test_modules_not_named_stay() -> None:
    reports: list[Report] = []
    reactive = Reactive()
    with ChannelBuilder("c").dispatching(reactive).on_report(reports.append).build() as channel:
        channel.reconfigure(timing=Timing())
        assert channel.dispatcher is reactive
        channel.reconfigure(dispatching=Reactive())
        assert channel.dispatcher is not reactive
    assert reports == []
