"""The papers' open questions, each answer under a name (docs/reproduction.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from timebound.sim.kernel.draws import uniform
from timebound.sim.mesh.setting import MeshSetting

Change = Callable[[MeshSetting], MeshSetting]


def _reading(**changes: str) -> Change:
    def change(setting: MeshSetting) -> MeshSetting:
        return replace(setting, reading=replace(setting.reading, **changes))

    return change


def _per_kilobyte(setting: MeshSetting) -> MeshSetting:
    return replace(setting, links=replace(setting.links, sampling="kilobyte"))


def _clipped(setting: MeshSetting) -> MeshSetting:
    return replace(setting, links=replace(setting.links, truncation="clip"))


def _periodic(setting: MeshSetting) -> MeshSetting:
    return replace(setting, publishers=tuple(replace(one, arrivals="periodic") for one in setting.publishers))


def _publisher_link(setting: MeshSetting) -> MeshSetting:
    return replace(setting, publishers=tuple(replace(one, link_costs=True) for one in setting.publishers))


def _publisher_delay(setting: MeshSetting) -> MeshSetting:
    publishers = tuple(replace(one, link_costs=True, link_queues=False) for one in setting.publishers)
    return replace(setting, publishers=publishers)


def _timeout(setting: MeshSetting) -> MeshSetting:
    timeouts = uniform(20_000, 60_000)
    return replace(
        setting,
        publishers=tuple(
            one if one.timeout_ms else replace(one, timeout_ms=timeouts) for one in setting.publishers
        ),
    )


def _late_second(setting: MeshSetting) -> MeshSetting:
    # Links from a publisher's broker to a subscriber's.
    links = len(setting.topology.layers) - 1
    return replace(setting, message_bytes=links * setting.message_bytes)


def _mixed_sizes(setting: MeshSetting) -> MeshSetting:
    sizes = uniform(10 * 1_024, 90 * 1_024)
    publishers = tuple(replace(one, size_bytes=sizes) for one in setting.publishers)
    return replace(setting, publishers=publishers, message_bytes=0)


def _literal(setting: MeshSetting) -> MeshSetting:
    return setting


# Name, what it means, and how it changes the literal setting.
READINGS: Final[dict[str, tuple[str, Change]]] = {
    "literal": ("path tree, early drop for all, Poisson, no publisher link, RL over all", _literal),
    "match": ("every broker matches again; second copies are dropped on arrival", _reading(routing="match")),
    "match-all": ("every broker matches again; second copies go on", _reading(routing="match-all")),
    "expired": ("FIFO, RL and FIX delete only what has expired", _reading(drops="expired")),
    "keep": ("FIFO, RL and FIX delete nothing", _reading(drops="none")),
    "alive": ("RL averages over the subscriptions not yet late", _reading(lifetime="alive")),
    "publisher-link": ("a publisher's own link costs time like any other", _publisher_link),
    "publisher-delay": ("it delays every message, but none waits for another there", _publisher_delay),
    "periodic": ("publishers send at fixed intervals", _periodic),
    "kilobyte": ("every KB draws its own rate", _per_kilobyte),
    "clip": ("rates are clipped instead of drawn again", _clipped),
    "late-second": ("sent second is later by the time over the whole way, not one link", _late_second),
    "mixed-sizes": ("beyond the papers: messages of 10 to 90 KB", _mixed_sizes),
    "timeout": ("messages without a timeout get one of 20 to 60 s", _timeout),
}


def read_as(setting: MeshSetting, names: str) -> MeshSetting:
    """Return a setting under one or more readings, joined by `+`.

    Raises:
        ValueError: there is no such reading.
    """
    for name in names.split("+"):
        if name not in READINGS:
            raise ValueError(f"reading {name!r} is unknown; choose one of {', '.join(READINGS)}")
        setting = READINGS[name][1](setting)
    return setting
