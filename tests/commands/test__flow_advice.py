"""Flows that were observed are put before the broker's own admission."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from timebound.commands._flow_advice import NOT_A_FLOW, advise


def flow(topic: str, rate: float, burst: int = 1, node: str = "n", size: int = 100) -> dict[str, Any]:
    return {
        "node": node,
        "publisher": "p",
        "topic": topic,
        "rate_per_s": rate,
        "burst": burst,
        "size_bytes_max": size,
        "messages": 1,
    }


def test_a_small_flow_is_admitted_with_weight_one_and_a_bound() -> None:
    [answer] = advise([flow("t", 10.0)], quantum_ns=100_000)

    assert (answer["weight"], answer["is_admitted"]) == (1, True)
    assert 0.3 < answer["bound_ms"] < 30.0  # 20 ms of it for a stall of the machine
    assert f"waits at most {answer['bound_ms']:.3f} ms" in answer["reason"]
    assert (answer["topic"], answer["burst"], answer["size_bytes"]) == ("t", 1, 100)


def test_a_flow_beyond_an_equal_share_gets_the_weight_that_it_needs() -> None:
    # 4,900 of 10,000 quanta a second, where two equal shares are 5,000 each: that leaves no room.
    [answer] = advise([flow("t", 4_900.0)], quantum_ns=100_000)

    assert answer["is_admitted"]
    # 1.2 · 0.49 · 2 / (1 - 1.2 · 0.49), rounded up.
    assert answer["weight"] == 3


def test_what_no_weight_makes_fit_is_refused_with_the_reason() -> None:
    answers = advise([flow("t", 9_900.0, size=5_000), flow("u", 10.0, burst=20_000)], quantum_ns=100_000)

    kept = [(one["is_admitted"], one["weight"], one["bound_ms"]) for one in answers]
    assert kept == [(False, None, None)] * 2
    assert "of the service rate" in answers[0]["reason"]
    assert answers[1]["reason"] == NOT_A_FLOW


def test_nodes_admit_on_their_own() -> None:
    most = 0.4 * 10_000

    answers = advise([flow("a", most), flow("b", most), flow("a", most, node="m")], quantum_ns=100_000)

    assert [(one["node"], one["is_admitted"]) for one in answers] == [("n", True), ("n", False), ("m", True)]
    assert advise([], quantum_ns=100_000) == []


@given(st.lists(st.tuples(st.floats(0.01, 9_000.0), st.integers(1, 50), st.integers(1, 4_000)), max_size=12))
def test_flows_that_fit_together_are_all_admitted(drawn: list[tuple[float, int, int]]) -> None:
    quanta = [rate * -(-size // 1_024) for rate, _, size in drawn]
    scale = max(1.0, sum(quanta) / 4_900)
    rows = [
        flow(f"t/{n}", max(rate / scale, 0.01), burst, size=size)
        for n, (rate, burst, size) in enumerate(drawn)
    ]

    answers = advise(rows, quantum_ns=100_000)

    assert all(one["is_admitted"] for one in answers)
