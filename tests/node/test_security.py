"""Who gets in, as whom, and what they may do: passwords, certificates, access rules, reload."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conftest import BrokerProcess, Certificates, ShareOver, StartBroker, StartOver
from tests.peer import Peer, join, props

from timebound.node.login.passwords import PasswordFile
from timebound.wire.packets import Ack, Connack, Connect, Publish, Will

BAD_PASSWORD = 0x86
NOT_AUTHORIZED = 0x87


def set_password(path: Path, user: str, password: str) -> None:
    file = PasswordFile.load(path) if path.exists() else PasswordFile(path)
    file.set(user, password)
    file.save()


def puback(peer: Peer, topic: str) -> Ack:
    peer.publish(topic, b"1", 1)
    return peer.expect(Ack)


# --- passwords ------------------------------------------------------------------------


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    set_password(path, "ann", "secret")
    return path


@pytest.fixture(scope="module")
def ann_and_bob(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two users for a broker that tests share."""
    path = tmp_path_factory.mktemp("known") / "users"
    set_password(path, "ann", "secret")
    set_password(path, "bob", "other")
    return path


def test_only_the_right_password_opens(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(
        f'[security]\npassword_file = "{users}"\n[[listeners]]\nport = 0\nallow_anonymous = false\n'
    )
    table: list[tuple[str | None, bytes | None, int]] = [
        ("ann", b"Secret", BAD_PASSWORD),
        ("ann", b"secret", 0),
        ("ann", b"secret2", BAD_PASSWORD),
        ("ann", None, BAD_PASSWORD),
        ("bob", b"secret", BAD_PASSWORD),
        ("", b"secret", BAD_PASSWORD),
        (None, None, NOT_AUTHORIZED),
        (None, b"secret", NOT_AUTHORIZED),
    ]
    for username, password, code in table:
        with Peer(broker.port) as peer:
            assert peer.connect("c", username=username, password=password).reason_code == code
            if code:
                assert peer.receive() is None
    for username, password, code in (table[0], table[1], table[-2]):
        with Peer(broker.port, 4) as old:
            assert old.connect("c", username=username, password=password).reason_code == code
    assert "secret" not in broker.log().lower()


def test_packets_sent_before_the_password_is_checked_wait_for_it(
    share_over: ShareOver, ann_and_bob: Path
) -> None:
    broker = share_over(f'[security]\npassword_file = "{ann_and_bob}"\n')
    with join(broker.port) as watcher, Peer(broker.port) as right, Peer(broker.port) as wrong:
        watcher.subscribe("#")
        for peer, password in ((right, b"secret"), (wrong, b"guess")):
            connect = Connect(password.decode(), username="ann", password=password)
            peer.send(connect, Publish(f"from/{password.decode()}", b"1"))

        assert right.expect(Connack).reason_code == 0
        assert wrong.expect(Connack).reason_code == BAD_PASSWORD
        watcher.expect_publish("from/secret", b"1")
        watcher.expect_silence()


def test_changed_password_file_counts_without_a_restart(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(f'[security]\npassword_file = "{users}"\n')
    with Peer(broker.port) as peer:
        assert peer.connect("c", username="bob", password=b"later").reason_code == BAD_PASSWORD
    set_password(users, "bob", "later")
    with Peer(broker.port) as peer:
        assert peer.connect("c", username="bob", password=b"later").reason_code == 0


def test_removed_user_is_locked_out_even_if_remembered(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(f'[security]\npassword_file = "{users}"\n')
    join(broker.port, "c", username="ann", password=b"secret").close()
    file = PasswordFile.load(users)
    file.remove("ann")
    file.save()
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_logged("reloaded access rules")
    with Peer(broker.port) as peer:
        assert peer.connect("c", username="ann", password=b"secret").reason_code == BAD_PASSWORD


def test_broken_password_file_keeps_the_users_known_before(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker(f'[security]\npassword_file = "{users}"\n')
    users.write_text("this is no password file\n")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_logged("the previous access rules and certificates stay")
    with Peer(broker.port) as peer:
        assert peer.connect("c", username="ann", password=b"secret").reason_code == 0


# --- anonymous clients ----------------------------------------------------------------


def test_anonymous_clients_get_in_only_on_loopback_unless_configured(
    start_broker: StartBroker, users: Path
) -> None:
    listeners = [
        "",
        "allow_anonymous = false",
        'host = "0.0.0.0"',
        'host = "0.0.0.0"\nallow_anonymous = true',
    ]
    text = "".join(f"[[listeners]]\nport = 0\n{listener}\n" for listener in listeners)
    broker = start_broker(f'{text}[security]\npassword_file = "{users}"\n')
    codes = []
    for url in broker.urls:
        port = int(url.rpartition(":")[2])
        with Peer(port) as peer, Peer(port) as named:
            codes.append(peer.connect("c").reason_code)
            assert named.connect("d", username="ann", password=b"guess").reason_code == BAD_PASSWORD

    assert codes == [0, NOT_AUTHORIZED, NOT_AUTHORIZED, 0]


def test_listener_at_which_nobody_could_log_in_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "timebound.toml"
    config.write_text('[[listeners]]\nhost = "0.0.0.0"\nport = 0\n')
    command = [sys.executable, "-m", "timebound", "serve", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert ended.returncode == 2
    assert "nobody could log in" in ended.stderr


def test_unproven_name_gives_no_rights(start_broker: StartBroker) -> None:
    broker = start_broker('[[acl]]\nuser = "ann"\nfilter = "#"\n')
    with join(broker.port, username="ann", password=b"guess") as peer:
        assert puback(peer, "a").reason_code == NOT_AUTHORIZED


# --- access rules ---------------------------------------------------------------------

RULES = """\
allow user ann        all        plant/#
deny  anyone          all        plant/secret/#
allow anonymous       subscribe  public/#
allow anyone          all        devices/%u/%c/#
"""


@pytest.fixture
def guarded(start_broker: StartBroker, users: Path, tmp_path: Path) -> BrokerProcess:
    (tmp_path / "rules.acl").write_text(RULES)
    return start_broker(f'[security]\npassword_file = "{users}"\nacl_file = "{tmp_path / "rules.acl"}"\n')


def test_rules_decide_by_user_and_client_id(guarded: BrokerProcess) -> None:
    with (
        join(guarded.port, "c1", username="ann", password=b"secret") as ann,
        join(guarded.port, "c2") as nobody,
    ):
        assert puback(ann, "plant/a").reason_code == 0x10
        assert puback(ann, "devices/ann/c1/x").reason_code == 0x10
        assert puback(ann, "devices/ann/c2/x").reason_code == NOT_AUTHORIZED
        assert puback(ann, "devices/bob/c1/x").reason_code == NOT_AUTHORIZED
        assert puback(ann, "elsewhere").reason_code == NOT_AUTHORIZED
        assert ann.subscribe("plant/#", "#", "devices/ann/c1/#", "devices/+/c1/#", "$SYS/#").reason_codes == [
            0,
            NOT_AUTHORIZED,
            0,
            NOT_AUTHORIZED,
            0,
        ]
        assert puback(nobody, "public/a").reason_code == NOT_AUTHORIZED
        assert puback(nobody, "devices//c2/x").reason_code == NOT_AUTHORIZED
        codes = nobody.subscribe("public/+", "plant/a", "$share/g/plant/#", "$share/g/public/#").reason_codes
        assert codes == [0, NOT_AUTHORIZED, NOT_AUTHORIZED, 0]


def test_refusals_say_what_was_not_allowed(guarded: BrokerProcess) -> None:
    with join(guarded.port, "c2") as peer:
        assert "not_authorized: publishing to 'plant/a'" in puback(peer, "plant/a").reason_string
        reason = peer.subscribe("plant/#").properties.reason_string or ""
        assert "not_authorized: subscribing to 'plant/#'" in reason
        peer.publish("plant/a", b"1", 2)
        assert peer.expect(Ack).reason_code == NOT_AUTHORIZED
        peer.publish("plant/a", b"1", 0)  # QoS 0 has no answer: it is dropped and counted
        peer.expect_silence()
    with Peer(guarded.port) as peer:
        refused = peer.connect("c3", will=Will("plant/a", b""))
        assert refused.reason_code == NOT_AUTHORIZED
        assert "will" in (refused.properties.reason_string or "")


def test_client_ids_cannot_widen_their_rule(start_broker: StartBroker) -> None:
    broker = start_broker('[[acl]]\nuser = "*"\nfilter = "devices/%c/#"\n')
    for client_id in ("+", "#", "a/b", "c1/../c2"):
        with join(broker.port, client_id) as peer:
            codes = peer.subscribe("devices/#", "devices/c2/x", "devices/a/b/c").reason_codes
            assert codes == [NOT_AUTHORIZED] * 3
            assert puback(peer, "devices/c2/x").reason_code == NOT_AUTHORIZED


def test_reload_applies_new_rules_to_connected_clients(guarded: BrokerProcess, tmp_path: Path) -> None:
    with join(guarded.port, "c2") as peer:
        assert puback(peer, "public/a").reason_code == NOT_AUTHORIZED
        (tmp_path / "rules.acl").write_text("allow anonymous all public/#\n")
        guarded.process.send_signal(signal.SIGHUP)
        guarded.wait_logged("reloaded access rules")
        assert puback(peer, "public/a").reason_code == 0x10


def test_reload_of_wrong_rules_keeps_the_old_ones(guarded: BrokerProcess, tmp_path: Path) -> None:
    with join(guarded.port, "c2") as peer:
        (tmp_path / "rules.acl").write_text("allow everybody everything\n")
        guarded.process.send_signal(signal.SIGHUP)
        guarded.wait_logged("the previous access rules and certificates stay")
        assert puback(peer, "public/a").reason_code == NOT_AUTHORIZED
        assert peer.subscribe("public/#").reason_codes == [0]


def test_nobody_publishes_to_the_brokers_topics(broker: BrokerProcess) -> None:
    with join(broker.port) as peer:
        for topic in ("$SYS/broker/version", "$share/g/a", "$other"):
            assert puback(peer, topic).reason_code == NOT_AUTHORIZED


OWN_TOPICS = [
    f"$timebound/{end}" for end in ("drops/a", "missed/a", "watchdog", "every", "mesh/news", "trace")
]
OWN_TOPICS += ["$timebound", "$SYS/broker/version"]


def test_no_rule_lets_anybody_speak_for_the_broker(share_over: ShareOver) -> None:
    allow = "".join(
        f'[[acl]]\nuser = "*"\nfilter = "{topic_filter}"\n'
        for topic_filter in ("#", "$timebound/#", "$SYS/#")
    )
    broker = share_over(allow)
    with join(broker.port) as watcher, join(broker.port) as forger:
        watcher.subscribe("$timebound/#")
        for topic in OWN_TOPICS:
            assert puback(forger, topic).reason_code in (0x90, NOT_AUTHORIZED), topic
        for topic in (*OWN_TOPICS, "$timebound/control/strategy", "$timebound/link/x"):
            for version in (5, 4):
                with Peer(broker.port, version) as peer:
                    refused = peer.connect("w", will=Will(topic, b"forged"))
                    assert refused.reason_code == NOT_AUTHORIZED, topic
                    if version == 5:
                        reason = f"not_authorized: will: {topic!r} is a topic of the broker's own"
                        assert refused.properties.reason_string == reason
        watcher.expect_silence()


# --- sessions belong to users ---------------------------------------------------------


def connect_as_bob(port: int, client_id: str, version: int, *, clean: bool) -> Connack:
    with Peer(port, version) as bob:
        connack = bob.connect(client_id, clean=clean, username="bob", password=b"other")
        if connack.reason_code:
            assert bob.receive() is None
        return connack


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("version", [5, 4])
def test_a_stranger_with_a_known_client_id_is_refused_and_changes_nothing(
    share_over: ShareOver, ann_and_bob: Path, scheme: str, clean: bool, version: int
) -> None:
    broker = share_over(f'[security]\npassword_file = "{ann_and_bob}"\n')
    client_id = f"{scheme}-{version}-{clean}"
    topic = f"private/{client_id}"
    expiry = props(session_expiry_interval=60)
    ann_terms = {"username": "ann", "password": b"secret", "properties": expiry}
    with join(broker.port, client_id, **ann_terms) as ann:
        ann.subscribe(topic, qos=1)

        connack = connect_as_bob(broker.port, client_id, version, clean=clean)

        assert connack.reason_code == NOT_AUTHORIZED
        if version == 5:
            assert "belongs to another user" in (connack.properties.reason_string or "")
        ann.expect_silence()  # still connected
    broker.wait_logged(f"{client_id!r} belongs to another user")
    with join(broker.port) as publisher:
        assert puback(publisher, topic).reason_code == 0

    # Also while the owner is away, and for clients without a name.
    assert connect_as_bob(broker.port, client_id, version, clean=clean).reason_code == NOT_AUTHORIZED
    with Peer(broker.port, version) as nobody:
        assert nobody.connect(client_id, clean=clean).reason_code == NOT_AUTHORIZED

    with Peer(broker.port) as ann:
        assert ann.connect(client_id, clean=False, **ann_terms).session_present
        ann.expect_publish(topic, b"1")


def test_a_user_takes_over_its_own_client_id(share_over: ShareOver, ann_and_bob: Path) -> None:
    broker = share_over(f'[security]\npassword_file = "{ann_and_bob}"\n')
    with join(broker.port, "c", username="ann", password=b"secret") as first:
        join(broker.port, "c", username="ann", password=b"secret").close()
        first.expect_disconnect(0x8E)
    with join(broker.port, "nobody") as first:
        join(broker.port, "nobody").close()
        first.expect_disconnect(0x8E)


def test_another_user_does_not_inherit_a_session_it_may_end(
    share_over: ShareOver, ann_and_bob: Path, scheme: str
) -> None:
    security = f'[security]\npassword_file = "{ann_and_bob}"\ntake_over_from_others = true\n'
    broker = share_over(security)
    topic = f"private/{scheme}"
    expiry = props(session_expiry_interval=60)
    with join(broker.port, scheme, username="ann", password=b"secret", properties=expiry) as ann:
        ann.subscribe(topic, qos=1)
    with join(broker.port) as publisher:
        assert puback(publisher, topic).reason_code == 0
    with Peer(broker.port) as bob:
        connack = bob.connect(scheme, clean=False, username="bob", password=b"other", properties=expiry)
        assert (connack.reason_code, connack.session_present) == (0, False)
        bob.expect_silence()
    with join(broker.port) as publisher:
        assert puback(publisher, topic).reason_code == 0x10


# --- wills ----------------------------------------------------------------------------


def test_a_will_needs_its_right_when_it_is_published(
    start_over: StartOver, users: Path, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.acl"
    rules.write_text("allow user ann publish plant/#\nallow anonymous subscribe #\n")
    guarded = start_over(f'[security]\npassword_file = "{users}"\nacl_file = "{rules}"\n')
    terms = {"username": "ann", "password": b"secret"}
    with join(guarded.port) as watcher:
        watcher.subscribe("plant/#")
        lost = join(guarded.port, "lost", will=Will("plant/lost", b"gone", 1, True), **terms)
        rules.write_text("allow user ann publish plant/kept\nallow anonymous subscribe #\n")
        guarded.process.send_signal(signal.SIGHUP)
        guarded.wait_logged("reloaded access rules")
        kept = join(guarded.port, "kept", will=Will("plant/kept", b"gone"), **terms)

        lost.close()
        guarded.wait_logged("will of client 'lost' is not published: publishing to 'plant/lost'")
        kept.close()

        watcher.expect_publish("plant/kept", b"gone")
    with join(guarded.port) as later:
        later.subscribe("plant/#")
        later.expect_silence()  # nothing was retained either


# --- certificates ---------------------------------------------------------------------

TLS = """\
[[listeners]]
port = 0
{listener}
[listeners.tls]
certificate = "{certificates.certificate}"
key = "{certificates.key}"
{tls}
"""


def trusting(certificates: Certificates, *client: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if client:
        context.load_cert_chain(*client)
    return context


def test_tls_listener_serves_and_proves_itself(start_broker: StartBroker, certificates: Certificates) -> None:
    broker = start_broker(TLS.format(certificates=certificates, listener="", tls=""))
    with Peer(broker.port_of("mqtts:"), tls=trusting(certificates)) as peer:
        assert peer.connect().reason_code == 0
        peer.subscribe("tls/#", qos=1)
        peer.publish("tls/a", b"x" * 200_000, 0)
        assert len(peer.expect(Publish).payload) == 200_000
    with pytest.raises(ssl.SSLCertVerificationError):
        Peer(broker.port, tls=ssl.create_default_context())


def test_certificate_names_the_user(start_broker: StartBroker, certificates: Certificates) -> None:
    rules = '[[acl]]\nuser = "device-7"\nfilter = "devices/%u/#"\n'
    tls = f'ca = "{certificates.ca}"\nidentity = "common_name"\nrequire_client_certificate = true\n'
    broker = start_broker(
        TLS.format(certificates=certificates, listener="allow_anonymous = false", tls=tls) + rules
    )
    client = certificates.issue("device-7.example", common_name="device-7")
    with Peer(broker.port, tls=trusting(certificates, *client)) as peer:
        # The certificate decides, whatever name is given.
        assert peer.connect("d", username="admin", password=b"x").reason_code == 0
        assert puback(peer, "devices/device-7/temp").reason_code == 0x10
        assert puback(peer, "devices/device-8/temp").reason_code == NOT_AUTHORIZED


def test_client_without_the_required_certificate_is_turned_away(
    start_broker: StartBroker, certificates: Certificates, tmp_path: Path
) -> None:
    tls = f'ca = "{certificates.ca}"\nrequire_client_certificate = true\n'
    broker = start_broker(TLS.format(certificates=certificates, listener="", tls=tls))
    (tmp_path / "strangers").mkdir()
    stranger = Certificates(tmp_path / "strangers").issue("device-7.example", common_name="device-7")
    for client in ((), stranger):
        # In TLS 1.3 the refusal comes after the handshake, with the first read.
        with (
            pytest.raises((ssl.SSLError, ConnectionError, AssertionError)),
            Peer(broker.port, tls=trusting(certificates, *client)) as peer,
        ):
            peer.connect()


def test_optional_certificate_leaves_passwords_to_the_others(
    start_broker: StartBroker, certificates: Certificates, users: Path
) -> None:
    tls = f'ca = "{certificates.ca}"\nidentity = "common_name"\n'
    text = TLS.format(certificates=certificates, listener="allow_anonymous = false", tls=tls)
    broker = start_broker(f'{text}\n[security]\npassword_file = "{users}"\n')
    with Peer(broker.port, tls=trusting(certificates)) as peer:
        assert peer.connect("a").reason_code == NOT_AUTHORIZED
    with Peer(broker.port, tls=trusting(certificates)) as peer:
        assert peer.connect("b", username="ann", password=b"secret").reason_code == 0


def test_reload_takes_a_new_server_certificate(
    start_broker: StartBroker, certificates: Certificates, tmp_path: Path
) -> None:
    chain, key = tmp_path / "server.pem", tmp_path / "server.key"
    text = f'[[listeners]]\nport = 0\n[listeners.tls]\ncertificate = "{chain}"\nkey = "{key}"\n'
    serials = []
    broker: BrokerProcess | None = None
    for number in range(2):
        new_chain, new_key = certificates.issue("127.0.0.1", common_name=f"server-{number}")
        chain.write_bytes(new_chain.read_bytes())
        key.write_bytes(new_key.read_bytes())
        if broker is None:
            broker = start_broker(text)
        else:
            broker.process.send_signal(signal.SIGHUP)
            broker.wait_logged("reloaded access rules")
        with Peer(broker.port, tls=trusting(certificates)) as peer:
            assert isinstance(peer.socket, ssl.SSLSocket)
            serials.append((peer.socket.getpeercert() or {})["serialNumber"])

    assert len(set(serials)) == 2


def test_silent_tls_handshake_is_ended_in_time(start_broker: StartBroker, certificates: Certificates) -> None:
    text = TLS.format(certificates=certificates, listener="", tls="")
    broker = start_broker(f'{text}\n[limits]\nconnect_timeout = "1s"\n')
    began = time.monotonic()
    with Peer(broker.port) as silent:
        assert silent.expect_closed() == []
    assert time.monotonic() - began < 5


def test_data_directory_and_password_file_are_private(start_broker: StartBroker, users: Path) -> None:
    broker = start_broker()
    join(broker.port, "c", properties=props(session_expiry_interval=60)).close()

    assert users.stat().st_mode & 0o077 == 0
    for found in (broker.data, *broker.data.iterdir()):
        mode = found.stat().st_mode & 0o777
        assert os.access(found, os.R_OK)
        assert mode & 0o002 == 0, f"{found} is writable by everybody"
