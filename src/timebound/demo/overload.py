"""The overload experiment: more offered than a slow link carries, to a real broker process.

Three publishers send alerts, telemetry and bulk. One subscriber behind a slow link with a buffer of its
own, a real interface or a relay, sets prices and deadlines. Every broker is offered the same plan. The
receiver judges by the time in the payload; both ends are in this process and share one clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from timebound.client import Client, Subscription
from timebound.demo.best import Best, best_possible
from timebound.demo.brokers import Contender, ReportedDeliveries, read_account, running
from timebound.demo.slow_link import LOOPBACK, SlowLink, open_slow_link
from timebound.demo.traffic import CLASSES, Traffic, TrafficClass, plan
from timebound.units import SECOND, format_duration

# The subscriber reads at once; the client's queue must drop nothing.
_QUEUE_SIZE: Final = 100_000
_TICK_S: Final = 0.1
# After the last message, the run goes on while one can still be in time, at most this long.
AFTER_S_MAX: Final = 2.0

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class OverloadSetting:
    """The settings that are the same for every broker."""

    rate_bytes_per_s: float
    seconds: float
    seed: int = 1
    qos: int = 0
    buffer_s: float = 0.0  # time that the link's own buffer holds
    wants_interface: bool = False  # a real interface, between network namespaces
    classes: tuple[TrafficClass, ...] = CLASSES

    def qos_of(self, kind: TrafficClass) -> int:
        return max(self.qos, kind.qos_min)

    @property
    def run_s(self) -> float:
        return self.seconds + min(max(kind.deadline_ns for kind in self.classes) / SECOND, AFTER_S_MAX)


@dataclass(frozen=True, slots=True)
class OverloadResult:
    """The result of one broker under one load."""

    contender: Contender
    load: float
    setting: OverloadSetting
    started_ns: int
    traffics: list[Traffic]
    best: list[Best]
    link_used: float  # share of the link's capacity used by the messages that arrived
    account: ReportedDeliveries | None = None  # as this broker counts; None for another

    @property
    def value(self) -> float:
        return sum(traffic.in_time() * traffic.kind.price for traffic in self.traffics)

    @property
    def value_best(self) -> float:
        return sum(best.value for best in self.best)

    @property
    def share_of_best(self) -> float:
        return self.value / self.value_best if self.value_best else 0.0


def run(contender: Contender, load: float, setting: OverloadSetting, progress: Progress) -> OverloadResult:
    """Run one broker under one load; `progress` is called with the seconds since its last call."""
    with (
        open_slow_link(
            setting.rate_bytes_per_s, setting.buffer_s, wants_interface=setting.wants_interface
        ) as link,
        running(contender, link) as port,
        link.open_to(port) as address,
    ):
        return asyncio.run(_drive(contender, load, setting, link, port, address, progress))


async def _drive(
    contender: Contender,
    load: float,
    setting: OverloadSetting,
    link: SlowLink,
    port: int,
    address: tuple[str, int],
    progress: Progress,
) -> OverloadResult:
    traffics = [Traffic(kind) for kind in setting.classes]
    # Aliases would shorten the topics for one broker and not for the other.
    subscriber = Client(address[0], address[1], client_id="subscriber", topic_alias_maximum=0)
    publishers = [Client(LOOPBACK, port, client_id=traffic.kind.name) for traffic in traffics]
    async with contextlib.AsyncExitStack() as stack:
        # A socket stays in the namespace it was opened in.
        with link.behind_link():
            await stack.enter_async_context(subscriber)
        with link.beside_broker():
            for publisher in publishers:
                await stack.enter_async_context(publisher)
        subscriptions = [await _subscribe(subscriber, traffic, setting) for traffic in traffics]
        started_ns = time.monotonic_ns()
        async with asyncio.TaskGroup() as tasks:
            readers = [
                tasks.create_task(_receive(subscription, traffic), name=f"read {traffic.kind.name}")
                for subscription, traffic in zip(subscriptions, traffics, strict=True)
            ]
            for client, traffic in zip(publishers, traffics, strict=True):
                due_s = plan(traffic.kind, load * setting.rate_bytes_per_s, setting.seconds, setting.seed)
                tasks.create_task(
                    _publish(client, traffic, due_s, started_ns, setting.qos_of(traffic.kind)),
                    name=f"publish {traffic.kind.name}",
                )
            await _watch(started_ns, setting.run_s, progress)
            until_ns = time.monotonic_ns()
            account = read_account(port, link) if contender.is_ours else None
            for reader in readers:
                reader.cancel()
    best = best_possible(traffics, setting.rate_bytes_per_s, until_ns)
    could_carry = setting.rate_bytes_per_s * (until_ns - started_ns) / SECOND
    arrived = sum(len(traffic.delays_ns()) * traffic.kind.frame_bytes for traffic in traffics)
    return OverloadResult(
        contender, load, setting, started_ns, traffics, best, arrived / could_carry, account
    )


async def _subscribe(client: Client, traffic: Traffic, setting: OverloadSetting) -> Subscription:
    kind = traffic.kind
    deadline = format_duration(kind.deadline_ns) if kind.deadline_ns else None
    return await client.subscribe(
        kind.topic,
        qos=setting.qos_of(kind),
        deadline=deadline,
        price=kind.price,
        queue_size=_QUEUE_SIZE,
    )


async def _receive(subscription: Subscription, traffic: Traffic) -> None:
    async for message in subscription:
        traffic.arrive(message.payload, time.monotonic_ns())


async def _publish(client: Client, traffic: Traffic, due_s: list[float], started_ns: int, qos: int) -> None:
    async with asyncio.TaskGroup() as tasks:
        for at_s in due_s:
            wait_s = at_s - (time.monotonic_ns() - started_ns) / SECOND
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            # Publishers keep to their plan and do not wait for acknowledgements.
            tasks.create_task(
                client.publish(traffic.kind.topic, traffic.publish(time.monotonic_ns()), qos=qos),
                name=f"publish {traffic.kind.name}",
            )


async def _watch(started_ns: int, seconds: float, progress: Progress) -> None:
    passed_s = 0.0
    while passed_s < seconds:
        await asyncio.sleep(min(_TICK_S, seconds - passed_s))
        now_s = (time.monotonic_ns() - started_ns) / SECOND
        progress(now_s - passed_s)
        passed_s = now_s
