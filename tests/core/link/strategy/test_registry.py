"""Every file of the package that has a `KIND` is a strategy; nothing else lists them."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import timebound.core.link.strategy as package
from timebound.core.link.strategy import worth
from timebound.core.link.strategy.base import StrategyKind
from timebound.core.link.strategy.registry import (
    DEFAULT_STRATEGY,
    STRATEGIES,
    STRATEGY_NAMES,
    kind_named,
    strategy_named,
)

# It borrows the order of another one: a class of its own would have to be compiled with the rest.
NEW_FILE = """
from timebound.core.link.strategy.base import StrategyKind
from timebound.core.link.strategy.fifo import Fifo

KIND = StrategyKind("{name}", "the one that came last", lambda mix: Fifo(), is_default={is_default})
"""
# Programs see the new file beside the others.
PROGRAM = """
import sys
import timebound.core.link.strategy as package
package.__path__.append(sys.argv.pop(1))
"""


def run_with(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM + program, str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


def test_strategies_are_listed_from_the_simplest_on() -> None:
    assert STRATEGY_NAMES == ("fifo", "fixed", "remaining-lifetime", "eb", "pc", "ebpc", "mtep", "worth")


def test_the_default_says_so_in_its_own_file() -> None:
    assert worth.KIND.is_default
    assert worth.KIND.name == DEFAULT_STRATEGY


def test_every_kind_makes_the_strategy_of_its_name() -> None:
    for name, kind in STRATEGIES.items():
        assert kind.name == strategy_named(name).name == name
        assert kind.meaning


def test_every_kind_beside_the_registry_is_found() -> None:
    modules = [
        importlib.import_module(f"{package.__name__}.{one.name}")
        for one in pkgutil.iter_modules(package.__path__)
    ]
    kinds = [module.KIND for module in modules if isinstance(getattr(module, "KIND", None), StrategyKind)]

    assert sorted(kind.name for kind in kinds) == sorted(STRATEGY_NAMES)


def test_only_some_strategies_take_a_mix() -> None:
    mixing = {name: kind.mix_default for name, kind in STRATEGIES.items() if kind.takes_mix}

    assert mixing == {"ebpc": 0.5, "mtep": 0.4}
    assert [name for name, kind in STRATEGIES.items() if kind.uses_priority] == ["fixed"]


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match="strategy 'best' is unknown; choose one of fifo, fixed"):
        kind_named("best")


@pytest.mark.parametrize(("name", "mix"), [("ebpc", 1.5), ("mtep", 1.5), ("best", -1.0)])
def test_a_strategy_of_a_wrong_name_or_mix_is_refused(name: str, mix: float) -> None:
    with pytest.raises(ValueError, match=r"is not between 0 and 1|is unknown; choose one of fifo"):
        strategy_named(name, mix=mix)


def test_a_new_file_is_all_that_a_new_strategy_needs(tmp_path: Path) -> None:
    (tmp_path / "newest.py").write_text(NEW_FILE.format(name="newest", is_default=False))
    config = tmp_path / "timebound.toml"
    config.write_text('[[listeners]]\nstrategy = "newest"\n')
    command = "from timebound.cli import main\nmain()"

    listed = run_with(tmp_path, command, "strategy", "list", "--json", "--port", "1")
    checked = run_with(tmp_path, command, "check", str(config))
    unknown = subprocess.run(
        [sys.executable, "-m", "timebound", "check", str(config)],
        capture_output=True,
        timeout=50,
        check=False,
    )

    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert list(rows) == [*STRATEGY_NAMES, "newest"]
    assert rows["newest"]["meaning"] == "the one that came last"
    assert (checked.returncode, checked.stderr) == (0, "")
    assert unknown.returncode == 2


def test_two_files_with_one_name_are_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "another.py").write_text(NEW_FILE.format(name="eb", is_default=False))

    done = run_with(tmp_path, "import timebound.core.link.strategy.registry")

    assert done.returncode == 1
    assert "two strategies have one name: fifo" in done.stderr


def test_two_defaults_are_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "another.py").write_text(NEW_FILE.format(name="another", is_default=True))

    done = run_with(tmp_path, "import timebound.core.link.strategy.registry")

    assert done.returncode == 1
    assert "one strategy must be the default; these are: worth, another" in done.stderr
