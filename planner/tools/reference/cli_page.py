"""The page of every command and option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from planner.cli.app import app
from planner.tools.reference.markdown import code, page, table, text

_INTRODUCTION = """\
Results go to standard output, progress and errors to standard error. [Exit codes](errors.md) are the same for every
command. `--help` after any command prints its options."""


def cli_page() -> str:
    """Return the page of commands."""
    return page("Commands", _INTRODUCTION, *(_command(words, command) for words, command in commands()))


def commands(command: Any = None, words: tuple[str, ...] = ("planner",)) -> Iterator[tuple[str, Any]]:
    """Yield every command with the words that call it, the root first, each group before what it holds."""
    command = typer.main.get_command(app) if command is None else command
    yield " ".join(words), command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from commands(inner, (*words, name))


def _command(words: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    options = [parameter for parameter in shown if parameter.param_type_name == "option"]
    usage = [words, *(_place(argument) for argument in arguments)]
    usage += ["[OPTIONS]"] if options else []
    usage += ["COMMAND"] if getattr(command, "commands", None) and not command.invoke_without_command else []
    parts = [f"## `{words}`", text(" ".join((command.help or "").split())), f"```text\n{' '.join(usage)}\n```"]
    if shown:
        rows = [(code(_name(parameter)), text(parameter.help or ""), _default(parameter)) for parameter in shown]
        parts.append(table(("argument or option", "what it does", "default"), rows))
    return "\n\n".join(parts)


def _place(argument: Any) -> str:
    """Show an argument as a usage line has it."""
    name: str = argument.metavar or argument.name.upper()
    if argument.nargs == -1 and not name.endswith("..."):
        name += "..."
    return name if argument.required else f"[{name}]"


def _name(parameter: Any) -> str:
    """Show an option with its spellings and what it takes."""
    if parameter.param_type_name == "argument":
        return _place(parameter)
    spellings = ", ".join([*parameter.opts, *parameter.secondary_opts])
    takes = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return spellings + takes


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    if default is None or isinstance(default, bool) or callable(default) or default in ("", [], ()):
        return ""
    return code(default)
