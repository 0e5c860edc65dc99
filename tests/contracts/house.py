"""``python -m tests.contracts.house``: how large the program is, room by room, beside what each room should take.

Lines are those of code as ``radon raw`` counts them (SLOC): no blank lines, comments or docstrings. A room may pass its
budget while others stay below theirs; what fails is the whole above its ceiling.
"""

from __future__ import annotations

import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUDGET = {
    ("__init__.py", "api.py", "cli", "ui"): 1_600,
    ("scenario", "catalog"): 2_800,
    ("physics", "demand"): 2_200,
    ("plan",): 2_300,
    ("engine",): 3_000,
    ("requests",): 1_300,
    ("finance",): 3_000,
    ("run",): 1_000,
    ("studies", "sizing", "reforecast.py"): 4_800,
    ("output", "answers"): 4_000,
    ("onramp",): 1_000,
    ("calibration",): 2_300,
}
"""Lines of code by rooms that share a budget; what is in none of them serves all."""
CEILING_LINES, CEILING_FILES = 33_000, 200
"""What the whole may have: whoever adds a capability pays for its lines with others taken out."""
_BETWEEN = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)


def code_lines(source: str) -> int:
    """Count the lines of statements that are no docstring; a comment inside a statement counts with it."""
    lines = source.splitlines()
    count = 0
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            words = [one for one in statement if one.type != tokenize.COMMENT]
            if [one.type for one in words] != [tokenize.STRING]:
                first, last = statement[0].start[0], statement[-1].end[0]
                count += sum(bool(line.strip()) for line in lines[first - 1 : last])
            statement = []
        elif statement or token.type not in _BETWEEN:
            statement.append(token)
    return count


def main() -> int:
    """Print lines and files by room; return 1 where the whole is above its ceiling."""
    files = sorted((ROOT / "planner").rglob("*.py"))
    lines = {path: code_lines(path.read_text(encoding="utf-8")) for path in files}
    room_of = {path: path.relative_to(ROOT / "planner").parts[0] for path in files}
    budgeted = {room for rooms in BUDGET for room in rooms}
    others = tuple(dict.fromkeys(room for room in room_of.values() if room not in budgeted))
    print(f"{'rooms':<34} {'lines':>7} {'budget':>7} {'files':>6}")
    for rooms, budget in [*BUDGET.items(), (others, None)]:
        inside = [path for path in files if room_of[path] in rooms]
        name = " + ".join(room.removesuffix(".py") for room in rooms) if budget else "what serves all"
        told = "" if budget is None else f"{budget:,}"
        print(f"{name:<34} {sum(lines[path] for path in inside):7,} {told:>7} {len(inside):6}")
    total = sum(lines.values())
    print(f"{'in all':<34} {total:7,} {CEILING_LINES:7,} {len(files):6} of {CEILING_FILES}")
    if total > CEILING_LINES or len(files) > CEILING_FILES:
        print("the program is above its ceiling: take something out for what was put in", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
