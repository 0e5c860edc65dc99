"""All pages of the generated reference: each is a template beside this file, filled with what the code says."""

from __future__ import annotations

import ast
import datetime
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import typer

import planner
from docs.generate.fields import ScenarioField, Section, scenario_sections
from docs.generate.validation_page import (
    CHART,
    shipped_check,
    validation_picture,
    validation_tables,
)
from planner import api, errors
from planner.actuals.actuals_summary import ACTUALS_TABLES
from planner.answers.comparison import COMPARISON_TABLES
from planner.answers.size import SIZE_TABLES
from planner.answers.study import STUDY_TABLES
from planner.answers.sweep import sweep_description
from planner.answers.tables import RUN_TABLES, TABLES
from planner.catalog.entries import (
    Accelerator,
    Entry,
    Grade,
    IncidentKind,
    Model,
    Precision,
    Range,
    Sourced,
    Stack,
    Tariff,
    Vendor,
)
from planner.catalog.load import ASSUMPTION_SETS, VERSION, Catalog, load_catalog
from planner.cli.app import app
from planner.finance.accounts import Account, View
from planner.finance.bridge import CAUSE_MEANINGS
from planner.finance.measure_names import (
    AGAINST_BASELINE,
    DEFINITIONS,
    MEASURES,
    SERVICE,
    MeasureDescription,
)
from planner.output.svg import png_of, svg_of
from planner.output.tables import FRICTIONLESS_TYPES, ColumnKind, TableDescription
from planner.requests.zoom_answer import ZOOM_TABLES
from planner.scenario.study import Study
from planner.studies.replicate import HEADLINES, MONTHLY, Output
from planner.units import unit_of, unit_suffixes
from planner.validation import field_docstring

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    keep_trailing_newline=True,
)


def reference_page(name: str) -> str:
    """Return the text of one generated page."""
    return _TEMPLATES.get_template(f"{name}.j2").render(PAGES[name]())


def write_reference(folder: Path) -> list[Path]:
    """Write the pages and their chart into a folder, leaving other files alone; return those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / name: reference_page(name).encode() for name in PAGES}
    files[folder / CHART] = png_of(svg_of(validation_picture(shipped_check()[0])))
    changed = [
        path for path, content in files.items() if not path.exists() or path.read_bytes() != content
    ]
    for path in changed:
        path.write_bytes(files[path])
    return changed


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a Markdown table; cells may hold Markdown, and a bar inside one is escaped."""

    def line(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
        )

    return "\n".join([line(header), "|" + " --- |" * len(header), *map(line, rows)])


def text(words: str) -> str:
    """Return plain words with what Markdown or HTML would take as markup made harmless."""
    for character, safe in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("*", "\\*"),
        ("_", "\\_"),
    ):
        words = words.replace(character, safe)
    return words


def code(words: object) -> str:
    """Return words as a code span."""
    return f"`{words}`"


# The pages of every key a scenario, and a study, may hold.


def _sections(sections: Iterable[Section]) -> str:
    """Return each mapping with a table of its keys."""
    parts = []
    for section in sections:
        level = "#" * min(2 + section.path.count(".") - section.path.count(".<name>"), 4)
        title = f"`{section.path}`" if section.path else "Top level"
        if section.tag is not None:
            title += f" with `kind: {section.tag}`"
        header = ["path", "what it means", "type", "unit", "range", "plausible", "default"]
        rows = [_field_cells(field) for field in section.fields]
        if not any(field.plausible for field in section.fields):
            for cells in (header, *rows):
                cells.pop(5)
        parts.append(f"{level} {title}\n\n{text(section.description)}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def _field_cells(field: ScenarioField) -> list[str]:
    default = ": ".join(
        filter(None, (code(field.default) if field.default else "", text(field.reason)))
    )
    return [
        code(field.path),
        text(field.meaning),
        field.kind,
        field.unit or "",
        text(field.allowed),
        text(field.plausible),
        "required" if field.required else default,
    ]


# The page of commands.


def commands(
    command: Any = None, words: tuple[str, ...] = ("planner",)
) -> Iterator[tuple[str, Any]]:
    """Yield every command with the words that call it, the root first, each group before what it holds."""
    command = typer.main.get_command(app) if command is None else command
    yield " ".join(words), command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from commands(inner, (*words, name))


def _command(words: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    usage = [words, *map(_place, arguments)]
    usage += ["[OPTIONS]"] if len(arguments) < len(shown) else []
    usage += (
        ["COMMAND"]
        if getattr(command, "commands", None) and not command.invoke_without_command
        else []
    )
    parts = [
        f"## `{words}`",
        text(" ".join((command.help or "").split())),
        f"```text\n{' '.join(usage)}\n```",
    ]
    if shown:
        rows = [
            (code(_place(parameter)), text(parameter.help or ""), _default(parameter))
            for parameter in shown
        ]
        parts.append(table(("argument or option", "what it does", "default"), rows))
    return "\n\n".join(parts)


def _place(parameter: Any) -> str:
    """Show an argument as a usage line has it, an option with its spellings and what it takes."""
    name: str = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "option":
        spellings = ", ".join([*parameter.opts, *parameter.secondary_opts])
        return spellings if parameter.is_flag else f"{spellings} {name}"
    if parameter.nargs == -1 and not name.endswith("..."):
        name += "..."
    return name if parameter.required else f"[{name}]"


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "required"
    is_plain = (
        default is None or isinstance(default, bool) or callable(default) or default in ("", [], ())
    )
    return "" if is_plain else code(default)


def columns_page(tables: Iterable[TableDescription]) -> str:
    """Return the reference of output files in Markdown, one table of columns for each file."""
    lines: list[str] = []
    for table in tables:
        lines += [f"## `{table.name}.csv`", "", table.description, ""]
        if table.key:
            lines += ["One row for each " + ", ".join(f"`{name}`" for name in table.key) + ".", ""]
        lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in table.columns:
            cells = (
                f"`{column.name}`",
                FRICTIONLESS_TYPES[column.kind],
                column.unit,
                column.description,
            )
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


# The page of the Python interface, read off the source.

_VERBS = ("load", "simulate", "run", "compare", "sweep", "study", "report")
_RESULTS = ("Answer", "RunResult", "BookedRun")


def _api() -> dict[str, str]:
    """Return each verb with its parameters, and what the verbs hand back."""
    found: dict[str, ast.ClassDef] = {}
    for file in Path(planner.__path__[0]).rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        if any(re.search(rf"^class {name}\b", source, re.MULTILINE) for name in _RESULTS):
            found |= {
                node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)
            }
    return {
        "verbs": "\n\n".join(f"### `planner.{name}`\n\n{_function(name)}" for name in _VERBS),
        "results": "\n\n".join(_class(found[name]) for name in _RESULTS),
    }


def _function(name: str) -> str:
    """Return the signature, a parameter a line as it is written, and the documentation of a public function."""
    function = ast.parse(inspect.getsource(getattr(api, name))).body[0]
    assert isinstance(function, ast.FunctionDef)

    def written(argument: ast.arg, default: ast.expr | None) -> str:
        kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
        return f"{argument.arg}{kind}" + (
            f" = {ast.unparse(default)}" if default is not None else ""
        )

    arguments = function.args
    missing: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    plain = [
        written(*pair) for pair in zip(arguments.args, [*missing, *arguments.defaults], strict=True)
    ]
    named = [
        written(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    shown = ",\n    ".join([*plain, *(["*", *named] if named else [])])
    returned = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"```text\n{name}(\n    {shown},\n){returned}\n```\n\n{_documentation(function)}"


def _class(definition: ast.ClassDef) -> str:
    """Return a class's documentation and a table of its public fields and methods."""
    rows = []
    for node, after in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said = (
                after.value.value
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                else ""
            )
            rows += [(code(node.target.id), text(str(said)))] if said else []
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            is_property = any(
                isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list
            )
            rows.append(
                (code(node.name if is_property else f"{node.name}()"), _documentation(node))
            )
    bases = [ast.unparse(base) for base in definition.bases if ast.unparse(base) != "ABC"]
    heading = f"### `{definition.name}`\n\n{_documentation(definition)}"
    heading += f" {'An' if bases[0][0] in 'AEIOU' else 'A'} `{bases[0]}`." if bases else ""
    return f"{heading}\n\n{table(('name', 'what it is'), rows)}"


def _documentation(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return a docstring as Markdown: its double backquotes are code, the rest plain words."""
    parts = (ast.get_docstring(node) or "").split("``")
    return "".join(code(part) if place % 2 else text(part) for place, part in enumerate(parts))


# The page of what the catalogue holds.

GRADES: dict[Grade, str] = {
    "A": "primary source: a datasheet, a filing, a paper, a benchmark log",
    "B": "credible secondary source",
    "C": "derived from sources of grade A or B",
    "D": "assumption",
}
SECTIONS: dict[str, type[Entry]] = {
    "accelerators": Accelerator,
    "models": Model,
    "stacks": Stack,
    "tariffs": Tariff,
    "precisions": Precision,
    "vendors": Vendor,
    "incidents": IncidentKind,
}


def _catalog() -> dict[str, Any]:
    """Return catalogue entries, what each assumption set changes against the measured one, and grades."""
    known = load_catalog()
    sets = []
    for name in ASSUMPTION_SETS[1:]:
        rows = [row for section in SECTIONS for row in _changes(known, load_catalog(name), section)]
        sets += [f"### `{name}`", table(("entry", "field", "unit", "measured", name), rows)]
    priors = [
        (
            code(name),
            *(f"{x:g}" for x in (p.low, p.base, p.high)),
            text(p.unit or ""),
            p.grade,
            text(known.provenance(p)[0]),
        )
        for name, p in known.priors.items()
    ]
    prior_header = ("prior", "low (P10)", "base (P50)", "high (P90)", "unit", "grade", "source")
    sources = [
        (code(key), text(source.title), source.date.isoformat())
        for key, source in known.sources.items()
    ]
    return {
        "version": VERSION,
        "grades": table(
            ("grade", "meaning"), [(grade, text(words)) for grade, words in GRADES.items()]
        ),
        "sets": "\n\n".join(sets),
        "sections": "\n\n".join(
            _section(known, section, model) for section, model in SECTIONS.items()
        ),
        "priors": table(prior_header, priors),
        "sources": table(("key", "source", "date"), sources),
    }


def _changes(known: Catalog, other: Catalog, section: str) -> Iterator[tuple[str, ...]]:
    """Yield which values of a section differ: entry, key, unit, before and after."""
    for name, changed in getattr(other, section).items():
        base = getattr(known, section).get(name)
        before = {key: (fact, unit) for key, fact, unit in base.facts()} if base else {}
        after = {key: (fact, unit) for key, fact, unit in changed.facts()}
        for key in dict.fromkeys([*before, *after]):
            (old, unit), (new, _) = (
                before.get(key) or (None, after[key][1]),
                after.get(key) or (None, None),
            )
            if _shown(old) != _shown(new):
                yield code(name), code(key), unit or "", _shown(old), _shown(new)


def _section(known: Catalog, section: str, model: type[Entry]) -> str:
    """Return the entries of a section, its fields, and every value, the longer side of that table downwards."""
    entries: dict[str, Entry] = getattr(known, section)
    facts = {name: {key: fact for key, fact, _ in entry.facts()} for name, entry in entries.items()}
    counts = {name: Counter(fact.grade for fact in found.values()) for name, found in facts.items()}
    by_grade = [
        (code(name), *(str(count[grade] or "") for grade in GRADES))
        for name, count in counts.items()
    ]
    fields = [
        (
            code(name),
            text(field_docstring(model, name)),
            unit_of(name) or "",
            "yes" if field.is_required() else "",
        )
        for name, field in model.model_fields.items()
    ]
    parts = [
        f"## {section.capitalize()}",
        f"Entries, and how many of their values have each grade:\n\n{table(('entry', *GRADES), by_grade)}",
        f"Fields of an entry:\n\n{table(('field', 'what it means', 'unit', 'required'), fields)}",
    ]
    if section not in ("models", "stacks"):
        names = list(entries)
        keys = list(dict.fromkeys(key for found in facts.values() for key in found))
        cell = {(name, key): _shown(facts[name].get(key)) for name in names for key in keys}
        if len(names) > len(keys):
            values = table(
                ("entry", *map(code, keys)), [(code(n), *(cell[n, k] for k in keys)) for n in names]
            )
        else:
            values = table(
                ("field", *map(code, names)),
                [(code(k), *(cell[n, k] for n in names)) for k in keys],
            )
        parts.append("Values, each with its grade:\n\n" + values)
    return "\n\n".join(parts)


def _shown(fact: Sourced[Any] | Range | None) -> str:
    """Show a value and its grade."""
    if fact is None:
        return "none"
    if isinstance(fact, Range):
        return f"{fact.low:g} / {fact.base:g} / {fact.high:g} ({fact.grade})"
    match fact.value:
        case bool(value):
            written = "yes" if value else "no"
        case tuple(value):
            written = text(", ".join(value))
        case float(value):
            written = f"{value:,.12g}"
        case datetime.date() as value:
            written = value.isoformat()
        case value:
            written = text(str(value))
    return f"{written} ({fact.grade})"


# The pages of what a run writes, and of every metric: what it is called, how it follows from a run, what it says.


def _outputs() -> dict[str, Any]:
    """Return output files with their columns, and the chart of accounts."""
    accounts = [
        (
            code(account.value),
            text(account.description),
            *("yes" if view in account.views else "" for view in View),
        )
        for account in Account
    ]
    views = [str(view.name).lower() for view in View]
    return {
        "columns": lambda tables: columns_page(tables).strip("\n"),
        "run": RUN_TABLES,
        "compare": (*COMPARISON_TABLES.values(), TABLES["warnings"]),
        "sweep": [sweep_description(())],
        "size": SIZE_TABLES.values(),
        "study": STUDY_TABLES.values(),
        "zoom": ZOOM_TABLES.values(),
        "actuals": ACTUALS_TABLES.values(),
        "accounts": table(("account", "what it holds", *views), accounts),
    }


def _metrics() -> dict[str, Any]:
    """Return every metric with its formula."""

    def measures(described: Iterable[MeasureDescription]) -> str:
        rows = [
            (
                code(one.name),
                text(unit_of(one.name) or ""),
                text(one.formula),
                one.view,
                one.meaning,
            )
            for one in described
        ]
        return table(("metric", "unit", "formula", "view", "what it says"), rows)

    def outputs(described: Iterable[Output]) -> str:
        rows = [
            (
                code(one.name),
                text(one.unit),
                one.description,
                "lower" if one.lower_is_better else "higher",
            )
            for one in described
        ]
        return table(("metric", "unit", "what it says", "better"), rows)

    def figures(described: TableDescription) -> str:
        kinds = (ColumnKind.DECIMAL, ColumnKind.INTEGER, ColumnKind.CENTS)
        columns = [column for column in described.columns if column.kind in kinds]
        rows = [(code(column.name), text(column.unit), column.description) for column in columns]
        return table(("metric", "unit", "formula"), rows)

    service = [(code(name), text(unit_of(name) or ""), text(DEFINITIONS[name])) for name in SERVICE]
    causes = [(code(cause), text(meaning)) for cause, meaning in CAUSE_MEANINGS.items()]
    return {
        **TABLES,
        "measures": measures,
        "outputs": outputs,
        "figures": figures,
        "run": MEASURES,
        "baseline": AGAINST_BASELINE,
        "service": table(("metric", "unit", "formula"), service),
        "causes": table(("cause", "what it holds"), causes),
        "headlines": HEADLINES,
        "monthly": MONTHLY,
        "decision": STUDY_TABLES["decision"],
    }


# The pages of errors and of names.

_EXIT_CODES = {
    0: "Done.",
    1: "The plan or the model failed, or the program that read the output closed it.",
    2: "Bad input: a file, a key, a number or an option that cannot be used. Each message names its place.",
    3: "With `--fail-on-miss`: no plan in the answer is known to meet its SLO target.",
    130: "Stopped before it was finished, from the keyboard or by `--minutes`; continue with `--resume`.",
}


def _errors() -> dict[str, str]:
    """Return exit codes and exceptions."""

    def kinds(kind: type[errors.PlannerError]) -> Iterator[type[errors.PlannerError]]:
        yield kind
        for below in kind.__subclasses__():
            if below.__module__ == errors.__name__:
                yield from kinds(below)

    codes = [(str(number), text(meaning)) for number, meaning in _EXIT_CODES.items()]
    rows = [
        (
            code(kind.__name__),
            str(kind.exit_code),
            text((kind.__doc__ or "").strip().splitlines()[0]),
        )
        for kind in kinds(errors.PlannerError)
    ]
    tree = (errors.__doc__ or "").partition("::")[2].strip("\n")
    return {
        "codes": table(("exit code", "meaning"), codes),
        "tree": "\n".join(line.removeprefix("    ") for line in tree.splitlines()),
        "exceptions": table(("exception", "exit code", "meaning"), rows),
    }


def _nomenclature() -> dict[str, str]:
    """Return unit suffixes and every named quantity."""
    suffixes = [(code(suffix), text(unit)) for suffix, unit in sorted(unit_suffixes().items())]
    places: dict[str, list[str]] = defaultdict(list)
    meanings: dict[str, str] = {}
    for name, place, meaning in _quantities():
        if place not in places[name]:
            places[name].append(place)
        meanings.setdefault(name, meaning)
    rows = [
        (code(name), text(unit_of(name) or ""), meanings[name], ", ".join(places[name]))
        for name in sorted(places)
        if unit_of(name) is not None
    ]
    return {
        "suffixes": table(("a name that ends in", "is in"), suffixes),
        "quantities": table(("name", "unit", "meaning", "where"), rows),
    }


def _quantities() -> Iterator[tuple[str, str, str]]:
    """Yield every named figure, with the place it appears and what it means there (Markdown)."""
    for section in scenario_sections():
        for field in section.fields:
            yield field.path.rpartition(".")[2], "[scenario](scenario.md)", text(field.meaning)
    for model in SECTIONS.values():
        for name in model.model_fields:
            yield name, "[catalogue](catalog.md)", text(field_docstring(model, name))
    for output in RUN_TABLES:
        for column in output.columns:
            yield column.name, f"[{output.name}.csv](outputs.md)", column.description


PAGES: dict[str, Callable[[], Mapping[str, Any]]] = {
    "scenario.md": lambda: {"sections": _sections(scenario_sections())},
    "study.md": lambda: {
        "sections": _sections(scenario_sections(Study.model_json_schema(by_alias=True)))
    },
    "cli.md": lambda: {
        "commands": "\n\n".join(_command(words, command) for words, command in commands())
    },
    "catalog.md": _catalog,
    "outputs.md": _outputs,
    "metrics.md": _metrics,
    "errors.md": _errors,
    "api.md": _api,
    "nomenclature.md": _nomenclature,
    "validation.md": lambda: validation_tables(*shipped_check()),
}
"""What fills the template of each page."""
