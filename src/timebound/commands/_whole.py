"""`timebound sim run`: a scenario on a mesh, or with whole brokers, perhaps of live configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from timebound.errors import ConfigError

if TYPE_CHECKING:
    from timebound.config.values import Config
    from timebound.sim.mesh.experiment import RunResult
    from timebound.sim.mesh.setting import MeshSetting
    from timebound.sim.scenario.scenario import Scenario

    Simulate = Callable[[MeshSetting, int, Callable[[float], None]], RunResult]


def loaded_with(scenario: Path, files: list[Path]) -> tuple[Scenario, Simulate]:
    """Read a scenario and configurations; return it with what runs it.

    Raises:
        ConfigError: one of them has a mistake, or they do not fit together.
    """
    from timebound.sim.mesh import experiment
    from timebound.sim.scenario import whole
    from timebound.sim.scenario.scenario import load_scenario

    configs = tuple(live_config(path) for path in files)
    loaded = load_scenario(scenario, configs)

    def simulate(setting: MeshSetting, seed: int, progress: Callable[[float], None]) -> RunResult:
        if loaded.fidelity == "mesh":
            return experiment.run(setting, seed, progress)
        return whole.simulate(setting, seed, configs, progress)

    return loaded, simulate


def live_config(path: Path) -> Config:
    """Read a configuration with its access rules; other files of its machine need not be there.

    Raises:
        ConfigError: the first mistake.
    """
    from timebound.core.values.access import read_access_rules
    from timebound.node.config import parse_config

    found = parse_config(_text(path), path)
    file = found.security.acl_file
    if file is None:
        return found
    rules, mistakes = read_access_rules(_text(file), str(file))
    if mistakes:
        raise mistakes[0]
    return replace(found, security=replace(found.security, acl_file=None, rules=tuple(rules)))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", path=str(path)) from error
