"""The page without a scenario: files and answers that become a draft, as ``planner init`` would write it."""

from __future__ import annotations

import csv
import datetime
import io
import re
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from planner import api
from planner.catalog.load import load_catalog, workload_preset_names
from planner.data_files import data_rows
from planner.errors import Problem, ScenarioError, printable
from planner.records import record
from planner.scenario.loading import scenario_from_document
from planner.ui.settings import settings_of
from planner.yaml_io import parse_document

if TYPE_CHECKING:
    from planner.onramp.command import Draft
    from planner.onramp.first_scenario import Row
    from planner.scenario.scenario import Scenario

MAX_FILE_BYTES = 200_000_000
"""Length of a file that the page takes."""
_MAX_FILES = 32
_MAX_ROWS = 32
OWNED = "owned-typed.csv"
QUOTED = "quotes-typed.csv"
"""Names of the lists that are typed into the page; they are read as files are."""
TYPED_COLUMNS = {
    OWNED: {
        "accelerator": "accelerator",
        "nodes": "nodes (servers)",
        "bought": "bought on",
        "cost_usd": "cost of all, USD",
    },
    QUOTED: {
        "accelerator": "accelerator",
        "price_usd": "price of one, USD",
        "lead_weeks": "lead time, weeks",
        "vendor": "vendor",
        "max_nodes": "most nodes",
    },
}
"""What is asked of each machine, by the column of its list."""
_PLAIN_VALUE = re.compile(r"[\w.+-]{1,64}")
TAB = re.compile(r"[\w-]{1,64}")
"""What a browser tab calls itself."""
_THROUGHPUT = re.compile(rb'"[a-z_]*throughput"\s*:')
_NAME = re.compile(r"[^\W_][\w-]{0,63}")

Text = Annotated[str, Field(max_length=200)]
TypedRows = Annotated[tuple[dict[Text, Text], ...], Field(max_length=_MAX_ROWS)]


@record
class Question:
    """One thing that is asked, of the plan or of every workload."""

    question: str
    """Key of the question it belongs to."""
    path: str
    """Where the answer goes in the scenario; ``*`` is any workload."""
    label: str
    kind: str
    """A number, or of what its choices are."""

    @property
    def is_by_workload(self) -> bool:
        """Whether each workload has its own answer."""
        return self.path.startswith("workloads.*.")


QUESTIONS = [Question(**row) for row in data_rows(__file__, "questions.csv")]
_BY_PATH = {question.path: question for question in QUESTIONS}
_OPTIONS = {
    "model": "model",
    "preset": "preset",
    "requests_per_s": "requests_per_s",
    "growth.per_year": "growth",
}
"""Options of ``planner init`` for what files show too, by the key of a workload."""
_QUESTION_BY_OPTION = {
    "--model": "models",
    "--preset": "models",
    "--requests-per-s": "growth",
    "--growth": "growth",
    "--columns": "files",
    "--rate": "files",
    "--timezone": "files",
    "name": "name",
    "start": "name",
}


class FileAnswer(BaseModel, frozen=True, strict=True):
    """A file that was dropped, and what its workload is called."""

    name: Text
    workload: Text = ""
    run: Text = ""
    """What a benchmark does not say of its run, as ``--run`` takes it."""


class Answers(BaseModel, frozen=True, strict=True):
    """All that the page holds of the questions."""

    tab: Annotated[str, Field(pattern=rf"^{TAB.pattern}$")]
    name: Text = ""
    start: Text = ""
    files: Annotated[tuple[FileAnswer, ...], Field(max_length=_MAX_FILES)] = ()
    workloads: Annotated[tuple[Text, ...], Field(max_length=_MAX_FILES)] = ()
    """Names of workloads that no file shows."""
    columns: Text = ""
    rate: Text = ""
    time_unit: Literal["auto", "s", "ms", "us", "ns", "excel"] = "auto"
    timezone: Text = ""
    owned: TypedRows = ()
    quoted: TypedRows = ()
    settings: Annotated[dict[Text, Text], Field(max_length=400)] = Field(default_factory=dict)
    """Answers by their path in the scenario; what is left to files and defaults is not there."""
    open: bool = False
    """Whether the plan is to be shown."""


class Intake:
    """The files of each browser tab, in a folder that goes when the server ends."""

    def __init__(self) -> None:
        """Make the folder."""
        self.folder = Path(tempfile.mkdtemp(prefix="planner-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def file(self, tab: str, name: str) -> Path:
        """Return the path of a tab's file, in a folder made for it; raise an error for a name that will not do."""
        folder = self.folder / tab
        folder.mkdir(exist_ok=True)
        is_plain = Path(name).name == name and name not in ("", "..") and name.isprintable()
        if not is_plain or len(name.encode()) > 200:
            raise ScenarioError(f"{name[:80]!r} is not a name of a file")
        is_new = not (folder / name).exists()
        if is_new and len(list(folder.iterdir())) > _MAX_FILES:
            raise ScenarioError(f"{_MAX_FILES} files at most")
        return folder / name

    def forget(self, tab: str, name: str) -> None:
        """Remove a file that is not wanted any more."""
        self.file(tab, name).unlink(missing_ok=True)

    def arguments(self, answers: Answers) -> dict[str, Any]:
        """Return the arguments of ``planner.api.init`` that answers come to."""
        sources = []
        for file in answers.files:
            path = str(self.file(answers.tab, file.name))
            if is_benchmark(Path(path)):
                continue  # of the throughput model, not of the plan
            is_named = bool(_NAME.fullmatch(file.workload))
            sources.append(f"{file.workload}={path}" if is_named else path)
        for name, rows in ((OWNED, answers.owned), (QUOTED, answers.quoted)):
            if any(map(_is_filled, rows)):
                typed = self.file(answers.tab, name)
                typed.write_text(_csv(rows, list(TYPED_COLUMNS[name])), encoding="utf-8")
                sources.append(str(typed))
        options, overrides = _stated(answers.settings)
        # A workload that no file shows is named by what is stated of it.
        usual_model = [f"{name}={_usual_model()}" for name in answers.workloads
                       if f"workloads.{name}.model" not in answers.settings]  # fmt: skip
        options["model"] += usual_model
        return {
            "sources": sources,
            **options,
            "timezone": answers.timezone or "UTC",
            "columns": answers.columns or None,
            "rate": answers.rate or None,
            "time_unit": answers.time_unit,
            "start": _date(answers.start),
            "overrides": overrides,
        }

    def draft(self, answers: Answers) -> Draft:
        """Return the scenario of some answers."""
        return api.draft(answers.name or "my-plan", **self.arguments(answers))

    def benchmarks(self, answers: Answers) -> dict[str, list[str]]:
        """Return what load generators measured beside what the planner predicts of it, by file."""
        checks = {}
        for file in answers.files:
            path = self.file(answers.tab, file.name)
            if not is_benchmark(path):
                continue
            try:
                rows = api.check_benchmarks(path, [file.run]).rows()
                checks[file.name] = [_measured_words(row) for row in rows]
            except ScenarioError as error:
                texts = [str(replace(problem, file=None)) for problem in error.problems]
                checks[file.name] = [f"is not checked yet: {text}" for text in texts]
        return checks

    def problems(self, error: ScenarioError, answers: Answers) -> list[dict[str, str]]:
        """Return what is wrong, each beside the question, the control and the file that it is of."""
        folder = f"{self.folder / answers.tab}/"
        return [_placed(problem, folder, answers) for problem in error.problems]


def command(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the command that writes the same scenario from the same files."""
    words = ["planner", "init", name]
    for source in arguments["sources"]:
        place = re.sub(r"^([^\W_][\w-]{0,63}=)?.*/", r"\1", source)
        words += ["--from", place]
    named = {
        "--model": arguments["model"],
        "--preset": arguments["preset"],
        "--requests-per-s": arguments["requests_per_s"],
        "--growth": arguments["growth"],
        "--set": arguments["overrides"],
    }
    for option, values in named.items():
        words += [word for value in values for word in (option, value)]
    usual = {"timezone": "UTC", "time_unit": "auto"}
    for key in ("timezone", "columns", "rate", "time_unit", "start"):
        value = arguments[key]
        if value is not None and value != usual.get(key):
            words += [f"--{key.replace('_', '-')}", str(value)]
    return shlex.join(words)


def described(draft: Draft, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a draft: its workloads with sources and errors, lists, and the command."""
    workloads = []
    for fitted in draft.workloads:
        figures = {field: [text, remark] for field, text, remark in fitted.rows()}
        workloads.append({"name": fitted.name, "source": fitted.source, "figures": figures})
    rows_by_file: dict[str, list[Row]] = {}
    for row in draft.machines:
        rows_by_file.setdefault(Path(row.place.file).name, []).append(row)
    scenario = scenario_of(draft)
    return {
        # What stands where a question is left open.
        "values": {one.path: one.value or one.default for one in settings_of(scenario)},
        "workloads": workloads,
        "lists": {file: _list_words(rows) for file, rows in rows_by_file.items()},
        "command": command(draft.name, arguments),
        "has_quotes": draft.has_quotes,
    }


def is_benchmark(path: Path) -> bool:
    """Return whether a file is the result of a load generator, which states a throughput."""
    try:
        with path.open("rb") as stream:
            head = stream.read(65_536)
    except OSError:
        return False
    return head.lstrip()[:1] in (b"{", b"[") and bool(_THROUGHPUT.search(head))


def _measured_words(row: Mapping[str, Any]) -> str:
    """Return one measured quantity beside its prediction."""
    quantity = str(row["quantity"] or "run").replace("_", " ")
    if "predicted" not in row or row["predicted"] is None:
        return f"{quantity}: {row.get('reason') or 'is not predicted'}"
    words = f"{quantity}: measured {row['measured']:,.4g}, predicted {row['predicted']:,.4g}"
    words += f" ({row['error_fraction']:+.0%})"
    if "low" in row:
        words += f", 90% between {row['low']:,.4g} and {row['high']:,.4g}"
    return words


def scenario_of(draft: Draft) -> Scenario:
    """Return a draft's scenario, under the name of the file that it would be."""
    document = parse_document(draft.text, f"{draft.name}.yaml")
    return scenario_from_document(document)


def _list_words(rows: Sequence[Row]) -> str:
    """Return what a list of machines holds."""
    if "price_usd" in rows[0].columns:
        return f"{len(rows)} {'quote' if len(rows) == 1 else 'quotes'}"
    nodes = sum(int(row.cells["nodes"]) for row in rows)
    return f"{nodes} nodes owned"


def choices() -> dict[str, Sequence[str]]:
    """Return the words that answers may be chosen from, by kind."""
    catalog = load_catalog()
    return {
        "model": list(catalog.models),
        "preset": workload_preset_names(),
        "tariff": list(catalog.tariffs),
        "accelerator": list(catalog.accelerators),
    }


def _usual_model() -> str:
    return next(iter(load_catalog().models))


def _date(text: str) -> datetime.date | None:
    if not text:
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        message = f"must be a date, YYYY-MM-DD; it is {text!r}"
        raise ScenarioError(Problem(path="start", message=message)) from None


def _is_filled(row: Mapping[str, str]) -> bool:
    return any(cell.strip() for cell in row.values())


def _csv(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> str:
    """Return typed rows as a list of machines; empty ones stay, so that a line is a row of the page."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([row.get(column, "").strip() for column in columns])
    return stream.getvalue()


def _stated(settings: Mapping[str, str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the options and overrides of ``planner init`` for answers by path."""
    options: dict[str, list[str]] = {option: [] for option in _OPTIONS.values()}
    overrides = []
    problems = []
    for path, text in settings.items():
        section, _, rest = path.partition(".")
        workload, _, key = rest.partition(".")
        pattern = f"workloads.*.{key}" if section == "workloads" else path
        question = _BY_PATH.get(pattern)
        if question is None or not _PLAIN_VALUE.fullmatch(text):
            hint = None
            if question is not None and question.kind == "number":
                hint = "it takes only a number, in the unit shown here"
            message = f"cannot be {printable(text)!r}"
            problems.append(Problem(path=path, message=message, hint=hint))
        elif section == "workloads" and key in _OPTIONS:
            options[_OPTIONS[key]].append(f"{workload}={text}")
        else:
            if key.startswith("lengths."):
                # What is stated takes the place of the quantiles of a log.
                quantiles = f"{path.rpartition('.')[0]}.quantiles=null"
                overrides += [] if quantiles in overrides else [quantiles]
            overrides.append(f"{path}={text}")
    if problems:
        raise ScenarioError(problems)
    return options, overrides


def _placed(problem: Problem, folder: str, answers: Answers) -> dict[str, str]:
    """Return a problem as the page shows it: beside which question, of which control or file."""
    path = problem.path or ""
    file = Path(problem.file or "").name
    uploaded = {answer.name for answer in answers.files}
    question = ""
    row = ""
    shown = problem
    if file in TYPED_COLUMNS:
        question = "owned" if file == OWNED else "quoted"
        # The header is line 1.
        row = str((problem.line or 1) - 1)
        shown = replace(problem, file=f"row {row}" if row != "0" else None, line=None)
    elif file in uploaded:
        question = "files"
        shown = replace(problem, file=file)
    else:
        question = _question_of(path)
        file = ""
        shown = replace(problem, file=None, line=None)
    return {
        "text": str(shown).replace(folder, ""),
        "question": question,
        "path": path,
        "file": file,
        "row": row,
    }


def _question_of(path: str) -> str:
    """Return the question that a path of the scenario, or an option of ``planner init``, is of."""
    if path in _QUESTION_BY_OPTION:
        return _QUESTION_BY_OPTION[path]
    parts = path.split(".")
    if parts[0] in ("workloads", "clusters") and len(parts) > 1:
        parts[1] = "*"
    pattern = ".".join(parts)
    # The nearest: an error may be of a section, or of a field inside an answer.
    for question in QUESTIONS:
        if pattern and (question.path.startswith(pattern) or pattern.startswith(question.path)):
            return question.question
    return ""
