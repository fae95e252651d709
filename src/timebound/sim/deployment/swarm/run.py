"""Run seeds, and shrink the plan of one that fails to the few actions that matter.

A plan is shrunk by leaving out actions, first many at once, while a run still breaks the same promise. What
is left is found again by its place in the seed's plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from timebound.sim.deployment.checkers.registry import all_checkers
from timebound.sim.deployment.deployment import Deployment, Failure
from timebound.sim.deployment.script import Plan
from timebound.sim.deployment.swarm.paths import count_paths

SHRINK_RUNS_MAX: Final = 400  # some 20 seconds


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What became of one seed."""

    seed: int
    failures: tuple[Failure, ...]
    counts: Counter[str]  # of rare paths
    digest: str  # of everything that clients and traces saw


def run_plan(plan: Plan) -> SeedResult:
    """Run a plan with all checkers."""
    deployment = Deployment(plan, all_checkers())
    failures = tuple(deployment.run())
    return SeedResult(plan.seed, failures, count_paths(deployment), deployment.history.digest())


def keep_actions(plan: Plan, places: list[int]) -> Plan:
    """Return the plan with only the actions at these places, and the clients that still act."""
    actions = tuple(plan.actions[place] for place in places)
    names = {action.who for action in actions}
    clients = tuple(client for client in plan.clients if client.name in names)
    return replace(plan, actions=actions, clients=clients)


def shrink(plan: Plan, checker: str, show: Callable[[int], None] | None = None) -> list[int]:
    """Return the places of few actions that break the same promise; `show` gets how many are left."""
    places = list(range(len(plan.actions)))
    runs = 0
    size = max(len(places) // 2, 1)
    while runs < SHRINK_RUNS_MAX:
        start = 0
        has_shrunk = False
        while start < len(places) and runs < SHRINK_RUNS_MAX:
            rest = places[:start] + places[start + size :]
            runs += 1
            if _fails(keep_actions(plan, rest), checker):
                places = rest
                has_shrunk = True
                if show is not None:
                    show(len(places))
            else:
                start += size
        if size == 1 and not has_shrunk:
            break
        size = max(size // 2, 1)
    return places


def _fails(plan: Plan, checker: str) -> bool:
    return any(failure.checker == checker for failure in run_plan(plan).failures)
