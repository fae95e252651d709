"""Which modules are compiled: exactly these, so that none is left out by a move or a new name."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import timebound.units

ROOT = Path(__file__).parents[1]

# By package; a new module of `wire` or `core` is entered here, or in NOT_COMPILED of setup.py.
COMPILED = {
    "": "outgoing topics translate units",
    "bench": "counting",
    "channel": "carrier channel",
    "channel.base": "consumer dependency event filtering measure",
    "channel.dispatch": "aio dispatcher lane lanes",
    "core": "broker distribution publishing wakeups",
    "core.account": "account counters trace_log",
    "core.correlation": "expression timers",
    "core.input": (
        "admission allowance bounds cells contract entrance flows jobs meter plan policer publisher queues "
        "requests scheduler steps"
    ),
    "core.link": "budget due lane outlet queue scheduling transit",
    "core.link.strategy": (
        "audience base eb ebpc entry fifo fixed heap mtep outlook pc ranking registry "
        "remaining_lifetime windows worth"
    ),
    "core.matching": "gradual index retained tap",
    "core.mesh": (
        "absence account border figures flooding forwarding interest link member message options overlay "
        "pressure routes table"
    ),
    "core.mesh.reservation": "crankback network_map resources",
    "core.predicate": "attributes cost lexer like parser predicate search terms values",
    "core.predicate.index": "attribute gradual index lookup tables",
    "core.sessions": (
        "correlations durability entries faults lifecycle orphan outbound owed pressure ranked rights session"
    ),
    "core.values": (
        "access delay filter_costs limits message reason_codes store_orders subscription trace_columns"
    ),
    "linking": "link mesh packs",
    "node": "driver",
    "node.clients": "adapter connection output tls",
    "node.input": "buffer input reader",
    "node.journal": "columns",
    "node.links": "meter pacing tcp_info",
    "node.mesh": "connection reader",
    "node.trace": "pack",
    "sim.kernel": "draws kernel",
    "sim.mesh": "cluster faults network workload",
    "sim.papers.brokers": "forwarding lifetime",
    "wire": "codec decode encode packet_types packets primitives properties publish terms",
}
IS_COMPILED = not str(timebound.units.__file__).endswith(".py")


def modules() -> list[str]:
    return [f"{package}.{name}".lstrip(".") for package, names in COMPILED.items() for name in names.split()]


@pytest.fixture
def script() -> ModuleType:
    """The build script, not run."""
    spec = importlib.util.spec_from_file_location("timebound_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_modules_that_are_compiled_are_these(script: ModuleType) -> None:
    names = script.compiled_sources()

    assert sorted(name.removesuffix(".py").replace("/", ".") for name in names) == sorted(modules())


@pytest.mark.parametrize(
    ("entries", "name", "message"),
    [
        ("COMPILED", "gone", "COMPILED names the folder 'gone', which has no modules"),
        ("COMPILED_FILES", "node/gone.py", "COMPILED_FILES names 'node/gone.py', which does not exist"),
        ("NOT_COMPILED", "core/gone.py", "NOT_COMPILED names 'core/gone.py', which is not compiled anyway"),
        ("NOT_COMPILED", "node/serve.py", "NOT_COMPILED names 'node/serve.py', which is not compiled anyway"),
        ("HOT", "core___gone", "HOT names 'core___gone', with which no compiled module begins"),
    ],
)
def test_a_list_with_a_name_that_is_gone_fails_the_build(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, entries: str, name: str, message: str
) -> None:
    monkeypatch.setattr(script, entries, (*getattr(script, entries), name))

    with pytest.raises(SystemExit, match=message):
        script.compiled_sources()


def test_what_is_hot_is_optimised_further(script: ModuleType) -> None:
    assert script.is_hot("build/__native_timebound___core___link___queue.c")
    assert script.is_hot("build/__native_timebound___sim___mesh___cluster.c")
    assert script.is_hot("build/list_ops.c")
    assert not script.is_hot("build/__native_timebound___wire___terms.c")


@pytest.mark.skipif(not IS_COMPILED, reason="timebound runs uncompiled")
@pytest.mark.parametrize("module", modules())
def test_an_installed_module_is_compiled(module: str) -> None:
    spec = importlib.util.find_spec(f"timebound.{module}")

    assert spec is not None
    assert spec.origin is not None
    assert not spec.origin.endswith(".py")
