from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from planner.errors import Problem, ScenarioError
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.validation import MAX_PROBLEMS, Strict, sound_part, validate
from planner.yaml_io import Document, parse_document
from tests.conftest import TINY


class Fixed(Strict):
    kind: Literal["fixed"]
    amount_usd: float


class Scaled(Strict):
    kind: Literal["scaled"]
    per_year: Annotated[float, Field(ge=0)]


class Part(Strict):
    count: Annotated[int, Field(ge=0, le=10)]
    price: Annotated[Fixed | Scaled, Field(discriminator="kind")] | None = None


class Whole(Strict):
    name: str
    since: datetime.date | None = None
    switched: bool = False
    ratio: float = 1.0
    level: Literal["low", "high"] = "low"
    parts: dict[str, Part] = Field(default_factory=dict)
    series: tuple[Part, ...] = ()
    from_: str | None = Field(default=None, alias="from")


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(ScenarioError) as caught:
        validate(Whole, parse_document(text, "f.yaml"))
    return caught.value.problems


def test_a_sound_document_becomes_a_model() -> None:
    text = "name: x\nsince: 2026-01-01\nparts: {a: {count: 1, price: {kind: fixed, amount_usd: 2}}}\nseries: [{count: 3}]"  # noqa: E501
    whole = validate(Whole, parse_document(text, "f"))
    assert whole.since == datetime.date(2026, 1, 1)
    assert whole.series == (Part(count=3),)
    assert whole.parts["a"].price == Fixed(kind="fixed", amount_usd=2.0)
    with pytest.raises(ValueError, match="frozen"):
        whole.name = "y"  # type: ignore[misc]  # that it is refused is the test


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nmae: y", "f.yaml:2: nmae: unknown key (did you mean name?)"),
        ("FROM_: y", "f.yaml:2: FROM_: unknown key (did you mean from?)"),
        (
            "zzz: y",
            "f.yaml:2: zzz: unknown key (allowed: from, level, name, parts, ratio, series, since, switched)",
        ),
        ("since: yesterday", "f.yaml:2: since: must be a date, YYYY-MM-DD, not 'yesterday'"),
        ("since: 2026-02-30", "f.yaml:2: since: must be a date, YYYY-MM-DD, not '2026-02-30'"),
        ("since: 20260101", "f.yaml:2: since: must be a date, YYYY-MM-DD, not 20260101"),
        (
            "since: '2026-01-01'",
            "f.yaml:2: since: must be a date, YYYY-MM-DD, not '2026-01-01' (write it without quotes)",
        ),
        ("switched: 1", "f.yaml:2: switched: must be true or false, not 1"),
        ("switched: yes", "f.yaml:2: switched: must be true or false, not 'yes'"),
        ("ratio: '1'", "f.yaml:2: ratio: must be a number, not '1'"),
        ("ratio: true", "f.yaml:2: ratio: must be a number, not true"),
        ("ratio:", "f.yaml:2: ratio: must be a number, not nothing"),
        ("ratio: .nan", "f.yaml:2: ratio: must be a finite number, not nan"),
        ("ratio: -.inf", "f.yaml:2: ratio: must be a finite number, not -inf"),
        ("ratio: 1e999", "f.yaml:2: ratio: must be a finite number, not inf"),
        ("level: middle", "f.yaml:2: level: must be one of 'low' or 'high', not 'middle'"),
        ("parts: [1]", "f.yaml:2: parts: must be a mapping of names to entries, not a list"),
        ("parts: {a: 3}", "f.yaml:2: parts.a: must be a mapping of keys to values, not 3"),
        ("parts: {a: {}}", "f.yaml:2: parts.a.count: is required and is not there"),
        (
            "parts: {a: {Count: 1}}",
            "f.yaml:2: parts.a.count: is required and is not there (is it Count, misspelt?)",
        ),
        (
            "parts: {a: {count: -1}}",
            "f.yaml:2: parts.a.count: must be greater than or equal to 0, not -1",
        ),
        ("parts: {a: {count: 1.5}}", "f.yaml:2: parts.a.count: must be a whole number, not 1.5"),
        (
            "parts: {a: {count: 1" + "0" * 60 + "}}",
            "f.yaml:2: parts.a.count: must be less than or equal to 10, not 1000",
        ),
        (
            "parts: {a: {count: 1" + "0" * 90 + "}}",
            "f.yaml:2: parts.a.count: must be a whole number, not '1000",
        ),
        ("series: {a: 1}", "f.yaml:2: series: must be a list, not a mapping"),
        (
            "series: [{count: 1}, {count: x}]",
            "f.yaml:2: series[1].count: must be a whole number, not 'x'",
        ),
        (
            "parts: {a: {count: 1, price: {kind: fixed}}}",
            "f.yaml:2: parts.a.price.amount_usd: is required",
        ),
        (
            "parts: {a: {count: 1, price: {kind: scaled, per_yaer: 1}}}",
            "parts.a.price.per_yaer: unknown key (did you",
        ),
        (
            "parts: {a: {count: 1, price: {kind: free}}}",
            "f.yaml:2: parts.a.price: needs kind: one of 'fixed', 'scaled'",
        ),
        ("parts: {a: {count: 1, price: {}}}", "f.yaml:2: parts.a.price: needs a kind"),
    ],
)
def test_each_mistake_has_one_message(line: str, message: str) -> None:
    found = [str(problem) for problem in problems_of(f"name: x\n{line}\n")]
    assert any(message in text for text in found), found
    assert ("without quotes" in message) == any("without quotes" in text for text in found)


def test_all_problems_come_in_one_message() -> None:
    found = problems_of("nmae: x\nratio: wide\nparts:\n  a: {count: -1}\n  b: {cuont: 2}\n")
    assert {(problem.path, problem.line) for problem in found} == {
        ("name", 1), ("nmae", 1), ("ratio", 2), ("parts.a.count", 4), ("parts.b.count", 5), ("parts.b.cuont", 5),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml:1: is empty; expected a mapping of keys to values"),
        ("# only a remark", "f.yaml:1: is empty; expected a mapping of keys to values"),
        ("[1, 2]", "f.yaml:1: holds a list; expected a mapping of keys to values"),
        ("\n\n- a", "f.yaml:3: holds a list; expected a mapping of keys to values"),
        ("just words", "f.yaml:1: holds 'just words'; expected a mapping of keys to values"),
        ("42", "f.yaml:1: holds 42; expected a mapping of keys to values"),
    ],
)
def test_a_document_that_is_no_mapping(text: str, message: str) -> None:
    assert [str(problem) for problem in problems_of(text)] == [message]


def test_control_characters_are_shown_not_obeyed() -> None:
    (problem,) = problems_of('name: x\n"\\e[31mred\\u202e\\r\\n": 1\n')
    assert "\\x1b[31mred\\u202e\\r\\n" in str(problem)
    assert str(problem).isprintable()


def test_no_file_can_fill_the_screen_or_the_afternoon() -> None:
    text = "name: x\nparts:\n" + "".join(f"  p{i}: {{cuont: {i}}}\n" for i in range(40_000))
    before = time.process_time()
    found = problems_of(text)
    assert time.process_time() - before < 10
    assert len(found) == MAX_PROBLEMS + 1
    assert str(found[-1]) == f"f.yaml: and {80_000 - MAX_PROBLEMS} more problems"


def test_the_sound_part_leaves_out_what_is_wrong() -> None:
    text = "name: x\nzzz: 1\nratio: wide\nparts: {a: {count: 1}, b: {count: -1}, c: {}}\nseries: [{count: 1}, {}]\n"
    document = parse_document(text, "f")
    part = sound_part(Whole, document)
    assert part is not None
    assert part == Whole(name="x", parts={"a": Part(count=1)})
    assert document.content["zzz"] == 1


def test_without_what_is_required_no_part_is_sound() -> None:
    assert sound_part(Whole, parse_document("ratio: 2", "f")) is None
    assert sound_part(Whole, parse_document("[]", "f")) is None


FIELDS = sorted(
    {name for model in (Scenario, Whole, Part) for name in model.model_fields}
    | {"h200", "kind", "from"}
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=12)
    | st.sampled_from(["fixed", "H200", "llama-3.1-70b", "compound"])
)
CONTENT = st.recursive(
    SCALARS,
    lambda part: (
        st.lists(part, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), part, max_size=5)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("model", [Scenario, Whole])
@given(content=CONTENT)
def test_any_content_is_valid_or_refused(model: type[Strict], content: Any) -> None:
    document = Document(content)
    try:
        validate(model, document)
    except ScenarioError as error:
        assert error.problems
        assert all(line.isprintable() for line in str(error).splitlines())
    sound_part(model, document)


def test_a_key_that_is_no_text_is_refused_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    with pytest.raises(ScenarioError, match="must be a valid string"):
        load_scenario(tmp_path / "tiny.yaml", ["\ud800=1"])
