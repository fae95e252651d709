"""`timebound sim swarm`: random deployments by seed; the first failing one is shrunk to a short script."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from timebound.commands._screen import FAILED, printer, progress_bar, screen
from timebound.terminal import safe

if TYPE_CHECKING:
    from timebound.sim.deployment.script import Plan
    from timebound.sim.deployment.swarm.run import SeedResult


def run_swarm(seeds: tuple[int, ...], keep: tuple[int, ...], *, is_json: bool) -> None:
    """Run seeds, print what failed and how often rare paths were taken, and exit with 1 after a failure."""
    from timebound.sim.deployment.swarm.draw import draw_plan
    from timebound.sim.deployment.swarm.run import run_plan

    if keep and len(seeds) > 1:
        raise _wrong_keep(f"needs one seed, as the places are of its script; there are {len(seeds)} seeds")
    results: list[SeedResult] = []
    with progress_bar(screen) as bar:
        task = bar.add_task("seeds", total=len(seeds))
        for seed in seeds:
            plan = draw_plan(seed)
            if keep:
                plan = _kept(plan, keep)
            results.append(run_plan(plan))
            bar.advance(task)
    failed = [one for one in results if one.failures]
    scripts = {} if keep else {one.seed: _shrunk(one, draw_plan(one.seed)) for one in failed[:1]}
    if is_json:
        typer.echo(json.dumps(_as_json(results, scripts), indent=2))
    else:
        _print(results, failed, scripts)
    if failed:
        raise typer.Exit(FAILED)


def _kept(plan: Plan, keep: tuple[int, ...]) -> Plan:
    """Return the plan with only the actions at these places.

    Raises:
        typer.BadParameter: the plan has no such place.
    """
    from timebound.sim.deployment.swarm.run import keep_actions

    count = len(plan.actions)
    for place in keep:
        if not 0 <= place < count:
            raise _wrong_keep(f"the script of seed {plan.seed} has places 0 to {count - 1}, not {place}")
    return keep_actions(plan, sorted(set(keep)))


def _wrong_keep(text: str) -> typer.BadParameter:
    return typer.BadParameter(text, param_hint="--keep")


def _shrunk(result: SeedResult, plan: Plan) -> list[tuple[int, str]]:
    """Return the places and texts of the actions that matter."""
    from timebound.sim.deployment.swarm.run import shrink

    with progress_bar(screen) as bar:
        task = bar.add_task(f"shrinking seed {result.seed}", total=len(plan.actions))

        def show(left: int) -> None:
            bar.update(task, completed=len(plan.actions) - left)

        places = shrink(plan, result.failures[0].checker, show)
    return [(place, str(plan.actions[place])) for place in places]


def _as_json(results: list[SeedResult], scripts: dict[int, list[tuple[int, str]]]) -> dict[str, Any]:
    return {
        "seeds": [
            {
                "seed": one.seed,
                "digest": one.digest,
                "failures": [str(failure) for failure in one.failures],
                "script": [{"place": place, "action": text} for place, text in scripts.get(one.seed, [])],
            }
            for one in results
        ],
        "paths": _paths(results),
    }


def _paths(results: list[SeedResult]) -> dict[str, int]:
    from timebound.sim.deployment.swarm.paths import PATHS

    return {path: sum(one.counts[path] for one in results) for path in PATHS}


def _print(
    results: list[SeedResult], failed: list[SeedResult], scripts: dict[int, list[tuple[int, str]]]
) -> None:
    table = Table(title="rare paths")
    table.add_column("path")
    table.add_column("times", justify="right")
    for path, count in _paths(results).items():
        table.add_row(path, f"{count:,}" if count else "never")
    printer().print(table)
    for one in failed:
        for failure in one.failures:
            typer.echo(f"seed {one.seed}: {safe(str(failure))}")
        if one.seed in scripts:
            places = ",".join(str(place) for place, _ in scripts[one.seed])
            typer.echo(f"  again, with the actions that matter: --seeds {one.seed} --keep {places}")
            for _, text in scripts[one.seed]:
                typer.echo(f"    {safe(text)}")
    typer.echo(f"{len(results)} seeds, {len(failed)} failed")
