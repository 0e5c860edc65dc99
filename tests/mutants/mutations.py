"""Small wrongs done to the program: every place where one can be done, and those that once went unnoticed."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ROOMS = ("plan", "run", "finance", "engine", "demand", "physics")
SEED = 53
SAMPLE = 400
_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.MatMult: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_OPPOSITES = (("min", "max"), ("minimum", "maximum"), ("floor", "ceil"), ("any", "all"))
_NAMES = {one: other for pair in _OPPOSITES for one, other in (pair, pair[::-1])}


class Unit(NamedTuple):
    """A function of a module or a method of a class; outside of them, what is assigned, which begins at line 0."""

    name: str = "module"
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A file with one piece of its text replaced."""

    file: str
    start: int
    """Where the piece begins, in characters."""
    before: str
    after: str
    unit: Unit
    lines: range
    """The lines of its statement, counted from the first of its unit."""
    number: int = 1
    """Which of the mutants of this name in its unit it is."""

    @property
    def name(self) -> str:
        """What it is called in journals and lists: room and function, so it outlives a move to another file or line."""
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        number = f" #{self.number}" if self.number > 1 else ""
        return f"{self.file.split('/')[1]}:{self.unit.name}: {before} -> {after}{number}"

    @property
    def digest(self) -> str:
        """A digest of its unit: what becomes of the mutant holds while this stays."""
        lines = (ROOT / self.file).read_text(encoding="utf-8").split("\n")
        text = "\n".join(lines[self.unit.first - 1 : self.unit.last] if self.unit.first else lines)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def text(self) -> str:
        """The file's text with the wrong in it."""
        source = (ROOT / self.file).read_text(encoding="utf-8")
        return source[: self.start] + self.after + source[self.start + len(self.before) :]

    def __str__(self) -> str:
        above = (ROOT / self.file).read_text(encoding="utf-8")[: self.start].split("\n")
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.file}:{len(above)}:{len(above[-1]) + 1}: {before} -> {after}"


def sample(count: int = SAMPLE, rooms: tuple[str, ...] = ROOMS) -> list[Mutant]:
    """Return a random sample of the mutants of some rooms.

    Each is ranked by a digest of its name, and the first are taken: a change of the source replaces the mutants of what
    changed, and leaves the rest of the sample as it was.
    """
    ranked = sorted(
        every_mutant(rooms),
        key=lambda mutant: hashlib.sha256(f"{SEED} {mutant.name}".encode()).digest(),
    )
    return ranked[:count]


def every_mutant(rooms: tuple[str, ...] = ROOMS) -> Iterator[Mutant]:
    """Yield every mutant of some rooms."""
    for path in sorted(path for room in rooms for path in (ROOT / "planner" / room).rglob("*.py")):
        yield from mutants_of(path)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file, in the order of its text."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    statements = sorted(_statements(tree), key=lambda pair: pair[1] - pair[0])
    lines = source.encode().splitlines(keepends=True)
    starts = [len(b"".join(lines[:number])) for number in range(len(lines) + 1)]

    def place(line: int, column: int) -> int:  # ast counts columns in bytes
        return len(source.encode()[: starts[line - 1] + column].decode())

    above: Counter[str] = Counter()
    for node, changed in _changes(tree):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        after = ast.unparse(changed)
        after = after if isinstance(changed, ast.stmt | ast.Constant | ast.Call) else f"({after})"
        start = place(node.lineno, node.col_offset)
        before = source[start : place(node.end_lineno, node.end_col_offset)]
        first, last = next(pair for pair in statements if pair[0] <= node.lineno <= pair[1])
        mutant = _mutant(path, start, before, after, range(first, last + 1))
        above[mutant.name] += 1
        yield replace(mutant, number=above[mutant.name])


def _mutant(path: Path, start: int, before: str, after: str, lines: range) -> Mutant:
    """Return a mutant of some lines, counted from the file's first."""
    unit = _unit_at(str(path.relative_to(ROOT)), lines.start)
    lines = range(lines.start - unit.first, lines.stop - unit.first)
    return Mutant(
        file=str(path.relative_to(ROOT)),
        start=start,
        before=before,
        after=after,
        unit=unit,
        lines=lines,
    )


def _statements(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each statement; of one with a body, those of its head."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            assert node.end_lineno is not None
            body = getattr(node, "body", None)
            last = (
                max(node.lineno, body[0].lineno - 1) if isinstance(body, list) else node.end_lineno
            )
            yield node.lineno, last


@cache
def _units(file: str) -> list[Unit]:
    """Return the units of a file; a function inside one is part of it."""

    def within(body: list[ast.stmt], prefix: str) -> Iterator[Unit]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                yield Unit(prefix + node.name, first, node.end_lineno or first)
            elif isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{prefix}{node.name}.")

    return list(within(_tree(file).body, ""))


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def function_at(file: str, line: int) -> Unit | None:
    """Return the function or method that a line stands in."""
    return next((unit for unit in _units(file) if unit.first <= line <= unit.last), None)


def _unit_at(file: str, line: int) -> Unit:
    """Return the unit that a line stands in; a constant of the module or a class is called by its name."""
    if (function := function_at(file, line)) is not None:
        return function
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= line <= (
            node.end_lineno or node.lineno
        ):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            return Unit(ast.unparse(target))
    return Unit()


def _changes(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, ast.AST]]:
    """Yield nodes of a tree, each with what may stand in its place; messages, types and decorators are left alone."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.AnnAssign | ast.arg):
        # What is raised is words; of an annotated field only its default is a figure.
        children: list[ast.AST] = (
            [node.value] if isinstance(node, ast.AnnAssign) and node.value else []
        )
    elif isinstance(node, ast.FunctionDef):
        children = [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
    elif isinstance(node, ast.ClassDef):
        children = list(node.body)
    else:
        children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.stmt | ast.expr) and (changed := _change(node)) is not None:
        yield node, changed
    for child in children:
        yield from _changes(child)


def _change(node: ast.stmt | ast.expr) -> ast.AST | None:
    """Return what stands in a node's place, if there is anything to get wrong in it."""
    changed: ast.AST | None = None
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            changed = ast.BinOp(left=left, op=_OPERATORS[type(op)](), right=right)  # type: ignore[arg-type]
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in _OPERATORS:
            changed = ast.AugAssign(target=target, op=_OPERATORS[type(op)](), value=value)  # type: ignore[arg-type]
        case ast.Compare(left=left, ops=[op], comparators=right) if type(op) in _OPERATORS:
            changed = ast.Compare(left=left, ops=[_OPERATORS[type(op)]()], comparators=right)  # type: ignore[list-item]
        case ast.BoolOp(op=op, values=values):
            changed = ast.BoolOp(op=_OPERATORS[type(op)](), values=values)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            changed = operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            changed = ast.IfExp(test=test, body=orelse, orelse=body)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _NAMES:
            changed = ast.Call(func=ast.Name(id=_NAMES[name]), args=args, keywords=keywords)
        case ast.Call(func=ast.Attribute(value=owner, attr=name), args=args, keywords=keywords) if (
            name in _NAMES
        ):
            changed = ast.Call(
                func=ast.Attribute(value=owner, attr=_NAMES[name]), args=args, keywords=keywords
            )
        case ast.Constant(value=bool(figure)):
            changed = ast.Constant(value=not figure)
        case ast.Constant(value=int(figure)):
            changed = ast.Constant(value=figure + 1)
        case ast.Constant(value=float(figure)):
            changed = ast.Constant(value=figure * 1.5 if figure else 1.0)
    return changed


# Of 28 wrongs once done by hand to derived formulas, those that no test told: before and after, wherever it stands.
ONCE_UNNOTICED = (
    ('lost_with_accelerator.value == "node"', 'lost_with_accelerator.value != "node"'),
    (
        "reference_kw * (1.0 - cut.cut_fraction)",
        "reference_kw * cut.cut_fraction",
    ),
    ("PREFERRED_UTILISATION = 0.85", "PREFERRED_UTILISATION = 0.95"),
    ('"premium": 900.0', '"premium": 600.0'),
    (
        "return layout, ServicePoint(\n        yearly=yearly * speed.rates",
        "return layout, ServicePoint(\n        yearly=np.append(yearly[:1] * speed.rates, yearly[1:])",
    ),
    ('"working": busy - drag', '"working": busy - drag / 2'),
    (
        "yield Account.DEMAND_CHARGE, charge[:, None] * share",
        "yield Account.DEMAND_CHARGE, charge[:, None] / np.ones_like(share)",
    ),
    (
        "_with_idle(tokens),\n        _with_idle(demand[:, None])",
        "_with_idle(np.ones_like(tokens)),\n        _with_idle(demand[:, None])",
    ),
    (
        "utilisation = quantities.utilisation(busy, in_service)",
        "utilisation = quantities.utilisation(busy, 2 * in_service)",
    ),
    (
        "shed_tokens = tokens_of(shed)",
        "shed_tokens = tokens_of(refused)",
    ),
    ("hours * accelerators / accelerators_per_node", "hours * accelerators"),
    ("slowness * per_slowness", "(slowness > 0) * per_slowness"),
    (
        "dark_fraction = quantities.open_fraction(hour_starts, *outage)",
        "dark_fraction = np.ones(hours.size)",
    ),
)


def once_unnoticed() -> list[Mutant]:
    """Return the wrongs that no test told, once; what each replaces stands in one place of the program."""
    mutants = []
    for before, after in ONCE_UNNOTICED:
        path = file_with(before)
        source = path.read_text(encoding="utf-8")
        start = source.index(before)
        line = source[:start].count("\n") + 1
        mutants.append(
            _mutant(path, start, before, after, range(line, line + before.count("\n") + 1))
        )
    return mutants


def file_with(text: str) -> Path:
    """Return the one file of the program that has a text, once: modules may be joined and moved."""
    counts = {
        path: path.read_text(encoding="utf-8").count(text)
        for path in (ROOT / "planner").rglob("*.py")
    }
    if sum(counts.values()) != 1:
        raise ValueError(
            f"planner/ has {text!r} {sum(counts.values())} times: state anew what is meant"
        )
    return next(path for path, count in counts.items() if count)
