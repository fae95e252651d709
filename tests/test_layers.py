"""The shape of the source: who may import whom, how long a file may be, and that each is tested.

`DESIGN` says that a pure core decides and thin shells act; these tests keep it so. A new
package must be entered in MAY_IMPORT before anything in it may import from another.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "timebound"
TESTS = ROOT / "tests"

LINES_MAX = 800

# From part to the parts it may use, besides itself. A part is a package or a module at the top.
GROUND = frozenset({"errors", "units", "records", "packages", "terminal"})
SHELL = GROUND | {"core", "wire", "version"}
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "records": frozenset(),
    "units": frozenset({"errors"}),
    "packages": frozenset({"errors"}),
    "terminal": frozenset(),
    "toml_lines": frozenset(),
    "toml_renames": frozenset({"toml_lines"}),
    "version": frozenset({"core"}),  # tells whether it is compiled
    "wire": GROUND,
    "core": GROUND,
    "channel": GROUND | {"core"},
    "client": GROUND | {"wire", "version"},
    "sim": SHELL | {"toml_lines", "toml_renames"},
    "node": SHELL | {"toml_lines", "toml_renames"},
    "pipeline": GROUND,
    "dashboard": frozenset({"errors", "records", "units"}),  # talks to a node over HTTP
    "bench": SHELL | {"channel", "client"},
}
# What wires everything together may use everything.
WIRING = frozenset({"__init__", "__main__", "cli", "commands", "demo"})

# No clock, no chance, no world outside: the caller hands in what is needed.
PURE = ("wire", "core")
CLOCKS = frozenset({"time", "datetime"})
CHANCE = frozenset({"random", "secrets", "uuid"})
WORLD = frozenset({"os", "sys", "socket", "ssl", "logging", "pathlib", "sqlite3", "subprocess", "signal"})
WAITING = frozenset({"asyncio", "threading", "select", "multiprocessing", "concurrent"})
FORBIDDEN = CLOCKS | CHANCE | WORLD | WAITING
# Reads dates out of messages; it never asks for today's.
DATES_ALLOWED = frozenset({"core/predicate_values.py"})
NUMPY_ALLOWED = frozenset({"core/delay.py", "core/bounds.py", "core/wrr.py"})

# Modules that no test names, and why that is right.
UNTESTED = {
    "bench/relay.py": "a process of its own; `bench.selftest` measures against it",
    "__main__.py": "one line; the tests that start `python -m timebound` run it",
    "cli.py": "wires the commands; tests start it as a process",
    "version.py": "a number",
}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.read_text(encoding="utf-8").strip())


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part_of(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Full names of everything a file imports, also inside functions and for typing alone."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_go_in_one_direction(path: Path) -> None:
    part = part_of(name_of(path))
    used = {name.split(".")[1] for name in imports_of(path) if name.startswith("timebound.")}
    if part in WIRING:
        return

    assert part in MAY_IMPORT, f"{part} is new: say in MAY_IMPORT what it may use"
    assert used - {part} <= MAY_IMPORT[part], f"{name_of(path)} must not import {used - MAY_IMPORT[part]}"


@pytest.mark.parametrize("path", [path for path in modules() if part_of(name_of(path)) in PURE], ids=name_of)
def test_pure_modules_know_no_clock_no_chance_and_no_world(path: Path) -> None:
    name = name_of(path)
    roots = {imported.split(".")[0] for imported in imports_of(path)}

    allowed = {"datetime"} if name in DATES_ALLOWED else set()
    assert not roots & FORBIDDEN - allowed
    assert "numpy" not in roots or name in NUMPY_ALLOWED


def test_the_dates_allowed_are_only_read() -> None:
    for name in DATES_ALLOWED:
        calls = {node.attr for node in ast.walk(tree_of(SOURCE / name)) if isinstance(node, ast.Attribute)}
        assert not calls & {"now", "utcnow", "today"}


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_no_file_is_too_long(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())

    assert lines <= LINES_MAX, f"{name_of(path)} has {lines} lines, at most {LINES_MAX} are allowed"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), f"{name_of(path)} has no docstring"


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def covered() -> frozenset[str]:
    """Modules with a test file of their name, those that a test imports, and the pieces of both.

    A piece is what a tested module of the same package imports: `broker` is tested with all it
    is made of, and what deserves tests of its own has them in the mirrored folder.
    """
    by_module = {module_of(path): path for path in modules()}
    pending = [name for path in TESTS.rglob("*.py") for name in imports_of(path) if name in by_module]
    for module, path in by_module.items():
        relative = path.relative_to(SOURCE)
        if (TESTS / relative.parent / f"test_{relative.name}").exists():
            pending.append(module)
    found: set[str] = set()
    while pending:
        module = pending.pop()
        if module not in found:
            found.add(module)
            package = module.split(".")[:2]
            pieces = [name for name in imports_of(by_module[module]) if name in by_module]
            pending += [name for name in pieces if name.split(".")[:2] == package]
    return frozenset(found)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_every_module_is_tested(path: Path) -> None:
    has_code = any(not isinstance(node, ast.Expr) for node in tree_of(path).body)
    name = name_of(path)
    # Commands only read options and call; tests start them as processes.
    # A strategy is found by the registry, not imported; one suite runs all of them.
    is_excused = name in UNTESTED or part_of(name) == "commands" or "/strategy/" in name

    assert module_of(path) in covered() or is_excused or not has_code, f"{name} has no test"


def test_what_is_listed_as_untested_exists() -> None:
    assert all((SOURCE / name).exists() for name in UNTESTED)
