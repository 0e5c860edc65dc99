"""``python -m tests.docs.refresh``: put what the commands print now into the pages that show it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.docs.blocks import steps
from tests.docs.carrying_out import ROOT, Outcome, carry_out, copy_checkout, courses, shown
from tests.docs.figures import corrected
from tests.docs.notebooks import executed, notebooks, written
from tests.docs.pictures import refresh_pictures


def refreshed(text: str, outcomes: Iterable[Outcome]) -> str:
    """Return the page with every output and figure it shows as they are now."""
    outcomes = list(outcomes)
    corrections = [change for outcome in outcomes for change in outcome.corrections]
    lines = corrected(text, corrections).splitlines()
    for outcome in reversed(outcomes):
        output = outcome.step.output
        if output is None or not outcome.is_compared or shown(output) == outcome.printed:
            continue
        fresh = [(output.indent + line).rstrip() for line in outcome.printed]
        lines[output.first_line : output.first_line + len(output.lines)] = fresh
    return "\n".join(lines) + "\n"


def refresh(course: Sequence[Path]) -> bool:
    """Refresh pages that are followed in one folder; return whether every command succeeded."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "checkout"
        copy_checkout(folder)
        for page in course:
            text = page.read_text(encoding="utf-8")
            outcomes = []
            for outcome in carry_out(text, folder):
                if outcome.exit_code:
                    place = f"{page.relative_to(ROOT)}:{outcome.step.line}"
                    print(
                        f"{place}: exit code {outcome.exit_code}",
                        *outcome.printed,
                        sep="\n",
                        file=sys.stderr,
                    )
                    return False
                outcomes.append(outcome)
            fresh = refreshed(text, outcomes)
            changed = refresh_pictures(page, folder)
            if fresh != text:
                page.write_text(fresh, encoding="utf-8")
                changed.append(page)
            for path in changed:
                print(f"wrote {path.relative_to(ROOT)}")
    return True


def main(wanted: Sequence[str] = ()) -> int:
    """Refresh every page, or those in whose path a wanted word occurs; stop at the first command that fails."""
    for course in courses():
        if wanted and not any(
            word in str(page.relative_to(ROOT)) for word in wanted for page in course
        ):
            continue
        if any(steps(page.read_text(encoding="utf-8")) for page in course) and not refresh(course):
            return 1
    for notebook in notebooks():
        if not wanted or any(word in str(notebook.relative_to(ROOT)) for word in wanted):
            refresh_notebook(notebook)
    return 0


def refresh_notebook(notebook: Path) -> None:
    """Put what the cells of a notebook give now into it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "checkout"
        copy_checkout(folder)
        fresh = written(executed(notebook, folder))
    if fresh != notebook.read_text(encoding="utf-8"):
        notebook.write_text(fresh, encoding="utf-8")
        print(f"wrote {notebook.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
