"""The command ``planner``."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from planner.cli import (
    actuals,
    catalog,
    explain,
    init,
    input_files,
    mcp,
    memo,
    output_folders,
    plans,
    studies,
    throughput,
    ui,
    zoom,
)
from planner.cli.terminal import paint
from planner.disk_cache import DiskCache
from planner.errors import PlannerError
from planner.plan.reuse import keep_on
from planner.version import __version__

GROUPS: dict[str, dict[Callable[..., None] | typer.Typer, str]] = {
    "From a plan to its answer": {
        plans.size: "Find the cheapest plan that meets its SLO target.",
        plans.run: "Simulate a scenario and write its report, timelines and ledger.",
        ui.ui: "Change a scenario's settings on a page, and see it run again.",
        plans.compare: "Compare scenarios, and say why they differ.",
        plans.sweep: "Run every combination of the values you give.",
        studies.montecarlo: "Say how sure the answer is when inputs are uncertain.",
        studies.sensitivity: "Rank the inputs that move the answer.",
        actuals.actuals: "Compare actual months with the plan; forecast the rest.",
        zoom.zoom: "Simulate one hour request by request.",
    },
    "From what you have to a plan": {
        init.init: "Write a commented scenario from your traffic, machines and quotes.",
        input_files.validate: "Check files without running them.",
        input_files.schema: "Print the JSON schema that lets editors complete files.",
    },
    "What was written": {
        explain.explain: "Say what a figure means, its parts, and the inputs behind it.",
        memo.memo: "Write a two-page memo on the results in a folder.",
        output_folders.report: "Rewrite a folder's report.html.",
        output_folders.charts: "Draw a folder's charts for slides.",
        studies.replay: "Run one replication of a study again, in full.",
    },
    "Throughput and catalogue": {
        throughput.throughput: "Predict latency and throughput of a replica.",
        throughput.check_benchmarks: "Compare the throughput model with measurements.",
        throughput.calibrate: "Fit the throughput model to measurements.",
        catalog.app: "Show what the catalogue holds, with sources.",
    },
    "For programs": {
        mcp.mcp: "Offer these commands to an assistant as tools.",
    },
}
"""Every command, by what brings somebody to it, in a sentence that fits a line of a terminal."""


def command_name(command: Callable[..., None] | typer.Typer) -> str:
    """Return the word by which a command, or a group of commands, is called."""
    if isinstance(command, typer.Typer):
        return str(command.info.name)
    return command.__name__.replace("_", "-")


class _CommandGroups(TyperGroup):
    """The commands of ``planner --help`` in groups."""

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Write each group under its heading."""
        for heading, members in GROUPS.items():
            rows = [(command_name(command), sentence) for command, sentence in members.items()]
            with formatter.section(heading):
                formatter.write_dl(rows)


app = typer.Typer(
    name="planner",
    cls=_CommandGroups,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# The table of groups is the only list of commands.
for _command in itertools.chain(*GROUPS.values()):
    if isinstance(_command, typer.Typer):
        app.add_typer(_command)
    else:
        app.command(command_name(_command))(_command)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"planner {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Plan which accelerators to buy, when, and what a token will cost over their depreciation period."""


def main() -> None:
    """Run the command line; errors the planner raises on purpose become one message and an exit code."""
    # Our matrices are small: threads cost more than they give.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Pydantic would look for plugins in every package that is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # To look for cycles in what ends with the process took a tenth of a second.
    atexit.register(gc.freeze)
    # What earlier commands worked out is found again.
    keep_on(DiskCache())
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 gets escapes, not a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except PlannerError as error:
        # What was printed stands before the error also where both go into one file.
        sys.stdout.flush()
        _print_errors(str(error).splitlines() or [type(error).__name__])
        sys.exit(error.exit_code)
    except MemoryError:
        _print_errors(["not enough memory"])
        sys.exit(1)
    except BrokenPipeError:  # `planner catalog | head`
        _close_stdout()
        sys.exit(1)
    except OSError as error:
        # Errors of files that we read or write are planner errors by now: this is standard output.
        _print_errors([error.strerror or str(error)])
        _close_stdout()
        sys.exit(1)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


def _print_errors(lines: Sequence[str]) -> None:
    prefix = paint("error:", "red")
    for line in lines:
        print(f"{prefix} {line}", file=sys.stderr)


def _close_stdout() -> None:
    """Let nothing more be written to a standard output that is closed or full.

    Python flushes it once more when it ends, and would fail there: it is led to the null device.
    """
    # A stream that a test put in its place has no file number.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, sys.stdout.fileno())


if __name__ == "__main__":
    main()
