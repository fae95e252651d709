"""`[input]` and `[[weights]]`: the order in which messages are taken in, and delay bounds."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Literal

from timebound.core.input.cells import EVEN, ORDERS, WEIGHT_MAX
from timebound.core.input.policer import EXCESS_MODES, LOWER
from timebound.toml.setting import KIBIBYTE, MEBIBYTE, setting


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
        "count", 1, "weight of topics without an entry in `[[weights]]`", minimum=1, maximum=WEIGHT_MAX
    )
    quantum_bytes: int = setting(
        "size",
        KIBIBYTE,
        "a larger message takes several turns, so that others get turns in between; most telemetry takes one",
        minimum=64,
        maximum=MEBIBYTE,
    )
    queue_quanta_max: int = setting(
        "count",
        256,
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
        "choice", EVEN, "order of the turns in a cycle; `even` is never worse: docs/bounds.md", choices=ORDERS
    )
    reserved_percent: int = setting(
        "count",
        50,
        "share of the measured service rate that guarantees of advertised flows may use; the rest "
        "stays for everyone else",
        maximum=95,
    )
    excess: Literal["lower", "refuse"] = setting(
        "choice",
        LOWER,
        "messages beyond an advertisement are queued with those of no flow, or refused",
        choices=EXCESS_MODES,
    )
    flows_max: int = setting(
        "count",
        200,
        "advertised flows; each answer checks all of them, a refusal with 200 takes about 3 ms",
        maximum=1_000,
    )
    flows_per_client_max: int = setting(
        "count", 50, "advertised flows of one client, so that none takes all", maximum=1_000
    )
    flows_per_user_max: int = setting(
        "count",
        100,
        "the same for all clients of a user, or of an address where they are anonymous: other client ids "
        "do not get more",
        maximum=1_000,
    )
    advertisements_per_second_max: int = setting(
        "count",
        10,
        "of one user, or of one address where clients are anonymous, beyond `flows_per_user_max` at once; "
        "the broker checks every flow for each",
        minimum=1,
    )
    advertising_percent_max: int = setting(
        "count",
        10,
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
        0.02,
        "allowance for scheduling stalls of the machine; added to every delay bound. Longer stalls count "
        "once they were measured; a few milliseconds do where the broker has a processor to itself",
    )
    weights: tuple[WeightEntry, ...] = ()
