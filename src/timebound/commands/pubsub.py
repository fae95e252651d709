"""`timebound pub` and `timebound sub`: publish and subscribe from the shell."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from timebound.commands import pubsub_options as given

if TYPE_CHECKING:
    from timebound.pubsub import Connecting

PUB_EXAMPLES: Final = (
    "Examples:  timebound pub plant/7/temp 91.5 --timeout 400ms  ·  "
    "timebound pub plant/7/temp '{\"value\": 91.5}' --qos 1 --retain  ·  "
    "tail -f log.txt | timebound pub logs --lines"
)
SUB_EXAMPLES: Final = (
    "Examples:  timebound sub '#'  ·  timebound sub 'plant/+/temp' --where 'value > 90' "
    "--deadline 250ms --price 3 --penalty 0.3  ·  timebound sub alarms --count 1 --wait 10s --json"
)


@given.connects
def pub(
    topic: given.Topic,
    payload: given.Payload = None,
    file: given.File = None,
    stdin: given.Stdin = False,
    lines: given.Lines = False,
    qos: given.Qos = 0,
    retain: given.Retain = False,
    timeout: given.Timeout = None,
    priority: given.Priority = None,
    prop: given.Property = None,
    count: given.Repeat = 1,
    interval: given.Interval = "0s",
    as_json: given.Json = False,
    *,
    connecting: Connecting,
    client_id: given.ClientId = "",
    version: given.Version = 5,
) -> None:
    """Publish a message, or several; exit code 1 if the server refuses.

    With QoS 0 a server acknowledges nothing: exit code 0 then says that it read everything and kept the
    connection. Only with --qos 1 or 2 it says whether it accepted a message.
    """
    from timebound.pubsub import Publishing, run_pub

    connecting = replace(connecting, client_id=client_id, version=version)
    publishing = Publishing(
        topic,
        payload=payload,
        file=file,
        stdin=stdin,
        lines=lines,
        qos=qos,
        retain=retain,
        timeout=timeout,
        priority=priority,
        properties=tuple(prop or ()),
        count=count,
        interval=interval,
    )
    sys.exit(run_pub(connecting, publishing, as_json=as_json))


@given.connects
def sub(
    filters: given.Filters,
    qos: given.Qos = 0,
    where: given.Where = None,
    deadline: given.Deadline = None,
    price: given.Price = None,
    penalty: given.Penalty = None,
    prop: given.Property = None,
    count: given.Count = 0,
    wait: given.Wait = None,
    retained_only: given.RetainedOnly = False,
    no_retained: given.NoRetained = False,
    payload_only: given.PayloadOnly = False,
    as_json: given.JsonLines = False,
    *,
    connecting: Connecting,
    client_id: given.ClientId = "",
    session_expiry: given.SessionExpiry = "0s",
    version: given.Version = 5,
) -> None:
    """Print messages as they come, until Ctrl-C, --count messages, or the end of --wait.

    Exit code 1 if the server refuses, or if fewer than --count messages came. Without --count, --wait is how
    long to listen, and whatever came is enough.
    """
    from timebound.pubsub import Subscribing, run_sub

    connecting = replace(connecting, client_id=client_id, version=version)
    subscribing = Subscribing(
        tuple(filters),
        qos=qos,
        where=where,
        deadline=deadline,
        price=price,
        penalty=penalty,
        properties=tuple(prop or ()),
        count=count,
        wait=wait,
        retained_only=retained_only,
        no_retained=no_retained,
        payload_only=payload_only,
        session_expiry=session_expiry,
        as_json=as_json,
    )
    sys.exit(run_sub(connecting, subscribing))
