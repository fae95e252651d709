"""Reading a channel's file: its values, and every mistake with its line and key.

docs/channel.md describes the format. Without its section a module is left out, as with the builder.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from timebound.channel.base.consumer import BEST_EFFORT
from timebound.channel.base.errors import ChannelFileError
from timebound.channel.config.dependencies import has_timers, read_dependency
from timebound.channel.config.modules import (
    DISPATCHING,
    FILTERING,
    TIMERS,
    find,
    make_dispatcher,
    make_filtering,
    make_timing,
)
from timebound.channel.config.tables import Document, Table, shown
from timebound.channel.config.values import ChannelConfig, GatewayConfig, ModuleConfig, OperationConfig
from timebound.errors import ConfigError
from timebound.toml.lines import KeyPath
from timebound.units import format_duration

if TYPE_CHECKING:
    from timebound.channel.base.filtering import Filtering
    from timebound.channel.dispatch.dispatcher import Dispatcher
    from timebound.channel.federation.remote import Address
    from timebound.channel.timing import Timing

# Linux offers real-time priorities from 1 to 99.
PRIORITY_MAX: Final = 99
CPU_MAX: Final = 1_023
THREADS_LIMIT: Final = 1_024
# Each timer is allocated in advance, at some hundred bytes.
TIMERS_LIMIT: Final = 1_000_000
QUEUE_LIMIT: Final = 1_000_000
CRITICALITY_LIMIT: Final = 1_000
# Marks shared media in a federation; names of channels must not begin with it.
_MEDIUM_PREFIX: Final = "$"

# The sections that stand for a module.
SECTIONS: Final = ("filtering", "dispatching", "timers")


@dataclass(slots=True)
class Modules:
    """Modules made for a channel, not started yet; None where none was requested, or none is stated."""

    filtering: Filtering | None = None
    dispatching: Dispatcher | None = None
    timing: Timing | None = None


class ChannelFile:
    """A file without mistakes: what it states, and errors that name a line of it."""

    def __init__(self, document: Document, config: ChannelConfig) -> None:
        self._document = document
        self.path: Final = document.path
        self.config: Final = config

    def failure(self, at: KeyPath, message: str) -> ChannelFileError:
        """Return the error that something this file states cannot be done."""
        return ChannelFileError([self.mistake(at, message)])

    def mistake(self, at: KeyPath, message: str) -> ConfigError:
        return self._document.mistake(at, message)

    def make(self, sections: Collection[str]) -> Modules:
        """Make the modules of some sections.

        Raises:
            ChannelFileError: modules of the program's own cannot be made.
        """
        config, made = self.config, Modules()
        mistakes: list[ConfigError] = []
        for section in SECTIONS:
            if section not in sections:
                continue
            try:
                if section == "filtering":
                    made.filtering = make_filtering(config.filtering)
                elif section == "dispatching":
                    made.dispatching = make_dispatcher(config.dispatching, config.lane_threads)
                elif config.timers is not None:
                    made.timing = make_timing(config.timers)
            except ValueError as error:
                mistakes.append(self.mistake((section, "module"), str(error)))
        if mistakes:
            raise ChannelFileError(mistakes)
        return made


def load(path: str | PathLike[str]) -> ChannelFile:
    """Read a channel's file.

    Raises:
        ChannelFileError: it cannot be read or has mistakes; carries all of them.
    """
    document = Document(Path(path))
    config = ChannelConfig()
    if not document.mistakes:
        config = _Reader(document).read()
    if document.mistakes:
        raise ChannelFileError(document.in_order())
    return ChannelFile(document, config)


class _Reader:
    """One walk over one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._root = document.root

    def read(self) -> ChannelConfig:
        root = self._root
        name = root.text("name", ChannelConfig().name)
        if name.startswith(_MEDIUM_PREFIX):
            root.note("name", f"must not begin with {_MEDIUM_PREFIX!r}, which marks shared media")
        filtering = self._filtering()
        dispatching = self._dispatching()
        lane_threads = self._lanes(dispatching)
        timers, timers_max = self._timers()
        gateways = self._gateways()
        operations = self._operations(filtering, has_timing=timers is not None)
        root.finish()
        return ChannelConfig(
            name=name,
            filtering=filtering,
            dispatching=dispatching,
            lane_threads=lane_threads,
            timers=timers,
            timers_max=timers_max,
            gateways=gateways,
            operations=operations,
        )

    # --- modules ------------------------------------------------------------------------

    def _filtering(self) -> ModuleConfig:
        table = self._root.table("filtering")
        if table is None:
            return ChannelConfig().filtering
        module = self._module(table, FILTERING)
        options = self._own_options(table, module)
        table.finish()
        return ModuleConfig(module, options)

    def _dispatching(self) -> ModuleConfig:
        table = self._root.table("dispatching")
        if table is None:
            return ChannelConfig().dispatching
        module = self._module(table, DISPATCHING)
        options = self._own_options(table, module)
        if module == "lanes":
            self._whole(table, options, "threads", 1, THREADS_LIMIT)
            self._whole(table, options, "threads_max", 1, THREADS_LIMIT)
            self._flag(table, options, "real_time")
            self._whole(table, options, "cpu", 0, CPU_MAX)
            self._whole(table, options, "priority_max", 1, PRIORITY_MAX)
            self._flag(table, options, "yields")
            _check_threads(table, options.get("threads", 1), options)
        table.finish(f" for module = {module!r}")
        return ModuleConfig(module, options)

    def _lanes(self, dispatching: ModuleConfig) -> dict[int, int]:
        found: dict[int, int] = {}
        for table in self._root.tables("lanes"):
            if dispatching.module != "lanes":
                table.note("", "is for lanes; write module = 'lanes' under [dispatching]")
            period_ns = table.duration("period") if table.has("period") else BEST_EFFORT
            table.take("period")
            if not table.has("threads"):
                table.note("threads", "is required: the number of threads of the lane")
            threads = table.whole("threads", 1, 1, THREADS_LIMIT)
            _check_threads(table, threads, dispatching.options)
            if period_ns in found:
                which = "without a period" if period_ns == BEST_EFFORT else format_duration(period_ns)
                table.note("period", f"the lane {which} is already stated above")
            table.finish()
            found[period_ns] = threads
        return found

    def _timers(self) -> tuple[ModuleConfig | None, int]:
        timers_max = ChannelConfig().timers_max
        table = self._root.table("timers")
        if table is None:
            return None, timers_max
        module = self._module(table, TIMERS)
        timers_max = table.whole("timers_max", timers_max, 1, TIMERS_LIMIT)
        options = self._own_options(table, module)
        if module == "thread":
            self._flag(table, options, "real_time")
            self._whole(table, options, "cpu", 0, CPU_MAX)
            self._whole(table, options, "priority", 1, PRIORITY_MAX)
        table.finish(f" for module = {module!r}")
        return ModuleConfig(module, options), timers_max

    def _module(self, table: Table, ours: Sequence[str]) -> str:
        """Return the section's module, by default the first of ours."""
        if ":" not in str(table.take("module")):
            return table.text("module", ours[0], (*ours, "package.module:name"))
        module = table.text("module", ours[0])
        try:
            find(module)
        except ValueError as error:
            table.note("module", str(error))
        return module

    def _own_options(self, table: Table, module: str) -> dict[str, object]:
        """Return the keyword arguments for a module of the program's own; ours have keys instead."""
        if ":" not in module:
            return {}
        options = table.table("options")
        return {} if options is None else options.values()

    @staticmethod
    def _whole(table: Table, options: dict[str, object], key: str, least: int, most: int) -> None:
        # Only what is written: other options have their defaults where the module is made.
        value = table.whole(key, least - 1, least, most)
        if value >= least:
            options[key] = value

    @staticmethod
    def _flag(table: Table, options: dict[str, object], key: str) -> None:
        value = table.flag(key, False)
        if table.has(key):
            options[key] = value

    # --- gateways -----------------------------------------------------------------------

    def _gateways(self) -> tuple[GatewayConfig, ...]:
        found: list[GatewayConfig] = []
        for table in self._root.tables("gateways"):
            kind = table.required_text(
                "kind", "'listen' accepts other channels, 'dial' connects to one", ("listen", "dial")
            )
            address = self._address(table, kind)
            priority = table.whole("priority", 0, 1, PRIORITY_MAX)
            table.finish()
            if address and any(other.address == address for other in found):
                table.note("address", f"{shown(address)} is already used by a gateway above")
            found.append(GatewayConfig(kind, address, priority or None))
        return tuple(found)

    def _address(self, table: Table, kind: str) -> Address:
        text = table.required_text("address", 'a path like "/run/x.sock", or "host:port"')
        if not text or "/" in text:
            # Relative to the file, wherever the program was started from.
            return str(self._document.path.parent / text) if text else ""
        host, colon, port = text.rpartition(":")
        least = 0 if kind == "listen" else 1
        if not colon or not host or ":" in host or not port.isascii() or not port.isdigit():
            table.note("address", f'must be a path like "/run/x.sock" or "host:port", not {shown(text)}')
            return ""
        if not least <= int(port) <= 65_535:
            table.note("address", f"has port {port}; it must be {least} to 65535")
            return ""
        return (host, int(port))

    # --- operations ---------------------------------------------------------------------

    def _operations(self, filtering: ModuleConfig, *, has_timing: bool) -> tuple[OperationConfig, ...]:
        found: list[OperationConfig] = []
        for table in self._root.tables("operations"):
            operation = self._operation(table)
            if operation.name and any(other.name == operation.name for other in found):
                table.note("name", f"{operation.name!r} is already the name of an operation above")
            if operation.depends_on is not None and filtering.module == "broadcast":
                table.note("depends_on", "needs filtering; add a [filtering] section")
            if operation.dependency is not None and not has_timing and has_timers(operation.dependency):
                table.note("depends_on", "has a timer; add a [timers] section")
            found.append(operation)
        return tuple(found)

    def _operation(self, table: Table) -> OperationConfig:
        values: dict[str, Any] = {"name": table.required_text("name", "it identifies the operation")}
        values.update(_timing(table))
        written = table.take("depends_on")
        if written is not None:
            values["depends_on"] = written
            at = (*table.at, "depends_on")
            values["dependency"] = read_dependency(self._document, written, at)
        values["supplies"] = table.texts("supplies")
        values["source"] = table.text("source")
        if values["source"] and not table.has("supplies"):
            table.note("source", "needs `supplies` as well")
        values["queue_max"] = table.whole("queue_max", 0, 1, QUEUE_LIMIT)
        values["evict_after"] = table.whole("evict_after", 0, 0, QUEUE_LIMIT)
        values["evict_slow"] = table.flag("evict_slow", False)
        table.finish()
        return OperationConfig(**values)


def _timing(table: Table) -> dict[str, int]:
    """Read period, cost and criticality, which belong together."""
    period_ns, cost_ns = table.duration("period"), table.duration("cost")
    criticality = table.whole("criticality", 0, -CRITICALITY_LIMIT, CRITICALITY_LIMIT)
    for key, other in (("period", "cost"), ("cost", "period"), ("criticality", "period")):
        if table.has(key) and not table.has(other):
            table.note(key, f"needs `{other}` as well")
    if period_ns and cost_ns > period_ns:
        table.note("cost", f"must not exceed the period of {format_duration(period_ns)}")
    return {"period_ns": period_ns, "cost_ns": cost_ns, "criticality": criticality}


def _check_threads(table: Table, threads: object, options: dict[str, object]) -> None:
    limit = options.get("threads_max")
    if isinstance(limit, int) and isinstance(threads, int) and threads > limit:
        table.note("threads", f"is {threads}, more than threads_max = {limit}")
