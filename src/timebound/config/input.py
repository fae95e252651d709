"""`[input]` and `[[weights]]`: the order in which messages are taken in, and delay bounds."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Final, Literal

from timebound.core.input.cells import ORDERS, WEIGHT_MAX
from timebound.core.input.options import EntranceOptions
from timebound.core.input.policer import EXCESS_MODES
from timebound.toml.setting import MEBIBYTE, setting
from timebound.units import SECOND

# What the core needs has its defaults there.
_DEFAULTS: Final = EntranceOptions()
# The shortest round in turns: reading and writing can take as long as serving.
ROUND_TURNS: Final = 2


@dataclass(frozen=True, slots=True)
class WeightEntry:
    """`[[weights]]`: how often messages of some topics are taken from the input queues."""

    topic: str = setting(
        "text", MISSING, "a topic filter; of several that match a topic, the most specific one counts"
    )
    weight: int = setting(
        "count", MISSING, "turns per cycle, relative to all others", minimum=1, maximum=WEIGHT_MAX
    )


@dataclass(frozen=True, slots=True)
class InputConfig:
    """`[input]`: order of input and guarantees of advertised flows."""

    default_weight: int = setting(
        "count",
        _DEFAULTS.default_weight,
        "weight of topics without an entry in `[[weights]]`",
        minimum=1,
        maximum=WEIGHT_MAX,
    )
    quantum_bytes: int = setting(
        "size",
        _DEFAULTS.quantum_bytes,
        "a larger message takes several turns, so that others get turns in between; most telemetry takes one",
        minimum=64,
        maximum=MEBIBYTE,
    )
    queue_quanta_max: int = setting(
        "count",
        _DEFAULTS.queue_quanta_max,
        "input of one client that may wait before its socket is left unread; bytes in the socket "
        "cost no memory, and no time of others",
        minimum=16,
        maximum=65_536,
    )
    turn_s: float = setting(
        "duration",
        0.001,
        "time spent on input before sockets are polled again; a longer turn costs delay, a shorter "
        "one throughput",
    )
    order: Literal["paper", "even"] = setting(
        "choice",
        _DEFAULTS.order,
        "order of the turns in a cycle; `even` is never worse: docs/bounds.md",
        choices=ORDERS,
    )
    reserved_percent: int = setting(
        "count",
        _DEFAULTS.reserved_percent,
        "share of the measured service rate that guarantees of advertised flows may use; the rest "
        "stays for everyone else",
        maximum=95,
    )
    excess: Literal["lower", "refuse"] = setting(
        "choice",
        _DEFAULTS.excess,
        "messages beyond an advertisement are queued with those of no flow, or refused",
        choices=EXCESS_MODES,
    )
    flows_max: int = setting(
        "count",
        _DEFAULTS.flows_max,
        "advertised flows; each answer checks all of them, a refusal with 200 takes about 3 ms",
        maximum=1_000,
    )
    flows_per_client_max: int = setting(
        "count",
        _DEFAULTS.flows_per_client_max,
        "advertised flows of one client, so that none takes all",
        maximum=1_000,
    )
    flows_per_user_max: int = setting(
        "count",
        _DEFAULTS.flows_per_user_max,
        "the same for all clients of a user, or of an address where they are anonymous: other client ids "
        "do not get more",
        maximum=1_000,
    )
    advertisements_per_second_max: int = setting(
        "count",
        _DEFAULTS.advertisements_per_second_max,
        "of one user, or of one address where clients are anonymous, beyond `flows_per_user_max` at once; "
        "the broker checks every flow for each",
        minimum=1,
    )
    advertising_percent_max: int = setting(
        "count",
        _DEFAULTS.advertising_percent_max,
        "share of the processor for answers to advertisements and weights, of all clients, and for the "
        "release of their flows",
        minimum=1,
        maximum=100,
    )
    quantum_time_s: float = setting(
        "duration", 0.0, "longest time of one turn of one message; 0s = measured continuously"
    )
    stall_allowance_s: float = setting(
        "duration",
        _DEFAULTS.stall_ns_min / SECOND,
        "allowance for scheduling stalls of the machine; added to every delay bound. Longer stalls count "
        "once they were measured; a few milliseconds do where the broker has a processor to itself",
    )
    weights: tuple[WeightEntry, ...] = ()


def entrance_options(config: InputConfig, calibrated_ns: int = 0) -> EntranceOptions:
    """Return what the core needs of the table; `calibrated_ns` is the quantum until one was measured."""
    fixed_ns = int(config.quantum_time_s * SECOND)
    return EntranceOptions(
        order=config.order,
        quantum_bytes=config.quantum_bytes,
        queue_quanta_max=config.queue_quanta_max,
        default_weight=config.default_weight,
        weights=tuple((entry.topic, entry.weight) for entry in config.weights),
        quantum_ns=fixed_ns or calibrated_ns or _DEFAULTS.quantum_ns,
        is_quantum_fixed=fixed_ns > 0,
        round_ns_min=ROUND_TURNS * int(config.turn_s * SECOND),
        stall_ns_min=int(config.stall_allowance_s * SECOND),
        reserved_percent=config.reserved_percent,
        excess=config.excess,
        flows_max=config.flows_max,
        flows_per_client_max=config.flows_per_client_max,
        flows_per_user_max=config.flows_per_user_max,
        advertisements_per_second_max=config.advertisements_per_second_max,
        advertising_percent_max=config.advertising_percent_max,
    )
