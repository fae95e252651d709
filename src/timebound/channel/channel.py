"""The event channel: a carrier of events, with configuration files, pull consumers and swaps of modules.

Each of these is imported on first use, so a program loads only what it needs. No event passes through
this code; `carrier.py` has all of that.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from timebound.channel.base.consumer import Callback, Consumer, Predicate
from timebound.channel.base.dependency import Duration, Part
from timebound.channel.base.errors import ChannelError
from timebound.channel.base.event import Event
from timebound.channel.base.filtering import Filtering
from timebound.channel.carrier import Carrier, Supplier
from timebound.channel.dispatch.dispatcher import Dispatcher

# None of these is compiled, so their types are only names here.
if TYPE_CHECKING:
    from timebound.channel.config.running import Configuration
    from timebound.channel.federation.remote import RemoteGateway
    from timebound.channel.pulling import PullConsumer
    from timebound.channel.timing import Timing


class EventChannel(Carrier):
    """Built by `ChannelBuilder`; a context manager that starts and closes its modules."""

    # What its file states; None without a file.
    configuration: Configuration | None = None

    # --- its file -----------------------------------------------------------------------

    def connect_operation(self, name: str, callback: Callback, *, where: Predicate | None = None) -> Consumer:
        """Connect a consumer as the channel's file states the operation of this name.

        Raises:
            NotSchedulable: the operation would break a deadline; carries what would fit.
            ChannelError: the file does not state it, or as for `connect`.
        """
        return self._configured(name).connect(self, name, callback, where)

    def operation_supplier(self, name: str) -> Supplier:
        """Connect a supplier of the event types that the channel's file states for an operation.

        Raises:
            ChannelError: the file does not state it, or it supplies nothing.
        """
        return self._configured(name).supplier(self, name)

    def gateways(self) -> list[RemoteGateway]:
        """Return the open gateways of the channel's file, in its order; none before the channel starts."""
        if self.configuration is None:
            return []
        opened = self.configuration.gateways
        return [opened[config] for config in self.configuration.file.config.gateways if config in opened]

    def _configured(self, name: str) -> Configuration:
        if self.configuration is None:
            raise ChannelError(
                f"operation {name!r} is unknown: channel {self.name!r} was built without a file"
            )
        return self.configuration

    def _open_links(self) -> None:
        if self.configuration is not None:
            self.configuration.open_gateways(self)

    def _close_links(self) -> None:
        if self.configuration is not None:
            self.configuration.close_gateways()

    # --- pulling ------------------------------------------------------------------------

    def pull_consumer(
        self,
        dependency: Part | None = None,
        *,
        name: str = "",
        where: Predicate | None = None,
        queue_max: int = 0,
        evict_slow: bool = False,
    ) -> PullConsumer:
        """Connect a consumer that pulls its events instead of being called.

        At most `queue_max` events wait for it (0 = PULL_QUEUE_MAX); later ones are dropped and reported,
        or evict it with `evict_slow`.

        Raises:
            ChannelError: a module that it needs was left out, or a limit is reached.
        """
        from timebound.channel.pulling import PULL_QUEUE_MAX, PullConsumer

        puller = PullConsumer(self, queue_max or PULL_QUEUE_MAX)
        with self._lock:
            name = name or f"pull#{self._consumers_ever + 1}"
            consumer = self._make(puller.put, dependency, name, None, where)
            consumer.evict_slow = evict_slow
            consumer.queue_max = queue_max or PULL_QUEUE_MAX
            consumer.on_leave = puller.end
            puller.consumer = consumer
            self._admit(consumer)
        self._changed()
        return puller

    def pull(
        self,
        dependency: Part | None = None,
        *,
        timeout: Duration | None = None,
        where: Predicate | None = None,
    ) -> Event | None:
        """Return the next matching event that is pushed from now on; None when none came in time.

        It connects for this call alone, so it misses events between two calls, which a `pull_consumer`
        keeps. Without a `timeout` it waits for PULL_TIMEOUT_NS.

        Raises:
            ChannelError: as `pull_consumer`, or the channel is not running, or was closed meanwhile.
        """
        from timebound.channel.pulling import PULL_TIMEOUT_NS

        if not self._is_running:
            raise ChannelError(f"channel {self.name!r} is not running, so no events can be pulled")
        with self.pull_consumer(dependency, where=where) as puller:
            return puller.pull(PULL_TIMEOUT_NS if timeout is None else timeout)

    # --- modules ------------------------------------------------------------------------

    def reconfigure(
        self,
        file: str | PathLike[str] | None = None,
        *,
        filtering: Filtering | None = None,
        dispatching: Dispatcher | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Swap modules while events flow; modules not named stay.

        No event is lost or delivered twice, and each consumer receives the events of each supplier in
        order. With a file instead of modules, swap what it states differently from before.

        Raises:
            ChannelFileError: the file has mistakes, all of which are listed; nothing was swapped.
            ChannelError: a connected consumer could not work with the new module; nothing was swapped.
        """
        names = [
            name
            for name, module in (("filtering", filtering), ("dispatching", dispatching), ("timers", timing))
            if module is not None
        ]
        if file is not None:
            if names:
                raise ChannelError(f"reconfigure takes a file or modules, not both (got {', '.join(names)})")
            from timebound.channel.config.swap import reconfigure_from

            self.configuration = reconfigure_from(self, self.configuration, file)
            return
        from timebound.channel.exchange import exchange

        exchange(self, filtering=filtering, dispatching=dispatching, timing=timing)
        if self.configuration is not None:
            self.configuration.note_override(names)
