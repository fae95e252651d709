"""Opening links: the password and the certificates that this broker shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.config.mesh import NeighbourConfig
from timebound.config.tls import NeighbourTlsConfig
from timebound.errors import ConfigError
from timebound.node.mesh.dial import client_context, read_password


def test_a_password_is_what_its_file_holds_but_for_the_line_end(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"secret \r\n")

    assert read_password(NeighbourConfig("b", password_file=tmp_path / "p")) == b"secret "
    assert read_password(NeighbourConfig("b")) is None
    with pytest.raises(ConfigError, match="password for 'b' cannot be read"):
        read_password(NeighbourConfig("b", password_file=tmp_path / "q"))


def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")

    with pytest.raises(ConfigError, match="certificates for 'b' cannot be used"):
        client_context(NeighbourConfig("b", tls=NeighbourTlsConfig(tmp_path / "ca.pem")))
    assert client_context(NeighbourConfig("b")) is None
