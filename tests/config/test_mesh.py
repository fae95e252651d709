"""`[[neighbours]]` and `[mesh]`: every key, and the mistakes that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.config.mesh import NeighbourConfig
from timebound.config.tls import NeighbourTlsConfig
from timebound.errors import ConfigError
from timebound.node.config import parse_config, read_config

PATH = Path("/etc/t.toml")


def test_every_key_is_read() -> None:
    config = parse_config(
        """
        node_name = "a"
        [[neighbours]]
        name = "b"
        host = "10.0.0.2"
        port = 8883
        user = "link"
        password_file = "p"
        accept_user = "b-link"
        link_bytes_per_second = "50KiB"
        keep_alive = "10s"
        strategy = "mtep"
        strategy_mix_percent = 15
        untimed_share_percent = 7
        shares = ["log/#=2"]
        export = ["plant/#"]
        import = ["cmd/#", "office"]
        origins = ["c"]
        [neighbours.tls]
        ca = "ca.pem"
        certificate = "a.pem"
        key = "a.key"
        [[neighbours]]
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
            ("plant/#",),
            ("cmd/#", "office"),
            ("c",),
            tls,
        ),
        NeighbourConfig("c"),
    )


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[[neighbours]]\nhost = 'x'", "t.toml:1: neighbours[0].name: is required"),
        ("node_name = 'a'\n[[neighbours]]\nname = 'a'", "neighbours[0].name: 'a' is this broker itself"),
        (
            "[[neighbours]]\nname = 'b'\n[[neighbours]]\nname = 'b'",
            "neighbours[1].name: 'b' is a neighbour above",
        ),
        (
            "[[neighbours]]\nname = 'b'\nshares = ['log/#']",
            "neighbours[0].shares: share 'log/#' is not a topic filter with a percentage",
        ),
        (
            "[[neighbours]]\nname = 'b'\nuntimed_share_percent = 60\nshares = ['log/#=50']",
            "neighbours[0].shares: shares (0.6, 0.5) add up to more than 1",
        ),
        ("[[neighbours]]\nname = 'b'\nexport = ['a/#/b']", "neighbours[0].export: "),
        ("[[neighbours]]\nname = 'b'\nimport = ['']", "neighbours[0].import: "),
        ("[[neighbours]]\nname = 'b'\nimport = ['$share/g/t']", "'$share/g/t' is a shared subscription"),
        ("[[neighbours]]\nname = 'b'\norigins = ['c d']", "neighbours[0].origins: 'c d' is not a node_name"),
        ("[[neighbours]]\nname = 'b c'", "neighbours[0].name: must be 1 to 64 of"),
        (
            "[[neighbours]]\nname = 'b'\nuser = 'u'",
            "neighbours[0].user: is for a link that this broker opens",
        ),
        ("[[neighbours]]\nname = 'b'\nhost = 'h'\npassword_file = 'p'", "password_file: needs `user`"),
        ("[[neighbours]]\nname = 'b'\nhost = 'h'\n[neighbours.tls]", "neighbours[0].tls.ca: is required"),
        (
            "[[neighbours]]\nname = 'b'\nhost = 'h'\n[neighbours.tls]\nca = 'c'\nkey = 'k'",
            "neighbours[0].tls: `certificate` and `key` belong together",
        ),
        ("[[neighbours]]\nname = 'b'\nhots = 'h'", "unknown key; did you mean 'host'?"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, mistake: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, Path("t.toml"))

    assert mistake in str(caught.value)


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        "[[neighbours]]\nname = 'b'\nhost = 'h'\nuser = 'u'\npassword_file = 'p'\n"
        "[neighbours.tls]\nca = 'c'\n"
    )

    mistakes = [str(mistake) for mistake in read_config(path)[1]]

    assert len(mistakes) == 2
    assert "neighbours[0].password_file" in mistakes[0]
    assert "neighbours[0].tls.ca" in mistakes[1]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[mesh]\nepsilon = 0", "t.toml:2: mesh.epsilon: must be from 1e-06 to 0.5, not 0"),
        ("[mesh]\npreference = 'high'", "mesh.preference: must be a number from 0 to 1, not 'high'"),
        ("[mesh]\nwaiting_share = nan", "mesh.waiting_share: must be from 0 to 1, not nan"),
        ("[mesh]\nthrift = -1", "mesh.thrift: must be from 0 to 100, not -1"),
        ("[mesh]\nthrift = true", "mesh.thrift: must be a number from 0 to 100, not true"),
        ("[mesh]\nrouting = 'tree'", 'mesh.routing: must be one of "late", "single-path", not \'tree\''),
        ("[mesh]\nqueue_messages_max = 0", "mesh.queue_messages_max: must be from 1 to 1000000, not 0"),
        ("[[listeners]]\nepsilon = 1", "listeners[0].epsilon: must be from 1e-06 to 0.5, not 1"),
    ],
)
def test_wrong_numbers_of_the_mesh_are_named(text: str, mistake: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(text, PATH)

    assert mistake in str(raised.value)
