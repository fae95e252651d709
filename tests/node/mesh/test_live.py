"""Real brokers, each a process of its own, linked to a mesh."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import Certificates, StartBroker
from tests.node.mesh.live_mesh import PROBE, TIMEOUT_S, Links, Mesh, free_ports, read, wait_wanted
from tests.peer import Peer

from timebound.node.login.passwords import PasswordFile
from timebound.wire.packets import Pingreq, Pingresp, Publish

ACCOUNT = ("account/matched", "account/in_time", "account/late", "account/dropped")


@pytest.fixture
def start_mesh(tmp_path: Path) -> Iterator[Callable[[Links], Mesh]]:
    meshes: list[Mesh] = []

    def start(links: Links) -> Mesh:
        meshes.append(Mesh(tmp_path, links))
        return meshes[-1]

    yield start
    for mesh in meshes:
        mesh.end()


@pytest.fixture(scope="module")
def slow_line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A line a - b - c of links that carry 1 KB in 100 ms."""
    rate = "link_bytes_per_second = 10240\n"
    mesh = Mesh(tmp_path_factory.mktemp("slow"), {("a", "b"): rate, ("b", "c"): rate})
    yield mesh
    mesh.end()


StartMesh = Callable[[Links], Mesh]


def wait_passing(mesh: Mesh, name: str, publisher: Peer, topic: str) -> None:
    """Publish probes until some have passed a broker: those before it know the way over it then."""
    end_s = time.monotonic() + TIMEOUT_S
    while mesh.figures(name, "mesh/received")["mesh/received"] < 1:
        publisher.publish(topic, PROBE)
        assert time.monotonic() < end_s, f"nothing passes {name!r} in {TIMEOUT_S} s"


def wait_figure(mesh: Mesh, name: str, figure: str, least: int) -> None:
    """Wait until a figure of a broker is so large."""
    end_s = time.monotonic() + TIMEOUT_S
    while (value := mesh.figures(name, figure)[figure]) < least:
        assert time.monotonic() < end_s, f"{figure} of {name!r} is {value} after {TIMEOUT_S} s"


def numbers(subscriber: Peer, count: int) -> list[int]:
    return sorted(int(one.payload) for one in read(subscriber, count))


def expect_no_more(subscriber: Peer) -> None:
    """Nothing but probes is on its way, which may have taken the slow one."""
    subscriber.send(Pingreq())
    while not isinstance(packet := subscriber.receive(TIMEOUT_S), Pingresp):
        assert isinstance(packet, Publish), packet
        assert packet.payload == PROBE


def publish_numbers(publisher: Peer, topic: str, which: range) -> None:
    for number in which:
        publisher.publish(topic, b"%d" % number)


def wait_account(mesh: Mesh, names: str, pairs: int) -> dict[str, float]:
    """Wait until the brokers together account for so many pairs or more, and all add up; gives the sums."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        sums = dict.fromkeys(ACCOUNT, 0.0)
        for name in names:
            for key, value in mesh.figures(name, *ACCOUNT).items():
                sums[key] += value
        ended = sum(sums[key] for key in ACCOUNT[1:])
        if sums["account/matched"] >= pairs and sums["account/matched"] == ended:
            return sums
        assert time.monotonic() < end_s, f"the account does not come to {pairs} pairs: {sums}"


def test_in_a_line_every_message_arrives_once_and_the_account_adds_up(start_mesh: StartMesh) -> None:
    mesh = start_mesh({("a", "b"): "", ("b", "c"): ""})
    with mesh.join("a") as publisher, mesh.join("c") as subscriber, mesh.join("b") as other:
        subscriber.subscribe("t/#", user_properties=[("deadline", "10s"), ("price", "2")])
        other.subscribe("t/1", user_properties=[("where", "n >= 50")])
        wait_wanted(publisher, "t/0")

        for number in range(100):
            publisher.publish(f"t/{number % 2}", b"%d" % number, user_properties=[("n", str(number))])

        assert numbers(subscriber, 100) == list(range(100))
        assert numbers(other, 25) == list(range(51, 100, 2))
        subscriber.expect_silence()
        other.expect_silence()
        sums = wait_account(mesh, "abc", 125)
        assert (sums["account/dropped"], sums["account/late"]) == (0, 0)


def test_only_what_may_cross_a_link_does(start_mesh: StartMesh) -> None:
    # On the first link `a` may send more than `b` takes; on the second, `c` believes `b` alone.
    mesh = start_mesh(
        {("a", "b"): 'export = ["in/#", "out/#"]\nimport = ["in/#"]\n', ("b", "c"): 'origins = ["b"]\n'}
    )
    with mesh.join("a") as publisher, mesh.join("b") as near, mesh.join("c") as far, mesh.join("b") as other:
        for subscriber in (near, far):
            subscriber.subscribe("#", qos=1)
        wait_figure(mesh, "a", "mesh/subscriptions", 2)
        wait_wanted(other, "in/t")

        for number in range(30):
            for topic in ("secret/t", "out/t", "in/t"):
                publisher.publish(topic, b"%d" % number, qos=number % 3)

        found = read(near, 30)
        assert {one.topic for one in found} == {"in/t"}
        assert sorted(int(one.payload) for one in found) == list(range(30)), "each QoS in an order of its own"
        other.publish("in/t", b"own")
        assert [[one.payload for one in read(each, 1)] for each in (near, far)] == [[b"own"], [b"own"]]
        near.expect_silence()
        # What none lets out, what `b` may not take, and what `c` does not believe.
        for name, count in (("a", 60), ("b", 30), ("c", 30)):
            wait_figure(mesh, name, "dropped/not_authorized", count)


def test_a_message_that_cannot_arrive_in_time_is_dropped_where_that_is_known(slow_line: Mesh) -> None:
    with (
        slow_line.join("a", "press-1") as publisher,
        slow_line.join("c", "desk") as subscriber,
        slow_line.join("a") as watcher,
    ):
        subscriber.subscribe("short", user_properties=[("deadline", "150ms")])
        watcher.subscribe("$timebound/drops/short")
        wait_wanted(publisher, "short")

        publisher.publish("short", b"x" * 1_000)  # 110 ms on each of two links

        drop = json.loads(watcher.expect(Publish, TIMEOUT_S).payload)
        assert (drop["reason"], drop["publisher"], drop["subscriber"]) == ("hopeless", "press-1", "desk")


def test_the_age_of_a_message_counts_from_publication_across_brokers(slow_line: Mesh) -> None:
    with slow_line.join("a") as publisher, slow_line.join("c") as subscriber:
        subscriber.subscribe("long", user_properties=[("deadline", "10s")])
        wait_wanted(publisher, "long")

        publisher.publish("long", b"x" * 936, user_properties=[("k", "v")])

        [found] = read(subscriber, 1)
        assert [name for name, _ in found.user_properties] == ["k", "age"]
        assert float(dict(found.user_properties)["age"].removesuffix("ms")) >= 199.0  # 1 KB, twice


def test_in_a_triangle_the_other_way_is_taken_while_a_broker_is_dead(start_mesh: StartMesh) -> None:
    # The direct link is slow, so b is the better way from a to c.
    mesh = start_mesh({("a", "b"): "", ("b", "c"): "", ("a", "c"): "link_bytes_per_second = 20480\n"})
    with mesh.join("a") as publisher, mesh.join("c") as subscriber:
        subscriber.subscribe("t", user_properties=[("deadline", "10s")])
        wait_wanted(publisher, "t")
        wait_passing(mesh, "b", publisher, "t")
        publish_numbers(publisher, "t", range(20))
        assert numbers(subscriber, 20) == list(range(20))

        mesh.brokers["b"].kill()
        publish_numbers(publisher, "t", range(20, 40))
        assert numbers(subscriber, 20) == list(range(20, 40))

        mesh.brokers["b"] = mesh.start("b")
        with mesh.join("b") as at_b:
            at_b.subscribe("t")
            wait_passing(mesh, "b", publisher, "t")
            publish_numbers(publisher, "t", range(40, 60))
            assert numbers(subscriber, 20) == list(range(40, 60))
            assert numbers(at_b, 20) == list(range(40, 60))
            expect_no_more(subscriber)


def test_brokers_log_in_with_a_password_over_tls(
    start_broker: StartBroker, certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("let me in\n")
    users = PasswordFile(tmp_path / "users")
    users.set("link-a", "let me in")
    users.save()
    [port] = free_ports(1)
    b = start_broker(
        f'node_name = "b"\n[security]\npassword_file = "{tmp_path}/users"\n'
        f"[[listeners]]\nport = {port}\nallow_anonymous = true\n[listeners.tls]\n"
        f'certificate = "{certificates.certificate}"\nkey = "{certificates.key}"\n'
        '[[neighbours]]\nname = "a"\naccept_user = "link-a"\n'
    )
    neighbour = (
        f'[[neighbours]]\nname = "b"\nhost = "127.0.0.1"\nport = {port}\nuser = "link-a"\n'
        f'password_file = "{tmp_path}/password"\n[neighbours.tls]\nca = "{certificates.ca}"\n'
    )

    a = start_broker(f'node_name = "a"\n[[listeners]]\nport = 0\n{neighbour}')

    a.wait_logged("link to 'b' is up")
    b.wait_logged("link to 'a' is up")
    b.wait_logged("broker 'a' connected as 'link-a'")
