"""The broker's configuration: read it, check it, or use the defaults.

    config, mistakes = read_config(Path("timebound.toml"), os.environ)  # with every mistake
    config = load_config(Path("timebound.toml"))            # raises the first mistake

The values are described in `config`, by a module for each subject, and read in `config/reader.py`. Here is
what concerns the files a configuration names: certificates, passwords, access rules, data.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from timebound.config.addresses import is_loopback
from timebound.config.limits import Limits
from timebound.config.listeners import ListenerConfig
from timebound.config.overrides import Override, from_environment
from timebound.config.reader import ConfigReader
from timebound.config.security import SecurityConfig
from timebound.config.storage import DataConfig
from timebound.config.telemetry import LogConfig
from timebound.config.tls import TlsConfig
from timebound.config.values import Config
from timebound.core.values.access import ANONYMOUS, AccessList, AccessRule, read_access_rules
from timebound.errors import ConfigError
from timebound.node.login.passwords import password_mistakes
from timebound.packages import FOR_TRACES, advice, missing
from timebound.toml.lines import KeyPath

__all__ = [
    "Config",
    "DataConfig",
    "Limits",
    "ListenerConfig",
    "LogConfig",
    "SecurityConfig",
    "TlsConfig",
    "default_config",
    "is_loopback",
    "load_access_list",
    "load_config",
    "open_config",
    "parse_config",
    "read_config",
]

# Configurations are written by hand; a larger file was named by mistake.
FILE_BYTES_MAX: Final = 4 * 1024 * 1024


def default_config() -> Config:
    """Return the defaults: MQTT on 127.0.0.1:1883, data in `./data`, this machine only."""
    return Config()


def parse_config(text: str, path: Path) -> Config:
    """Read a configuration from its text; `path` is named in mistakes and is the base of relative paths.

    Files that the configuration names are not checked.

    Raises:
        ConfigError: the first mistake.
    """
    reader = ConfigReader(text, path)
    _raise_first(_in_order(reader.mistakes, path))
    return reader.config


def load_config(path: Path) -> Config:
    """Read a configuration file and check the files it names.

    Raises:
        ConfigError: the first mistake.
    """
    config, mistakes = read_config(path)
    _raise_first(mistakes)
    return config


def read_config(
    path: Path | None,
    environment: Mapping[str, str] | None = None,
    options: Sequence[Override] = (),
    *,
    is_persistent: bool = True,
) -> tuple[Config, list[ConfigError]]:
    """Read a configuration and the files it names; return the configuration and all mistakes.

    Variables of the environment win over the file, options over both. Without a file these and the defaults
    count. The data folder is not looked at if nothing is to be stored.
    """
    found, mistakes = from_environment(environment or {})
    try:
        reader = open_config(path, [*found, *options], is_persistent=is_persistent)
    except ConfigError as exc:
        return default_config(), [exc, *mistakes]
    return reader.config, _in_order([*reader.mistakes, *mistakes], path)


def open_config(
    path: Path | None, overrides: Sequence[Override] = (), *, is_persistent: bool = True
) -> ConfigReader:
    """Read a configuration and check the files it names; return its reader, for checks that go further.

    Raises:
        ConfigError: the file cannot be read at all.
    """
    reader = ConfigReader("" if path is None else _read_text(path), path, overrides)
    _check_files(reader, is_persistent)
    return reader


def load_access_list(security: SecurityConfig) -> AccessList:
    """Make the access list from `[[acl]]` or the ACL file, which is read each time.

    Raises:
        ConfigError: the ACL file cannot be read or has a mistake.
    """
    if security.acl_file is None:
        return AccessList(list(security.rules))
    rules, mistakes = _read_rules(security.acl_file, security)
    _raise_first(mistakes)
    return AccessList(rules)


def _raise_first(mistakes: list[ConfigError]) -> None:
    if mistakes:
        raise mistakes[0]


def _in_order(mistakes: list[ConfigError], path: Path | None) -> list[ConfigError]:
    # The configuration first, then what is set outside it and the files it names, each from top to bottom.
    own = "" if path is None else str(path)
    return sorted(mistakes, key=lambda mistake: (mistake.path != own, mistake.path, mistake.line))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as exc:
        reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        raise ConfigError(f"cannot be read: {reason.lower()}", path=str(path)) from exc
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"is larger than {FILE_BYTES_MAX} bytes; is it the right file?", path=str(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ConfigError(
            f"is not UTF-8 text: byte 0x{content[exc.start]:02x}", path=str(path), line=line
        ) from exc


def _read_rules(path: Path, security: SecurityConfig) -> tuple[list[AccessRule], list[ConfigError]]:
    try:
        text = _read_text(path)
    except ConfigError as exc:
        return [], [exc]
    rules, mistakes = read_access_rules(text, str(path))
    if security.anonymous_user and any(rule.user == ANONYMOUS for rule in rules):
        mistakes.append(
            ConfigError(
                f"has rules for 'anonymous', but anonymous_user calls these clients "
                f"{security.anonymous_user!r}; write 'user' and that name",
                path=str(path),
            )
        )
    return rules, mistakes


def _check_files(reader: ConfigReader, is_persistent: bool) -> None:
    config = reader.config
    for at, path in reader.paths.items():
        _check_readable(reader, at, path)
    for index, listener in enumerate(config.listeners):
        if listener.tls is not None:
            _check_tls(reader, listener.tls, ("listeners", index, "tls"))
    if config.flight.tls is not None:
        _check_tls(reader, config.flight.tls, ("flight", "tls"))
    if config.security.password_file is not None:
        for mistake in password_mistakes(config.security.password_file):
            _add(reader, ("security", "password_file"), mistake)
    if config.security.acl_file is not None:
        for mistake in _read_rules(config.security.acl_file, config.security)[1]:
            _add(reader, ("security", "acl_file"), mistake)
    if is_persistent:
        _check_folder(reader, ("data", "path"), config.data.path)
    if config.trace.enabled:
        _check_folder(reader, ("trace", "path"), config.trace.path)
    _check_packages(reader)


def _check_packages(reader: ConfigReader) -> None:
    absent = missing(*FOR_TRACES)
    if not absent:
        return
    if reader.config.trace.enabled:
        reader.note(("trace", "enabled"), advice("tracing", absent))
    if reader.config.journals:
        reader.note(("journals",), advice("a journal", absent))
    elif reader.config.flight_enabled:
        reader.note(("flight", "enabled"), advice("the service for journals", absent))


def _check_folder(reader: ConfigReader, at: KeyPath, folder: Path) -> None:
    """Report a folder that cannot be used or made."""
    nearest = folder
    while not os.path.exists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if os.path.isdir(nearest) and os.access(nearest, os.W_OK):
        return
    if nearest == folder:
        reader.note(at, f"{str(folder)!r} is not a writable folder")
    else:
        reader.note(at, f"{str(folder)!r} cannot be made: {str(nearest)!r} is not a writable folder")


def _check_readable(reader: ConfigReader, at: KeyPath, path: Path) -> None:
    """Report a file of TLS, or the password of a link, that is missing or unreadable."""
    is_pem = at[-1] in ("certificate", "key", "ca")
    if not is_pem and (at[0], at[-1]) != ("neighbours", "password_file"):
        return
    is_file = os.path.isfile(path)
    if not is_file or not os.access(path, os.R_OK):
        problem = "cannot be read" if is_file else "is not a file"
        reader.note(at, f"{str(path)!r} {problem}{'; expected a PEM file' if is_pem else ''}")


def _add(reader: ConfigReader, at: KeyPath, mistake: ConfigError) -> None:
    if mistake.line:
        reader.mistakes.append(mistake)
    else:
        # A file that cannot be read at all: report it under the key that names it.
        reader.note(at, str(mistake))


def _check_tls(reader: ConfigReader, tls: TlsConfig, at: KeyPath) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if not reader.is_noted(*at, "certificate") and not reader.is_noted(*at, "key"):
            # With a password given, an encrypted key is refused instead of prompting at the terminal.
            context.load_cert_chain(tls.certificate, tls.key, password="")
    except (ssl.SSLError, ValueError, OSError) as exc:
        reader.note((*at, "certificate"), f"certificate and key cannot be used together: {exc}")
    try:
        if tls.ca is not None and not reader.is_noted(*at, "ca"):
            context.load_verify_locations(tls.ca)
    except (ssl.SSLError, ValueError, OSError) as exc:
        reader.note((*at, "ca"), f"has no certificates in PEM: {exc}")
