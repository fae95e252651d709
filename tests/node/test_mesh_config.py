"""`[[neighbour]]`: what it says, and the mistakes that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.errors import ConfigError
from timebound.node.config import check_config, parse_config
from timebound.node.config_values import NeighbourConfig, NeighbourTlsConfig
from timebound.node.neighbour_dial import client_context, read_password

PATH = Path("/etc/t.toml")


def test_every_key_is_read() -> None:
    config = parse_config(
        """
        node_name = "a"
        [[neighbour]]
        name = "b"
        host = "10.0.0.2"
        port = 8883
        user = "link"
        password_file = "p"
        accept_user = "b-link"
        rate = "50KiB"
        keep_alive = "10s"
        strategy = "mtep"
        strategy_weight_percent = 15
        untimed_share_percent = 7
        shares = ["log/#=2"]
        [neighbour.tls]
        ca = "ca.pem"
        certificate = "a.pem"
        key = "a.key"
        [[neighbour]]
        name = "c"
        """,
        PATH,
    )

    tls = NeighbourTlsConfig(Path("/etc/ca.pem"), Path("/etc/a.pem"), Path("/etc/a.key"))
    assert config.neighbours == (
        NeighbourConfig(
            "b",
            "10.0.0.2",
            8883,
            "link",
            Path("/etc/p"),
            "b-link",
            51_200,
            10,
            "mtep",
            15,
            7,
            ("log/#=2",),
            tls,
        ),
        NeighbourConfig("c"),
    )


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[[neighbour]]\nhost = 'x'", "t.toml:1: neighbour[0].name: is required"),
        ("node_name = 'a'\n[[neighbour]]\nname = 'a'", "neighbour[0].name: 'a' is this broker itself"),
        (
            "[[neighbour]]\nname = 'b'\n[[neighbour]]\nname = 'b'",
            "neighbour[1].name: 'b' is a neighbour above",
        ),
        (
            "[[neighbour]]\nname = 'b'\nshares = ['log/#']",
            "neighbour[0].shares: share 'log/#' is no topic filter and percent",
        ),
        (
            "[[neighbour]]\nname = 'b'\nuntimed_share_percent = 60\nshares = ['log/#=50']",
            "neighbour[0].shares: shares (0.6, 0.5) add up to more than 1",
        ),
        ("[[neighbour]]\nname = 'b c'", "neighbour[0].name: must be 1 to 64 of"),
        ("[[neighbour]]\nname = 'b'\nuser = 'u'", "neighbour[0].user: is for a link that this broker opens"),
        ("[[neighbour]]\nname = 'b'\nhost = 'h'\npassword_file = 'p'", "password_file: is for `user`"),
        ("[[neighbour]]\nname = 'b'\nhost = 'h'\n[neighbour.tls]", "neighbour[0].tls.ca: is required"),
        (
            "[[neighbour]]\nname = 'b'\nhost = 'h'\n[neighbour.tls]\nca = 'c'\nkey = 'k'",
            "neighbour[0].tls: `certificate` and `key` belong together",
        ),
        ("[[neighbour]]\nname = 'b'\nhots = 'h'", "unknown key; did you mean 'host'?"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, mistake: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, Path("t.toml"))

    assert mistake in str(caught.value)


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        "[[neighbour]]\nname = 'b'\nhost = 'h'\nuser = 'u'\npassword_file = 'p'\n[neighbour.tls]\nca = 'c'\n"
    )

    mistakes = [str(mistake) for mistake in check_config(path)]

    assert len(mistakes) == 2
    assert "neighbour[0].password_file" in mistakes[0]
    assert "neighbour[0].tls.ca" in mistakes[1]


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
