"""Gateways over local sockets, inside one process and to a second one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.channel.doubles import LIMIT_S, wait_until

from timebound.channel import (
    ChannelBuilder,
    ChannelError,
    DiallingGateway,
    EventChannel,
    ListeningGateway,
    Report,
)
from timebound.channel.federation.gateway import hub_of
from timebound.channel.federation.link_state import Advert, Carried
from timebound.channel.federation.remote import FRAME_LENGTH_MAX, Unpacker, pack


def channel(name: str, reports: list[Report] | None = None) -> EventChannel:
    builder = ChannelBuilder(name).filtering()
    return builder.on_report((reports if reports is not None else []).append).build()


def knows(who: EventChannel, name: str, *wants: str) -> bool:
    """Whether a channel knows what another one wants, and acts accordingly."""
    hub = hub_of(who)
    advert = hub.advert_of(name)
    return advert is not None and [key[0] for key in advert.wants] == list(wants) and hub.has_settled()


def sends(who: EventChannel, name: str, event_type: str, source: str) -> bool:
    """Whether a channel would send an event to another one now."""
    hub = hub_of(who)
    return hub.next_hops(event_type, source) == (name,) and hub.has_settled()


frames = st.one_of(
    st.builds(
        Carried,
        type=st.text(max_size=5),
        source=st.text(max_size=5),
        payload=st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=9), st.binary(max_size=9)),
        origin=st.text(max_size=5),
        sequence=st.integers(0, 2**62),
    ),
    st.builds(
        Advert,
        channel=st.text(max_size=5),
        version=st.integers(0, 2**62),
        neighbours=st.tuples(st.text(max_size=3)),
        wants=st.tuples(st.tuples(st.text(max_size=3), st.text(max_size=3))),
    ),
)


@given(st.lists(frames, max_size=4), st.integers(1, 20))
def test_frames_survive_any_way_of_cutting_the_stream(sent: list[Advert | Carried], step: int) -> None:
    from timebound.channel.federation.remote import _decoder

    stream = b"".join(pack(frame) for frame in sent)
    unpacker = Unpacker()
    received = []
    for start in range(0, len(stream), step):
        received += [_decoder.decode(body) for body in unpacker.feed(stream[start : start + step])]

    assert received == sent


def test_frame_that_claims_to_be_huge_is_refused() -> None:
    with pytest.raises(ChannelError, match="announces a frame"):
        Unpacker().feed(b"\xff\xff\xff\xff")
    with pytest.raises(ChannelError, match="a gateway carries at most"):
        pack(Carried("t", "s", bytes(FRAME_LENGTH_MAX), "o", 1))


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_events_cross_a_socket_both_ways_and_follow_wants(family: str, tmp_path: Path) -> None:
    near, far = channel("near"), channel("far")
    got: list[object] = []
    back: list[object] = []
    address = str(tmp_path / "gateway") if family == "unix" else ("127.0.0.1", 0)
    with near, far, ListeningGateway(near, address) as server, DiallingGateway(far, server.address) as client:
        assert client.wait_joined(LIMIT_S)
        far.connect(lambda e: got.append((e.payload, e.origin)), "x")
        near.connect(lambda e: back.append((e.payload, e.origin)), "y")
        wait_until(lambda: knows(near, "far", "x") and sends(near, "far", "x", "s"))
        wait_until(lambda: knows(far, "near", "y") and sends(far, "near", "y", "t"))

        near.supplier("s", "x", "z").push("x", {"number": [1, b"bytes"]})
        far.supplier("t", "y").push("y", None)
        wait_until(lambda: len(got) == len(back) == 1)

    assert got == [({"number": [1, b"bytes"]}, "near")]
    assert back == [(None, "far")]


def test_lost_connection_is_made_again(tmp_path: Path) -> None:
    address = str(tmp_path / "gateway")
    near, far = channel("near"), channel("far")
    got: list[object] = []
    with near, far:
        far.connect(lambda e: got.append(e.payload), "x")
        supplier = near.supplier("s", "x")
        first = ListeningGateway(near, address)
        with DiallingGateway(far, address):
            wait_until(lambda: knows(near, "far", "x"))
            first.close()
            wait_until(lambda: hub_of(near).neighbours() == [] and hub_of(far).neighbours() == [])
            with ListeningGateway(near, address):
                wait_until(lambda: hub_of(near).neighbours() == ["far"])
                wait_until(lambda: sends(near, "far", "x", "s"))
                supplier.push("x", 2)
                wait_until(lambda: got == [2])


def test_peer_that_talks_nonsense_is_dropped_with_a_notice(tmp_path: Path) -> None:
    reports: list[Report] = []
    near = channel("near", reports)
    address = str(tmp_path / "gateway")
    with near, ListeningGateway(near, address):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(LIMIT_S)
        peer.connect(address)
        peer.sendall(b"\x00\x00\x00\x03bad" + b"\x00\x00\x00\x02\xc1\xc1")
        while peer.recv(4096):
            pass
        peer.close()
        wait_until(lambda: len(reports) > 0)

    assert "connection at" in reports[0].message
    assert hub_of(near).neighbours() == []


def test_namesake_is_turned_away(tmp_path: Path) -> None:
    reports: list[Report] = []
    first, second = channel("same", reports), channel("same")
    address = str(tmp_path / "gateway")
    with first, second, ListeningGateway(first, address), DiallingGateway(second, address):
        wait_until(lambda: any("another of that name" in report.message for report in reports))


def test_payload_that_cannot_cross_is_reported_and_local_consumers_get_it(tmp_path: Path) -> None:
    reports: list[Report] = []
    near, far = channel("near", reports), channel("far")
    got: list[object] = []
    address = str(tmp_path / "gateway")
    with near, far, ListeningGateway(near, address), DiallingGateway(far, address):
        far.connect(lambda e: None, "x")
        near.connect(lambda e: got.append(e.payload), "x")
        wait_until(lambda: sends(near, "far", "x", "s"))
        near.supplier("s", "x").push("x", near)
        reported = [
            report.consumer for report in reports
        ]  # at the end a peer that hangs up first may earn a notice

    assert got == [near]
    assert reported == ["gateway to far"]


def test_two_processes_exchange_events(tmp_path: Path) -> None:
    address = str(tmp_path / "gateway")
    program = f"""
        from threading import Event
        from timebound.channel import ChannelBuilder, DiallingGateway
        done = Event()
        channel = ChannelBuilder("child").filtering().build()
        with channel, DiallingGateway(channel, {address!r}):
            answers = channel.supplier("child", "answer")
            channel.connect(lambda e: answers.push("answer", e.payload * 2), "question")
            channel.connect(lambda e: done.set(), "enough")
            assert done.wait({LIMIT_S})
    """
    got: list[object] = []
    parent = channel("parent")
    with parent, ListeningGateway(parent, address):
        parent.connect(lambda e: got.append((e.source, e.payload)), "answer")
        supplier = parent.supplier("parent", "question", "enough")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], env=environment)
        wait_until(lambda: knows(parent, "child", "enough", "question"))
        wait_until(lambda: sends(parent, "child", "question", "parent"))
        for number in range(100):
            supplier.push("question", number)
        wait_until(lambda: len(got) == 100)
        supplier.push("enough")
        assert child.wait(LIMIT_S) == 0

    assert got == [("child", 2 * number) for number in range(100)]
