"""The command ``planner``."""

from __future__ import annotations

import atexit
import contextlib
import copy
import gc
import io
import os
import sys
import threading
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from planner.cli import catalog, init, plans, studies, throughput, validate, written, zoom
from planner.cli import ui as serve
from planner.cli.progress import paint
from planner.errors import PlannerError

GROUPS: dict[str, dict[str, str]] = {
    "From a plan to its answer": {
        "size": "Find the cheapest plan that keeps its promise.",
        "run": "Simulate a scenario and write its report, timelines and ledger.",
        "serve": "Turn a scenario's knobs on a page, and see it run again.",
        "compare": "Hold scenarios side by side, and say why they differ.",
        "sweep": "Run every combination of some values.",
        "montecarlo": "Say how sure the answer is, over thousands of replications.",
        "sensitivity": "Say what the answer hangs on.",
        "actuals": "Hold months that happened against the plan; forecast the rest.",
        "zoom": "Simulate one hour request by request.",
    },
    "From what you have to a plan": {
        "init": "Write a commented scenario to start from.",
        "fit-traffic": "Fit a workload to a request log.",
        "validate": "Check files without running them.",
        "schema": "Print the JSON schema by which editors complete files.",
    },
    "What was written": {
        "memo": "Write the two-page memo of a folder.",
        "report": "Write a folder's report.html anew.",
        "charts": "Draw a folder's charts for slides.",
        "replay": "Run one replication of a study again, in full.",
    },
    "Throughput and catalogue": {
        "throughput": "Predict latency and throughput of a replica.",
        "check-benchmarks": "Hold the throughput model against measurements.",
        "calibrate": "Fit the throughput model to measurements.",
        "import": "Read results that others published.",
        "probe": "Measure this machine.",
        "catalog": "Show what the catalogue holds, with sources.",
    },
}
"""Every command, by what brings somebody to it, in a sentence that fits a line of a terminal."""


class _InGroups(TyperGroup):
    """The commands of ``planner --help`` in groups."""

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Write each group under its heading."""
        for heading, members in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(list(members.items()))


app = typer.Typer(
    name="planner",
    cls=_InGroups,
    help="Plan which accelerators to buy, when, and what a token will cost over their depreciation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(plans.run)
app.command("serve")(serve.serve)
app.command("compare")(plans.compare)
app.command("sweep")(plans.sweep)
app.command("size")(plans.size)
app.command("report")(written.report)
app.command("memo")(written.memo)
app.command("charts")(written.charts)
app.command("montecarlo")(studies.montecarlo)
app.command("sensitivity")(studies.sensitivity)
app.command("replay")(studies.replay)
app.command("actuals")(studies.actuals)
app.command("zoom")(zoom.zoom)
app.command("validate")(validate.validate)
app.command("init")(init.init)
app.command("fit-traffic")(init.fit_traffic)
app.command("schema")(validate.schema)
app.command("throughput")(throughput.throughput)
app.command("check-benchmarks")(throughput.check_benchmarks)
app.command("calibrate")(throughput.calibrate)
app.command("probe")(throughput.probe)
app.add_typer(catalog.app, name="catalog")
app.add_typer(throughput.imports, name="import")


def _print_version(wanted: bool) -> None:
    if wanted:
        from planner.version import __version__

        typer.echo(f"planner {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Plan which accelerators to buy, when, and what a token will cost over their depreciation."""


def asked_for(words: Sequence[str]) -> typer.Typer:
    """Return the commands with the one asked for alone: to read the options of all takes longer than that command may.

    Help, a slip and a shell that completes words are answered by all of them.
    """
    name = words[0] if words and "_PLANNER_COMPLETE" not in os.environ else ""
    commands = [entry for entry in app.registered_commands if entry.name == name]
    groups = [entry for entry in app.registered_groups if entry.name == name]
    if not (commands or groups):
        return app
    alone = copy.copy(app)
    alone.registered_commands, alone.registered_groups = commands, groups
    return alone


def main() -> None:
    """Run the command line; errors the planner raises on purpose become one message and an exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # our matrices are small: threads cost more than they give
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looked for in every package that is installed
    atexit.register(gc.freeze)  # to look for cycles in what ends with the process took a tenth of a second
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without UTF-8 gets escapes, not a traceback
            stream.reconfigure(errors="backslashreplace")
    try:
        asked_for(sys.argv[1:])()
    except PlannerError as error:
        sys.stdout.flush()
        lines = str(error).splitlines() or [type(error).__name__]
        print("\n".join(f"{paint('error:', 'red')} {line}" for line in lines), file=sys.stderr)
        sys.exit(error.exit_code)
    except MemoryError:
        print(f"{paint('error:', 'red')} not enough memory", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # `planner catalog | head`
        _leave_stdout()
        sys.exit(1)
    except OSError as error:  # of a file we write or read it is said where it happens; what is left is standard output
        print(f"{paint('error:', 'red')} {error.strerror or error}", file=sys.stderr)
        _leave_stdout()
        sys.exit(1)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


def command() -> NoReturn:
    """Be the program ``planner``: run the command line, and end the process with its memory as it is.

    To take modules and objects apart first took a fiftieth of a run. Where threads are left, somebody measures or
    debugs it, or standard output takes no more, Python ends the process as it ends any other.
    """
    try:
        main()
    except SystemExit as ended:
        is_watched = sys.getprofile() is not None or sys.gettrace() is not None
        if is_watched or threading.active_count() > 1 or not isinstance(ended.code, int | None):
            raise
        with contextlib.suppress(OSError, ValueError, AttributeError):  # as of a standard output that is closed
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code or 0)
        raise
    raise SystemExit(0)


def _leave_stdout() -> None:
    """Let nothing more be written to a standard output that is closed or full, also not when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    command()
