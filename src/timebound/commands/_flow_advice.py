"""The admission's verdict on observed flows: weight, bound, yes or no.

The pipeline knows how often a flow came and how burstily; whether a broker could guarantee it a delay bound
is for the core to decide. Flows of a node are asked for one after the other, at a broker with the default
input and nobody else.
"""

from __future__ import annotations

from math import ceil
from typing import Any, Final

from timebound.core.account.counters import Counters
from timebound.core.input.admission import AdmissionControl
from timebound.core.input.bounds import NEVER, UNBOUNDED
from timebound.core.input.cells import WEIGHT_MAX
from timebound.core.input.contract import BURST_MAX, Contract, Decision
from timebound.core.input.entrance import Entrance
from timebound.core.input.options import QUANTUM_NS_DEFAULT, EntranceOptions
from timebound.units import MILLISECOND, SECOND

Row = dict[str, Any]
# Part of its share that a flow leaves unused: closer to it, queues grow long before they empty.
ROOM: Final = 1.2
NOT_A_FLOW: Final = "its bursts are too long for any contract"
TOO_HEAVY: Final = f"no weight up to {WEIGHT_MAX} gives it the share that it needs beside the others"


def advise(rows: list[Row], quantum_ns: int = QUANTUM_NS_DEFAULT) -> list[Row]:
    """Ask for each row of the pipeline's table of flows; return one row of its table of advice for each."""
    by_node: dict[str, list[Row]] = {}
    for row in rows:
        by_node.setdefault(row["node"], []).append(row)
    return [answer for of_node in by_node.values() for answer in _advise_node(of_node, quantum_ns)]


def _advise_node(rows: list[Row], quantum_ns: int) -> list[Row]:
    admission = _new_admission(quantum_ns)
    shares = [_share(row, admission) for row in rows]
    weights = _weights(shares, admission)
    return [_ask(admission, row, weight) for row, weight in zip(rows, weights, strict=True)]


def _new_admission(quantum_ns: int) -> AdmissionControl:
    """Return the admission control of a broker without configuration."""
    return Entrance(EntranceOptions(quantum_ns=quantum_ns), Counters()).flows.admission


def _share(row: Row, admission: AdmissionControl) -> float:
    """Return the share of the broker's time that a flow needs."""
    parts = _contract(row, 1).parts(admission.quantum_bytes)
    return float(row["rate_per_s"]) * parts * admission.quantum_ns / SECOND


def _weights(shares: list[float], admission: AdmissionControl) -> list[int]:
    """Return weights with which all flows that fit have their share and some room, regardless of others.

    Weights in proportion to the shares, times k. Rounded up, n flows and the background take at most
    k·R + n + 1 of all, R being the sum of the shares; with k = (n + 1) / (1 - R) that is k.
    """
    fitting: list[float] = []
    for share in sorted(shares):
        if sum(fitting) + share <= admission.reserved and (sum(fitting) + share) * ROOM < 1.0:
            fitting.append(share)
    scale = (len(fitting) + 1) / (1.0 - sum(fitting) * ROOM)
    return [max(1, ceil(share * ROOM * scale)) for share in shares]


def _ask(admission: AdmissionControl, row: Row, weight: int) -> Row:
    answer: Row = {name: row[name] for name in ("node", "publisher", "topic", "rate_per_s", "burst")}
    answer |= {"size_bytes": row["size_bytes_max"], "weight": None, "bound_ms": None, "is_admitted": False}
    if not 1 <= row["burst"] <= BURST_MAX:
        return answer | {"reason": NOT_A_FLOW}
    share = _share(row, admission)
    # What cannot fit is refused at once; else a weight out of range would be asked for.
    if weight > WEIGHT_MAX and admission.share_taken() + share <= admission.reserved:
        return answer | {"reason": TOO_HEAVY}
    return answer | _said(admission.advertise(_contract(row, min(weight, WEIGHT_MAX)), 0))


def _contract(row: Row, weight: int) -> Contract:
    interval_ns = min(max(int(SECOND / row["rate_per_s"]), 1), NEVER)
    size, burst = int(row["size_bytes_max"]), min(max(int(row["burst"]), 1), BURST_MAX)
    return Contract(
        row["publisher"], row["topic"], interval_ns=interval_ns, burst=burst, size=size, weight=weight
    )


def _said(decision: Decision) -> Row:
    is_bounded = decision.accepted and decision.bound_ns != UNBOUNDED
    return {
        "weight": decision.weight if decision.accepted else None,
        "bound_ms": decision.bound_ns / MILLISECOND if is_bounded else None,
        "is_admitted": decision.accepted,
        "reason": decision.reason,
    }
