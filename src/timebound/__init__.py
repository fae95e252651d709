"""Publish/subscribe in which lateness counts.

Public names are imported on first use: `import timebound` loads nothing else, which keeps
commands quick to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timebound.client import Client, Message, Subscription, Will

__all__ = ["Client", "Message", "Subscription", "Will"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from timebound import client

        return getattr(client, name)
    raise AttributeError(f"module 'timebound' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
