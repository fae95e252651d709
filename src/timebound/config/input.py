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
        "count", MISSING, "turns in a cycle; relative to all others", minimum=1, maximum=WEIGHT_MAX
    )


@dataclass(frozen=True, slots=True)
class InputConfig:
    """`[input]`: in which order messages are taken in, and what is promised to advertised flows."""

    default_weight: int = setting(
        "count", 1, "of topics that no `[[weights]]` names", minimum=1, maximum=WEIGHT_MAX
    )
    quantum_bytes: int = setting(
        "size",
        KIBIBYTE,
        "a larger message takes several turns, so that others go on between; most telemetry takes one",
        minimum=64,
        maximum=MEBIBYTE,
    )
    queue_quanta_max: int = setting(
        "count",
        256,
        "what may wait of one client before its socket is left unread; "
        "what stays in the socket costs no memory, and no time of others",
        minimum=16,
        maximum=65_536,
    )
    turn_s: float = setting(
        "duration",
        0.001,
        "messages are taken in for so long before sockets are read and written again; "
        "a longer turn costs delay, a shorter one throughput",
    )
    order: Literal["paper", "even"] = setting(
        "choice", EVEN, "of the turns in a cycle; `even` is never worse: docs/bounds.md", choices=ORDERS
    )
    reserved_percent: int = setting(
        "count",
        50,
        "of the measured service rate: what advertised flows may be promised in all; "
        "the rest stays for everyone else",
        maximum=95,
    )
    excess: Literal["lower", "refuse"] = setting(
        "choice",
        LOWER,
        "what a flow sends beyond its advertisement waits with messages that have none, or is refused",
        choices=EXCESS_MODES,
    )
    flows_max: int = setting(
        "count",
        200,
        "advertised flows; every answer looks at all of them, a refusal of 200 takes about 3 ms",
        maximum=1_000,
    )
    flows_per_client_max: int = setting("count", 50, "of one client, so that none takes all", maximum=1_000)
    advertisements_per_second_max: int = setting(
        "count",
        10,
        "of one client, beyond `flows_per_client_max` at once; each makes the broker look at every flow",
        minimum=1,
    )
    advertising_percent_max: int = setting(
        "count",
        10,
        "of the processor's time for answers to advertisements and weights, of all clients",
        minimum=1,
        maximum=100,
    )
    quantum_time_s: float = setting(
        "duration", 0.0, "how long one turn of one message takes at most; 0s: it is measured all the time"
    )
    stall_allowance_s: float = setting(
        "duration",
        0.02,
        "allowance for scheduling stalls of the machine; added to every delay bound. Longer stalls count "
        "once they were measured; a few milliseconds do where the broker has a processor to itself",
    )
    weights: tuple[WeightEntry, ...] = ()
