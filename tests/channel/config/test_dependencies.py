"""Dependencies in a file mean what the functions of the same names mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.channel import ChannelBuilder, ChannelFileError, Event, Timing
from timebound.channel.config.dependencies import has_timers
from timebound.channel.config.reader import load
from timebound.core.correlation.expression import AllOf, AnyOf, Dependency, Every, Leaf, Watchdog
from timebound.units import MILLISECOND


def text_with(dependency: str) -> str:
    return f"""
[filtering]
[timers]
module = "manual"
[[operations]]
name = "o"
depends_on = {dependency}
"""


def read(tmp_path: Path, dependency: str) -> Dependency:
    path = tmp_path / "channel.toml"
    path.write_text(text_with(dependency), encoding="utf-8")
    found = load(path).config.operations[0].dependency
    assert found is not None
    return found


def written(dependency: Dependency) -> str:
    """A dependency as text, to compare it."""
    if isinstance(dependency, Leaf):
        return str(dependency.key)
    if isinstance(dependency, AnyOf):
        return f"any[{', '.join(written(part) for part in dependency.parts)}]"
    if isinstance(dependency, AllOf):
        return f"all[{', '.join(written(part) for part in dependency.parts)}] {dependency.within_ns}"
    if isinstance(dependency, Every):
        return f"every {dependency.period_ns}"
    assert isinstance(dependency, Watchdog)
    return f"watchdog {written(dependency.part)} {dependency.timeout_ns}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a"', "('a', '')"),
        ('{ type = "a", source = "s" }', "('a', 's')"),
        ('{ source = "s" }', "('', 's')"),
        ('{ any = ["a", { source = "s" }] }', "any[('a', ''), ('', 's')]"),
        ('{ all = ["a", "b"] }', "all[('a', ''), ('b', '')] 0"),
        ('{ all = ["a"], within = "5ms" }', f"all[('a', '')] {5 * MILLISECOND}"),
        ('{ every = "5ms" }', f"every {5 * MILLISECOND}"),
        (
            '{ watchdog = { any = ["a", "b"] }, timeout = "5ms" }',
            f"watchdog any[('a', ''), ('b', '')] {5 * MILLISECOND}",
        ),
        (
            '{ all = ["a", { every = "1ms" }] }',
            f"all[('a', ''), every {MILLISECOND}] 0",
        ),
    ],
)
def test_dependency_is_read(text: str, expected: str, tmp_path: Path) -> None:
    assert written(read(tmp_path, text)) == expected


def test_timers_are_found_at_any_depth(tmp_path: Path) -> None:
    assert not has_timers(read(tmp_path, '{ all = ["a", { any = ["b"] }] }'))
    assert has_timers(read(tmp_path, '{ all = ["a", { any = [{ every = "1s" }] }] }'))


HELP = (
    'write "type", { type = …, source = … }, { any = […] }, { all = […] }, { every = … } or { watchdog = … }'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", f":7: operations[0].depends_on: cannot be 3; {HELP}"),
        ('""', f":7: operations[0].depends_on: cannot be ''; {HELP}"),
        ("{}", f":7: operations[0].depends_on: cannot be {{}}; {HELP}"),
        (
            '{ typ = "a" }',
            ":7: operations[0].depends_on.typ: unknown key in a dependency; known are type, source",
        ),
        ("{ type = 3 }", ":7: operations[0].depends_on.type: must be text in quotes, not 3"),
        (
            '{ any = ["a"], all = ["b"] }',
            ":7: operations[0].depends_on: has 'any' and 'all'; a table may state only one of them",
        ),
        (
            '{ any = ["a"], within = "1s" }',
            ":7: operations[0].depends_on.within: unknown key beside 'any'; known are any",
        ),
        ("{ any = [] }", ':7: operations[0].depends_on.any: must be a list of parts like ["a", "b"], not []'),
        (
            '{ all = "a" }',
            ':7: operations[0].depends_on.all: must be a list of parts like ["a", "b"], not \'a\'',
        ),
        (
            '{ all = ["a"], within = "x" }',
            ":7: operations[0].depends_on.within: 'x' is not a duration; write it like 250ms, 1.5s or 2m",
        ),
        (
            '{ watchdog = "a" }',
            ':7: operations[0].depends_on.timeout: is required: how long it may be silent, such as "200ms"',
        ),
        (
            "{ every = 3 }",
            ':7: operations[0].depends_on.every: must be a duration in quotes like "20ms", not 3',
        ),
        ('[\n"a"]', f":7: operations[0].depends_on: cannot be ['a']; {HELP}"),
        (
            '{ any = [\n"a",\n3] }',
            f":9: operations[0].depends_on.any[1]: cannot be 3; {HELP}",
        ),
        (
            "{ any = [" + ", ".join(['"a"'] * 63) + "] }",
            ":7: operations[0].depends_on: a dependency has more than 62 leaves and timers",
        ),
        (
            "{ any = [" * 10 + '"a"' + "] }" * 10,
            f":7: operations[0].depends_on{'.any[0]' * 9}: is nested more than 8 deep",
        ),
    ],
)
def test_mistake_is_told_where_it_is(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ChannelFileError) as caught:
        read(tmp_path, text)

    told = [str(mistake).removeprefix(f"{tmp_path}/channel.toml") for mistake in caught.value.mistakes]
    assert told == [expected]


def test_operation_waits_for_what_its_file_states(tmp_path: Path) -> None:
    path = tmp_path / "channel.toml"
    path.write_text(text_with('{ all = ["a", "b"] }'), encoding="utf-8")
    got: list[Event] = []
    with ChannelBuilder.from_file(path).timers(Timing()).build() as channel:
        channel.connect_operation("o", got.append)
        supplier = channel.supplier("s", "a", "b")
        supplier.push("a", 1)
        supplier.push("b", 2)

    assert [[part.payload for part in event.parts] for event in got] == [[1, 2]]
