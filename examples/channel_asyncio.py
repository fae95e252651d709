"""Consumers that are coroutines: one that waits delays only itself."""

from __future__ import annotations

import asyncio

from timebound.channel import AsyncioDispatch, AsyncioTiming, ChannelBuilder, Event


async def main() -> None:
    finished = asyncio.Event()

    async def store(event: Event) -> None:
        await asyncio.sleep(0.01)
        print(f"stored {event.payload}")
        if event.payload == 2:
            finished.set()

    builder = ChannelBuilder("loop").filtering().dispatching(AsyncioDispatch()).timers(AsyncioTiming())
    with builder.build() as channel:
        channel.connect(store, "sample")
        channel.connect(lambda event: print(f"shown {event.payload}"), "sample")
        supplier = channel.supplier("sensor", "sample")
        for number in range(3):
            supplier.push("sample", number)
        async with asyncio.timeout(10):
            await finished.wait()


if __name__ == "__main__":
    asyncio.run(main())
