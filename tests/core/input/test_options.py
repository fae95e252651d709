"""Options of the entrance: values that cannot change, and defaults that fit each other."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from timebound.core.input.cells import ORDERS
from timebound.core.input.options import EntranceOptions
from timebound.core.input.policer import EXCESS_MODES


def test_options_are_frozen() -> None:
    options = EntranceOptions(flows_max=7)

    with pytest.raises(FrozenInstanceError):
        options.flows_max = 8  # type: ignore[misc]
    assert options.flows_max == 7


def test_defaults_fit_each_other() -> None:
    options = EntranceOptions()

    assert options.order in ORDERS
    assert options.excess in EXCESS_MODES
    assert options.flows_per_client_max <= options.flows_per_user_max <= options.flows_max
    assert not options.is_quantum_fixed
