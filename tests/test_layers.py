"""The shape of the source: who may import whom, how long files and functions may be, and that each is tested.

A pure core decides and thin shells act; these tests keep it so. A part is a package or a module at the
top of `timebound`; the large parts are divided into rooms. A new part is entered in MAY_IMPORT, a new room
in ROOMS, before anything in it may import from another. An entry that stands for nothing fails.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "timebound"
TESTS = ROOT / "tests"

LINES_MAX = 800
# A longer file says at its top why it is long, in these words.
LINES_PLAIN_MAX = 500
LENGTH_REASONS = re.compile(r"\b(long because|Long, since|over 500 lines because)\s")
FUNCTION_LINES_MAX = 60

# From part to the parts it may use, besides itself.
GROUND = frozenset({"errors", "units", "records", "terms", "topics"})
# Of the machine that a shell runs on: what is installed, and what its terminal may be sent.
MACHINE = frozenset({"packages", "terminal"})
# No IO in any of these: the node and the simulator drive them alike.
PURE = frozenset(
    {
        "errors",
        "records",
        "terms",
        "units",
        "topics",
        "toml",
        "wire",
        "core",
        "config",
        "translate",
        "outgoing",
        "linking",
        "serving",
    }
)
SHELL = GROUND | PURE | MACHINE | {"version"}
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "records": frozenset(),
    "terms": frozenset(),
    "units": frozenset({"errors"}),
    "topics": frozenset({"errors"}),
    "packages": frozenset({"errors"}),
    "terminal": frozenset(),
    "version": frozenset({"core"}),  # tells whether it is compiled
    "toml": GROUND,
    "wire": GROUND,
    "core": GROUND,
    "config": GROUND | {"core", "toml"},
    "translate": GROUND | {"core", "wire"},
    "outgoing": GROUND | {"core", "wire"},
    "linking": GROUND | {"core", "wire", "toml", "config", "translate"},
    "serving": GROUND | {"core", "wire", "toml", "config", "translate", "linking"},
    "channel": GROUND | {"core", "toml"},
    "client": GROUND | {"wire"},
    "sim": SHELL,
    "node": SHELL,
    "pipeline": GROUND | {"packages"},
    "bench": GROUND | {"wire", "channel", "__init__"},  # starts programs that import `timebound`
}
# What wires everything together may use everything.
WIRING = frozenset({"__init__", "__main__", "cli", "commands", "demo"})

# The rooms of a part, from the ground up, with all the rooms of the same part that each one uses: these
# stand above it. A module beside the rooms is a room of its own.
ROOMS: dict[str, dict[str, set[str]]] = {
    "core": {
        "predicate": set(),
        "predicate/index": {"predicate"},
        "correlation": set(),
        "values": {"predicate", "correlation"},
        "matching": {"predicate", "predicate/index", "values"},
        "link/strategy": {"values"},
        "link": {"values", "link/strategy"},
        "account": {"values"},
        "sessions": {"predicate", "correlation", "values", "matching", "link/strategy", "link", "account"},
        "mesh/reservation": set(),
        "mesh": {"values", "matching", "link/strategy", "link", "account"},
        "input": {"values", "account", "sessions", "mesh"},
        "wakeups": {"link", "sessions", "mesh"},
        "distribution": {"predicate", "values", "matching", "account", "sessions", "mesh"},
        "publishing": {"values", "matching", "account", "sessions", "distribution", "mesh"},
        "broker": {
            "values",
            "matching",
            "link",
            "account",
            "sessions",
            "input",
            "mesh",
            "wakeups",
            "distribution",
            "publishing",
        },
    },
    "node": {
        "login": set(),
        "config": {"login"},
        "listening": set(),
        "memory": set(),
        "notices": set(),
        "storage": set(),
        "trace/parquet": set(),
        "trace": {"trace/parquet"},
        "journal": {"trace"},
        "links": set(),
        "input": set(),
        "mesh": {"links", "input"},
        "driver": {"memory", "notices", "input"},
        "control": {"driver"},
        "clients": {"login", "links", "input", "mesh", "driver", "control"},
        "flight": {"login", "journal", "driver"},
        "telemetry": {"trace"},
        "calibrate": set(),
        "server": {
            "login",
            "config",
            "listening",
            "storage",
            "trace",
            "journal",
            "mesh",
            "driver",
            "clients",
            "flight",
            "telemetry",
            "calibrate",
        },
        "service_manager": set(),
        "serve": {"config", "memory", "server", "service_manager"},
    },
    "sim": {
        "kernel": set(),
        "papers/brokers": set(),
        "mesh": {"kernel", "papers/brokers"},
        "input": set(),
        "papers/paper004": set(),
        "papers": {"kernel", "mesh", "input"},
        "deployment": {"kernel"},
        "deployment/checkers": {"deployment"},
        "deployment/swarm": {"kernel", "deployment", "deployment/checkers"},
        "scenario": {"kernel", "papers/brokers", "mesh", "papers", "deployment", "deployment/checkers"},
    },
    "channel": {
        "base": set(),
        "timing": {"base"},
        "dispatch": {"base"},
        "carrier": {"base", "timing", "dispatch"},
        "exchange": {"base", "timing", "dispatch", "carrier"},
        "pulling": {"base", "carrier"},
        "federation": {"base", "carrier"},
        "config": {"base", "timing", "dispatch", "carrier", "exchange", "federation"},
        "channel": {"base", "timing", "dispatch", "carrier", "exchange", "pulling", "federation", "config"},
        "builder": {"base", "timing", "dispatch", "config", "channel"},
    },
    "pipeline": {
        "manifest": set(),
        "schema": set(),
        "io": {"manifest", "schema"},
        "spark": set(),
        "datasource": set(),
        "sweep": {"spark"},
        "jobs": {"schema", "sweep"},
        "report": {"sweep"},
        "batch": {"manifest", "schema", "io", "jobs"},
        "stream": {"schema", "jobs"},
    },
}

# What pure modules use of the standard library: no clock, no chance, no world outside. The caller hands in
# what is needed of these.
PURE_LIBRARY = frozenset(
    {"__future__", "abc", "array", "bisect", "collections", "dataclasses", "difflib", "enum", "fractions"}
    | {"functools", "heapq", "ipaddress", "json", "math", "re", "struct", "tomllib", "typing"}
)
# Built-in functions by which a module could reach the world all the same, or hide what it imports.
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "compile", "breakpoint", "__import__"})
# Finds the files of its own package, once.
FILES_FOUND = frozenset({"core/link/strategy/registry.py"})
FINDING = frozenset({"importlib", "pkgutil"})
# Dates in messages and durations as arguments; neither module asks for today's.
DATES_ALLOWED = frozenset({"core/predicate/values.py", "terms.py"})
TODAY = frozenset({"now", "utcnow", "today"})
# A path is a value there: it is put together, and never followed.
PATHS_ALLOWED = frozenset(
    {
        "config/reader.py",
        "config/mesh.py",
        "config/security.py",
        "config/storage.py",
        "config/tls.py",
        "toml/reader.py",
    }
)
FOLLOWING = frozenset(
    {"open", "read_text", "read_bytes", "write_text", "write_bytes", "exists", "is_file", "is_dir", "stat"}
    | {"iterdir", "glob", "rglob", "resolve", "absolute", "cwd", "mkdir", "unlink", "rename", "touch"}
)

# Packages of others, and where they are used: in a folder, or in one file.
THIRD_PARTY: dict[str, frozenset[str]] = {
    "librt": frozenset({"core/account/trace_log.py", "node/trace/pack.py"}),
    "matplotlib": frozenset({"bench/channel_report.py", "demo/plot.py", "sim/papers/"}),
    "msgspec": frozenset(
        {
            "channel/",
            "commands/sweep.py",
            "core/predicate/values.py",
            "linking/codec.py",
            "node/control/link_models.py",
            "node/trace/frames.py",
            "pipeline/sweep/results.py",
        }
    ),
    "mypy_extensions": frozenset(
        {"channel/", "core/", "node/clients/", "node/mesh/", "sim/kernel/", "wire/"}
    ),
    "numpy": frozenset(
        {
            "node/journal/rows.py",
            "node/trace/columns.py",
            "node/trace/parquet/runs.py",
            "pipeline/jobs/envelope.py",
        }
    ),
    "pyarrow": frozenset(
        {
            "commands/",
            "node/flight/",
            "node/journal/",
            "node/trace/columns.py",
            "node/trace/parquet/runs.py",
            "pipeline/datasource/",
            "pipeline/io.py",
            "pipeline/jobs/",
            "pipeline/report/",
            "pipeline/sweep/",
            "sim/mesh/trace.py",
        }
    ),
    "pyspark": frozenset({"commands/pipeline.py", "pipeline/"}),
    "rich": frozenset({"bench/", "commands/", "demo/report.py"}),
    "typer": frozenset({"cli.py", "commands/"}),
    "uvloop": frozenset({"node/serve.py"}),
    "websockets": frozenset({"demo/ends.py", "node/clients/websocket.py"}),
}

# Modules without a test file, and why that is right.
UNTESTED = {
    "__main__.py": "one line; the tests that start `python -m timebound` run it",
}

# Modules whose tests are in a file of another name, or share one.
SHARED: dict[str, str] = {
    "__init__.py": "test_exports.py",
    "channel/__init__.py": "channel/test_footprint.py",
    "core/sessions/ranked.py": "core/sessions/test_expiring.py",
    "sim/deployment/host.py": "sim/deployment/test_node.py",
}

# Names that nothing in the repository reads but tests, and why they are right.
UNREAD = {
    "Decision.broken_client": "a refusal carries as values what its text says",
    "Decision.broken_topic": "a refusal carries as values what its text says",
    "LayerRun.over_bound": "written whole, as JSON",
    "ReportedDeliveries.under_way": "written whole, as JSON",
    "SecondRow.end_to_end_ms_max": "written whole, as JSON",
    "SecondRow.end_to_end_ms_mean": "written whole, as JSON",
}
# Classes that have a name in common with another, and why that is right.
SAME_NAMES = {
    "Event": "of a channel, for users; of the simulation, inside its kernel",
    "Message": "of the client, for users; of the core",
    "Subscription": "of the client, for users; of the core",
    "Will": "of the client, for users; the packet's; as stored",
}
# Names that others call, by who does.
CALLED_BY = {
    "asyncio": frozenset({"get_buffer", "buffer_updated"}),
    "exceptions": frozenset({"args"}),
    "logging": frozenset({"emit"}),
    "pickle": frozenset({"reducer_override"}),
    "pyarrow": frozenset({"list_actions", "start_call"}),
    "pyspark": frozenset(
        {"streamReader", "streamWriter", "initialOffset", "latestOffset"}
        | {"getDefaultReadLimit", "prepareForTriggerAvailableNow"}
    ),
    "websockets": frozenset({"select_subprotocol"}),
}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.read_text(encoding="utf-8").strip())


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part_of(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def room_of(name: str) -> str:
    """The room of a file, without the part: its folder, or a file beside the rooms; '' for `__init__`."""
    folder, _, file = name.partition("/")[2].rpartition("/")
    return folder or file.removesuffix(".py").removesuffix("__init__")


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
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found.update(name.value for name in node.args[:1] if isinstance(name, ast.Constant))
    return frozenset(found)


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def by_module() -> dict[str, Path]:
    return {module_of(path): path for path in modules()}


def used_by(path: Path) -> set[Path]:
    """The files of ours that a file imports; a package alone counts only for what is taken from it."""
    known = by_module()
    names = {name for name in imports_of(path) if name in known}
    inside = {name.rpartition(".")[0] for name in names}
    return {known[name] for name in names if name not in inside or known[name].name != "__init__.py"}


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_go_in_one_direction(path: Path) -> None:
    part = part_of(name_of(path))
    used = {name.split(".")[1] for name in imports_of(path) if name.startswith("timebound.")}
    if "timebound" in imports_of(path):
        used.add("__init__")  # through it everything public can be reached
    if part in WIRING:
        return

    assert part in MAY_IMPORT, f"{part} is new: say in MAY_IMPORT what it may use"
    assert used - {part} <= MAY_IMPORT[part], f"{name_of(path)} must not import {used - MAY_IMPORT[part]}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_name_the_whole_path(path: Path) -> None:
    # The other tests read imports by their full names.
    relative = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ImportFrom) and node.level]

    assert not relative, f"{name_of(path)}:{relative[0].lineno} is a relative import"


def rooms_used(part: str) -> dict[str, set[str]]:
    """The rooms of a part, each with the other rooms of that part that its files import."""
    found: dict[str, set[str]] = {}
    for path in modules():
        name = name_of(path)
        if part_of(name) == part and room_of(name):
            used = {room_of(name_of(other)) for other in used_by(path) if part_of(name_of(other)) == part}
            found.setdefault(room_of(name), set()).update(used - {room_of(name), ""})
    return found


@pytest.mark.parametrize("part", ROOMS)
def test_rooms_use_the_rooms_that_are_listed_and_no_others(part: str) -> None:
    assert rooms_used(part) == ROOMS[part]


@pytest.mark.parametrize("part", ROOMS)
def test_rooms_use_only_rooms_above_them(part: str) -> None:
    above: set[str] = set()
    for room, used in ROOMS[part].items():
        assert used <= above, f"{part}/{room} stands before {used - above}"
        above.add(room)


def test_a_part_with_folders_has_rooms() -> None:
    divided = {part_of(name_of(path)) for path in modules() if name_of(path).count("/") > 1}

    assert divided == set(ROOMS)


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter({path: used_by(path) - {path} for path in modules()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(name_of(path) for path in error.args[1]))


@pytest.mark.parametrize("path", [path for path in modules() if part_of(name_of(path)) in PURE], ids=name_of)
def test_pure_modules_know_no_clock_no_chance_and_no_world(path: Path) -> None:
    name = name_of(path)
    roots = {imported.split(".")[0] for imported in imports_of(path)}

    dates = {"datetime"} if name in DATES_ALLOWED else set()
    paths = {"pathlib"} if name in PATHS_ALLOWED else set()
    found = FINDING if name in FILES_FOUND else set()
    library = roots & sys.stdlib_module_names
    assert library <= PURE_LIBRARY | dates | paths | found, (
        f"{name} is pure and must not use {library - PURE_LIBRARY}"
    )


@pytest.mark.parametrize("path", [path for path in modules() if part_of(name_of(path)) in PURE], ids=name_of)
def test_pure_modules_do_not_call_what_reaches_the_world(path: Path) -> None:
    calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]

    called = {node.func.id for node in calls if isinstance(node.func, ast.Name)}

    assert not called & IMPURE_CALLS


@pytest.mark.parametrize(
    ("names", "package", "never"),
    [(DATES_ALLOWED, "datetime", TODAY), (PATHS_ALLOWED, "pathlib", FOLLOWING)],
)
def test_what_is_allowed_to_pure_modules_is_only_read(
    names: frozenset[str], package: str, never: frozenset[str]
) -> None:
    for name in names:
        assert package in imports_of(SOURCE / name), f"{name} does not need {package}"
        used = {node.attr for node in ast.walk(tree_of(SOURCE / name)) if isinstance(node, ast.Attribute)}
        assert not used & never, f"{name} must not use {used & never}"


def places_of(package: str) -> set[str]:
    return {
        name_of(path)
        for path in modules()
        if package in {imported.split(".")[0] for imported in imports_of(path)}
    }


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_packages_of_others_are_used_where_they_are_listed(path: Path) -> None:
    name = name_of(path)
    roots = {imported.split(".")[0] for imported in imports_of(path)}

    for package in roots - sys.stdlib_module_names - {"timebound"}:
        assert package in THIRD_PARTY, f"{name} must not import {package}"
        assert name.startswith(tuple(THIRD_PARTY[package])), f"{name} must not import {package}"


@pytest.mark.parametrize("package", THIRD_PARTY)
def test_packages_of_others_are_listed_where_they_are_used(package: str) -> None:
    used = places_of(package)

    for place in THIRD_PARTY[package]:
        assert any(name.startswith(place) for name in used), f"{place} does not use {package}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_no_file_is_too_long(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())

    assert lines <= LINES_MAX, f"{name_of(path)} has {lines} lines, at most {LINES_MAX} are allowed"
    if lines > LINES_PLAIN_MAX:
        docstring = ast.get_docstring(tree_of(path)) or ""
        assert LENGTH_REASONS.search(docstring), f"{name_of(path)} has {lines} lines: say why at its top"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_no_function_is_too_long(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{name_of(path)}: {node.name} has {lines} lines"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), f"{name_of(path)} has no docstring"


def file_testing(name: str) -> Path:
    """The test file of a module: at the same path, unless it shares one."""
    own = Path(name).with_name(f"test_{Path(name).name}")
    return TESTS / SHARED.get(name, own)


def has_code(path: Path) -> bool:
    """Whether a file is more than names of a package."""
    defines = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return path.name != "__init__.py" or any(isinstance(node, defines) for node in tree_of(path).body)


@pytest.mark.parametrize("path", [path for path in modules() if has_code(path)], ids=name_of)
def test_every_module_has_a_test_file_of_its_own(path: Path) -> None:
    name = name_of(path)
    if name in UNTESTED:
        return

    assert file_testing(name).exists(), f"{name} has no test file {file_testing(name).relative_to(ROOT)}"
    assert module_of(path) in imports_of(file_testing(name)), (
        f"{file_testing(name).relative_to(ROOT)} does not import {name}"
    )


def words_of(path: Path) -> set[str]:
    """Every name that a file reads, and those in texts that consist of names: `module:function`."""
    found: set[str] = set()
    nodes: list[ast.AST] = [tree_of(path)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            continue
        nodes.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name.split(".")[-1])
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[\w.:]+", str(node.value)):
            found.update(re.split(r"[.:]", str(node.value)))
    return found


@cache
def words_used() -> frozenset[str]:
    """What sources, benchmarks and examples use, and what the docs show as code."""
    found: set[str] = set()
    for folder in ("src", "benchmarks", "examples", "fuzz"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= words_of(path)
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for code in re.findall(r"```.*?```|`[^`]*`", path.read_text(encoding="utf-8"), re.DOTALL):
            found.update(re.findall(r"\w+", code))
    return frozenset(found)


def unused_names(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    """Functions, classes, constants and attributes that no source uses; a command registers itself."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield from (f"{within}{name}" for name in assigned(node, ast.Name) if name not in words_used())
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        is_command = any(".command" in text or ".callback" in text for text in decorators)
        if not node.name.startswith("__") and node.name not in words_used() and not is_command:
            yield f"{within}{node.name}"
        if isinstance(node, ast.ClassDef) and not is_enumeration(node):
            yield from unused_names(node.body, f"{node.name}.")
        elif within:
            yield from (f"{within}{name}" for name in fields_set(node) if name not in words_used())


def is_enumeration(node: ast.ClassDef) -> bool:
    """Whether a class lists values, such as the codes of a standard; it may list more than are in use."""
    return any(ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases)


def assigned(node: ast.Assign | ast.AnnAssign, kind: type[ast.Name | ast.Attribute]) -> Iterator[str]:
    """Names that a statement gives a value, or attributes of `self`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in [one for whole in targets for one in ast.walk(whole) if isinstance(one, kind)]:
        if isinstance(target, ast.Name) and not target.id.startswith("__"):
            yield target.id
        elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
            yield target.attr


def fields_set(method: ast.stmt) -> Iterator[str]:
    """Attributes that a method sets."""
    for node in ast.walk(method):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield from assigned(node, ast.Attribute)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_nothing_is_there_for_tests_alone(path: Path) -> None:
    called = frozenset[str]().union(*CALLED_BY.values())
    unused = {name for name in unused_names(tree_of(path).body) if name.split(".")[-1] not in called}

    assert unused <= UNREAD.keys(), (
        f"{name_of(path)}: only tests use {', '.join(sorted(unused - UNREAD.keys()))}"
    )


def test_a_name_of_a_class_means_one_thing() -> None:
    names = Counter(
        node.name
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert {name for name, count in names.items() if count > 1} == SAME_NAMES.keys()


def test_every_name_in_the_lists_stands_for_something() -> None:
    parts = {part_of(name_of(path)) for path in modules()}
    named = GROUND | PURE | WIRING | MAY_IMPORT.keys() | ROOMS.keys()
    unused = {name for path in modules() for name in unused_names(tree_of(path).body)}
    library = {
        root.split(".")[0]
        for path in modules()
        if part_of(name_of(path)) in PURE
        for root in imports_of(path)
    }

    assert library >= PURE_LIBRARY | FINDING
    assert named.union(*MAY_IMPORT.values()) <= parts
    assert not MAY_IMPORT.keys() & WIRING
    assert all((SOURCE / name).exists() for name in [*UNTESTED, *SHARED, *FILES_FOUND])
    assert all((TESTS / name).exists() for name in SHARED.values())
    assert unused >= UNREAD.keys()
    assert {name.split(".")[-1] for name in unused} >= frozenset[str]().union(*CALLED_BY.values())
