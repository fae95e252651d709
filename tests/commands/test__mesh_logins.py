"""Logins of planned links: users, passwords and certificates of the files, tried without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from timebound.commands._mesh_logins import try_logins
from timebound.config.mesh_plan import MeshPlan
from timebound.node.config import open_config
from timebound.node.login.passwords import PasswordFile

A = 'node_name = "a"\n[data]\npath = "data-a"\n[[neighbours]]\nname = "b"\nhost = "127.0.0.1"\nport = 1884\n'
B = 'node_name = "b"\n{more}\n[[neighbours]]\nname = "a"\n{entry}[[listeners]]\nport = 1884\n{listener}'
LOCKED = '[security]\npassword_file = "users"'


def mistakes_of(
    folder: Path, caller: str = "", *, more: str = "", entry: str = "", listener: str = ""
) -> list[str]:
    """The mistakes of a link from a to b; `caller` ends a's table of it."""
    (folder / "a.toml").write_text(A + caller)
    (folder / "b.toml").write_text(B.format(more=more, entry=entry, listener=listener))
    readers = [(name, open_config(folder / name, is_persistent=False)) for name in ("a.toml", "b.toml")]
    assert [mistake for _, reader in readers for mistake in reader.mistakes] == []
    plan = MeshPlan(readers)
    assert len(plan.links) == 1
    try_logins(plan)
    return [
        str(mistake).replace(f"{folder}/", "").replace("a.toml:", "", 1).partition(": ")[2]
        for _, reader in readers
        for mistake in reader.mistakes
    ]


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A password file with the user `a`; hashing takes a tenth of a second."""
    file = PasswordFile(tmp_path_factory.mktemp("users") / "users")
    file.set("a", "open sesame")
    file.save()
    return file.path


@pytest.fixture
def folder(tmp_path: Path, users: Path) -> Path:
    """Files of both brokers: users, the right password and a wrong one."""
    (tmp_path / "users").write_bytes(users.read_bytes())
    (tmp_path / "right").write_text("open sesame\n")
    (tmp_path / "wrong").write_text("open barley\n")
    return tmp_path


def test_where_clients_need_no_name_brokers_need_none(tmp_path: Path) -> None:
    assert mistakes_of(tmp_path) == []
    assert mistakes_of(tmp_path, 'user = "anybody"\n') == []


def test_the_right_password_is_accepted_and_another_is_not(folder: Path) -> None:
    call = 'user = "a"\npassword_file = "{}"\n'

    right = mistakes_of(folder, call.format("right"), more=LOCKED)
    wrong = mistakes_of(folder, call.format("wrong"), more=LOCKED)

    assert right == []
    assert wrong == ["neighbours[0].password_file: is not the password of 'a' in 'users'"]


@pytest.mark.parametrize(
    ("caller", "entry", "mistake"),
    [
        ("", "", "neighbours[0].user: is not set, 'b' expects 'a' (`accept_user` there)"),
        ('user = "x"\n', "", "neighbours[0].user: is 'x', 'b' expects 'a' (`accept_user` there)"),
        ('user = "a"\n', 'accept_user = "x"\n', "neighbours[0].user: is 'a', 'b' expects 'x'"),
        (
            'user = "x"\n',
            'accept_user = "x"\n',
            "neighbours[0].user: 'x' is not in 'users'; `timebound passwd` adds it",
        ),
        ('user = "a"\n', "", "neighbours[0].user: is not the password of 'a' in 'users'"),
    ],
)
def test_a_wrong_user_is_noted(folder: Path, caller: str, entry: str, mistake: str) -> None:
    [found] = mistakes_of(folder, caller, more=LOCKED, entry=entry)

    assert found.startswith(mistake)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def write_tls(folder: Path, authority: trustme.CA, address: str = "127.0.0.1") -> None:
    """Write the certificates of b's listener, and of a as `a` and as `x`."""
    authority.cert_pem.write_to_path(folder / "ca")
    for name, certificate in (
        ("b", authority.issue_cert(address)),
        ("a", authority.issue_cert("a.example", common_name="a")),
        ("x", authority.issue_cert("x.example", common_name="x")),
    ):
        certificate.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        certificate.private_key_pem.write_to_path(folder / f"{name}.key")


TLS = '[neighbours.tls]\nca = "ca"\n'
DOOR = '[listeners.tls]\ncertificate = "b.pem"\nkey = "b.key"\n'
NAMED = DOOR + 'ca = "ca"\nrequire_client_certificate = true\nidentity = "common_name"\n'


def test_certificates_that_belong_together_are_right(tmp_path: Path, authority: trustme.CA) -> None:
    write_tls(tmp_path, authority)

    assert mistakes_of(tmp_path, TLS, listener=DOOR) == []
    own = TLS + 'certificate = "a.pem"\nkey = "a.key"\n'
    assert mistakes_of(tmp_path, own, listener=NAMED) == []


def test_a_certificate_of_another_authority_or_address_is_noted(
    tmp_path: Path, authority: trustme.CA
) -> None:
    write_tls(tmp_path, authority, "10.0.0.9")
    [address] = mistakes_of(tmp_path, TLS, listener=DOOR)
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca")
    [issuer] = mistakes_of(tmp_path, TLS, listener=DOOR)

    assert address.startswith("neighbours[0].tls: TLS with listeners[0] of b.toml fails: ")
    assert "127.0.0.1" in address
    assert "unable to get local issuer certificate" in issuer


def test_a_client_certificate_is_needed_where_it_is_required_and_names_the_user(
    tmp_path: Path, authority: trustme.CA
) -> None:
    write_tls(tmp_path, authority)

    [without] = mistakes_of(tmp_path, TLS, listener=NAMED)
    [other] = mistakes_of(tmp_path, TLS + 'certificate = "x.pem"\nkey = "x.key"\n', listener=NAMED)

    assert "peer did not return a certificate" in without
    assert other == "neighbours[0].tls: the certificate names user 'x', 'b' expects 'a' (`accept_user` there)"


def test_a_file_without_certificates_is_noted(tmp_path: Path, authority: trustme.CA) -> None:
    write_tls(tmp_path, authority)
    (tmp_path / "ca").write_text("no certificate\n")

    [mistake] = mistakes_of(tmp_path, TLS, listener=DOOR)

    assert mistake.startswith("neighbours[0].tls: neighbours: certificates for 'b' cannot be used: ")
