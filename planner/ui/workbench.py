"""The live page's plans: scenario variants run once each, in several futures, and what is written of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from markupsafe import Markup

from planner import api
from planner.answers import run_report, size_report
from planner.answers.comparison import COMPARISON_TABLES, comparison_summary, comparison_tables
from planner.answers.futures import future_row, futures_section, pending_row
from planner.answers.identity import scenario_file, scenario_sha256
from planner.answers.json_records import fields_json
from planner.answers.ranking import COST
from planner.answers.report import merged, run_body, sections_of
from planner.answers.run import PLAN_COLUMNS, measure_table
from planner.answers.run_summary import key_figures
from planner.answers.sentences import verdict_line
from planner.answers.summaries import RunSummary, SizingSummary
from planner.answers.tables import TABLES
from planner.engine.memory import fetch_memory
from planner.errors import PlannerError, Problem, ScenarioError
from planner.files import MANIFEST, read_json
from planner.finance.measure_names import DRAWS
from planner.output.blocks import Section
from planner.output.folder import REPORT, Contents, command_line, read_contents
from planner.output.html import badged, blocks_html
from planner.output.html import page as report_page
from planner.output.tables import Table
from planner.output.words import unit_price
from planner.run.replications import Replications, draw_again
from planner.run.simulate import RunResult, simulate
from planner.scenario.consistency import hourly_bytes
from planner.scenario.loading import (
    layer_of,
    load_scenario,
    plan_in_future,
)
from planner.scenario.scenario import Future, Scenario
from planner.studies.compare import side_by_side
from planner.studies.futures import AS_STATED, in_futures, stated_futures
from planner.ui.intake import TYPED_COLUMNS, Intake, scenario_of
from planner.ui.page import (
    Parts,
    changes_html,
    comparison_sections,
    measures_html,
    section_parts,
)
from planner.ui.settings import (
    FUTURE_SETTINGS,
    Setting,
    build_future,
    check_changes,
    future_name,
    future_of,
    settings_of,
)
from planner.yaml_io import flow_text

if TYPE_CHECKING:
    from planner.onramp.command import Draft

SHARED_PAGE = "share.html"
"""Name under which the server hands out a shared page."""
EXAMPLES = Path(__file__).parent / "examples"
_CACHED_PLANS = 6
"""Plans whose runs stay in memory: a run of three years is some 25 MB."""
_SIZING_MINUTES = 20
_SIZING_EFFORT = ("--replications", "32", "--confirmations", "100")
_FILE_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,63}")

PROGRAM = (sys.executable, "-c", "from planner.cli.app import main; main()")
"""Begins a command of the planner in a process of its own."""

Changes = tuple[str, ...]
"""Changed settings, each as ``path=value``."""
PlanKey = tuple[str, ...]
"""A plan: the name of its scenario, then its changes."""
Check = Callable[[], object]
"""Raises where nobody waits for the answer any more."""


def _no_check() -> None:
    """Let work go on to its end."""


@dataclass(slots=True, kw_only=True)
class PlanRun:
    """One plan of the live page, with its run."""

    result: RunResult
    settings: Sequence[Setting]
    """As they stand in it."""
    replications: Replications | None = None
    """Its figures over 19 replications, once they are drawn."""
    contents: Contents | None = None
    """What its run folder would hold, with intervals once they are drawn."""


class SizingProcess:
    """A sizing in a process of its own, which prints the best plan so far while it searches."""

    def __init__(self, words: Sequence[str], folder: Path, current: Path) -> None:
        """Start the command with some words in a current folder; it writes a folder."""
        # A process of its own, because a search takes minutes and all cores of its own workers.
        program = [*PROGRAM, *words, "--out", str(folder.absolute())]
        self.folder = folder
        self._log = tempfile.TemporaryFile("a+", encoding="utf-8")  # noqa: SIM115 - while it runs
        self.process = subprocess.Popen(
            program, stdout=subprocess.DEVNULL, stderr=self._log, cwd=current
        )

    def close(self) -> None:
        """Let go of what it printed."""
        self._log.close()

    @property
    def is_running(self) -> bool:
        """Whether it searches still."""
        return self.process.poll() is None

    @property
    def lines(self) -> list[str]:
        """The latest lines that it printed."""
        # From its beginning, as the process appends: its last lines are wanted.
        self._log.seek(0)
        return self._log.read().splitlines()[-6:]


class Workbench:
    """Scenarios, and the plans made from them by changing settings."""

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        outputs: Path = Path("outputs"),
        *,
        asks_first: bool = False,
    ) -> None:
        """Take loaded scenarios; sizings and shared pages are written below ``outputs``."""
        self.scenarios = {scenario.name: scenario for scenario in scenarios}
        self.asks_first = asks_first
        """Whether the page begins with questions, and the scenarios are examples."""
        self.outputs = outputs
        if len(self.scenarios) < len(scenarios):
            raise ScenarioError("two of these scenarios have one name; give one of them another")
        self.written: dict[str, Path] = {}
        """Folders of sizings, and shared pages, written from this workbench, by name."""
        self.sizing: SizingProcess | None = None
        self.intake = Intake()
        self.drafts: dict[str, dict[str, Any]] = {}
        """Arguments of ``planner.api.init`` by the name of the scenario, of those that have no file."""
        self._plans: OrderedDict[PlanKey, PlanRun] = OrderedDict()
        # A row of the grid by plan and future, and what was drawn for it: small, so all of them are kept.
        self._cells: dict[tuple[PlanKey, str], tuple[Any, ...]] = {}
        self._replications: dict[PlanKey, Replications] = {}
        self._engine = threading.Lock()

    def run_first_plan(self) -> None:
        """Run the first scenario as stated, and allocate the memory of cached plans so that early changes are fast."""
        scenario = self.stated("")
        self.plan((scenario.name,))
        # The system hands out fresh pages slowly; a slider that is dragged needs several plans at once.
        fetch_memory(_CACHED_PLANS * hourly_bytes(scenario))

    def add_draft(self, draft: Draft, arguments: dict[str, Any]) -> None:
        """Take a scenario without a file, in the place of an earlier one of its name."""
        scenario = scenario_of(draft)
        # Where commands of its own read it, under the name that it is saved under.
        (self.intake.folder / f"{draft.name}.yaml").write_text(draft.text, encoding="utf-8")
        with self._engine:
            self.scenarios[draft.name] = scenario
            self.drafts[draft.name] = arguments
            # Runs of the earlier one are of other answers.
            for plan in [plan for plan in self._plans if plan[0] == draft.name]:
                del self._plans[plan]
            for cell in [cell for cell in self._cells if cell[0][0] == draft.name]:
                del self._cells[cell]
            for plan in [plan for plan in self._replications if plan[0] == draft.name]:
                del self._replications[plan]

    def listed(self, *, drafts: bool) -> list[Scenario]:
        """Return the scenarios without a file, or those with one."""
        return [one for one in self.scenarios.values() if (one.name in self.drafts) is drafts]

    def _current_folder(self, plan: PlanKey) -> Path:
        """Return the folder to which the file of a plan's scenario is relative."""
        return self.intake.folder if plan[0] in self.drafts else Path.cwd()

    def stated(self, name: str) -> Scenario:
        """Return a scenario as its file states it; the first one where the name is empty."""
        name = name or next(iter(self.scenarios))
        if name not in self.scenarios:
            names = ", ".join(self.scenarios)
            raise ScenarioError(f"no scenario is called {name[:80]!r}; there are {names}")
        return self.scenarios[name]

    def _decisions(self, plan: PlanKey) -> Scenario:
        """Return a plan's scenario with its decisions, in the future that the file states."""
        stated = self.stated(plan[0])
        check_changes(stated, plan[1:])
        decisions = _without_future(plan)[1:]
        return load_scenario(stated, decisions)

    def scenario(self, plan: PlanKey) -> Scenario:
        """Return a plan's scenario in its future."""
        scenario = self._decisions(plan)
        future = build_future(scenario, _future_changes(plan))
        return _in_future(scenario, future)

    def plan(self, plan: PlanKey, check: Check = _no_check) -> PlanRun:
        """Return a plan with its run, cached or run now."""
        plan = _in_order(plan)
        # One run at a time: two would share the cores and both be late. Whoever waits here checks
        # first whether the answer is still wanted.
        with self._engine:
            check()
            # Popped and put back, so that the plan used longest ago is the first to go.
            plan_run = self._plans.pop(plan, None)
            if plan_run is None:
                future = _future_changes(plan)
                settings = settings_of(self._decisions(plan), future)
                result = simulate(self.scenario(plan))
                plan_run = PlanRun(result=result, settings=settings)
            known = self._replications.get(plan)
            if plan_run.replications is None and known is not None:
                plan_run.replications = known
                plan_run.contents = None  # it has no intervals yet
            self._plans[plan] = plan_run
            while len(self._plans) > _CACHED_PLANS:
                self._plans.popitem(last=False)
        return plan_run

    def draw(self, plan_run: PlanRun, check: Check = _no_check) -> Replications:
        """Return 19 replications of a plan; ``check`` may stop it between two."""
        if plan_run.replications is None:
            replications = draw_again(plan_run.result, DRAWS, lambda _: bool(check()))
            plan_run.replications = replications
            # What was worked out of the base replication alone is worked out again.
            plan_run.contents = None  # it has no intervals yet
        return plan_run.replications

    def contents(self, plan_run: PlanRun) -> Contents:
        """Return a plan's run folder contents, except for days, assumptions, workbook and SLO miss causes."""
        if plan_run.contents is None:
            result = plan_run.result
            tables = {
                name: Table(TABLES[name], make(result)) for name, make in PLAN_COLUMNS.items()
            }
            tables["measures"] = measure_table(result, plan_run.replications)
            manifest = {
                "kind": "run",
                "scenario": result.scenario.name,
                "seed": result.seed,
                "command": _run_command(result.scenario),
            }
            summary = key_figures(result, plan_run.replications).to_json()
            plan_run.contents = Contents(
                manifest=manifest, tables=tables, summary=summary, on_page=True
            )
        return plan_run.contents

    def changes(self, plan_run: PlanRun) -> list[tuple[str, str, str]]:
        """Return the changed settings: path, stated value and present value."""
        stated_settings = settings_of(self.stated(plan_run.result.scenario.name))
        stated = {setting.path: setting.value or setting.default for setting in stated_settings}
        changes = []
        for setting in plan_run.settings:
            before = stated.get(setting.path, "")
            now = setting.value or setting.default
            # Machines that could be added are no change until they have nodes.
            if before != now and not setting.is_new_cluster:
                changes.append((setting.path, before, now or "none"))
        return changes

    def compare(self, plans: Sequence[PlanKey], check: Check = _no_check) -> Contents | None:
        """Return the contents of a comparison of plans in the first one's future, the others before it.

        None for one plan alone, or plans of other months.
        """
        future = _future_changes(plans[0])
        # The first row is the baseline of a comparison.
        keys = [(*row, *future) for row in _rows(plans)]
        plan_runs = {plan_name(key): self.plan(key, check) for key in keys}
        scenarios = [plan_run.result.scenario for plan_run in plan_runs.values()]
        horizons = {(scenario.start, scenario.horizon_months) for scenario in scenarios}
        # Months of other years do not stand beside one another.
        if len(plan_runs) < 2 or len(horizons) > 1:
            return None
        # Plans of one scenario share its name; a comparison tells them apart by their changes.
        pairs = zip(plan_runs.items(), scenarios, strict=True)
        results = [
            replace(plan_run.result, scenario=scenario.model_copy(update={"name": name}))
            for (name, plan_run), scenario in pairs
        ]
        # Intervals of differences need the same replications of all: until all are drawn, none.
        replications = [run.replications for run in plan_runs.values() if run.replications]
        if len(replications) < len(plan_runs):
            replications = [draw_again(run.result, 1) for run in plan_runs.values()]
        comparison = side_by_side(results, replications)
        tables = {table.name: table for table in comparison_tables(comparison)}
        manifest = {"kind": "comparison", "baseline": next(iter(plan_runs))}
        summary = fields_json(comparison_summary(comparison))
        return Contents(manifest=manifest, tables=tables, summary=summary, on_page=True)

    def grid(
        self, plans: Sequence[PlanKey], futures: Sequence[Changes], check: Check = _no_check
    ) -> tuple[Section, int]:
        """Return plans by futures as far as they are known, having run one more cell, and the cells still to run.

        Futures are those that the plans' scenarios state, and those set on the page; a plan's own is one of them.
        """
        # Settings of the future are the same for all scenarios.
        for changes in futures:
            check_changes(self.stated(""), changes)
        rows = _rows(plans)
        row_scenarios = [self.stated(plan[0]) for plan in rows]
        stated = stated_futures(row_scenarios)
        # A future of a file has no changes of the page; its name finds it among the stated ones.
        columns: dict[str, Changes] = {AS_STATED: (), **dict.fromkeys(stated, ())}
        own_futures = (_future_changes(plan) for plan in plans)
        for changes in (*map(future_of, futures), *own_futures):
            name = future_name(changes)
            if name:
                columns[name] = changes
        cells = [(plan, name) for plan in rows for name in columns]
        missing = [cell for cell in cells if cell not in self._cells]
        if missing:
            # One cell a request: the page shows it at once, and a newer change waits for one at most.
            # The first is that of the plan shown, whose answer waits for it.
            own = (_without_future(plans[0]), future_name(_future_changes(plans[0])) or AS_STATED)
            plan, name = own if own in missing else missing[0]
            stated_future = stated.get(name)
            self._cells[plan, name] = self._run_cell(
                plan, name, columns[name], stated_future, check
            )
        described = COMPARISON_TABLES["futures"]
        # A cell that is not run yet has a row all the same, so that the grid keeps its shape.
        table = [
            self._cells.get((plan, name)) or pending_row(described, plan_name(plan), name)
            for plan, name in cells
        ]
        futures_table = described.of_rows(table)
        section = futures_section(futures_table)
        # There is a row for every plan, so there is a section.
        assert section is not None
        # One of the missing cells was run above.
        return section, max(len(missing) - 1, 0)

    def _run_cell(
        self, plan: PlanKey, name: str, changes: Changes, future: Future | None, check: Check
    ) -> tuple[object, ...]:
        """Run a plan in a future, stated in a file or set on the page, and return its row of the grid."""
        if future is None:
            key = (*plan, *changes)
            plan_run = self.plan(key, check)
            replications = self._replications[key] = self.draw(plan_run, check)
        else:
            scenario = _in_future(self._decisions(plan), future)
            result = simulate(scenario)
            plan_run = PlanRun(result=result, settings=())
            replications = self.draw(plan_run, check)
        pair = (plan_run.result, replications)
        # One plan in no further future: the row of the run itself.
        figures, *_ = in_futures([pair], {}, {}, lambda _: check())
        weight = None if future is None else future.weight
        row = replace(figures, scenario=plan_name(plan), future=name, weight=weight)
        return future_row(row)

    def answer(self, plans: Sequence[PlanKey], check: Check = _no_check) -> Parts:
        """Return the changes, the first plan beside the others, and its report's first section."""
        plan_run = self.plan(plans[0], check)
        contents = self.contents(plan_run)
        summary = RunSummary.read(contents)
        sections = [
            *comparison_sections(self.compare(plans, check)),
            run_report.answer_section(contents, summary),
        ]
        is_draft = plans[0][0] in self.drafts
        changes = changes_html(self.changes(plan_run), is_draft=is_draft)
        return [("changes", changes), *section_parts(sections)]

    def line(self, plan_run: PlanRun) -> Markup:
        """Return the summary line that stays visible: cost per token, and whether the SLO target is met."""
        summary = RunSummary.read(self.contents(plan_run))
        price = unit_price(summary.measures[COST])
        verdict = verdict_line(summary.verdict, on_page=True)
        return badged(f"{price} per million tokens levelised. {verdict}")

    def rest(self, plan_run: PlanRun, check: Check = _no_check) -> Parts:
        """Return the remainder of the report's first section, and the report's other sections.

        ``check`` may end it between two sections: whoever drags a slider does not wait for the rest of the plan before.
        """
        contents = self.contents(plan_run)

        def wanted_sections() -> Iterator[Section | None]:
            summary = RunSummary.read(contents)
            for section in run_body(contents, summary):
                check()
                yield section

        remainder, *sections = merged(wanted_sections())
        measures = measures_html("measures", blocks_html(remainder.blocks))
        return [("measures", measures), *section_parts(sections)]

    def save(self, plan: PlanKey, name: str, futures: Sequence[Changes] = ()) -> Path:
        """Write a plan as a scenario: a draft whole, any other as a what-if."""
        if plan[0] in self.drafts:
            return self._save_draft(plan, _check_name(name), futures)
        return self._save_what_if(plan, name)

    def _save_draft(self, plan: PlanKey, name: str, futures: Sequence[Changes]) -> Path:
        """Write a draft with its changes and the futures of its grid, as ``planner init`` does, and typed lists."""
        arguments = self.drafts[plan[0]]
        decisions = _without_future(plan)[1:]
        scenario = self._decisions(plan)
        stated = {}
        for changes in (*futures, _future_changes(plan)):
            future = build_future(scenario, changes)
            if future is not None:
                # A name of a scenario has neither blanks nor signs.
                slug = re.sub(r"[^a-z0-9.]+", "-", future_name(changes).replace("×", "x "))
                stated[slug.strip("-").replace(".", "-")] = {"set": future.set}
        overrides = [*arguments["overrides"], *decisions]
        if stated:
            overrides.append(f"futures={flow_text(stated)}")
        typed = {path: path.read_bytes() for path in map(Path, arguments["sources"])
                 if path.name in TYPED_COLUMNS}  # fmt: skip
        for path, content in list(typed.items()):
            place = Path(path.name)
            if not place.exists():
                continue
            # An earlier plan of the same answers has left it there.
            if place.read_bytes() == content:
                del typed[path]
                continue
            message = "exists already, and lists other machines"
            raise ScenarioError(Problem(file=path.name, message=message, hint="move it away"))
        api.init(name, **{**arguments, "overrides": overrides})
        for path, content in typed.items():
            _write_new(Path(path.name), content)
        return Path(f"{name}.yaml")

    def _save_what_if(self, plan: PlanKey, name: str) -> Path:
        """Write a what-if file beside the scenario, which it extends with the changes only; its future as such."""
        scenario = self._decisions(plan)
        file = Path(scenario_file(scenario))
        file_name = f"{_check_name(name)}.yaml"
        path = file.with_name(file_name)
        extends = file.name
        if file.parent == EXAMPLES:
            # Nobody writes into an installation: a what-if on an example goes to the current folder.
            path = Path(path.name)
            extends = str(file)
        layer = layer_of(scenario.document)
        extended = {"name": scenario.name, "extends": str(file), **layer}
        saved = load_scenario(extended)
        # The file may have been edited since: the what-if would extend another scenario.
        is_edited = scenario_sha256(saved) != scenario_sha256(scenario)
        if is_edited:
            message = "has changed since planner ui read it, so a what-if would extend another plan than the one shown"
            raise ScenarioError(
                Problem(file=str(file), message=message, hint="start planner ui again")
            )
        content = {"name": name, "extends": extends, **layer}
        future = build_future(scenario, _future_changes(plan))
        if future:
            content["futures"] = {"turned": {"set": future.set}}
        head = f"# A what-if on {file.name}, changed on the live page: run it with planner run.\n"
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
        # Last, as the name may be taken: nothing is written over.
        _write_new(path, (head + text).encode())
        return path

    def share(self, plans: Sequence[PlanKey], futures: Sequence[Changes], name: str) -> Path:
        """Write what the page shows as one HTML file: the grid, the plans side by side, and the first one's report."""
        # What is shared has every cell, also those that the page has not run yet.
        grid, missing = self.grid(plans, futures)
        while missing:
            grid, missing = self.grid(plans, futures)
        plan_run = self.plan(plans[0])
        plan_contents = self.contents(plan_run)
        sections = [
            grid,
            *comparison_sections(self.compare(plans)),
            *sections_of(plan_contents),
        ]
        path = self.outputs / f"{_check_name(name)}.html"
        self.outputs.mkdir(parents=True, exist_ok=True)
        scenario = plan_run.result.scenario
        months = f"{scenario.horizon_months} months from {scenario.start}"
        lead = f"{months}, seed {scenario.seed}. Shared from the live page."
        html = report_page(name, lead, sections)
        _write_new(path, html)
        self.written[name] = path
        return path

    def size(self, plan: PlanKey, name: str) -> None:
        """Begin to search for the cheapest plan that meets the SLO target, in a process of its own."""
        if self.sizing is not None and self.sizing.is_running:
            raise ScenarioError("a sizing is running: stop it first")
        scenario = self.scenario(plan)
        words = _run_command(scenario)[2:]  # without "planner run"
        words += ["--minutes", str(_SIZING_MINUTES), "--no-rivals", *_SIZING_EFFORT]
        if scenario.sizing is None:
            # A scenario that does not say what may be bought: four times its own purchases.
            purchases = {
                cluster_name: {"max_nodes": max(16, 4 * cluster.nodes)}
                for cluster_name, cluster in scenario.clusters.items()
                if cluster.owned is None and cluster.contract is None
            }
            if not purchases:
                message = "nothing may be bought here"
                hint = "add machines, or begin with quotes"
                raise ScenarioError(Problem(message=message, hint=hint))
            # On one line, however long: a command has no line breaks.
            section = yaml.safe_dump({"clusters": purchases}, default_flow_style=True, width=9999)
            words += ["--set", f"sizing={section}"]
        folder = self.outputs / f"{_check_name(name)}-size"
        if self.sizing is not None:
            self.sizing.close()
        self.sizing = SizingProcess(["size", *words], folder, self._current_folder(plan))

    def memo(self, plan: PlanKey, name: str) -> Path:
        """Write the run folder of a plan in its future, and its memo; return the folder."""
        scenario = self.scenario(plan)
        words = _run_command(scenario)[1:]  # without "planner"
        folder = self.outputs / _check_name(name)
        # The memo of the same plan is written anew.
        earlier = read_json(folder / MANIFEST)
        is_same = earlier.get("scenario_sha256") == scenario_sha256(scenario)
        if folder.exists() and not is_same:
            raise _taken(folder)
        program = [*PROGRAM, *words, "--quiet", "--out", str(folder.absolute())]
        # A process of its own, because a run draws its replications in forks, and a server has threads.
        done = subprocess.run(
            program, capture_output=True, text=True, cwd=self._current_folder(plan), check=False
        )
        if done.returncode:
            raise PlannerError(done.stderr.strip() or "the run was ended")
        api.memo(folder)
        self.written[name] = folder
        return folder

    def sizing_state(self) -> dict[str, Any]:
        """Return what the sizing has so far: its lines, and the report's first section once it is done."""
        sizing = self.sizing
        if sizing is None:
            return {"running": False, "lines": [], "parts": []}
        parts: Parts = []
        href = ""
        # A sizing that was stopped or failed has no report.
        is_done = not sizing.is_running and (sizing.folder / REPORT).exists()
        if is_done:
            contents = replace(read_contents(sizing.folder), on_page=True)
            summary = SizingSummary.read(contents)
            section = size_report.answer_section(contents, summary)
            parts = section_parts([replace(section, key="sized", title="Sized")])
            href = f"folder/{sizing.folder.name}/{REPORT}"
            self.written[sizing.folder.name] = sizing.folder
        return {"running": sizing.is_running, "lines": sizing.lines, "parts": parts, "href": href}

    def find_file(self, name: str, file: str) -> Path | None:
        """Return a file of a sizing, or a page, written from this workbench; None for any other."""
        written = self.written.get(name)
        if written is None:
            return None
        if written.is_file():
            return written if file == SHARED_PAGE else None
        # Looked for among the folder's own entries: no name leads out of it.
        for entry in written.iterdir():
            if entry.name == file and entry.is_file():
                return entry
        return None


def _run_command(scenario: Scenario) -> list[str]:
    """Return the command that runs a plan of this page; none where the scenario has no file."""
    file = scenario_file(scenario)
    if file:
        return command_line("run", [file], {}, scenario.document.overrides)
    return []


def _in_future(scenario: Scenario, future: Future | None) -> Scenario:
    """Return a scenario in a future; the scenario itself where the future changes nothing of it."""
    # None where the future names nothing that the scenario has.
    if future is None:
        return scenario
    return plan_in_future(scenario, future)[0] or scenario


def _write_new(path: Path, content: bytes) -> None:
    """Write a new file, or raise an error where it exists or cannot be written."""
    try:
        with path.open("xb") as stream:
            stream.write(content)
    # Opened with "x", so that of two requests at once only one writes.
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise PlannerError(f"{path} cannot be written: {error.strerror}") from None


def _taken(path: Path) -> ScenarioError:
    """Return the error for a name that a file or folder of something else has."""
    return ScenarioError(f"{path} exists already: give it another name")


def _check_name(name: str) -> str:
    """Return the name of a file or folder if it holds no path, or raise an error."""
    if not _FILE_NAME.fullmatch(name):
        rule = "letters, digits, '-' and '_', beginning with a letter or digit"
        raise ScenarioError(f"{name[:80]!r} is not a name: {rule}")
    return name


def latest_changes(words: Sequence[str]) -> Changes:
    """Return changes with only the latest one of each path, at the position of the path's first."""
    by_path = {word.partition("=")[0]: word for word in words}
    return tuple(by_path.values())


def _future_changes(plan: PlanKey) -> Changes:
    return future_of(plan[1:])


def _without_future(plan: PlanKey) -> PlanKey:
    """Return a plan's scenario and its decisions."""
    return tuple(word for word in plan if word.partition("=")[0] not in FUTURE_SETTINGS)


def _in_order(plan: PlanKey) -> PlanKey:
    """Return a plan with its future last: the same for one plan, in whatever order it was set."""
    return (*_without_future(plan), *_future_changes(plan))


def _rows(plans: Sequence[PlanKey]) -> list[PlanKey]:
    """Return plans in the order of the grid: the first, which is shown, comes after those beside it."""
    # Plans that differ in their future alone are one row.
    return list(dict.fromkeys(_without_future(plan) for plan in (*plans[1:], plans[0])))


def plan_name(plan: PlanKey) -> str:
    """Return what a plan is called: its scenario, and what is changed, as all-b200: b200 nodes 30."""
    scenario, *changes = _without_future(plan)
    descriptions = []
    for change in changes:
        path, _, text = change.partition("=")
        _, _, keys = path.partition(".")
        key_words = re.sub("[._]", " ", keys)
        descriptions.append(f"{key_words} {text}")
    name = f"{scenario}: {', '.join(descriptions)}" if descriptions else scenario
    future = future_name(_future_changes(plan))
    return f"{name}, {future}" if future else name
