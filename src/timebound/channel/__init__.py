"""The real-time event channel: publish and subscribe inside one program, and between a few.

See docs/channel.md. Only the names below are public. Each is imported on first use, so a program loads only
the modules of its own configuration: without lanes, sockets and event loops it does not load theirs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from timebound.channel.base.consumer import Consumer
    from timebound.channel.base.dependency import all_of, any_of, event, every, source, watchdog
    from timebound.channel.base.errors import ChannelError, ChannelFileError, NotSchedulable, UndeclaredEvent
    from timebound.channel.base.event import TIMEOUT, TOGETHER, Event
    from timebound.channel.base.filtering import Broadcast, Filtering, Subscriptions
    from timebound.channel.base.reports import Kind, Report
    from timebound.channel.base.scheduling import Admission, OperationReport, Scheduler
    from timebound.channel.builder import ChannelBuilder, build
    from timebound.channel.carrier import Supplier
    from timebound.channel.channel import EventChannel
    from timebound.channel.dispatch.aio import AsyncioDispatch
    from timebound.channel.dispatch.dispatcher import Dispatcher, Reactive
    from timebound.channel.dispatch.lanes import Lanes
    from timebound.channel.federation.brokered import BrokerGateway, advert_topic
    from timebound.channel.federation.gateway import Gateway
    from timebound.channel.federation.remote import DiallingGateway, ListeningGateway
    from timebound.channel.pulling import PullConsumer
    from timebound.channel.timing import AsyncioTiming, ThreadTiming, Timing
    from timebound.core.correlation.expression import Timeout

__all__ = [
    "TIMEOUT",
    "TOGETHER",
    "Admission",
    "AsyncioDispatch",
    "AsyncioTiming",
    "Broadcast",
    "BrokerGateway",
    "ChannelBuilder",
    "ChannelError",
    "ChannelFileError",
    "Consumer",
    "DiallingGateway",
    "Dispatcher",
    "Event",
    "EventChannel",
    "Filtering",
    "Gateway",
    "Kind",
    "Lanes",
    "ListeningGateway",
    "NotSchedulable",
    "OperationReport",
    "PullConsumer",
    "Reactive",
    "Report",
    "Scheduler",
    "Subscriptions",
    "Supplier",
    "ThreadTiming",
    "Timeout",
    "Timing",
    "UndeclaredEvent",
    "advert_topic",
    "all_of",
    "any_of",
    "build",
    "event",
    "every",
    "source",
    "watchdog",
]

# Where each public name is defined.
_HOMES: Final = {
    "TIMEOUT": "timebound.channel.base.event",
    "TOGETHER": "timebound.channel.base.event",
    "Admission": "timebound.channel.base.scheduling",
    "AsyncioDispatch": "timebound.channel.dispatch.aio",
    "AsyncioTiming": "timebound.channel.timing",
    "Broadcast": "timebound.channel.base.filtering",
    "BrokerGateway": "timebound.channel.federation.brokered",
    "ChannelBuilder": "timebound.channel.builder",
    "ChannelError": "timebound.channel.base.errors",
    "ChannelFileError": "timebound.channel.base.errors",
    "Consumer": "timebound.channel.base.consumer",
    "DiallingGateway": "timebound.channel.federation.remote",
    "Dispatcher": "timebound.channel.dispatch.dispatcher",
    "Event": "timebound.channel.base.event",
    "EventChannel": "timebound.channel.channel",
    "Filtering": "timebound.channel.base.filtering",
    "Gateway": "timebound.channel.federation.gateway",
    "Kind": "timebound.channel.base.reports",
    "Lanes": "timebound.channel.dispatch.lanes",
    "ListeningGateway": "timebound.channel.federation.remote",
    "NotSchedulable": "timebound.channel.base.errors",
    "OperationReport": "timebound.channel.base.scheduling",
    "PullConsumer": "timebound.channel.pulling",
    "Reactive": "timebound.channel.dispatch.dispatcher",
    "Report": "timebound.channel.base.reports",
    "Scheduler": "timebound.channel.base.scheduling",
    "Subscriptions": "timebound.channel.base.filtering",
    "Supplier": "timebound.channel.carrier",
    "ThreadTiming": "timebound.channel.timing",
    "Timeout": "timebound.core.correlation.expression",
    "Timing": "timebound.channel.timing",
    "UndeclaredEvent": "timebound.channel.base.errors",
    "advert_topic": "timebound.channel.federation.brokered",
    "all_of": "timebound.channel.base.dependency",
    "any_of": "timebound.channel.base.dependency",
    "build": "timebound.channel.builder",
    "event": "timebound.channel.base.dependency",
    "every": "timebound.channel.base.dependency",
    "source": "timebound.channel.base.dependency",
    "watchdog": "timebound.channel.base.dependency",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'timebound.channel' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    # Found at once the next time.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
