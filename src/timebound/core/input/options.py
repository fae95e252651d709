"""Options of a broker's entrance, with their defaults; `config/input.py` gives the reason of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from timebound.core.input.cells import EVEN
from timebound.core.input.policer import LOWER
from timebound.core.input.scheduler import QUANTUM_BYTES
from timebound.units import MILLISECOND

# Until measured: the quantum of a slow machine, uncompiled.
QUANTUM_NS_DEFAULT: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EntranceOptions:
    """How messages are taken in, and what advertised flows may be guaranteed.

    Delay bounds count with `quantum_ns` until enough rounds were measured, or always with `is_quantum_fixed`;
    rounds of reading, serving and writing, and stalls, count with these times at least.
    """

    order: str = EVEN
    quantum_bytes: int = QUANTUM_BYTES
    queue_quanta_max: int = 256
    default_weight: int = 1
    weights: tuple[tuple[str, int], ...] = ()  # topic filters and their weights
    quantum_ns: int = QUANTUM_NS_DEFAULT
    is_quantum_fixed: bool = False
    round_ns_min: int = 2 * MILLISECOND
    stall_ns_min: int = 20 * MILLISECOND
    reserved_percent: int = 50
    excess: str = LOWER
    flows_max: int = 200
    flows_per_client_max: int = 50
    flows_per_user_max: int = 100
    advertisements_per_second_max: int = 10
    advertising_percent_max: int = 10
