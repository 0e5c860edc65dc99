"""``python -m docs.generate FOLDER``: write the generated reference, whose page of commands is made here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from docs.generate.markdown import code, page, table, text
from docs.generate.pages import write_kept, write_reference
from planner.cli.app import app

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


def main(arguments: list[str]) -> int:
    """Write the pages into the folder named; return the exit code."""
    if len(arguments) != 1:
        print("usage: python -m docs.generate FOLDER", file=sys.stderr)
        return 2
    changed = [*write_reference(Path(arguments[0]), cli_page()), *write_kept()]
    print("\n".join(f"wrote {path}" for path in changed) or "the reference is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
