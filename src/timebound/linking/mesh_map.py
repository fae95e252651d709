"""What one broker knows of the whole mesh, as a document for `timebound mesh`."""

from __future__ import annotations

import json
from typing import Any, Final

from timebound.core.mesh.member import Member
from timebound.core.mesh.options import LATE
from timebound.units import MILLISECOND, SECOND

MAP_TOPIC: Final = "$SYS/broker/mesh/map"
_MS_PER_S: Final = 1_000.0


def map_document(member: Member, now_ns: int) -> dict[str, Any]:
    """Return the brokers and links that a member knows; times in milliseconds."""
    return {
        "broker": member.name,
        "routing": "late" if member.forwarder.options.routing == LATE else "single-path",
        "brokers": _brokers(member, now_ns),
        "links": _links(member),
    }


def encode_map(member: Member, now_ns: int) -> bytes:
    return json.dumps(map_document(member, now_ns)).encode()


def _brokers(member: Member, now_ns: int) -> list[dict[str, Any]]:
    absence = member.absence
    gone, cut_off = set(absence.gone()), set(absence.cut_off())
    homes: dict[str, int] = {}
    for one in member.table.subscriptions():
        homes[one.home] = homes.get(one.home, 0) + 1
    found: list[dict[str, Any]] = []
    for name in sorted({*member.replica.link_state.brokers(), *member.replica.owners()}):
        broker: dict[str, Any] = {"name": name, "state": "up"}
        if name != member.name:
            broker["subscriptions"] = homes.get(name, 0)
        if name in gone or name in cut_off:
            broker["state"] = "gone" if name in gone else "cut off"
            broker["since_s"] = (now_ns - absence.since_ns(name)) // SECOND
        found.append(broker)
    return found


def _links(member: Member) -> list[dict[str, Any]]:
    link_state = member.replica.link_state
    found: list[dict[str, Any]] = []
    for source in link_state.brokers():
        for target in link_state.neighbours(source):
            delay = link_state.delay(source, target)
            assert delay is not None, "a neighbour has a link"
            link: dict[str, Any] = {
                "from": source,
                "to": target,
                "ms_per_kb": delay.mean_s_per_kb * _MS_PER_S,
                "deviation_ms_per_kb": delay.variance**0.5 * _MS_PER_S,
                "jitter_ms": delay.jitter_s * _MS_PER_S,
            }
            figures = member.replica.figures.get((source, target))
            if figures is not None:
                link["latency_ms"] = figures.latency_ns / MILLISECOND
                link["queue_delay_ms"] = figures.queue_delay_ns / MILLISECOND
                link["waiting"] = figures.waiting
                link["lost_share"] = figures.lost_share
            found.append(link)
    return found
