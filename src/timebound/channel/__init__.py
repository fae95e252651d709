"""The real-time event channel: publish and subscribe inside one program, and between a few.

See docs/channel.md. Only the names below are public.
"""

from __future__ import annotations

from timebound.channel.base.consumer import Consumer
from timebound.channel.base.dependency import all_of, any_of, event, every, source, watchdog
from timebound.channel.base.errors import ChannelError, NotSchedulable, UndeclaredEvent
from timebound.channel.base.event import TIMEOUT, TOGETHER, Event
from timebound.channel.base.filtering import Broadcast, Filtering, Subscriptions
from timebound.channel.base.reports import Kind, Report
from timebound.channel.base.scheduling import Admission, OperationReport, Scheduler
from timebound.channel.builder import ChannelBuilder, build
from timebound.channel.channel import EventChannel, Supplier
from timebound.channel.dispatch.aio import AsyncioDispatch
from timebound.channel.dispatch.dispatcher import Dispatcher, Reactive
from timebound.channel.dispatch.lanes import Lanes
from timebound.channel.federation.brokered import BrokerGateway, advert_topic
from timebound.channel.federation.gateway import Gateway
from timebound.channel.federation.remote import DiallingGateway, ListeningGateway
from timebound.channel.timing import AsyncioTiming, ThreadTiming, Timing
from timebound.core.correlation import Timeout

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
