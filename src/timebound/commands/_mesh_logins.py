"""Logins of planned links, tried with the files that the configurations name, without a network.

Certificates are tried by a TLS handshake in memory, passwords by the file that the other broker would read.
What cannot be read at all has been noted with the configuration that names it.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import Final

from timebound.config.mesh_plan import MeshPlan, PlannedLink
from timebound.errors import ConfigError
from timebound.node.login.certificates import common_name
from timebound.node.login.passwords import PasswordFile
from timebound.node.mesh.dial import client_context, read_password
from timebound.node.server import server_context

# Flights of a TLS handshake, at most; TLS 1.2 has four.
FLIGHTS_MAX: Final = 8


def try_logins(plan: MeshPlan) -> None:
    """Note for every planned link why the broker that opens it could not log in."""
    files: dict[str, PasswordFile | None] = {}
    for link in plan.links:
        with contextlib.suppress(ConfigError):  # a file that cannot be used is noted already
            certificate_user = _try_tls(link)
            if certificate_user is not None:
                _try_user(link, certificate_user, files)


def _try_tls(link: PlannedLink) -> str | None:
    """Return the user whom a certificate names, empty if none does; None if TLS fails."""
    tls = link.listener.tls
    if tls is None:
        return ""
    server_side = server_context(tls, "tls")
    try:
        client_side = client_context(link.entry)
    except ConfigError as error:
        link.note("tls", str(error))
        return None
    assert client_side is not None, "a link without TLS to a listener with it is no planned link"
    server = _Side(server_side)
    client = _Side(client_side, link.entry.host)
    failure = _shake_hands(client, server)
    if failure:
        where = f"listeners[{link.listener_index}] of {link.answerer.file}"
        link.note("tls", f"TLS with {where} fails: {failure}")
        return None
    return common_name(server.tls.getpeercert()) if tls.identity == "common_name" else ""


def _try_user(link: PlannedLink, certificate_user: str, files: dict[str, PasswordFile | None]) -> None:
    """Note why the user of a link is refused, by the rules of a broker's handshake."""
    answerer = link.answerer
    entry = link.entry
    path = answerer.config.security.password_file
    is_open = link.listener.anonymous_allowed
    expected = answerer.entry(link.caller.name).accepted_user
    if certificate_user:
        if certificate_user != expected:
            names = f"the certificate names user {certificate_user!r}"
            link.note("tls", f"{names}, {answerer.name!r} expects {expected!r} (`accept_user` there)")
        return
    if path is None:
        if not is_open:
            link.note("user", f"{answerer.name!r} has no security.password_file to log in by")
        return
    if entry.user != expected:
        given = f"is {entry.user!r}" if entry.user else "is not set"
        link.note("user", f"{given}, {answerer.name!r} expects {expected!r} (`accept_user` there)")
        return
    passwords = files.get(str(path))
    if passwords is None:
        passwords = files[str(path)] = PasswordFile.load(path)
    if not passwords.has(entry.user):
        link.note("user", f"{entry.user!r} is not in {str(path)!r}; `timebound passwd` adds it")
    elif not passwords.check(entry.user, read_password(entry) or b""):
        key = "password_file" if entry.password_file is not None else "user"
        link.note(key, f"is not the password of {entry.user!r} in {str(path)!r}")


class _Side:
    """One end of a TLS handshake in memory."""

    def __init__(self, context: ssl.SSLContext, server_name: str = "") -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=not server_name, server_hostname=server_name or None
        )
        self.is_done = False

    def step(self) -> str:
        """Go on with the handshake; return why it fails, or nothing."""
        try:
            self.tls.do_handshake()
            self.is_done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError as error:
            return (error.reason or str(error)).lower().replace("_", " ")
        return ""


def _shake_hands(client: _Side, server: _Side) -> str:
    for _ in range(FLIGHTS_MAX):
        for one, other in ((client, server), (server, client)):
            if not one.is_done:
                error = one.step()
                if error:
                    return error
            other.incoming.write(one.outgoing.read())
        if client.is_done and server.is_done:
            return ""
    return "it does not come to an end"
