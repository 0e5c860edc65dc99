"""Figures in the prose of a page, bound to the run that gives them.

A comment below the prose names the folder of a run and says what the prose takes from it:

    <!-- figures: outputs/plan
    $ planner compare now.yaml later.yaml --out outputs/plan
    # less per token = 1 - later.npv_usd / now.npv_usd
    Later is cheaper ? later.npv_usd > now.npv_usd
    -->

A line that begins with ``$ `` is a command that the page does not show. A line with ``=`` has words of the prose above,
with ``#`` in place of each figure, and an expression for each, with commas between. ``python -m tests.docs.refresh``
writes them into the prose as it has them: as a share or a number, in digits or words, to as many digits. A line with
``?`` has words that compare, and the condition under which they are true.

Costs compare where plans do the same: a line that has costs of several plans, one of which is MISSED or INCONCLUSIVE,
is refused unless it ends with ``though MISSED`` or ``though INCONCLUSIVE``, where the prose says so. One replication
gives no verdict.

A name with a point is a value of the folder's ``summary.json``, whose first level may be left out, of one of its
tables, or a key of a scenario in its ``assumptions.csv``. Values of a row lead to it:
``futures.growth-doubles.lean.status``.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.blocks import Step

_BELOW_TWENTY = """
no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen"""
_NUMBERS = _BELOW_TWENTY.split()
_FIGURE = rf"[+−]?\$?\d+(?:,\d+)*(?:\.\d+)?%?|\b(?:{'|'.join(_NUMBERS)})\b"
_CLAIM = re.compile(
    r"^(?P<words>.+?) (?P<kind>[=?]) (?P<expression>.+?)(?: though (?P<said>MISSED|INCONCLUSIVE))?$"
)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NAME = re.compile(r"(?<![\w.])[A-Za-z][\w-]*(?:\.[\w*-]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A figure of the prose that the run does not give any more."""

    line: int
    """Line of the page, counted from one."""
    column: int
    stated: str
    computed: str


def judge(step: Step, text: str, folder: Path) -> tuple[list[Correction], list[str]]:
    """Return the figures that are stale, and what the prose says that is not so."""
    lines = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text).splitlines()
    first = _section_start(lines, step.line - 1)
    prose = "\n".join(lines[first : step.line - 1])
    corrections: list[Correction] = []
    problems: list[str] = []
    for claim in filter(None, map(_CLAIM.match, step.content.splitlines())):
        found = list(re.finditer(_pattern(claim["words"]), prose, re.IGNORECASE))
        if len(found) != 1:
            problems.append(f'"{claim["words"]}" stands {len(found)} times in the prose above')
            continue
        line = first + prose.count("\n", 0, found[0].start()) + 1
        doubtful = _not_met_at_a_cost(claim["expression"], folder / step.name)
        problems += [
            f'line {line}: "{claim["words"]}" has the cost of {plan}, which is {status}'
            for plan, status in doubtful.items()
            if status != claim["said"]
        ]
        values = _evaluated(claim["expression"], folder / step.name)
        if claim["kind"] == "?":
            if not all(values):
                problems.append(f'line {line}: "{claim["words"]}" is not so: {claim["expression"]}')
            continue
        if len(values) != found[0].re.groups:
            problems.append(f'"{claim["words"]}" has {found[0].re.groups} figures')
            continue
        for number, value in enumerate(values, start=1):
            stated = found[0][number]
            computed = written_as(stated, float(value))
            if stated != computed:
                before = prose[: found[0].start(number)]
                corrections.append(
                    Correction(
                        line=first + before.count("\n") + 1,
                        column=len(before) - before.rfind("\n") - 1,
                        stated=stated,
                        computed=computed,
                    )
                )
    return corrections, problems


def corrected(text: str, corrections: list[Correction]) -> str:
    """Return a page with figures as they are now."""
    lines = text.splitlines()
    for change in sorted(corrections, key=lambda change: change.column, reverse=True):
        line = lines[change.line - 1]
        end = change.column + len(change.stated)
        lines[change.line - 1] = line[: change.column] + change.computed + line[end:]
    return "\n".join(lines) + "\n"


def written_as(stated: str, value: float) -> str:
    """Return a value as the prose has its predecessor: 12% for 0.12 after 9%, twelve after nine."""
    if stated.casefold() in _NUMBERS:
        whole = round(value)
        words = _NUMBERS[whole] if 0 <= whole < len(_NUMBERS) else f"{whole:,}"
        return words.capitalize() if stated[0].isupper() else words
    digits = stated.lstrip("+−$").rstrip("%")
    places = len(digits.partition(".")[2])
    share = 100 * value if stated.endswith("%") else value
    rounded = f"{abs(share):,.{places}f}"
    sign = "−" if share < 0 else "+" if stated[0] in "+−" else ""
    return sign + "$" * ("$" in stated) + rounded + "%" * stated.endswith("%")


def _section_start(lines: list[str], end: int) -> int:
    """Return the index of the first line below the last heading or block above a comment."""
    for index in range(end - 1, -1, -1):
        if re.match(r"#{1,6} |\s*```", lines[index]):
            return index + 1
    return 0


def _pattern(words: str) -> str:
    """Return the expression that finds words of the prose, over the ends of lines too."""
    pieces = [
        re.escape(word).replace(r"\#", f"({_FIGURE})").replace("#", f"({_FIGURE})")
        for word in words.split()
    ]
    return r"\s+".join(pieces)


def _evaluated(expression: str, folder: Path) -> list[Any]:
    """Return the values of expressions with commas between, over the figures of a folder."""
    values: dict[str, Any] = {"abs": abs, "max": max, "min": min, "round": round}

    def variable(name: re.Match[str]) -> str:
        values[f"value_{len(values)}"] = _value(name[0], folder)
        return f"value_{len(values) - 1}"

    tree = ast.parse(f"[{_NAME.sub(variable, expression)}]", mode="eval")
    return list(eval(compile(tree, "figures", "eval"), {"__builtins__": {}}, values))


def _not_met_at_a_cost(expression: str, folder: Path) -> dict[str, str]:
    """Return the status of plans not known to meet their SLO target, whose cost an expression compares with others."""
    names = [name.split(".") for name in _NAME.findall(expression)]
    verdicts = _summary(folder).get("verdicts", {})
    plans = {path[0] for path in names if path[0] in verdicts and path[-1].endswith("_usd")}
    if len(plans) < 2:
        return {}
    return {
        plan: verdicts[plan]["status"]
        for plan in sorted(plans)
        if verdicts[plan]["status"] != "MET" and verdicts[plan]["replications"] > 1
    }


def _summary(folder: Path) -> dict[str, Any]:
    """Return the ``summary.json`` of a folder; nothing where it has none."""
    file = folder / "summary.json"
    if not file.exists():
        return {}
    summary: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return summary


def _value(name: str, folder: Path) -> Any:
    """Return what a name means: a value of the summary or of a table, or a key of a scenario."""
    path = name.split(".")
    places: list[tuple[Any, list[str]]] = []
    summary = _summary(folder)
    places += [(place, path) for place in [summary, *summary.values()]]
    if (folder / f"{path[0]}.csv").exists():
        places.append((_rows(folder / f"{path[0]}.csv"), path[1:]))
    for place, rest in places:
        if (found := _at_path(place, rest)) is not None:
            return found
    for row in _rows(folder / "assumptions.csv"):
        if [row["scenario"], *row["path"].split(".")] == path:
            return row["value"]
    raise KeyError(f"{folder.name} has no {name}")


def _rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows of a table, what is a number as one."""
    with table.open(encoding="utf-8", newline="") as file:
        return [{key: _number(cell) for key, cell in row.items()} for row in csv.DictReader(file)]


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _at_path(place: Any, path: list[str]) -> Any:
    """Return what a place has at a path; of a list of rows a value in it leaves the rows that have it."""
    found = place
    for key in path:
        if isinstance(found, list):
            rows = [row for row in found if isinstance(row, dict)]
            having = [row for row in rows if key in row.values()]
            found = having if having else rows[0].get(key) if len(rows) == 1 else None
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return found
