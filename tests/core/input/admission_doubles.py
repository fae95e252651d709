"""What the tests of admission share: a plan with short quanta, and contracts for it."""

from __future__ import annotations

from hypothesis import strategies as st

from timebound.core.input.admission import AdmissionControl
from timebound.core.input.cells import EVEN
from timebound.core.input.contract import Contract

QUANTUM = 1_000
MS = 1_000_000


def admission(order: str = EVEN, **options: int) -> AdmissionControl:
    return AdmissionControl(quantum_ns=QUANTUM, quantum_bytes=100, order=order, **options)


def contract(client: str, topic: str, **terms: int) -> Contract:
    return Contract(client, topic, **({"interval_ns": MS} | terms))


def altered(asked: Contract, **terms: int) -> Contract:
    """Return the contract with other terms."""
    names = ("interval_ns", "burst", "size", "weight", "delay_ns")
    return contract(asked.client, asked.topic, **({name: getattr(asked, name) for name in names} | terms))


terms = st.fixed_dictionaries(
    {
        "interval_ns": st.integers(5 * QUANTUM, 200 * QUANTUM),
        "burst": st.integers(1, 3),
        "size": st.integers(1, 250),
        "weight": st.integers(0, 6),
        "delay_ns": st.one_of(st.just(0), st.integers(5 * QUANTUM, 150 * QUANTUM)),
    }
)
