"""``python -m docs.generate FOLDER``: write the generated reference, and what the README takes from it."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generate.aiconfigurator import beside_rows
from docs.generate.pages import write_reference
from docs.generate.readme import with_accuracy
from docs.generate.validation_page import frontier_rows, shipped_beside, shipped_points

README = Path("README.md")


def main(arguments: list[str]) -> int:
    """Write the pages into the folder named; return the exit code."""
    if len(arguments) != 1:
        print("usage: python -m docs.generate FOLDER", file=sys.stderr)
        return 2
    changed = write_reference(Path(arguments[0]))
    text = README.read_text(encoding="utf-8")
    fresh = with_accuracy(text, frontier_rows(shipped_points()), beside_rows(shipped_beside()))
    if fresh != text:
        README.write_text(fresh, encoding="utf-8")
        changed.append(README)
    print("\n".join(f"wrote {path}" for path in changed) or "the reference is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
