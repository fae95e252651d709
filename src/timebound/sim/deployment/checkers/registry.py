"""All checkers, new ones for each run."""

from __future__ import annotations

from timebound.sim.deployment.checkers.accounts import Accounts
from timebound.sim.deployment.checkers.bounds import Bounds
from timebound.sim.deployment.checkers.duplicates import Duplicates
from timebound.sim.deployment.checkers.figures import FiguresEqualTrace
from timebound.sim.deployment.checkers.limits import LimitsKept
from timebound.sim.deployment.checkers.losses import Losses
from timebound.sim.deployment.checkers.order import Order
from timebound.sim.deployment.checkers.phantoms import Phantoms
from timebound.sim.deployment.checkers.retained import Retained
from timebound.sim.deployment.checkers.rights import RightsKept
from timebound.sim.deployment.checkers.shared import Shared
from timebound.sim.deployment.deployment import Checker


def all_checkers() -> list[Checker]:
    """Return one of each."""
    return [
        Accounts(),
        FiguresEqualTrace(),
        LimitsKept(),
        Phantoms(),
        Duplicates(),
        Order(),
        Losses(),
        Shared(),
        Retained(),
        Bounds(),
        RightsKept(),
    ]
