"""Periodic work with priorities: what does not fit is refused, what runs is measured.

Two consumers get a lane each, the one with the shorter period the more urgent one. A third would make
somebody late; the refusal says what would fit instead.
"""

from __future__ import annotations

import time
from threading import Event as Signal

from timebound.channel import ChannelBuilder, Event, NotSchedulable, every


def work(event: Event) -> None:
    until_ns = time.thread_time_ns() + 500_000
    while time.thread_time_ns() < until_ns:
        pass


def main() -> None:
    done = Signal()
    channel = ChannelBuilder("control").filtering().lanes().timers().build()
    operation = channel.scheduler.operation
    ticks: list[object] = []

    def control(event: Event) -> None:
        work(event)
        ticks.append(event.payload)
        if len(ticks) == 20:
            done.set()

    with channel:
        channel.connect(control, every("10ms"), operation=operation("control", period="10ms", cost="4ms"))
        channel.connect(work, every("40ms"), operation=operation("logging", period="40ms", cost="16ms"))
        try:
            channel.connect(work, every("20ms"), operation=operation("video", period="20ms", cost="8ms"))
        except NotSchedulable as refusal:
            print(refusal)
        done.wait(30)
        for report in channel.scheduler.report():
            print(f"{report.name}: priority {report.priority}, bound {report.bound_ns / 1e6:.0f} ms")


if __name__ == "__main__":
    main()
