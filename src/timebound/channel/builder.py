"""Putting a channel together from modules, any of which may be left out.

    with ChannelBuilder("plant").filtering().lanes().timers().build() as channel: ...

Four mixtures have names: `full` (everything), `dispatching` (no filtering: the paper's ERD), `filtering`
(no dispatching: EFD) and `broadcast` (neither: ERM). `ChannelBuilder.from_file` reads a mixture from a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Final

from timebound.channel.base.errors import ChannelError
from timebound.channel.base.filtering import Broadcast, Filtering, Subscriptions
from timebound.channel.base.reports import Report, write_to_log
from timebound.channel.channel import EventChannel
from timebound.channel.dispatch.dispatcher import Dispatcher, Reactive

# Modules are imported when they are chosen: a channel does not pay for what it was built without.
if TYPE_CHECKING:
    from timebound.channel.base.scheduling import Scheduler
    from timebound.channel.config.reader import ChannelFile
    from timebound.channel.timing import Timing

CONFIGURATIONS: Final = ("full", "dispatching", "filtering", "broadcast")


class ChannelBuilder:
    """Collects the modules; those not chosen are left out."""

    def __init__(self, name: str = "channel") -> None:
        self._name = name
        self._filtering: Filtering | None = None
        self._dispatcher: Dispatcher | None = None
        self._timing: Timing | None = None
        self._scheduler: Scheduler | None = None
        self._clock: Callable[[], int] = time.monotonic_ns
        self._timers_max = 1024
        self._on_report: Callable[[Report], None] = write_to_log
        self._file: ChannelFile | None = None
        self._overridden: list[str] = []

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> ChannelBuilder:
        """Begin with the modules that a file names; its gateways are opened when the channel starts.

        Raises:
            ChannelFileError: the file has mistakes; carries all of them.
        """
        from timebound.channel.config.reader import SECTIONS, load

        file = load(path)
        builder = cls(file.config.name)
        builder._file = file
        modules = file.make(SECTIONS)
        builder._filtering = modules.filtering
        builder._dispatcher = modules.dispatching
        builder._timing = modules.timing
        builder._timers_max = file.config.timers_max
        return builder

    def filtering(self, module: Filtering | None = None) -> ChannelBuilder:
        """Filter and correlate."""
        self._filtering = module or Subscriptions()
        self._overridden.append("filtering")
        return self

    def dispatching(self, module: Dispatcher) -> ChannelBuilder:
        """Call consumers by this strategy; without one they run in the supplier's thread."""
        self._dispatcher = module
        self._overridden.append("dispatching")
        return self

    def lanes(self, *, real_time: bool = True) -> ChannelBuilder:
        """Call consumers in one lane for each priority."""
        from timebound.channel.dispatch.lanes import Lanes

        return self.dispatching(Lanes(real_time=real_time))

    def timers(self, module: Timing | None = None, *, timers_max: int = 1024) -> ChannelBuilder:
        """Offer periodic timers and watchdogs; their memory is allocated now."""
        if module is None:
            from timebound.channel.timing import ThreadTiming

            module = ThreadTiming()
        self._timing = module
        self._timers_max = timers_max
        self._overridden.append("timers")
        return self

    def scheduler(self, scheduler: Scheduler) -> ChannelBuilder:
        """Share a scheduling service with other channels on the same processor."""
        self._scheduler = scheduler
        return self

    def clock(self, clock: Callable[[], int]) -> ChannelBuilder:
        """Take the time from this function, in nanoseconds."""
        self._clock = clock
        return self

    def on_report(self, on_report: Callable[[Report], None]) -> ChannelBuilder:
        """Pass failures, overruns, evictions and notices to this function instead of the log."""
        self._on_report = on_report
        return self

    def build(self) -> EventChannel:
        channel = EventChannel(
            self._name,
            filtering=self._filtering or Broadcast(),
            dispatcher=self._dispatcher or Reactive(),
            timing=self._timing,
            scheduler=self._scheduler,
            clock=self._clock,
            timers_max=self._timers_max,
            on_report=self._on_report,
        )
        if self._file is not None:
            from timebound.channel.config.running import Configuration

            channel.configuration = Configuration(self._file)
            channel.configuration.note_override(self._overridden)
        return channel


def build(configuration: str = "full", *, name: str = "channel") -> EventChannel:
    """Build one of the named configurations.

    Raises:
        ChannelError: the configuration is unknown.
    """
    if configuration not in CONFIGURATIONS:
        raise ChannelError(f"unknown configuration {configuration!r}; choose {', '.join(CONFIGURATIONS)}")
    builder = ChannelBuilder(name)
    if configuration in ("full", "filtering"):
        builder.filtering()
    if configuration in ("full", "dispatching"):
        builder.lanes()
    if configuration != "broadcast":
        builder.timers()
    return builder.build()
