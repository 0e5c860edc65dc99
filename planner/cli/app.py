"""The command ``planner``."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Annotated

import typer

from planner.cli import (
    calibrate,
    catalog,
    charts,
    check_benchmarks,
    compare,
    fit_traffic,
    init,
    montecarlo,
    probe,
    replay,
    report,
    run,
    schema,
    sensitivity,
    size,
    sweep,
    throughput,
    validate,
    zoom,
)
from planner.cli.colour import paint
from planner.errors import PlannerError

app = typer.Typer(
    name="planner",
    help="Plan which accelerators to buy, when, and what a token will cost over their depreciation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("sweep")(sweep.sweep)
app.command("size")(size.size)
app.command("report")(report.report)
app.command("charts")(charts.charts)
app.command("montecarlo")(montecarlo.montecarlo)
app.command("sensitivity")(sensitivity.sensitivity)
app.command("replay")(replay.replay)
app.command("zoom")(zoom.zoom)
app.command("validate")(validate.validate)
app.command("init")(init.init)
app.command("fit-traffic")(fit_traffic.fit_traffic)
app.command("schema")(schema.schema)
app.command("throughput")(throughput.throughput)
app.command("check-benchmarks")(check_benchmarks.check_benchmarks)
app.command("calibrate")(calibrate.calibrate)
app.command("probe")(probe.probe)
app.add_typer(catalog.app, name="catalog")


def _print_version(wanted: bool) -> None:
    if wanted:
        from planner import __version__

        typer.echo(f"planner {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Plan which accelerators to buy, when, and what a token will cost over their depreciation."""


def main() -> None:
    """Run the command line; errors the planner raises on purpose become one message and an exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # our matrices are small: threads cost more than they give
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without UTF-8 gets escapes, not a traceback
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
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


def _leave_stdout() -> None:
    """Let nothing more be written to a standard output that is closed or full, also not when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
