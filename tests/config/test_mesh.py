"""`[[neighbours]]`: what it says, and the mistakes that are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from timebound.config.values import NeighbourConfig, NeighbourTlsConfig
from timebound.core.broker import Broker
from timebound.core.mesh.flooding import LINK, SUBSCRIPTION, LinkStateAdvertisement
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.mesh.member import COPY_BYTES, Member
from timebound.core.mesh.table import MeshSubscription
from timebound.core.values.access import AccessList
from timebound.core.values.delay import LinkDelay
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.errors import ConfigError
from timebound.node.config import parse_config, read_config
from timebound.node.mesh.dial import client_context, read_password
from timebound.node.mesh.mesh import Timer, join_mesh
from timebound.units import SECOND

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


class StillClock:
    """A clock that stands: nothing is called."""

    def now_ns(self) -> int:
        return 1

    def call_at_ns(self, when_ns: int, callback: Callable[[], None]) -> Timer:
        raise AssertionError("nothing is sent")

    def schedule(self) -> None:
        pass


def member_of(mesh: str) -> Member:
    """Broker a, linked with b and c, which lead to d; c's way is twice as long. A client of d wants `t`."""
    config = parse_config(
        f"node_name = 'a'\n{mesh}[[neighbours]]\nname = 'b'\n[[neighbours]]\nname = 'c'\n", PATH
    )
    index = WatchedIndex()
    broker = Broker(BrokerLimits(), AccessList([]), False, index)
    member = join_mesh(config, broker, index, StillClock()).member
    for name, delay_s in (("b", 0.05), ("c", 0.1)):
        member.measured(name, LinkDelay(delay_s, 0.0001), 0)
        member.link_up(name, 0)
        member.receive_advertisement(
            name, LinkStateAdvertisement((LINK, name, "d", ""), (1, 1), LinkDelay(delay_s, 0.0001))
        )
    wanted = MeshSubscription("s@d", "d", "t", deadline_ns=2 * SECOND)
    member.receive_advertisement(
        "b", LinkStateAdvertisement((SUBSCRIPTION, "d", "s@d", "t"), (1, 2), subscription=wanted)
    )
    return member


def kilobytes(size: int, topic: str = "t") -> Message:
    return Message(topic, b"x" * (1_024 * size - 8 - len(topic) - COPY_BYTES), 0, False, 0)


def sends_of(member: Member) -> list[str]:
    return [send.neighbour for send in member.take_sends()]


def test_routing_is_late_unless_the_single_path_is_asked_for() -> None:
    late, single = member_of(""), member_of("[mesh]\nrouting = 'single-path'\n")
    for member in (late, single):
        for _ in range(3):
            member.publish(kilobytes(1), 0)

    assert sends_of(late) == ["b", "c"]
    assert sends_of(single) == ["b"]
    assert [member.forwarder.waiting_messages() for member in (late, single)] == [2, 2]  # one waits for both
    assert len(single.forwarder.links["c"].queue) == 0


def test_epsilon_decides_what_is_hopeless() -> None:
    # 20 KB take 2 s to d over b, of 2 s: an even chance.
    assert sends_of(publish_one(member_of(""), 19)) == ["b"]
    assert sends_of(publish_one(member_of("[mesh]\nepsilon = 0.5\n"), 20)) == []
    assert sends_of(publish_one(member_of("[mesh]\nepsilon = 0.4\n"), 20)) == ["b"]


def publish_one(member: Member, size: int) -> Member:
    member.publish(kilobytes(size), 0)
    return member


def test_preference_leaves_a_message_to_a_way_that_promises_more() -> None:
    # Over c 10 KB take 2 s, of 2 s: an even chance. b, when it is free again, promises nearly all.
    def second_over(mesh: str) -> list[str]:
        member = member_of(mesh)
        member.publish(kilobytes(1), 0)
        member.publish(kilobytes(10), 0)
        return sends_of(member)

    assert second_over("[mesh]\npreference = 0.0\n") == ["b", "c"]
    assert second_over("[mesh]\npreference = 0.9\n") == ["b"]


def test_waiting_share_is_what_reported_waits_count() -> None:
    def sent_over(mesh: str) -> list[str]:
        member = member_of(mesh)
        member.forwarder.receive_delay_report("b", {"d": 3 * SECOND})
        member.forwarder.receive_delay_report("c", {"d": 3 * SECOND})
        return sends_of(publish_one(member, 1))

    assert sent_over("[mesh]\nwaiting_share = 0.1\n") == ["b"]
    assert sent_over("[mesh]\nwaiting_share = 1.0\n") == []


def test_thrift_is_off_unless_it_is_asked_for() -> None:
    def sent_over(mesh: str) -> list[str]:
        member = member_of(mesh + "waiting_share = 0.0\n")
        for name in "bc":
            member.forwarder.receive_delay_report(name, {"d": SECOND})
            member.forwarder.links[name].note_worth(1e6, 1_024.0, float(SECOND))
        return sends_of(publish_one(member, 1))

    assert sent_over("[mesh]\n") == ["b"]
    assert sent_over("[mesh]\nthrift = 1\n") == []


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
