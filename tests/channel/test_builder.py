"""Channels put together from modules, and from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.channel.doubles import Clock, Recorder

from timebound.channel.base.dependency import every
from timebound.channel.base.errors import ChannelError, ChannelFileError
from timebound.channel.base.filtering import Broadcast
from timebound.channel.base.reports import Report
from timebound.channel.base.scheduling import Scheduler
from timebound.channel.builder import CONFIGURATIONS, ChannelBuilder, build
from timebound.channel.channel import EventChannel
from timebound.channel.dispatch.dispatcher import Reactive
from timebound.channel.dispatch.lanes import Lanes
from timebound.channel.timing import Timing

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


def from_text(tmp_path: Path, text: str) -> ChannelBuilder:
    path = tmp_path / "channel.toml"
    path.write_text(text, encoding="utf-8")
    return ChannelBuilder.from_file(path)


def can_select(channel: EventChannel) -> bool:
    try:
        channel.connect(print, "a")
    except ChannelError:
        return False
    return True


def can_time(channel: EventChannel) -> bool:
    try:
        channel.connect(print, every("1h"))
    except ChannelError:
        return False
    return True


def test_named_configurations_have_their_modules() -> None:
    found: dict[str, tuple[bool, bool, bool]] = {}
    for name in CONFIGURATIONS:
        with build(name) as channel:
            found[name] = (can_select(channel), isinstance(channel.dispatcher, Lanes), can_time(channel))

    assert found == {
        "full": (True, True, True),
        "dispatching": (False, True, True),
        "filtering": (True, False, True),
        "broadcast": (False, False, False),
    }


def test_unknown_configuration_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ChannelError, match="choose full, dispatching, filtering, broadcast"):
        build("fancy")


def test_broadcast_repeats_everything_and_refuses_what_it_left_out() -> None:
    got = Recorder()
    with build("broadcast") as channel:
        channel.connect(got)
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a", 1)
        supplier.push("b", 2)

        with pytest.raises(ChannelError, match="has no filtering"):
            channel.connect(got, "a")
        with pytest.raises(ChannelError, match="has no filtering"):
            channel.connect(got, where=lambda e: True)
        with pytest.raises(ChannelError, match="has no timer module"):
            channel.connect(got, every("1s"))
    assert got.payloads == [1, 2]


def test_builder_hands_over_what_was_chosen() -> None:
    clock, scheduler, reports = Clock(), Scheduler(), list[Report]()
    builder = ChannelBuilder("c").clock(clock).scheduler(scheduler).on_report(reports.append)
    channel = builder.filtering().timers(Timing(), timers_max=7).build()
    clock.now_ns = 5
    with channel:
        channel.connect(Recorder(failing=True), "a")
        channel.supplier("s", "a").push("a")

        assert (channel.name, channel.timers_max, channel.now_ns()) == ("c", 7, 5)
        assert channel.scheduler is scheduler
        assert len(reports) == 1


def test_channel_has_the_modules_of_its_file(tmp_path: Path) -> None:
    with from_text(tmp_path, MODULES).build() as channel:
        assert isinstance(channel.dispatcher, Lanes)
        assert (channel.name, channel.timers_max) == ("plant", 3)
        assert can_select(channel)
        assert can_time(channel)


def test_empty_file_builds_the_smallest_channel(tmp_path: Path) -> None:
    with from_text(tmp_path, "").build() as channel:
        assert isinstance(channel.dispatcher, Reactive)
        assert not can_select(channel)
        assert not can_time(channel)


def test_mistaken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ChannelFileError, match=r"channel\.toml:1: name"):
        from_text(tmp_path, "name = 7")


def test_module_given_to_the_builder_gives_way_to_the_next_file(tmp_path: Path) -> None:
    with from_text(tmp_path, "[filtering]").filtering(Broadcast()).build() as channel:
        assert not can_select(channel)
        channel.reconfigure(tmp_path / "channel.toml")
        assert can_select(channel)
