"""`[listeners.tls]`, `[flight.tls]` and `[neighbours.tls]`: their files, and what needs what."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.config.doubles import PATH, mistakes_of

from timebound.config.tls import NeighbourTlsConfig, TlsConfig
from timebound.node.config import parse_config

LISTENER = "[[listeners]]\n[listeners.tls]\n"
NEIGHBOUR = "[[neighbours]]\nname = 'b'\nhost = 'h'\n[neighbours.tls]\n"


def test_files_are_relative_to_the_configuration() -> None:
    (listener,) = parse_config(LISTENER + "certificate = 'c.pem'\nkey = '/keys/k.pem'\n", PATH).listeners
    (neighbour,) = parse_config(NEIGHBOUR + "ca = 'ca.pem'\n", PATH).neighbours

    assert listener.tls == TlsConfig(PATH.parent / "c.pem", Path("/keys/k.pem"))
    assert neighbour.tls == NeighbourTlsConfig(PATH.parent / "ca.pem")


def test_clients_need_no_certificate_unless_it_is_asked_for() -> None:
    tls = TlsConfig(Path("c"), Path("k"))

    assert (tls.ca, tls.require_client_certificate, tls.identity) == (None, False, "none")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LISTENER + "key = 'k'", "listeners[0].tls.certificate: is required"),
        (
            LISTENER + "certificate = 'c'\nkey = 'k'\nrequire_client_certificate = true",
            "listeners[0].tls.require_client_certificate: needs `ca`",
        ),
        (
            LISTENER + "certificate = 'c'\nkey = 'k'\nidentity = 'common_name'",
            "listeners[0].tls.identity: needs `ca`",
        ),
        (NEIGHBOUR + "certificate = 'c'\nkey = 'k'", "neighbours[0].tls.ca: is required"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, text: str, expected: str) -> None:
    assert any(expected in mistake for mistake in mistakes_of(text, tmp_path))
