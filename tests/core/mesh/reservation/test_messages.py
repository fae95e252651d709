"""Messages about reserved paths are plain values."""

from __future__ import annotations

from timebound.core.mesh.reservation.messages import FULL, Demand, Obstacle, Resolution


def test_they_are_equal_if_they_say_the_same() -> None:
    assert Demand("f", "a", 10) == Demand("f", "a", 10, 0)
    assert Resolution("r", False, 0, (Obstacle(("a", "b"), FULL, 3),)) != Resolution("r", False)
