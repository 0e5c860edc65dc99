"""What the docs show, as steps that can be carried out.

The convention, for README.md and everything under docs/:

* ``console``: a line that begins with ``$ `` is a command (``> `` continues one that ends in a backslash). Lines below
  it are its output, both streams, compared exactly; a command with nothing below it must only succeed. A line with
  ``…`` alone asks ``python -m tests.docs.refresh`` to put the output there.
* ``bash``: a script that must succeed.
* ``yaml`` whose first line is ``# some-name.yaml`` is a file that the reader saves; it is written before what follows.
* ``python``: run, with the names of the page's earlier python blocks; a ``text`` block right below is what it prints.
* ``<!-- not run: reason -->`` on the line above a block leaves that block out, for a reason that whoever edits sees.
* ``<!-- long: reason -->`` there leaves it, and figures taken from its folders, to ``make prove`` and the refresh.
* ``<!-- figures: folder``: what the prose above takes from a run (:mod:`tests.docs.figures`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^( *)```(\S*)\s*$")
_NOT_RUN = re.compile(r"^\s*<!-- not run: \S.* -->\s*$")
_LONG = re.compile(r"^\s*<!-- long: \S.* -->\s*$")
_OUT = re.compile(r" --out (\S+)")
_FILE_NAME = re.compile(r"^# ([\w./-]+\.ya?ml)$")
_FIGURES = re.compile(r"^<!-- figures: (\S+)\n(.*?)^-->$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    language: str
    lines: tuple[str, ...]
    first_line: int
    """Index, in the page, of the line below the opening fence."""
    indent: str
    is_run: bool
    is_long: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where a page shows what a step prints."""

    first_line: int
    """Index of the first line shown."""
    lines: tuple[str, ...]
    indent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing a reader does."""

    kind: str
    """``file``, ``command``, ``script``, ``python`` or ``figures``."""
    content: str
    line: int
    """Line of the page, counted from one."""
    name: str = ""
    """Name of the file, for a file; of the run's folder, for figures."""
    output: Output | None = None
    is_long: bool = False


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        opening = _FENCE.match(lines[index])
        if opening is None:
            index += 1
            continue
        indent, language = opening.groups()
        end = index + 1
        while end < len(lines) and lines[end].rstrip() != f"{indent}```":
            end += 1
        if end == len(lines):
            raise ValueError(f"line {index + 1}: a block is opened and not closed")
        yield Block(
            language=language,
            lines=tuple(line.removeprefix(indent) for line in lines[index + 1 : end]),
            first_line=index + 1,
            indent=indent,
            is_run=not (index and _NOT_RUN.match(lines[index - 1])),
            is_long=bool(index and _LONG.match(lines[index - 1])),
        )
        index = end + 1


def steps(text: str) -> list[Step]:
    """Return what a reader of the page does, in order."""
    found: list[Step] = []
    shown = list(blocks(text))
    for position, block in enumerate(shown):
        if not block.is_run:
            continue
        line = block.first_line + 1
        content = "\n".join(block.lines) + "\n"
        if block.language == "console":
            found += _commands(block)
        elif block.language in ("bash", "sh"):
            found.append(Step(kind="script", content=content, line=line))
        elif (
            block.language == "yaml" and block.lines and (name := _FILE_NAME.match(block.lines[0]))
        ):
            found.append(Step(kind="file", content=content, line=line, name=name[1]))
        elif block.language == "python":
            below = shown[position + 1] if position + 1 < len(shown) else None
            adjacent = (
                below is not None and below.first_line == block.first_line + len(block.lines) + 3
            )
            output = None
            if below is not None and adjacent and below.language == "text":
                output = Output(first_line=below.first_line, lines=below.lines, indent=below.indent)
            found.append(Step(kind="python", content=content, line=line, output=output))
    long_folders = {
        folder for step in found if step.is_long for folder in _OUT.findall(step.content)
    }
    return sorted([*found, *_figures(text, long_folders)], key=lambda step: step.line)


def _figures(text: str, long_folders: Collection[str]) -> Iterator[Step]:
    """Yield what the comments on figures ask for: their commands, then the comparison with the prose above.

    What a long step writes, ``long_folders``, is there only where that is carried out.
    """
    for block in blocks(text):
        if "<!-- figures: " in "\n".join(block.lines):
            text = text.replace("\n".join(block.lines), "\n" * (len(block.lines) - 1))
    for comment in _FIGURES.finditer(text):
        line = text.count("\n", 0, comment.start()) + 1
        for content in re.findall(r"^\$ (.*)$", comment[2], re.MULTILINE):
            yield Step(kind="command", content=content, line=line)
        is_long = comment[1] in long_folders
        yield Step(kind="figures", content=comment[2], line=line, name=comment[1], is_long=is_long)


def _commands(block: Block) -> Iterator[Step]:
    """Yield the commands of a console block with the output shown below each."""
    if not block.lines or not block.lines[0].startswith("$ "):
        raise ValueError(f"line {block.first_line + 1}: a console block begins with '$ command'")
    index = 0
    while index < len(block.lines):
        start = index
        command = block.lines[index].removeprefix("$ ")
        while command.endswith("\\"):
            index += 1
            command = command[:-1] + block.lines[index].removeprefix("> ")
        index += 1
        first = index
        while index < len(block.lines) and not block.lines[index].startswith("$ "):
            index += 1
        lines = block.lines[first:index]
        output = (
            Output(first_line=block.first_line + first, lines=lines, indent=block.indent)
            if lines
            else None
        )
        yield Step(
            kind="command",
            content=command,
            line=block.first_line + start + 1,
            output=output,
            is_long=block.is_long,
        )
