"""TLS between a transport and a connection: a protocol to the former, a transport to the latter.

The event loop could encrypt by itself. But when a handshake fails, it closes the socket without sending
OpenSSL's alert and without giving a reason. Here the alert is sent, and each refusal is logged and
counted. The inner protocol (`Connection` or `WebSocketAdapter`) exists from the beginning, so its limits
on time and on connections apply to the handshake too.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

from timebound.node.clients.adapter import Adapter
from timebound.node.driver import Driver
from timebound.node.input.buffer import READ_BYTES_MAX

# RFC 8446, 6: a fatal alert, protocol_version (70), for a peer that does not speak TLS.
_NO_TLS_ALERT: Final = bytes([21, 3, 1, 0, 2, 2, 70])


class TlsAdapter(Adapter):
    """One encrypted connection."""

    def __init__(
        self, context: ssl.SSLContext, driver: Driver, listener: str, make_inner: Callable[[], Any]
    ) -> None:
        super().__init__(make_inner())
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._driver = driver
        self._listener = listener
        self._is_open = False  # the handshake is complete
        self._is_failed = False  # further data is ignored
        self._has_written = False  # at least once: the peer speaks TLS

    # --- protocol, for the event loop -----------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._inner.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._is_failed:
            return
        try:
            self._incoming.write(data)
            if self._is_open or self._shake_hands():
                self._read()
        except Exception as error:
            self._inner.failed(error)

    def eof_received(self) -> bool:
        try:
            if self._is_open:
                self._inner.eof_received()
            elif not self._is_failed:
                self._note("the client closed the connection", logging.INFO)
        except Exception as error:
            self._inner.failed(error)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_failed = True
        self._inner.connection_lost(exc)
        self._inner = None  # a WebSocket refers to this: both would wait for a full collection

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def _shake_hands(self) -> bool:
        """Continue the handshake; return whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._fail(error)
            return False
        self._is_open = True
        self._flush()
        return True

    def _read(self) -> None:
        """Pass on decrypted data, all at once: at most what one read of the socket returned."""
        parts: list[bytes] = []
        is_ended = False
        try:
            while data := self._tls.read(READ_BYTES_MAX):
                parts.append(data)
            is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            is_ended = True
        except ssl.SSLError as error:
            self._fail(error)
        self._flush()  # the peer may have requested new keys
        if parts:
            self._inner.data_received(b"".join(parts) if len(parts) > 1 else parts[0])
        if is_ended and not self._transport.is_closing():
            # The client has sent close_notify: nothing more is sent to it.
            self._inner.eof_received()
            self.close()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self._transport.is_closing():
            self._has_written = True
            self._transport.write(data)

    def _fail(self, error: ssl.SSLError) -> None:
        """End a connection after a TLS error, with an alert that gives the reason."""
        self._is_failed = True
        self._flush()
        if not self._has_written:
            # OpenSSL makes no alert for data that is not TLS at all.
            self._transport.write(_NO_TLS_ALERT)
        text = getattr(error, "verify_message", "") or ""
        reason = (error.reason or str(error)).replace("_", " ").lower()
        self._note(f"{reason}: {text}" if text else reason, logging.WARNING)
        if self._is_open:
            self._transport.close()
        else:
            # If it were closed now, data from the client would be answered with a reset, which discards
            # the alert. The client closes it, or the time limit does.
            self._transport.write_eof()

    def _note(self, reason: str, level: int) -> None:
        self._is_failed = True
        self._driver.broker.counters.tls_failures += 1
        address = self._transport.get_extra_info("peername")
        peer = f"{address[0]}:{address[1]}" if address else "?"
        what = "connection" if self._is_open else "handshake"
        start = f"TLS {what} with {peer} on {self._listener} failed"
        # Of one address and reason, a flood becomes one line with a count.
        subject = f"TLS {address[0]}" if address else "TLS"
        self._driver.notices.note(subject, start, reason, self._driver.now_ns(), level)

    # --- transport, for what is behind it -------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._is_open or self._is_failed:
            return
        try:
            written = self._tls.write(data)
            while written < len(data):
                written += self._tls.write(data[written:])
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()

    def close(self) -> None:
        if self._is_open and not self._is_failed:
            with contextlib.suppress(
                ssl.SSLError
            ):  # it would wait for the client's close_notify; ours is written
                self._tls.unwrap()
            self._flush()
        elif not self._is_failed and not self._transport.is_closing():
            self._note("not complete in time", logging.WARNING)
        self._transport.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert":
            return self._tls.getpeercert() if self._is_open else default
        if name == "ssl_object":
            return self._tls
        if name == "cipher":
            return self._tls.cipher()
        return self._transport.get_extra_info(name, default)
