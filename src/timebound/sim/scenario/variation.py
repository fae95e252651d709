"""Keys that a sweep can vary in a scenario, and one run of a sweep.

A varied key applies to every publisher, subscription or link: `rate=1..15` is the rate of each
publisher. Units are part of the key, so ranges need no units and axes have labels.
"""

from __future__ import annotations

import difflib
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from timebound.core.link.strategy.registry import STRATEGY_NAMES
from timebound.errors import ConfigError
from timebound.sim.kernel.draws import Draw, fixed
from timebound.sim.mesh.experiment import RunResult, run
from timebound.sim.mesh.setting import (
    ARRIVALS,
    ESTIMATES,
    MeshSetting,
    PublisherSetting,
    SubscriptionSetting,
)
from timebound.sim.papers.brokers.reading import DROPS, ROUTINGS
from timebound.units import MILLISECOND, MINUTE, SECOND

Value = int | float | str

# More values in one --vary are a typing mistake.
VALUES_MAX: Final = 10_000
_KILOBYTE: Final = 1_024
# Result columns of a run in the table of a sweep, with their Arrow types.
RESULTS: Final = (
    ("published", "int64"),
    ("matched", "int64"),
    ("in_time", "int64"),
    ("late", "int64"),
    ("dropped", "int64"),
    ("delivery_rate", "float64"),
    ("earning", "float64"),
    ("traffic", "int64"),
    ("events", "int64"),
)


@dataclass(frozen=True, slots=True)
class Key:
    """A key that can be varied: a number within limits, or one of some words."""

    meaning: str
    apply: Callable[[MeshSetting, Value], MeshSetting]
    least: float = 0.0
    most: float = float("inf")
    is_whole: bool = False
    words: tuple[str, ...] = ()


# Old names of keys, still read.
_RENAMED: Final = {"weight": "mix"}


@dataclass(frozen=True, slots=True)
class Variation:
    """A key and the values it takes, in order."""

    key: str
    values: tuple[Value, ...]


def parse_variation(text: str) -> Variation:
    """Read `rate=1..15`, `loss=0..0.2:0.05`, `size_kb=1,10,50..100:25` or `strategy=eb,fifo`.

    Raises:
        ConfigError: the key is unknown, or a value is not allowed for it.
    """
    name, equals, listed = text.partition("=")
    name = _RENAMED.get(name.strip(), name.strip())
    if not equals or not name:
        raise ConfigError(f"{text!r} varies nothing; write it like rate=1..15 or strategy=eb,fifo")
    key = KEYS.get(name)
    if key is None:
        near = difflib.get_close_matches(name, KEYS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(KEYS)}"
        raise ConfigError(f"{name!r} cannot be varied; {hint}")
    values: dict[Value, None] = {}
    for part in listed.split(","):
        for value in _words(name, key, part) if key.words else _numbers(name, key, part):
            values[value] = None
    return Variation(name, tuple(values))


def vary(setting: MeshSetting, values: Mapping[str, Value]) -> MeshSetting:
    """Return the setting with these keys changed; keys that cannot be varied are ignored."""
    for name, value in values.items():
        if name in KEYS:
            setting = KEYS[name].apply(setting, value)
    return setting


class _Pickler(pickle.Pickler):
    """Pickles settings; a compiled Draw, whose fields cannot be set later, is rebuilt from its arguments."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Draw):
            return Draw, (value.kind, value.numbers, value.least)
        return NotImplemented


def pack(setting: MeshSetting) -> bytes:
    """Encode a setting, for `open_runs` in another process."""
    packed = io.BytesIO()
    _Pickler(packed).dump(setting)
    return packed.getvalue()


def open_runs(context: bytes) -> Callable[[Mapping[str, Value]], dict[str, Value]]:
    """Return the function that runs one row of a sweep; `context` is a packed setting."""
    setting: MeshSetting = pickle.loads(context)

    def run_row(values: Mapping[str, Value]) -> dict[str, Value]:
        return results(run(vary(setting, values), int(values["seed"])))

    return run_row


def results(result: RunResult) -> dict[str, Value]:
    """Return a run in the columns of RESULTS."""
    return {
        "published": result.published,
        "matched": result.matched,
        "in_time": result.in_time,
        "late": result.late,
        "dropped": sum(result.dropped.values()),
        "delivery_rate": result.delivery_rate,
        "earning": result.earning,
        "traffic": result.traffic,
        "events": result.events,
    }


def _words(name: str, key: Key, part: str) -> list[Value]:
    word = part.strip()
    if word not in key.words:
        raise ConfigError(f"{name} cannot be {word!r}; choose from {', '.join(key.words)}")
    return [word]


def _numbers(name: str, key: Key, part: str) -> list[Value]:
    first_text, is_range, rest = part.partition("..")
    last_text, _, step_text = rest.partition(":")
    first = _number(name, first_text)
    if not is_range:
        return [_checked(name, key, first)]
    last = _number(name, last_text)
    step = _number(name, step_text) if step_text else 1.0
    if step <= 0:
        raise ConfigError(f"{name}={part} has the step {step:g}; expected more than 0")
    # A step of 0.1 is not exact: the last value is included if only rounding misses it.
    count = int((last - first) / step + 1e-9) + 1 if last >= first else 0
    if count < 1:
        raise ConfigError(f"{name}={part} is an empty range; write the smaller end first")
    if count > VALUES_MAX:
        raise ConfigError(f"{name}={part} has {count} values, at most {VALUES_MAX} are allowed")
    return [_checked(name, key, round(first + index * step, 12)) for index in range(count)]


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < float("inf"):
        raise ConfigError(f"{name} cannot be {text.strip()!r}; write numbers like 1..15, 0..1:0.1 or 1,2,5")
    return number


def _checked(name: str, key: Key, number: float) -> Value:
    if not key.least <= number <= key.most:
        limits = f"{key.least:g} to {key.most:g}" if key.most < float("inf") else f"at least {key.least:g}"
        raise ConfigError(f"{name} cannot be {number:g}; expected {limits}")
    if key.is_whole and number != int(number):
        raise ConfigError(f"{name} cannot be {number:g}; expected a whole number")
    return int(number) if key.is_whole else float(number)


def _publishers(change: Callable[[PublisherSetting, Value], PublisherSetting]) -> Callable[..., MeshSetting]:
    def apply(setting: MeshSetting, value: Value) -> MeshSetting:
        return replace(setting, publishers=tuple(change(one, value) for one in setting.publishers))

    return apply


def _subscriptions(
    change: Callable[[SubscriptionSetting, Value], SubscriptionSetting],
) -> Callable[..., MeshSetting]:
    def apply(setting: MeshSetting, value: Value) -> MeshSetting:
        return replace(setting, subscriptions=tuple(change(one, value) for one in setting.subscriptions))

    return apply


def _with_deadline(one: SubscriptionSetting, value: Value) -> SubscriptionSetting:
    deadline_ns = int(float(value) * SECOND)
    return replace(one, terms=tuple(replace(terms, deadline_ns=deadline_ns) for terms in one.terms))


def _with_link(field: str) -> Callable[[MeshSetting, Value], MeshSetting]:
    def apply(setting: MeshSetting, value: Any) -> MeshSetting:
        changed: dict[str, Any] = {field: value}
        return replace(setting, links=replace(setting.links, **changed))

    return apply


def _with_reading(field: str) -> Callable[[MeshSetting, Value], MeshSetting]:
    def apply(setting: MeshSetting, value: Any) -> MeshSetting:
        changed: dict[str, Any] = {field: value}
        return replace(setting, reading=replace(setting.reading, **changed))

    return apply


def _with(field: str) -> Callable[[MeshSetting, Value], MeshSetting]:
    def apply(setting: MeshSetting, value: Any) -> MeshSetting:
        changed: dict[str, Any] = {field: value}
        return replace(setting, **changed)

    return apply


# Lower limits exclude runs without messages and links that take no time: they show nothing.
_TINY: Final = 1e-6
KEYS: Final[dict[str, Key]] = {
    "rate": Key(
        "messages per minute of each publisher",
        _publishers(lambda one, value: replace(one, rate_per_minute=float(value))),
        least=_TINY,
    ),
    "load": Key(
        "factor on the rates of the scenario",
        _publishers(lambda one, value: replace(one, rate_per_minute=one.rate_per_minute * float(value))),
        least=_TINY,
    ),
    "size_kb": Key(
        "size of every message",
        _publishers(lambda one, value: replace(one, size_bytes=fixed(float(value) * _KILOBYTE))),
        least=_TINY,
    ),
    "timeout_s": Key(
        "timeout of every message",
        _publishers(lambda one, value: replace(one, timeout_ms=fixed(float(value) * 1_000))),
        least=_TINY,
    ),
    "publishers": Key(
        "publishers at each broker with publishers",
        _publishers(lambda one, value: replace(one, count=int(value))),
        least=1,
        is_whole=True,
    ),
    "arrivals": Key(
        "distribution of messages over time",
        _publishers(lambda one, value: replace(one, arrivals=str(value))),
        words=ARRIVALS,
    ),
    "subscribers": Key(
        "subscribers at each broker with subscribers",
        _subscriptions(lambda one, value: replace(one, count=int(value))),
        least=1,
        is_whole=True,
    ),
    "deadline_s": Key("deadline of every subscription", _subscriptions(_with_deadline), least=_TINY),
    "link_ms_per_kb": Key(
        "mean of every link",
        lambda setting, value: replace(setting, links=replace(setting.links, mean_ms=fixed(float(value)))),
        least=_TINY,
    ),
    "deviation_ms_per_kb": Key("deviation of every link", _with_link("deviation_ms")),
    "latency_ms": Key(
        "latency of every link",
        lambda setting, value: replace(
            setting, links=replace(setting.links, latency_ns=int(float(value) * MILLISECOND))
        ),
    ),
    "loss": Key("share of transmissions to be repeated", _with_link("loss"), most=0.99),
    "strategy": Key("how a queue is ordered", _with("strategy"), words=STRATEGY_NAMES),
    "mix": Key("part of the first aim, of a strategy that mixes two", _with("mix"), most=1.0),
    "epsilon": Key("chance below which a message is dropped", _with("epsilon"), least=1e-12, most=0.99),
    "preference": Key("preference for the own path in late binding", _with("preference"), most=1.0),
    "waiting_share": Key(
        "share of reported delays that late binding counts", _with("waiting_share"), most=1.0
    ),
    "thrift": Key(
        "how early late binding gives up messages of low worth on congested paths", _with("thrift")
    ),
    "routing": Key("choice of paths", _with_reading("routing"), words=tuple(ROUTINGS)),
    "drops": Key("what strategies without chances drop", _with_reading("drops"), words=DROPS),
    "estimates": Key("link delays known or measured", _with("estimates"), words=ESTIMATES),
    "minutes": Key(
        "simulated time",
        lambda setting, value: replace(setting, duration_ns=int(float(value) * MINUTE)),
        least=1e-3,
    ),
}
