"""Requests to a running broker itself, by topics under `$timebound/`."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import typer

from timebound.commands._connection import Connecting
from timebound.commands._run import OK, run
from timebound.errors import ClientError

ANSWER_S_MAX: Final = 10


def run_request(connecting: Connecting, request: str, payload: str) -> int:
    """Send a request to the broker itself, by a topic under `$timebound/`; return the exit code."""
    return run(_request(connecting, request, payload), as_json=False)


async def _request(connecting: Connecting, request: str, payload: str) -> int:
    async with connecting.client() as client:
        await client.control(request, payload)
    return OK


def ask_strategies(connecting: Connecting) -> dict[str, str]:
    """Ask a running broker for the strategy of each listener and link.

    Raises:
        ClientError: it cannot be reached, refuses, or is not a Timebound broker.
    """

    async def ask() -> str:
        async with connecting.client() as client:
            return await client.control("control/strategies")

    answer = asyncio.run(ask())
    try:
        return {str(user): str(setting) for user, setting in json.loads(answer).items()}
    except (ValueError, AttributeError):
        raise ClientError(f"the server is not a Timebound broker: it answered {answer!r}") from None


def ask_bounds(connecting: Connecting) -> dict[str, Any]:
    """Ask a running broker for its weights, shares and bounds.

    Raises:
        ClientError: it cannot be reached, does not answer, or is not a Timebound broker.
    """
    return _ask_report(connecting, "control/bounds", "$SYS/broker/bounds")


def ask_map(connecting: Connecting) -> dict[str, Any]:
    """Ask a running broker for what it knows of its mesh.

    Raises:
        ClientError: it cannot be reached, does not answer, is in no mesh, or is not a Timebound broker.
    """
    return _ask_report(connecting, "control/mesh", "$SYS/broker/mesh/map")


def _ask_report(connecting: Connecting, request: str, topic: str) -> dict[str, Any]:
    """Ask for a report that the broker publishes; return it."""

    async def ask() -> dict[str, Any]:
        async with connecting.client() as client, client.subscribe(topic) as answers:
            await client.control(request)
            async with asyncio.timeout(ANSWER_S_MAX):
                # A retained report is older than this request.
                async for message in answers:
                    if not message.retain:
                        report: dict[str, Any] = json.loads(message.payload)
                        return report
        raise ClientError("the broker closed the connection without an answer")

    try:
        return asyncio.run(ask())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except TimeoutError:
        raise ClientError(f"the broker did not publish {topic} within {ANSWER_S_MAX} s") from None
