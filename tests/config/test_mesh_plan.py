"""The plan of a mesh: what cannot work is noted at its key, all at once; what is only odd is a notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.config.mesh_plan import MeshPlan
from timebound.config.reader import ConfigReader

LISTENERS = {"a": "port = 1883", "b": "port = 1884", "c": "port = 1885", "d": "port = 1886"}


def broker(name: str, neighbours: str = "", *, listener: str = "", more: str = "") -> str:
    """A file; `neighbours` is like `b c>1885`: names, with the port of those that this broker calls."""
    text = f'node_name = "{name}"\n{more}\n[data]\npath = "data-{name}"\n'
    text += f"[[listeners]]\n{listener or LISTENERS[name]}\n"
    for word in neighbours.split():
        peer, _, port = word.partition(">")
        text += f'[[neighbours]]\nname = "{peer}"\n'
        text += f'host = "127.0.0.1"\nport = {port}\n' if port else ""
    return text


def plan_of(*texts: str, is_complete: bool = True) -> tuple[MeshPlan, list[str]]:
    """The plan of files 0.toml, 1.toml, …, and the mistakes noted in them."""
    readers = [
        (f"{number}.toml", ConfigReader(text, Path(f"{number}.toml"))) for number, text in enumerate(texts)
    ]
    assert [str(mistake) for _, reader in readers for mistake in reader.mistakes] == []
    plan = MeshPlan(readers, is_complete=is_complete)
    return plan, [str(mistake) for _, reader in readers for mistake in reader.mistakes]


def mistakes_of(*texts: str) -> list[str]:
    return plan_of(*texts)[1]


def notices_of(*texts: str) -> list[str]:
    plan, mistakes = plan_of(*texts)
    assert mistakes == []
    return [str(notice) for notice in plan.notices]


def test_old_names_of_keys_are_noticed_as_in_a_check_of_one_file() -> None:
    old = broker("a", "b>1884").replace("[[neighbours]]", "[[neighbour]]")

    assert notices_of(old, broker("b", "a")) == [
        "0.toml:7: neighbour: is now called 'neighbours'; the old name is still read"
    ]


def test_a_mesh_that_works_has_neither_mistakes_nor_notices() -> None:
    plan, mistakes = plan_of(broker("a", "b>1884 c"), broker("b", "a"), broker("c", "a>1883"))

    assert (mistakes, plan.notices) == ([], [])
    assert plan.pairs() == [("a", "b"), ("a", "c")]
    assert [(link.caller.name, link.answerer.name, link.listener.port) for link in plan.links] == [
        ("a", "b", 1884),
        ("c", "a", 1883),
    ]


def test_a_single_broker_is_a_mesh() -> None:
    assert mistakes_of(broker("a")) == []


def test_a_name_that_two_brokers_have_is_noted_with_both_files() -> None:
    [mistake] = mistakes_of(broker("a"), broker("a", listener="port = 1890"))

    assert mistake == "1.toml:1: node_name: 'a' is also the node_name of 0.toml; every broker needs its own"


def test_a_neighbour_that_no_file_describes_is_noted_with_the_name_that_was_meant() -> None:
    by_address = broker("a", "x>1884"), broker("b", "a")
    by_spelling = broker("a", "b"), broker("b", "a>1883", more="# b").replace('"b"', '"plant"')

    assert (
        "neighbours[0].name: no file given has node_name 'x'; did you mean 'b'?"
        in mistakes_of(*by_address)[0]
    )
    assert "; check the files of all brokers together" in mistakes_of(*by_spelling)[0]
    assert "did you mean 'plant'?" in mistakes_of(by_spelling[0].replace('"b"', '"plan"'), by_spelling[1])[0]


def test_of_a_file_that_is_missing_nothing_is_guessed() -> None:
    _, mistakes = plan_of(broker("a", "b>1884"), broker("c", "b>1884"), is_complete=False)

    assert mistakes == []


def test_of_a_file_that_is_no_toml_nothing_is_guessed() -> None:
    wrong = ConfigReader("node_name = ", Path("b.toml"))
    right = ConfigReader(broker("a", "b>1884"), Path("a.toml"))

    plan = MeshPlan([("b.toml", wrong), ("a.toml", right)])

    assert list(plan.brokers) == ["a"]
    assert right.mistakes == []


def test_a_neighbour_that_does_not_list_the_broker_would_refuse_it() -> None:
    assert mistakes_of(broker("a", "b>1884"), broker("b")) == [
        "0.toml:8: neighbours[0].name: 'b' does not list 'a'; add [[neighbours]] with that name to 1.toml"
    ]


def test_a_link_that_neither_side_opens_is_noted_once() -> None:
    assert mistakes_of(broker("a", "b"), broker("b", "a")) == [
        "0.toml:7: neighbours[0].host: neither side opens the link to 'b': set `host` here or in 1.toml"
    ]


def test_a_link_that_both_sides_open_is_a_notice() -> None:
    assert notices_of(broker("a", "b>1884"), broker("b", "a>1883")) == [
        "1.toml:9: neighbours[0].host: both sides open this link, and that of 'a' stays; "
        "`host` here is not needed"
    ]


@pytest.mark.parametrize(
    ("listener", "host", "port"),
    [
        ("port = 1884", "127.0.0.1", 1885),
        ("port = 1884", "127.0.0.2", 1884),
        ("port = 1884", "10.0.0.2", 1884),
        ("port = 1884", "b.example", 1884),  # a name that others know
        ("port = 0", "127.0.0.1", 1883),
        ("host = '10.0.0.2'\nport = 1884\nallow_anonymous = true", "10.0.0.3", 1884),
        ("host = '0.0.0.0'\nport = 1884\nallow_anonymous = true", "fe80::1", 1884),
        ("host = '::'\nport = 1884\nallow_anonymous = true", "10.0.0.3", 1884),
    ],
)
def test_an_address_that_no_listener_answers_is_noted(listener: str, host: str, port: int) -> None:
    caller = broker("a", f"b>{port}").replace("127.0.0.1", host)

    plan, mistakes = plan_of(caller, broker("b", "a", listener=listener))

    [mistake] = mistakes
    assert mistake.startswith("0.toml:10: neighbours[0].port: ")
    assert "is no listener of 'b', which listens at " in mistake
    assert plan.links == []


@pytest.mark.parametrize(
    ("listener", "host"),
    [
        ("port = 1884", "localhost"),
        ("host = '10.0.0.2'\nport = 1884\nallow_anonymous = true", "10.0.0.2"),
        ("host = '0.0.0.0'\nport = 1884\nallow_anonymous = true", "10.0.0.2"),
        ("host = '10.0.0.2'\nport = 1884\nallow_anonymous = true", "b.example"),
        ("host = '::'\nport = 1884\nallow_anonymous = true", "b.example"),
        ("host = '::'\nport = 1884\nallow_anonymous = true", "fe80::1"),
        ("port = 1880\n[[listeners]]\nport = 1884", "127.0.0.1"),
    ],
)
def test_an_address_that_may_lead_to_a_listener_is_right(listener: str, host: str) -> None:
    caller = broker("a", "b>1884").replace("127.0.0.1", host)

    plan, mistakes = plan_of(caller, broker("b", "a", listener=listener))

    assert mistakes == []
    assert [link.listener.port for link in plan.links] == [1884]


def test_a_listener_for_browsers_takes_no_links() -> None:
    [mistake] = mistakes_of(
        broker("a", "b>1884"), broker("b", "a", listener="port = 1884\nkind = 'websocket'")
    )

    assert "listeners[0] of 1.toml is for WebSocket; links need a listener of kind tcp" in mistake


def test_both_ends_of_a_link_are_encrypted_or_neither() -> None:
    tls = "[neighbours.tls]\nca = 'ca.pem'\n"
    door = "port = 1884\n[listeners.tls]\ncertificate = 'c'\nkey = 'k'"

    [without] = mistakes_of(broker("a", "b>1884"), broker("b", "a", listener=door))
    [with_it] = mistakes_of(broker("a", "b>1884") + tls, broker("b", "a"))

    assert "neighbours[0].tls: listeners[0] of 1.toml requires TLS; add [neighbours.tls]" in without
    assert "neighbours[0].tls: listeners[0] of 1.toml has no TLS" in with_it


def test_brokers_without_a_way_between_them_are_two_meshes() -> None:
    [mistake] = mistakes_of(broker("a", "b>1884"), broker("b", "a"), broker("c", "d>1886"), broker("d", "c"))

    assert mistake == ("2.toml:7: neighbours: no links lead from 'c', 'd' to 'a', 'b': these are two meshes")


def test_brokers_on_one_machine_need_ports_and_folders_of_their_own() -> None:
    second = broker("b", "a", listener="port = 1884\n[[listeners]]\nport = 1883").replace("data-b", "data-a")

    mistakes = mistakes_of(broker("a", "b>1884"), second)

    assert mistakes == [
        "1.toml:8: listeners[1].port: 127.0.0.1:1883 is used by listener 0 of 0.toml on the same machine",
        "1.toml:4: data.path: 'data-a' is also the data folder of 0.toml, on the same machine",
    ]


def test_brokers_on_several_machines_may_use_the_same_ports_and_folders() -> None:
    listener = "host = '0.0.0.0'\nport = 1883\nallow_anonymous = true"
    first = broker("a", "b>1883", listener=listener).replace('"127.0.0.1"', '"10.0.0.2"')
    second = broker("b", "a", listener=listener).replace("data-b", "data-a")

    assert mistakes_of(first, second) == []


def test_settings_that_differ_where_they_decide_together_are_notices() -> None:
    odd = "[mesh]\nrouting = 'single-path'\nepsilon = 0.2\n[limits]\npacket_size_max = '64KiB'\n"
    odd_link = broker("b", "a>1883") + "strategy = 'fifo'\n"

    found = notices_of(broker("a", "b c>1885"), odd_link, broker("c", "a", more=odd))

    assert found == [
        "2.toml:3: mesh.routing: is 'single-path' here and 'late' at 'a': "
        "the brokers of one path would choose its links by different rules",
        "2.toml:4: mesh.epsilon: is 0.2 here and 0.1 at 'a': "
        "what one broker sends on, the next one drops as hopeless",
        "2.toml:6: limits.packet_size_max: is 65536 here and 1048576 at 'a': "
        "larger messages of other brokers end on their way",
        "1.toml:11: neighbours[0].strategy: this link orders messages by 'fifo', others by 'worth'",
    ]
