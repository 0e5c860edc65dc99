"""Which tests a mutant has, and what becomes of a piece of work."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tests.mutants.forks import BROKEN, OUT_OF_TIME, forked
from tests.mutants.mutations import ROOT, Mutant, Unit, file_with
from tests.mutants.reach import Reach, Record, Test

FILE = str(file_with("def split_cents(").relative_to(ROOT))
MUTANT = Mutant(
    file=FILE, start=0, before="a", after="b", unit=Unit("split_cents", 10, 20), lines=range(4, 6)
)


def _reach(*tests: Test) -> Reach:
    return Reach({"near.py": list(tests[:-1]), "far.py": list(tests[-1:])})


def test_a_mutant_has_the_tests_of_its_line_then_the_others_of_their_file() -> None:
    reach = _reach(
        Test("far line", 1.0, {FILE: {"split_cents": [1, 2]}}),
        Test("slow", 9.0, {FILE: {"split_cents": [5]}}),
        Test("quick", 2.0, {FILE: {"split_cents": [4, 5]}}),
        Test("elsewhere", 0.1, {FILE: {"cents": [4]}}),
    )
    assert reach.tests_of(MUTANT, 100.0) == ["quick", "slow", "far line"]
    assert reach.tests_of(MUTANT, 3.0) == ["quick"]
    assert reach.tests_of(MUTANT, 0.0) == ["quick"]  # one at least


def test_tests_of_its_own_room_come_first() -> None:
    runs = {FILE: {"split_cents": [4]}}
    reach = Reach(
        {"tests/cli/a.py": [Test("a", 1.0, runs)], "tests/finance/b.py": [Test("b", 2.0, runs)]},
    )
    assert reach.tests_of(MUTANT, 100.0) == ["b", "a"]
    assert reach.tests_of(MUTANT, 2.5) == ["b"]


def test_what_a_test_file_runs_while_it_is_read_is_run_by_all_its_tests() -> None:
    reach = _reach(
        Test("", 0.0, {FILE: {"split_cents": [4]}}), Test("a", 1.0, {}), Test("b", 1.0, {})
    )
    assert reach.tests_of(MUTANT, 100.0) == ["a"]


def test_a_recorded_test_names_the_lines_it_runs(tmp_path: Path) -> None:
    tests = next(
        path
        for path in (ROOT / "tests" / "finance").rglob("*.py")
        if "split_cents(" in path.read_text()
    )
    record = Record(tmp_path / "record.json", str(tests.relative_to(ROOT)), "of today")
    codes = [code for _, code, _ in forked([record], Record.make, 1, 60)]
    assert codes == [0]
    (test,) = [test for test in record.tests(keep=False) or () if "loses_no_cent" in test.name]
    assert test.lines[FILE]["split_cents"]
    assert replace(record, digest="of tomorrow").tests(keep=False) is None


def test_work_ends_with_its_code_or_broken_or_out_of_time() -> None:
    def work(piece: str) -> int:
        if piece == "breaks":
            raise RuntimeError
        while piece == "never ends":
            time.process_time()
        return 3

    ended = {piece: code for piece, code, _ in forked(["ends", "breaks", "never ends"], work, 2, 1)}
    assert ended == {"ends": 3, "breaks": BROKEN, "never ends": OUT_OF_TIME}
