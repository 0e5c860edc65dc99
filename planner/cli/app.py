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

from planner.cli import catalog, first_plan, plans, throughput
from planner.cli.terminal import paint
from planner.errors import PlannerError
from planner.version import __version__

GROUPS: dict[str, dict[Callable[..., None] | typer.Typer, str]] = {
    "From a plan to its answer": {
        plans.size: "Find the cheapest plan that meets its SLO target.",
        plans.run: "Simulate a scenario and write its report, timelines and ledger.",
        plans.ui: "Turn a scenario's knobs on a page, and see it run again.",
        plans.compare: "Hold scenarios side by side, and say why they differ.",
        plans.sweep: "Run every combination of some values.",
        plans.montecarlo: "Say how sure the answer is, over thousands of replications.",
        plans.sensitivity: "Rank the inputs that move the answer.",
        plans.actuals: "Hold months that happened against the plan; forecast the rest.",
        plans.zoom: "Simulate one hour request by request.",
    },
    "From what you have to a plan": {
        first_plan.init: "Write a commented scenario from your traffic, machines and quotes.",
        plans.validate: "Check files without running them.",
        plans.schema: "Print the JSON schema by which editors complete files.",
    },
    "What was written": {
        plans.memo: "Write the two-page memo of a folder.",
        plans.report: "Write a folder's report.html anew.",
        plans.charts: "Draw a folder's charts for slides.",
        plans.replay: "Run one replication of a study again, in full.",
    },
    "Throughput and catalogue": {
        throughput.throughput: "Predict latency and throughput of a replica.",
        throughput.check_benchmarks: "Hold the throughput model against measurements.",
        throughput.calibrate: "Fit the throughput model to measurements.",
        catalog.app: "Show what the catalogue holds, with sources.",
    },
}
"""Every command, by what brings somebody to it, in a sentence that fits a line of a terminal."""


def _name(command: Callable[..., None] | typer.Typer) -> str:
    return (
        str(command.info.name)
        if isinstance(command, typer.Typer)
        else command.__name__.replace("_", "-")
    )


class _InGroups(TyperGroup):
    """The commands of ``planner --help`` in groups."""

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Write each group under its heading."""
        for heading, members in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(_name(command), sentence) for command, sentence in members.items()]
                )


app = typer.Typer(
    name="planner",
    cls=_InGroups,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command in itertools.chain(*GROUPS.values()):
    if isinstance(_command, typer.Typer):
        app.add_typer(_command)
    else:
        app.command(_name(_command))(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"planner {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and leave.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Plan which accelerators to buy, when, and what a token will cost over their depreciation."""


def main() -> None:
    """Run the command line; errors the planner raises on purpose become one message and an exit code."""
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # our matrices are small: threads cost more than they give
    os.environ.setdefault(
        "PYDANTIC_DISABLE_PLUGINS", "__all__"
    )  # looked for in every package that is installed
    atexit.register(
        gc.freeze
    )  # to look for cycles in what ends with the process took a tenth of a second
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a terminal without UTF-8 gets escapes, not a traceback
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except PlannerError as error:
        sys.stdout.flush()
        _tell_errors(str(error).splitlines() or [type(error).__name__])
        sys.exit(error.exit_code)
    except MemoryError:
        _tell_errors(["not enough memory"])
        sys.exit(1)
    except BrokenPipeError:  # `planner catalog | head`
        _leave_stdout()
        sys.exit(1)
    except OSError as error:  # of a file we write or read it is said where it happens; what is left is standard output
        _tell_errors([error.strerror or str(error)])
        _leave_stdout()
        sys.exit(1)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


def _tell_errors(lines: Sequence[str]) -> None:
    print("\n".join(f"{paint('error:', 'red')} {line}" for line in lines), file=sys.stderr)


def _leave_stdout() -> None:
    """Let nothing more be written to a standard output that is closed or full, also not when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
