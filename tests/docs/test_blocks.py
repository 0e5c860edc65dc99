"""The convention itself: what counts as a step, what as its output, and what the refresher writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import blocks, steps
from tests.docs.carrying_out import carry_out
from tests.docs.refresh import refreshed

PAGE = """\
# Title

```console
$ echo one; echo two >&2
one
two

$ echo quiet
$ printf '%s-' a \\
> b
…
```

```yaml
# saved.yaml
name: x
```

1. In a list:

   ```console
   $ cat saved.yaml
   stale
   ```

```yaml
name: not saved
```

```python
x = 20
print("earlier blocks are silent")
```

```python
print(x + 1)
print(x + 2)
```

```text
…
```

<!-- not run: nothing to fetch here -->
```console
$ exit 1
```
"""


def test_blocks_know_their_language_and_place() -> None:
    lines = PAGE.splitlines()
    for block in blocks(PAGE):
        assert lines[block.first_line - 1].strip() == f"```{block.language}"
        assert lines[block.first_line + len(block.lines)].strip() == "```"
    assert [block.is_run for block in blocks(PAGE)] == [True] * 7 + [False]


def test_steps_are_what_a_reader_does() -> None:
    assert [(step.kind, step.content.partition("\n")[0]) for step in steps(PAGE)] == [
        ("command", "echo one; echo two >&2"),
        ("command", "echo quiet"),
        ("command", "printf '%s-' a b"),
        ("file", "# saved.yaml"),
        ("command", "cat saved.yaml"),
        ("python", "x = 20"),
        ("python", "print(x + 1)"),
    ]


def test_carrying_out_gives_both_streams_and_keeps_names(tmp_path: Path) -> None:
    outcomes = list(carry_out(PAGE, tmp_path))
    assert [outcome.printed for outcome in outcomes] == [
        ("one", "two"),
        ("quiet",),
        ("a-b-",),
        ("# saved.yaml", "name: x"),
        ("earlier blocks are silent",),
        ("21", "22"),
    ]
    assert all(outcome.exit_code == 0 for outcome in outcomes)


def test_refresh_replaces_what_is_shown_and_nothing_else(tmp_path: Path) -> None:
    fresh = refreshed(PAGE, carry_out(PAGE, tmp_path))
    expected = PAGE.replace("> b\n…", "> b\na-b-").replace("```text\n…", "```text\n21\n22")
    expected = expected.replace("   stale", "   # saved.yaml\n   name: x")
    assert fresh == expected
    assert refreshed(fresh, carry_out(fresh, tmp_path)) == fresh


def test_failure_of_a_command_is_its_exit_code(tmp_path: Path) -> None:
    page = "```console\n$ exit 3\n```\n\n```bash\nfalse\necho not reached\n```\n\n```python\n1 / 0\n```\n"
    console, script, python = carry_out(page, tmp_path)
    assert console.exit_code == 3
    assert script.exit_code != 0
    assert script.printed == ()
    assert python.printed[-1] == "ZeroDivisionError: division by zero"


MAKEFILE = """\
.PHONY: run test
BIN := bin
run: installed
	$(BIN)/planner --version

test: installed
	$(BIN)/planner --version
	$(BIN)/pytest
installed:
	touch $@
"""


def test_make_is_followed_to_planner_and_no_further(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    run, test, missing = carry_out(
        "```console\n$ make run\n$ make test\n$ make tset\n```\n", tmp_path
    )
    assert run.printed[0] == ".venv/bin/planner --version"
    assert run.printed[1].startswith("planner ")
    assert (test.exit_code, test.is_compared) == (0, False)
    assert (missing.exit_code, missing.printed) == (2, ("the Makefile has no target tset",))


@pytest.mark.parametrize(
    "page", ["```console\nno prompt\n```\n", "```console\n```\n", "```console\n$ ls\n"]
)
def test_malformed_blocks_are_named_by_their_line(page: str) -> None:
    with pytest.raises(ValueError, match=r"line [12]:"):
        steps(page)
