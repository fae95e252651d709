"""Making the modules that a channel's file names, and importing only those.

A name with a colon, `package.module:name`, is a class or function of the program's own; it is called
with the section's options as keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

from timebound.channel.base.filtering import Broadcast, Filtering, Subscriptions
from timebound.channel.dispatch.dispatcher import Dispatcher, Reactive

if TYPE_CHECKING:
    from timebound.channel.config.values import ModuleConfig
    from timebound.channel.timing import Timing

FILTERING: Final = ("subscriptions", "broadcast")
DISPATCHING: Final = ("lanes", "reactive", "asyncio")
TIMERS: Final = ("thread", "asyncio", "manual")

Module = TypeVar("Module")


def make_filtering(config: ModuleConfig) -> Filtering:
    """Make a filtering module.

    Raises:
        ValueError: a module of the program's own cannot be made.
    """
    if config.module == "subscriptions":
        return Subscriptions()
    if config.module == "broadcast":
        return Broadcast()
    return _own(config, Filtering)  # type: ignore[type-abstract]  # only compared with


def make_dispatcher(config: ModuleConfig, lane_threads: dict[int, int]) -> Dispatcher:
    """Make a dispatching module, not started yet.

    Raises:
        ValueError: a module of the program's own cannot be made.
    """
    if config.module == "reactive":
        return Reactive()
    if config.module == "lanes":
        from timebound.channel.dispatch.lanes import Lanes

        return Lanes(threads_of=lane_threads, **config.options)  # type: ignore[arg-type]  # checked when read
    if config.module == "asyncio":
        from timebound.channel.dispatch.aio import AsyncioDispatch

        return AsyncioDispatch()
    return _own(config, Dispatcher)  # type: ignore[type-abstract]  # only compared with


def make_timing(config: ModuleConfig) -> Timing:
    """Make a timer module, not started yet.

    Raises:
        ValueError: a module of the program's own cannot be made.
    """
    from timebound.channel.timing import AsyncioTiming, ThreadTiming, Timing

    if config.module == "thread":
        return ThreadTiming(**config.options)  # type: ignore[arg-type]  # checked when read
    if config.module == "asyncio":
        return AsyncioTiming()
    if config.module == "manual":
        return Timing()
    return _own(config, Timing)


def find(name: str) -> Callable[..., object]:
    """Import what `package.module:name` stands for.

    Raises:
        ValueError: it cannot be imported, or cannot be called.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    # Importing runs the program's own code, which may raise anything.
    except Exception as error:
        raise ValueError(f"{name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"{name!r} is neither a class nor a function")
    made: Callable[..., object] = found
    return made


def _own(config: ModuleConfig, kind: type[Module]) -> Module:
    try:
        made = find(config.module)(**config.options)
    # The program's own code again.
    except Exception as error:
        raise ValueError(f"{config.module!r} cannot be made: {error}") from error
    if not isinstance(made, kind):
        raise ValueError(f"{config.module!r} makes a {type(made).__name__}; it must be a {kind.__name__}")
    return made
