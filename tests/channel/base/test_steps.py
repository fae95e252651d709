"""Coroutines timed step by step."""

from __future__ import annotations

import asyncio
import time

import pytest

from timebound.channel.base.steps import Steps
from timebound.units import MILLISECOND


def use_processor(cost_ns: int) -> None:
    until_ns = time.thread_time_ns() + cost_ns
    while time.thread_time_ns() < until_ns:
        pass


async def test_result_of_the_coroutine_is_passed_on() -> None:
    async def inner() -> str:
        await asyncio.sleep(0)
        return "value"

    assert await Steps(inner()) == "value"


async def test_steps_are_added_up_and_the_longest_is_kept() -> None:
    async def inner() -> None:
        use_processor(MILLISECOND)
        await asyncio.sleep(0)
        use_processor(3 * MILLISECOND)
        await asyncio.sleep(0)
        use_processor(MILLISECOND)

    steps = Steps(inner())
    await steps

    assert steps.cost_ns >= 5 * MILLISECOND
    assert steps.longest_ns >= 3 * MILLISECOND


async def test_what_others_do_meanwhile_is_not_counted() -> None:
    gate = asyncio.Event()

    async def other() -> None:
        use_processor(20 * MILLISECOND)
        gate.set()

    steps = Steps(gate.wait())
    task = asyncio.create_task(other())
    await steps
    await task

    assert steps.cost_ns < 10 * MILLISECOND


async def test_figures_are_complete_after_an_exception() -> None:
    async def inner() -> None:
        await asyncio.sleep(0)
        use_processor(MILLISECOND)
        raise RuntimeError("no thanks")

    steps = Steps(inner())
    with pytest.raises(RuntimeError):
        await steps

    assert steps.cost_ns >= MILLISECOND


async def test_cancelled_coroutine_can_tidy_up_and_what_it_awaits_comes_back_to_it() -> None:
    seen: list[object] = []
    waits = asyncio.Event()

    async def inner() -> str:
        await asyncio.sleep(0)
        return "value"

    async def outer() -> None:
        seen.append(await inner())
        waits.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("tidied up")
            raise

    async def timed() -> None:
        await Steps(outer())

    task = asyncio.create_task(timed())
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert seen == ["value", "tidied up"]
