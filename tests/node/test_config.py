"""The files that a configuration names, and the file itself: readable, fitting, in order."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from tests.config.doubles import mistakes_of

from timebound.errors import ConfigError
from timebound.node.config import (
    default_config,
    load_access_list,
    load_config,
    parse_config,
    read_config,
)


def test_every_wrong_line_of_a_password_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("anna\n# fine\nbert:hash\n")

    found = mistakes_of('[security]\npassword_file = "users"\n', tmp_path)

    assert [mistake.split(": ")[0] for mistake in found] == ["users:1", "users:3"]


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    found = mistakes_of('[data]\npath = "file/data"\n[trace]\nenabled = true\npath = "file"\n', tmp_path)

    assert found == [
        "t.toml:2: data.path: 'file/data' cannot be made: 'file' is not a writable folder",
        "t.toml:5: trace.path: 'file' is not a writable folder",
    ]


def test_load_raises_the_first_mistake_with_its_attributes(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("[log]\nlevel = 1\nformat = 2\n")

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    assert (caught.value.path, caught.value.line, caught.value.key) == (str(path), 2, "log.level")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a = 1\nb = '\xff'", "t.toml:2: is not UTF-8 text: byte 0xff"),
        (b"#" * 5_000_000, "t.toml: is larger than 4194304 bytes; is it the right file?"),
        (b"x = " + b"[" * 5_000, "t.toml:1: values are nested too deeply"),
    ],
    ids=["not UTF-8", "too large", "too deep"],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(content)

    assert [str(mistake).replace(f"{tmp_path}/", "") for mistake in read_config(path)[1]] == [expected]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    _, (mistake,) = read_config(tmp_path / "none.toml")

    assert str(mistake) == f"{tmp_path}/none.toml: cannot be read: no such file or directory"


def test_a_byte_order_mark_and_dos_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(b"\xef\xbb\xbfnode_name = 'a'\r\n\r\nsys_interval = 3\r\n")

    assert [mistake.line for mistake in read_config(path)[1]] == [3]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    server = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    server.cert_chain_pems[0].write_to_path(folder / "server.pem")
    server.private_key_pem.write_to_path(folder / "server.key")
    authority.issue_cert("other.example").private_key_pem.write_to_path(folder / "other.key")
    return folder


def tls_text(certificates: Path, **files: str) -> str:
    lines = [f"tls.{key} = '{certificates / name}'" for key, name in files.items()]
    return "\n".join(["[[listeners]]", *lines])


def test_tls_files_that_fit_are_accepted(certificates: Path, tmp_path: Path) -> None:
    text = tls_text(certificates, certificate="server.pem", key="server.key", ca="ca.pem")

    assert mistakes_of(text, tmp_path) == []


def test_tls_files_that_are_missing_are_named(certificates: Path, tmp_path: Path) -> None:
    text = tls_text(certificates, certificate="none.pem", key="server.key", ca="none.ca")

    assert mistakes_of(text, tmp_path) == [
        f"t.toml:2: listeners[0].tls.certificate: '{certificates}/none.pem' is not a file; "
        "expected a PEM file",
        f"t.toml:4: listeners[0].tls.ca: '{certificates}/none.ca' is not a file; expected a PEM file",
    ]


def test_a_key_of_another_certificate_is_refused(certificates: Path, tmp_path: Path) -> None:
    text = tls_text(certificates, certificate="server.pem", key="other.key", ca="other.key")

    first, second = mistakes_of(text, tmp_path)

    assert first.startswith(
        "t.toml:2: listeners[0].tls.certificate: certificate and key cannot be used together"
    )
    assert second.startswith("t.toml:4: listeners[0].tls.ca: has no certificates in PEM")


def test_the_accepted_files_make_a_server_context(certificates: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(tls_text(certificates, certificate="server.pem", key="server.key"))

    tls = load_config(path).listeners[0].tls

    assert tls is not None
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)


def test_password_and_acl_mistakes_have_their_own_lines(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("# nobody\nann\n")
    (tmp_path / "rules").write_text("allow anyone all #\nallow\n\nallow anyone fly #\n")
    text = "[security]\npassword_file = 'users'\nacl_file = 'rules'\n"

    assert mistakes_of(text, tmp_path) == [
        "rules:2: expected 'user NAME', 'anyone' or 'anonymous', found ''",
        "rules:4: expected 'publish', 'subscribe' or 'all', found 'fly'",
        "users:2: line is not 'name:hash'; make it with `timebound passwd`",
    ]


def test_missing_password_and_acl_files_are_named_where_they_are_configured(tmp_path: Path) -> None:
    text = "[security]\npassword_file = 'users'\nacl_file = 'rules'\n"

    assert mistakes_of(text, tmp_path) == [
        "t.toml:2: security.password_file: users: cannot be read: no such file or directory",
        "t.toml:3: security.acl_file: rules: cannot be read: no such file or directory",
    ]


def test_rules_in_both_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("allow anyone all #\n")
    text = "[security]\nacl_file = 'rules'\n[[acl]]\nuser = '*'\nfilter = '#'\n"

    assert mistakes_of(text, tmp_path) == [
        "t.toml:2: security.acl_file: cannot be used together with [[acl]]; "
        "the order of rules would be unclear"
    ]


def test_rules_for_anonymous_are_refused_once_they_have_a_name(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("allow anonymous all #\n")
    text = "[security]\nacl_file = 'rules'\nanonymous_user = 'guest'\n"

    (mistake,) = mistakes_of(text, tmp_path)

    assert "rules: has rules for 'anonymous', but anonymous_user calls these clients 'guest'" in mistake


def test_a_file_in_place_of_the_data_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    assert mistakes_of("[data]\n", tmp_path) == ["t.toml:1: data.path: 'data' is not a writable folder"]


def test_the_access_list_comes_from_the_tables_or_the_file(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("allow user ann publish a\n")
    inline = parse_config("[[acl]]\nuser = 'bob'\nfilter = 'b'\n", tmp_path / "t.toml")
    from_file = parse_config("[security]\nacl_file = 'rules'\n", tmp_path / "t.toml")

    assert load_access_list(inline.security).may_publish("bob", "c", "b")
    assert not load_access_list(inline.security).may_publish("ann", "c", "a")
    assert load_access_list(from_file.security).may_publish("ann", "c", "a")
    assert load_access_list(default_config().security).may_publish("", "c", "x")

    (tmp_path / "rules").write_text("nonsense\n")
    with pytest.raises(ConfigError, match="rules:1: "):
        load_access_list(from_file.security)
