"""``python -m tests.docs.refresh``: put what the commands print now into the pages that show it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.docs.blocks import steps
from tests.docs.carrying_out import ROOT, Outcome, carry_out, copy_checkout, pages, shown


def refreshed(text: str, outcomes: Iterable[Outcome]) -> str:
    """Return the page with every output it shows replaced by what was printed."""
    lines = text.splitlines()
    for outcome in reversed(list(outcomes)):
        output = outcome.step.output
        if output is None or not outcome.is_compared or shown(output) == outcome.printed:
            continue
        fresh = [(output.indent + line).rstrip() for line in outcome.printed]
        lines[output.first_line : output.first_line + len(output.lines)] = fresh
    return "\n".join(lines) + "\n"


def main() -> int:
    """Refresh every page; stop at the first command that fails."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if not steps(text):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "checkout"
            copy_checkout(folder)
            outcomes = []
            for outcome in carry_out(text, folder):
                if outcome.exit_code:
                    place = f"{page.relative_to(ROOT)}:{outcome.step.line}"
                    print(f"{place}: exit code {outcome.exit_code}", *outcome.printed, sep="\n", file=sys.stderr)
                    return 1
                outcomes.append(outcome)
        fresh = refreshed(text, outcomes)
        if fresh != text:
            page.write_text(fresh, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
