"""What the tests of admission share: a plan with short quanta, and contracts for it."""

from __future__ import annotations

from hypothesis import strategies as st

from timebound.core.admission import Admission
from timebound.core.cells import EVEN
from timebound.core.offers import Contract

QUANTUM = 1_000
MS = 1_000_000


def admission(order: str = EVEN, **options: int) -> Admission:
    return Admission(quantum_ns=QUANTUM, quantum_bytes=100, order=order, **options)


def contract(client: str, topic: str, **terms: int) -> Contract:
    return Contract(client, topic, **({"interval_ns": MS} | terms))


def with_delay(asked: Contract, delay_ns: int) -> Contract:
    return Contract(
        asked.client,
        asked.topic,
        interval_ns=asked.interval_ns,
        burst=asked.burst,
        size=asked.size,
        weight=asked.weight,
        delay_ns=delay_ns,
    )


terms = st.fixed_dictionaries(
    {
        "interval_ns": st.integers(5 * QUANTUM, 200 * QUANTUM),
        "burst": st.integers(1, 3),
        "size": st.integers(1, 250),
        "weight": st.integers(0, 6),
        "delay_ns": st.one_of(st.just(0), st.integers(5 * QUANTUM, 150 * QUANTUM)),
    }
)
