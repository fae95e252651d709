"""`timebound passwd`: set or remove passwords of users."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from timebound.commands._screen import FAILED, WRONG, fail

EXAMPLES: Final = (
    "Examples:  timebound passwd users.txt anna  ·  echo secret | timebound passwd users.txt anna  ·  "
    "timebound passwd users.txt anna --delete"
)


def passwd(
    file: Annotated[Path, typer.Argument(help="Password file; created if missing.")],
    user: Annotated[str, typer.Argument(help="User name.")],
    delete: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
) -> None:
    """Set or remove the password of a user. It is prompted for, or read from standard input."""
    from timebound.node.login.passwords import PasswordFile, user_name_problem

    problem = "" if delete else user_name_problem(user)
    if problem:
        fail(problem, WRONG)
    users = PasswordFile.load(file) if file.exists() else PasswordFile(file)
    if delete:
        if not users.remove(user):
            fail(f"user {user!r} is not in {file}", FAILED)
    else:
        try:
            users.set(user, _ask_password())
        except ValueError as error:
            fail(str(error), WRONG)
    users.save()
    typer.echo(f"{file}: {'removed' if delete else 'set'} {user}")


def _ask_password() -> str:
    if sys.stdin.isatty():
        asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
        return asked
    try:
        return sys.stdin.readline().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"the password is not text in {error.encoding}") from error
