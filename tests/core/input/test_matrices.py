"""Weights and IN: equations 3 and 5 of the paper, and Table I."""

from __future__ import annotations

from fractions import Fraction

import pytest

from timebound.core.input.matrices import InputMatrix


def figure_4() -> InputMatrix:
    """Three topics of weights 4, 3, 2; A from clients 1, 2, 4; B from 2, 3, 4; C from 1, 3, 4."""
    members = InputMatrix()
    for topic, weight in (("A", 4), ("B", 3), ("C", 2)):
        members.set_weight(topic, weight)
    for client, topics in (("1", "AC"), ("2", "AB"), ("3", "BC"), ("4", "ABC")):
        for topic in topics:
            members.advertise(client, topic)
    return members


def table_1(heavy: int) -> InputMatrix:
    """Client 1 with five topics, `heavy` of weight 10 and the rest of weight 1; Σδ = 165."""
    members = InputMatrix()
    for index in range(20):
        members.set_weight(f"t{index}", (10, 7, 4, 1)[index // 5])
    for index in range(heavy):
        members.advertise("1", f"t{index}")
    for index in range(5 - heavy):
        members.advertise("1", f"t{15 + index}")
    missing = 165 - members.deltas()["1"]
    for client in "23456":
        for topic, weight in members.weights.items():
            if weight <= missing:
                members.advertise(client, topic)
                missing -= weight
    assert missing == 0
    return members


def test_equation_3_multiplies_in_by_the_weights() -> None:
    assert figure_4().deltas() == {"1": 6, "2": 7, "3": 5, "4": 9}


def test_equation_5_divides_the_resource_among_clients() -> None:
    shares = figure_4().client_shares()

    assert shares == {"1": Fraction(6, 27), "2": Fraction(7, 27), "3": Fraction(5, 27), "4": Fraction(9, 27)}


@pytest.mark.parametrize(
    ("heavy", "delta", "percent"),
    [(5, 50, "30.30"), (3, 32, "19.39"), (1, 14, "8.48"), (4, 41, "24.85"), (2, 23, "13.94")],
)
def test_table_1_shares_of_client_1(heavy: int, delta: int, percent: str) -> None:
    members = table_1(heavy)

    assert members.deltas()["1"] == delta
    assert f"{float(members.client_shares()['1'] * 100):.2f}" == percent


def test_shares_are_zero_while_nobody_publishes() -> None:
    members = InputMatrix()
    members.set_weight("A", 3)
    members.add_client("1")

    assert members.client_shares() == {"1": 0}


def test_topic_without_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="topic 'A' has no weight; set one first"):
        InputMatrix().advertise("1", "A")
