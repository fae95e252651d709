"""Wait for events together, and notice when they stay away.

A fusion consumer wants a position and a speed no more than 50 ms apart. A monitor wants to know when the
engine is silent for 100 ms. Time is moved by hand here, so the output is always the same; leave out
`clock` and `Timing` and the channel keeps time by itself.
"""

from __future__ import annotations

from timebound.channel import TIMEOUT, ChannelBuilder, Event, Timing, all_of, source, watchdog
from timebound.units import MILLISECOND


def fuse(event: Event) -> None:
    position, speed = event.parts
    print(f"fused: position {position.payload}, speed {speed.payload}")


def monitor(event: Event) -> None:
    print("engine: silent!" if event.type == TIMEOUT else f"engine: {event.type} {event.payload}")


def main() -> None:
    now_ns = 0
    channel = ChannelBuilder("vehicle").filtering().timers(Timing()).clock(lambda: now_ns).build()
    with channel:
        channel.connect(fuse, all_of("position", "speed", within="50ms"))
        channel.connect(monitor, watchdog(source("engine"), "100ms"))
        gps = channel.supplier("gps", "position", "speed")
        engine = channel.supplier("engine", "temperature")

        gps.push("position", (52.5, 13.4))
        now_ns += 60 * MILLISECOND
        gps.push("speed", 13)  # the position is too old by now
        gps.push("position", (52.6, 13.4))
        engine.push("temperature", 88)
        now_ns += 100 * MILLISECOND
        channel.wake(now_ns)


if __name__ == "__main__":
    main()
