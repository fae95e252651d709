"""A real slow interface between two namespaces; most of it needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from timebound.demo.interface import (
    FAR_ADDRESS,
    FRAME_BYTES,
    NEAR_ADDRESS,
    SEGMENT_BYTES,
    ShapedInterface,
    payload_rate,
    why_not,
)
from timebound.errors import TimeboundError

REASON = why_not()
RATE = 125_000.0
needs_interface = pytest.mark.skipif(bool(REASON), reason=f"no interface can be made here: {REASON}")


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10.0).stdout


def namespaces() -> set[str]:
    return {line.split()[0] for line in output_of("ip", "netns", "list").splitlines()}


def test_payload_is_what_full_segments_leave_of_a_rate() -> None:
    assert payload_rate(FRAME_BYTES * 10.0) == SEGMENT_BYTES * 10.0


def test_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "tc" else found(name) or name)

    assert why_not() == "tc is not installed (Debian: iproute2)"


def test_missing_privileges_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert why_not() == "network namespaces need root"


def test_two_interfaces_have_names_of_their_own() -> None:
    first, second = ShapedInterface(RATE, 0.1), ShapedInterface(RATE, 0.1)

    assert len({first.near, first.far, second.near, second.far}) == 4
    assert first.near_command("a", "b") == ["ip", "netns", "exec", first.near, "a", "b"]
    assert first.far_command("a") == ["ip", "netns", "exec", first.far, "a"]


@needs_interface
def test_namespaces_exist_while_the_interface_does() -> None:
    with ShapedInterface(RATE, 0.1) as link:
        assert {link.near, link.far} <= namespaces()
        assert NEAR_ADDRESS in output_of("ip", "-n", link.near, "address")
        assert FAR_ADDRESS in output_of("ip", "-n", link.far, "address")

    assert not {link.near, link.far} & namespaces()


@needs_interface
def test_interface_is_shaped_to_its_rate_and_follows_a_change() -> None:
    with ShapedInterface(RATE, 0.1) as link:
        command = ("tc", "-n", link.near, "qdisc", "show", "dev", "shaped")
        before = output_of(*command)
        link.shape(RATE / 4)
        after = output_of(*command)

    assert "tbf" in before
    assert "rate 1Mbit" in before
    assert "rate 250Kbit" in after


@needs_interface
def test_interface_that_cannot_be_made_leaves_nothing_behind() -> None:
    link = ShapedInterface(0.0, 0.1)

    with pytest.raises(TimeboundError, match=r"tc .* rate 0bit"), link:
        pass

    assert not {link.near, link.far} & namespaces()


def test_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(TimeboundError, match=r"ip netns add .*No such file"), ShapedInterface(RATE, 0.1):
        pass
