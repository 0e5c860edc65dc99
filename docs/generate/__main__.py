"""``python -m docs.generate FOLDER``: write the generated reference."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generate.pages import write_reference


def main(arguments: list[str]) -> int:
    """Write the pages into the folder named; return the exit code."""
    if len(arguments) != 1:
        print("usage: python -m docs.generate FOLDER", file=sys.stderr)
        return 2
    changed = write_reference(Path(arguments[0]))
    print("\n".join(f"wrote {path}" for path in changed) or "the reference is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
