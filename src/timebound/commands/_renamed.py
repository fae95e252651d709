"""Old spellings of options: they still work, and help does not show them."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_type_hints

import typer

Command = Callable[..., None]


def with_signature(command: Command, run: Command, parameters: list[inspect.Parameter]) -> Command:
    """Return `run` under the name and help of `command`, with the parameters that Typer is to offer."""
    made = functools.wraps(command)(run)
    made.__dict__["__signature__"] = inspect.Signature(parameters)
    made.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return made


def parameters_of(command: Command) -> list[inspect.Parameter]:
    """Return the parameters of a command by keyword, with their annotations evaluated."""
    hints = get_type_hints(command, include_extras=True)
    return [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
    ]


def renamed(old: Mapping[str, tuple[str, ...]]) -> Callable[[Command], Command]:
    """Accept old spellings, such as `{"mix": ("--weight",)}`, for parameters of a command."""

    def decorate(command: Command) -> Command:
        parameters = parameters_of(command)
        known = {parameter.name: parameter for parameter in parameters}
        hidden: dict[str, tuple[str, str]] = {}  # by the name of the hidden parameter
        for name, spellings in old.items():
            for spelling in spellings:
                alias = _hidden(known[name], spelling)
                hidden[alias.name] = (name, spelling)
                parameters.append(alias)

        def run(**values: Any) -> None:
            for alias, (name, spelling) in hidden.items():
                given = values.pop(alias)
                if given is None:
                    continue
                if values[name] != known[name].default:
                    new = _spelling(known[name])
                    raise typer.BadParameter(f"{new} and {spelling} are the same option; use {new} alone")
                values[name] = given
            command(**values)

        return with_signature(command, run, parameters)

    return decorate


def _hidden(parameter: inspect.Parameter, spelling: str) -> inspect.Parameter:
    """Return a parameter that reads an old spelling just as the new one is read."""
    kind, info = get_args(parameter.annotation)
    info = copy.copy(info)
    # In an annotation Typer keeps the first spelling here, where a default value would stand otherwise.
    info.default = spelling
    info.param_decls = ()
    info.hidden = True
    name = "old_" + spelling.removeprefix("--").replace("-", "_")
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )


def _spelling(parameter: inspect.Parameter) -> str:
    _, info = get_args(parameter.annotation)
    return str(info.default) if info.default is not ... else "--" + parameter.name.replace("_", "-")
