"""Applying a changed file: only what it states differently is swapped.

A file that cannot be applied changes nothing: what may fail is tried first, and undone if something fails.
"""

from __future__ import annotations

from contextlib import ExitStack
from os import PathLike
from typing import TYPE_CHECKING

from timebound.channel.base.dependency import ANYTHING
from timebound.channel.base.errors import ChannelError, ChannelFileError, NotSchedulable
from timebound.channel.carrier import Carrier
from timebound.channel.config.reader import SECTIONS, ChannelFile, load
from timebound.channel.config.running import Configuration, open_gateway
from timebound.channel.config.values import ChannelConfig, GatewayConfig, OperationConfig
from timebound.channel.exchange import Change, exchange
from timebound.core.correlation.expression import Leaf
from timebound.errors import ConfigError

if TYPE_CHECKING:
    from timebound.channel.federation.remote import RemoteGateway


def reconfigure_from(
    channel: Carrier, configuration: Configuration | None, path: str | PathLike[str]
) -> Configuration:
    """Apply a file to a running channel; return the configuration, made anew if there was none.

    Raises:
        ChannelFileError: the file has mistakes, or cannot be applied; nothing was changed.
        ChannelError: the channel is not running.
    """
    file = load(path)
    if configuration is None:
        configuration = Configuration(file)
        configuration.note_override(list(SECTIONS))
    with configuration.lock:
        _apply(channel, configuration, file)
    return configuration


def _apply(channel: Carrier, configuration: Configuration, file: ChannelFile) -> None:
    if not channel.is_running:
        raise ChannelError(f"channel {channel.name!r} is not running, so it cannot be reconfigured")
    mistakes = _mistakes(channel, configuration, file)
    if mistakes:
        raise ChannelFileError(mistakes)
    with ExitStack() as undo:
        opened, closing = _open_gateways(channel, configuration, file, undo)
        _exchange(channel, configuration, file)
        undo.pop_all()
    configuration.gateways = opened
    for gateway in closing:
        gateway.close()
    for name, supplier in configuration.supplying().items():
        stated = _stated(file.config, name)
        if (stated.supplies, stated.source or name) != (tuple(supplier.types), supplier.source):
            channel.redeclare(supplier, list(stated.supplies), stated.source)
    configuration.file = file
    configuration.overridden.clear()


def _stated(config: ChannelConfig, name: str) -> OperationConfig:
    stated = config.operation(name)
    assert stated is not None, "operations that are connected are in both files"
    return stated


def _mistakes(channel: Carrier, configuration: Configuration, file: ChannelFile) -> list[ConfigError]:
    """Return what this file states that a running channel cannot change."""
    config = file.config
    found: list[ConfigError] = []
    if config.name != channel.name:
        found.append(
            file.mistake(
                ("name",), f"cannot change from {channel.name!r} to {config.name!r} while the channel runs"
            )
        )
    if config.timers is not None and config.timers_max != channel.timers_max:
        message = f"cannot change from {channel.timers_max} to {config.timers_max} while the channel runs"
        found.append(file.mistake(("timers", "timers_max"), message))
    for name in configuration.connected():
        if config.operation(name) is None:
            message = f"{name!r} is missing but has a connected consumer; disconnect it first"
            found.append(file.mistake(("operations",), message))
    for name in configuration.supplying():
        stated = config.operation(name)
        if stated is None or not stated.supplies:
            message = f"{name!r} supplies nothing but has a connected supplier; disconnect it first"
            found.append(file.mistake(("operations",), message))
    return found


# --- gateways ---------------------------------------------------------------------------


def _open_gateways(
    channel: Carrier, configuration: Configuration, file: ChannelFile, undo: ExitStack
) -> tuple[dict[GatewayConfig, RemoteGateway], list[RemoteGateway]]:
    """Open those that are new; return all that are wanted, and those to be closed at the end."""
    before, wanted = configuration.gateways, file.config.gateways
    leaving = {config: gateway for config, gateway in before.items() if config not in wanted}
    opened: dict[GatewayConfig, RemoteGateway] = {}
    for config in wanted:
        if config in before:
            opened[config] = before[config]
            continue
        for other in [other for other in leaving if other.address == config.address]:
            # The address is needed again. If the file cannot be applied after all, this one is reopened.
            leaving.pop(other).close()
            undo.callback(_reopen, channel, configuration, other)
        opened[config] = open_gateway(channel, file, config)
        undo.callback(opened[config].close)
    return opened, list(leaving.values())


def _reopen(channel: Carrier, configuration: Configuration, config: GatewayConfig) -> None:
    configuration.gateways[config] = open_gateway(channel, configuration.file, config)


# --- modules and operations -------------------------------------------------------------


def _exchange(channel: Carrier, configuration: Configuration, file: ChannelFile) -> None:
    old, new = configuration.file.config, file.config
    swapped = set(configuration.overridden)
    swapped.update(section for section in SECTIONS if getattr(old, section) != getattr(new, section))
    changes = _changes(configuration, new)
    # Consumers change their priority only while no delivery is queued.
    if any(change.has_operation for change in changes):
        swapped.add("dispatching")
    if swapped or changes:
        modules = file.make(swapped)
        try:
            exchange(
                channel,
                filtering=modules.filtering,
                dispatching=modules.dispatching,
                timing=modules.timing,
                drops_timing="timers" in swapped and new.timers is None,
                changes=changes,
            )
        except NotSchedulable as error:
            index = [operation.name for operation in new.operations].index(error.operation.name)
            raise file.failure(("operations", index), str(error)) from error
        except ChannelError as error:
            raise file.failure((), f"cannot be applied: {error}") from error
    if "dispatching" not in swapped and old.lane_threads != new.lane_threads:
        _set_threads(channel, new)


def _changes(configuration: Configuration, new: ChannelConfig) -> list[Change]:
    """Return the changes of consumers that are connected."""
    found: list[Change] = []
    for name, consumer in configuration.connected().items():
        before, stated = _stated(configuration.file.config, name), _stated(new, name)
        if before == stated:
            continue
        change = Change(consumer)
        change.queue_max = stated.queue_max
        change.evict_after = stated.evict_after
        change.evict_slow = stated.evict_slow
        if before.depends_on != stated.depends_on:
            change.dependency = stated.dependency or Leaf(ANYTHING)
        if before.timing != stated.timing:
            change.has_operation = True
            change.operation = stated.operation()
        found.append(change)
    return found


def _set_threads(channel: Carrier, config: ChannelConfig) -> None:
    from timebound.channel.dispatch.lanes import Lanes

    assert isinstance(channel.dispatcher, Lanes), "the reader allows [[lanes]] only for lanes"
    channel.dispatcher.set_lane_threads(config.lane_threads)
