"""The modules a file names, ours and those of the program itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from timebound.channel import (
    AsyncioDispatch,
    AsyncioTiming,
    Broadcast,
    ChannelBuilder,
    ChannelFileError,
    Event,
    Lanes,
    Reactive,
    Subscriptions,
    ThreadTiming,
    Timing,
)
from timebound.channel.config.modules import find, make_dispatcher, make_filtering, make_timing
from timebound.channel.config.values import ModuleConfig

OWN = '''
from timebound.channel import Filtering, Reactive
from timebound.channel.base.consumer import PLAIN


class OnlyLoud(Filtering):
    """Leaves out the events of one type."""

    def __init__(self, without=""):
        super().__init__()
        self.without = without

    def mask(self, consumer, event_type, source):
        return 0 if event_type == self.without else PLAIN


def reactive():
    return Reactive()


number = 3
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that only this test knows."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def test_our_modules_are_made_by_name() -> None:
    assert isinstance(make_filtering(ModuleConfig("subscriptions")), Subscriptions)
    assert isinstance(make_filtering(ModuleConfig("broadcast")), Broadcast)
    assert isinstance(make_dispatcher(ModuleConfig("reactive"), {}), Reactive)
    assert isinstance(make_dispatcher(ModuleConfig("asyncio"), {}), AsyncioDispatch)
    assert isinstance(make_timing(ModuleConfig("thread")), ThreadTiming)
    assert isinstance(make_timing(ModuleConfig("asyncio")), AsyncioTiming)
    assert type(make_timing(ModuleConfig("manual"))) is Timing


def test_lanes_are_made_with_their_options() -> None:
    made = make_dispatcher(ModuleConfig("lanes", {"threads": 2, "real_time": False}), {})

    assert isinstance(made, Lanes)
    assert made.threads == 2


def test_modules_of_the_program_are_imported_and_made(own: str, tmp_path: Path) -> None:
    path = tmp_path / "channel.toml"
    path.write_text(
        f"""
        [filtering]
        module = "{own}:OnlyLoud"
        options = {{ without = "quiet" }}
        [dispatching]
        module = "{own}:reactive"
        """
    )
    got: list[Event] = []
    with ChannelBuilder.from_file(path).build() as channel:
        channel.connect(got.append)
        supplier = channel.supplier("s", "quiet", "loud")
        supplier.push("quiet", 1)
        supplier.push("loud", 2)

    assert [event.payload for event in got] == [2]


def told(path: Path) -> list[str]:
    with pytest.raises(ChannelFileError) as caught:
        ChannelBuilder.from_file(path)
    return [str(mistake).removeprefix(f"{path}") for mistake in caught.value.mistakes]


def test_modules_that_cannot_be_imported_are_told_together(own: str, tmp_path: Path) -> None:
    path = tmp_path / "channel.toml"
    path.write_text(
        f'[filtering]\nmodule = "{own}:Missing"\n'
        '[dispatching]\nmodule = "no_such_module:x"\n'
        f'[timers]\nmodule = "{own}:number"\n'
    )

    assert told(path) == [
        f":2: filtering.module: '{own}:Missing' cannot be imported: "
        f"module '{own}' has no attribute 'Missing'",
        ":4: dispatching.module: 'no_such_module:x' cannot be imported: No module named 'no_such_module'",
        f":6: timers.module: '{own}:number' is neither a class nor a function",
    ]


def test_modules_that_cannot_be_made_are_told_together(own: str, tmp_path: Path) -> None:
    path = tmp_path / "channel.toml"
    path.write_text(
        f'[filtering]\nmodule = "{own}:OnlyLoud"\noptions = {{ wrong = 1 }}\n'
        f'[dispatching]\nmodule = "{own}:OnlyLoud"\n'
        f'[timers]\nmodule = "{own}:reactive"\n'
    )

    first, second, third = told(path)

    assert first.startswith(f":2: filtering.module: '{own}:OnlyLoud' cannot be made: ")
    assert "unexpected keyword argument 'wrong'" in first
    assert second == f":5: dispatching.module: '{own}:OnlyLoud' makes a OnlyLoud; it must be a Dispatcher"
    assert third == f":7: timers.module: '{own}:reactive' makes a Reactive; it must be a Timing"


def test_find_names_what_is_missing() -> None:
    with pytest.raises(ValueError, match="cannot be imported"):
        find("timebound.channel:Nothing")
