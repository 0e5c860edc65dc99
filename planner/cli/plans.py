"""Commands about plans: functions of the API, and checks, reports and charts of what they write.

A function's parameters are its command's options: names and defaults are those of ``planner.api``, and here is said how
each is written on a command line. ``progress`` and ``watch`` are no options: they are the terminal's own.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from planner import api
from planner.cli import terminal
from planner.cli.terminal import (
    AllowCode,
    AsJson,
    FailOnMiss,
    Overlay,
    Overrides,
    Quiet,
    ScenarioFile,
    Seed,
    Strict,
    Verbose,
)
from planner.errors import Problem, ScenarioError, printable, raise_all, refuse
from planner.files import json_text

if TYPE_CHECKING:
    from planner.answers.answer import Answer

_STUDY = "Study file (YAML), or a scenario: then the catalogue's priors are drawn."
_VARY = "Key and its values, start:stop:step (stop included) or a,b,c; repeatable, all combinations are run."
_REPLICATIONS = "Replications behind each interval; 19 hold nine in ten of further ones, 1 leaves intervals out."
_ENOUGH = "Stop at 19, 38, ... when the SLO verdict is given and mean net present cost known to this [default: 0.5%]."
_SIZE = "Replications (tornado) or points (sobol) [default: 16, 256]."
_AT_MOST = (
    "Replications at most [default: 1,024]; draws of money after the 256th may share a simulation."
)
_REQUESTS = "About how many requests, deferrable ones too; a larger fleet is sampled."
_DASK = "Run on the Dask cluster at tcp://HOST:PORT, or local-dask to start one here."
_ADVISE = "Find by simulation how many more nodes of one cluster meet an SLO target that is missed."
_SAMPLES = "Write every replication to samples.csv [default: up to 100,000 rows; replications.parquet has all]."
_METHOD = "tornado: one input at a time, P10 to P90; sobol: shares of the variance."
_UNTIL = (
    "Stop when the 95% interval of the headline's mean is this narrow, e.g. 0.5%; "
    "p90=2% and best=1% look at a percentile and at P(best)."
)

OPTIONS: dict[str, Any] = {
    "plan": Annotated[
        Path, Argument(metavar="PLAN", help="Scenario, study, or the folder of a run.")
    ],
    "months": Annotated[
        Path,
        Argument(metavar="FOLDER", help="Folder with mapping.yaml and the CSV files it names."),
    ],
    "file": Annotated[Path, Argument(metavar="STUDY", help=_STUDY)],
    "method": Annotated[Literal["tornado", "sobol"], Option(help=_METHOD)],
    "replication": Annotated[int, Option(min=0, help="Number, as in samples.csv.")],
    "draws": Annotated[
        int, Option(min=1, max=16, help="Draws of money per simulation, as the study says.")
    ],
    "scenario": ScenarioFile,
    "scenarios": Annotated[
        list[Path], Argument(metavar="SCENARIO...", help="Two or more scenario files.")
    ],
    "vary": Annotated[list[str], Option(metavar="PATH=VALUES", help=_VARY)],
    "baseline": Annotated[
        str | None, Option(metavar="NAME", help="Baseline of the others [default: the first].")
    ],
    "futures": Annotated[
        Path | None, Option(metavar="FILE", help="File of futures in which each plan is run too.")
    ],
    "study": Annotated[
        Path | None, Option(metavar="STUDY", help="Study of what the plan must withstand.")
    ],
    "budget": Annotated[
        float | None, Option(metavar="USD", help="Most that may be paid for nodes.")
    ],
    "power": Annotated[float | None, Option(metavar="KW", help="Most nameplate IT power on site.")],
    "accelerators": Annotated[
        str | None, Option(metavar="A,B", help="What may be bought, e.g. H200,B200.")
    ],
    "slo_target": Annotated[
        float | None, Option(metavar="SHARE", help="SLO attainment to size for, e.g. 0.999.")
    ],
    "objective": Annotated[
        str, Option(metavar="WHAT", help="net-present-cost, levelised or capital.")
    ],
    "size": Annotated[int | None, Option("--size", "-n", min=4, max=1_000_000, help=_SIZE)],
    "until": Annotated[str | None, Option(metavar="SHARE", help=_UNTIL)],
    "replications": Annotated[
        int, Option("--replications", "-n", min=1, max=1_000, help="Replications surveyed.")
    ],
    "confirmations": Annotated[
        int, Option(min=1, max=1_000, help="Fresh replications that confirm the answer.")
    ],
    "rivals": Annotated[bool, Option(help="Work out rivals, limits and prices after the answer.")],
    "minutes": Annotated[
        float | None, Option(min=0.0, help="Stop the search after so long, with the best so far.")
    ],
    "overrides": Overrides,
    "seed": Seed,
    "out": None,
    "advise": Annotated[bool, Option("--advise", help=_ADVISE)],
    "hourly": Annotated[
        bool, Option("--hourly", help="Also write timeline_hourly.csv (about 8 MB).")
    ],
    "parquet": Annotated[bool, Option("--parquet", help="Also write the timelines as Parquet.")],
    "workers": Annotated[
        int | None, Option(min=1, max=1024, help="Worker processes [default: one per core].")
    ],
    "scheduler": Annotated[str | None, Option(metavar="ADDRESS", help=_DASK)],
    "resume": Annotated[
        bool, Option("--resume", help="Continue what was interrupted; extend a finished study.")
    ],
    "restart": Annotated[bool, Option("--restart", help="Begin anew where unfinished work lies.")],
    "yes": Annotated[bool, Option("--yes", help="Run more than 10,000 points without asking.")],
    "strict": Strict,
    "charts": Annotated[bool, Option(help="Draw PNG charts.")],
    "samples": Annotated[bool | None, Option(help=_SAMPLES)],
    "decimal_comma": Annotated[
        bool, Option("--decimal-comma", help="Write 1,5 and separate cells by ;.")
    ],
    "byte_order_mark": Annotated[
        bool, Option("--bom", help="Begin CSV files with a UTF-8 byte order mark.")
    ],
}
"""How each parameter is written, in the order in which help lists them."""


def command(
    function: Callable[..., Any],
    out: str,
    *,
    name: str = "",
    about: str = "",
    without: Sequence[str] = (),
    named: Mapping[str, str] | None = None,
    more: str = "",
    has_verdict: bool = False,
    **options: Any,
) -> Callable[..., None]:
    """Return the command that calls a function of the API, shows its progress and prints its answer.

    ``out`` names the folder that is written unless one is asked for. ``options`` are written otherwise than in the
    table, ``named`` have another name than their parameter, and ``without`` are no options of this command. The command
    is called and described as the function is, unless it has a name and a description of its own. ``more`` is said
    after where the results are.
    """
    parameters = inspect.signature(function).parameters
    options = OPTIONS | {"out": Annotated[Path | None, terminal.out_option(out)]} | options
    shown = {
        name: (named or {}).get(name, name)
        for name in options
        if name in parameters and name not in without
    }

    def made(
        *,
        as_json: bool,
        quiet: bool,
        verbose: bool = False,
        fail_on_miss: bool = False,
        **given: Any,
    ) -> None:
        asked = {name: given[option] for name, option in shown.items() if given[option] is not None}
        begun = ""
        told = dict[str, Any](as_json=as_json, quiet=quiet, verbose=verbose)
        progress = (
            api.silent if quiet else terminal.show_stage if "first" in parameters else terminal.say
        )

        def begin(answer: Answer[Any]) -> None:
            nonlocal begun
            progress("")  # the line of the stage goes
            begun = terminal.tell(answer, **told)

        asked["overrides"] = terminal.laid_over(given["overrides"], given["overlay"])
        with contextlib.ExitStack() as around:
            if "resume" in parameters:
                around.enter_context(terminal.stoppable())
            if "watch" in parameters:
                asked["watch"] = around.enter_context(terminal.watching(quiet=quiet))
            if "first" in parameters:
                around.callback(progress, "")
                asked["first"] = api.silent if as_json else begin
            answer = function(
                **asked, **({"progress": progress} if "progress" in parameters else {})
            )
        terminal.tell(answer, **told, more=more, begun=begun)
        if fail_on_miss and not answer.is_met():
            raise typer.Exit(terminal.NOT_MET)

    def option(name: str, kind: Any, default: Any) -> inspect.Parameter:
        # Typer has no empty list: an option that is not given is None, and left to the function.
        given = None if default == () else default
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=given
        )

    taken = [option(of, options[name], parameters[name].default) for name, of in shown.items()]
    taken += [
        option("overlay", Overlay, None),
        option("allow_code", AllowCode, False),
        option("as_json", AsJson, False),
        option("quiet", Quiet, False),
        option("verbose", Verbose, False),
    ]
    taken += [option("fail_on_miss", FailOnMiss, False)] if has_verdict else []
    made.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    made.__name__ = name or function.__name__
    made.__doc__ = about or (function.__doc__ or "").partition("\n")[0]
    return made


_REPLICATED = Annotated[
    int, Option("--replications", "-n", min=1, max=10_000, metavar="N", help=_REPLICATIONS)
]
_PAGE = "/report.html; more: -v"
_STOP = Annotated[str | None, Option(metavar="SHARE", help=_ENOUGH)]
run = command(
    api.run, "<name>", more=_PAGE, has_verdict=True, replications=_REPLICATED, until=_STOP
)
compare = command(api.compare, "<names>", more=_PAGE, has_verdict=True, replications=_REPLICATED)
sweep = command(api.sweep, "<name>-sweep")
size = command(
    api.size,
    "<name>-size",
    more="/report.html; run policy.yaml beside it; more: -v",
    has_verdict=True,
)
montecarlo = command(
    api.study,
    "<name>",
    name="montecarlo",
    about="Simulate scenarios under drawn inputs and chance; write percentiles, bands, decisions and what drives them.",
    without=["method"],
    more=_PAGE,
    has_verdict=True,
    named={"size": "replications"},
    size=Annotated[
        int | None, Option("--replications", "-n", min=1, max=10_000_000, help=_AT_MOST)
    ],
)
sensitivity = command(
    functools.partial(api.study, method="tornado"),
    "<name>",
    name="sensitivity",
    about="Measure what drives the headline of a study, and at which value of an input the scenarios change places.",
    without=["until", "charts", "samples", "decimal_comma", "byte_order_mark"],
)
replay = command(
    api.replay,
    "<study>-<scenario>-<number>",
    scenario=Annotated[str | None, Option(help="Scenario of the study [default: the first].")],
)
actuals = command(
    api.actuals,
    "<name>-actuals",
    more="; open report.html there",
    scenario=Annotated[str | None, Option(help="Scenario of a study [default: the first].")],
    replications=Annotated[
        int, Option("--replications", "-n", min=32, max=100_000, help="Replications a forecast.")
    ],
)


_TRACE = "Replay this log (CSV, JSON lines, .gz) for one workload."
zoom = command(
    api.zoom,
    "<name>-zoom",
    stages=2,
    more="; open report.html there",
    at=Annotated[
        str, Option(metavar="TIME", help="Moment to begin at, UTC, e.g. 2027-03-04T15:00.")
    ],
    minutes=Annotated[int, Option(min=1, max=60, help="Minutes to simulate.")],
    requests=Annotated[int, Option(min=100, max=10_000_000, help=_REQUESTS)],
    trace=Annotated[Path | None, Option(metavar="FILE", help=_TRACE)],
    workload=Annotated[
        str | None, Option(help="Workload that --trace stands for [default: the first].")
    ],
    replication=Annotated[int, Option(min=0, help="Which replication's hour.")],
)


Folder = Annotated[Path, Argument(metavar="DIR", help="Output folder that planner wrote.")]


def report(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write report.html of an output folder anew from the files in it."""
    written = api.report(folder)
    content = {"report": str(written), "bytes": written.stat().st_size}
    terminal.show_files(content, [written], as_json=as_json, quiet=quiet)


def memo(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write the two-page memo of a run, comparison, sweep, study or sizing: memo.html, which prints, and memo.md."""
    written = api.memo(folder)
    terminal.show_files(
        {"memo": [str(path) for path in written]}, written, as_json=as_json, quiet=quiet
    )


def charts(
    folder: Folder,
    formats: Annotated[str, Option("--format", help="png, svg or both by comma.")] = "png,svg",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Draw an output folder's charts for slides, as PNG and SVG, into its folder charts."""
    from planner.answers.charts import write_charts
    from planner.output.svg import FORMATS

    wanted = [word.strip() for word in formats.split(",")]
    if wrong := [word for word in wanted if word not in FORMATS]:
        raise ScenarioError(
            Problem(
                path="--format", message=f"takes {', '.join(FORMATS)} by comma, not {wrong[0]!r}"
            )
        )
    written = write_charts(folder, list(dict.fromkeys(wanted)))
    terminal.show_files(
        {"charts": [str(path) for path in written]}, written, as_json=as_json, quiet=quiet
    )


def validate(
    files: Annotated[
        list[Path], Argument(metavar="FILE...", help="Scenario or study files (YAML).")
    ],
    overrides: Overrides = None,
    strict: Strict = False,
    allow_code: AllowCode = False,  # noqa: ARG001 - its callback does it
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check scenario and study files without running them; list every problem of every file."""
    from planner.plan.build import build_plan
    from planner.plan.contradictions import hardly_meant
    from planner.scenario.loading import kind_of
    from planner.yaml_io import read_document

    problems: list[Problem] = []
    told: list[dict[str, Any]] = []
    for file in files:
        try:
            if kind_of(read_document(file)) == "scenario":
                loaded = api.load(file, overrides or ())
                plan = build_plan(loaded)
                kind = "scenario"
                warnings = hardly_meant(loaded, plan)
                notes = list(plan.notes)
            else:
                from planner.studies.prepare import prepare

                prepared = prepare(file, overrides or ())
                kind = "study"
                warnings = list(prepared.warnings)
                plans = {base.name: build_plan(base.scenario) for base in prepared.scenarios}
                notes = [f"{name}: {note}" for name, plan in plans.items() for note in plan.notes]
            refuse(warnings, strict=strict)
        except ScenarioError as error:
            problems += error.problems
            told.append(
                {"file": str(file), "ok": False, "problems": [str(one) for one in error.problems]}
            )
            continue
        told.append(
            {"file": str(file), "ok": True, "kind": kind, "warnings": warnings, "notes": notes}
        )
        if not (as_json or quiet):
            for severity, lines in (("warning", warnings), ("note", notes)):
                for line in lines:
                    typer.echo(f"{printable(str(file))}: {severity}: {line}", err=True)
            typer.echo(f"{printable(str(file))}: ok, a {kind}")
    if as_json:
        typer.echo(json_text({"files": told}), nl=False)
        raise typer.Exit(ScenarioError.exit_code if problems else 0)
    raise_all(problems)


def schema(
    kind: Annotated[Literal["scenario", "study"], Option(help="What the files are.")] = "scenario",
) -> None:
    """Print the JSON schema of a scenario or a study, for editors that complete and check YAML."""
    from planner.scenario.schema import scenario_schema, study_schema
    from planner.studies.replicate import objective_names

    typer.echo(
        json_text(scenario_schema() if kind == "scenario" else study_schema(objective_names())),
        nl=False,
    )


def ui(
    scenarios: Annotated[
        list[Path] | None,
        Argument(metavar="[SCENARIO]...", help="Scenario files (YAML).", show_default=False),
    ] = None,
    overrides: Overrides = None,
    port: Annotated[
        int, Option(min=0, max=65535, metavar="N", help="Port to listen on; 0: any free one.")
    ] = 0,
    no_browser: Annotated[
        bool, Option("--no-browser", help="Print the address, and open nothing.")
    ] = False,
    allow_code: AllowCode = False,  # noqa: ARG001 - its callback does it
) -> None:
    """Turn the knobs of scenarios on a page, and see plans in several futures side by side. Ctrl-C ends it.

    Without a scenario it lists examples. The page is served to this machine alone (127.0.0.1), under an address that
    nobody can guess, and loads nothing from anywhere. What it writes, it writes when asked: a what-if beside the
    scenario, and a sizing or one HTML file under outputs.
    """
    from planner.ui.desk import EXAMPLES, Desk

    try:
        from planner.ui.server import listen, serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        message = "planner ui needs starlette and uvicorn: pip install 'datacenter-planner[ui]' (make run does)"
        raise ScenarioError(message) from None

    desk = Desk(
        [api.load(file, overrides or ()) for file in scenarios or sorted(EXAMPLES.glob("*.yaml"))]
    )
    listening = listen(port)
    typer.echo(f"running {next(iter(desk.scenarios))} once; Ctrl-C ends it", err=True)
    desk.begin()
    serve(desk, listening, typer.echo, browser=not no_browser)
    typer.echo("stopped", err=True)
