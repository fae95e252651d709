"""How long an answer to an advertisement takes, while the broker's messages wait.

    python benchmarks/admission.py [--json]

Flows of one client each, on as many topics, that were all promised a delay; then one more that is
accepted, or refused: at exactly its share, for its own delay, and for another flow's. A refusal includes the
search for a period and a weight that would fit. Processor time, best of some rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Final

from timebound.core.input.admission import AdmissionControl
from timebound.core.input.contract import Contract, Decision
from timebound.version import is_compiled

QUANTUM_NS: Final = 1_000
OUTSIDE_NS: Final = 4_000_000
SECOND_NS: Final = 1_000_000_000
ROUNDS: Final = 5
# Flows, and the largest weight among them; the last has more cells than are laid out.
CASES: Final = ((200, 10), (1_000, 10), (200, 1_000))


def planned(flows: int, weight_max: int) -> AdmissionControl:
    plan = AdmissionControl(
        quantum_ns=QUANTUM_NS, quantum_bytes=1_024, jitter_ns=OUTSIDE_NS, outside_ns=OUTSIDE_NS
    )
    plan.add_background("#", 1, 1)
    for number in range(flows - 2):
        weight = 1 + number % weight_max
        name = str(number)
        assert plan.advertise(
            Contract(name, name, interval_ns=SECOND_NS, weight=weight, delay_ns=SECOND_NS), 0
        ).accepted
    # One that would lose its promise first.
    loose = plan.advertise(Contract("tight", "tight", interval_ns=SECOND_NS, weight=2), 0)
    delay_ns = loose.bound_ns + 20 * QUANTUM_NS
    tight = Contract("tight", "tight", interval_ns=SECOND_NS, weight=2, delay_ns=delay_ns)
    assert plan.advertise(tight, 0).accepted
    return plan


def questions(plan: AdmissionControl) -> dict[str, Callable[[], Decision]]:
    cycle_ns = QUANTUM_NS * sum(weight * quanta for _, weight, quanta in plan.topics())
    share_ns = (cycle_ns + 3 * QUANTUM_NS) // 3

    def ask(interval_ns: int, weight: int, delay_ns: int = 0) -> Decision:
        asked = Contract("asks", "asked", interval_ns=interval_ns, weight=weight, delay_ns=delay_ns)
        return plan.advertise(asked, 0)

    return {
        "at its share": lambda: ask(share_ns, 3),
        "its delay": lambda: ask(SECOND_NS, 3, OUTSIDE_NS + cycle_ns // 25),
        "another's delay": lambda: ask(SECOND_NS, 200),
        "accepted": lambda: ask(SECOND_NS, 3),
    }


def best_ms(ask: Callable[[], Decision], is_accepted: bool) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        decision = ask()
        times.append(time.process_time() - start)
        assert decision.accepted == is_accepted, decision.reason
    return 1_000 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    is_json = parser.parse_args().json
    rows = []
    for flows, weight_max in CASES:
        plan = planned(flows, weight_max)
        row: dict[str, float] = {"flows": flows, "weights": weight_max}
        for name, ask in questions(plan).items():
            row[name] = best_ms(ask, name == "accepted")
        rows.append(row)
    if is_json:
        print(json.dumps({"compiled": is_compiled(), "rows": rows}, indent=2))
        return
    print(f"{'compiled' if is_compiled() else 'plain'}; CPU time of an answer, in ms")
    print("  ".join(f"{name:>15}" for name in rows[0]))
    for row in rows:
        print("  ".join(f"{value:15.1f}" for value in row.values()))


if __name__ == "__main__":
    main()
