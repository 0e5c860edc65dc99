"""A server of the Model Context Protocol on standard input and output, whose tools are commands of the planner.

Each call is a command in a process of its own: it prints the same JSON and the same errors, it can be stopped as Ctrl-C
stops it, and by ``PLANNER_ONLY_UNDER`` it reads and writes files of one folder alone. Code that scenarios name is
never run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from planner.files import ALLOW_CODE, ONLY_UNDER
from planner.version import __version__

_INSTRUCTIONS = (
    "Plans are YAML files in the folder; paths are relative to it. For a what-if, call run or compare with overrides. "
    "Each is dotted.path=value, e.g. workloads.chat.growth.per_year=0.6 or clusters.*.nodes=×2. Give each what-if its "
    "own out, e.g. outputs/growth. explain says what a figure means, and in a run's folder also its parts and inputs."
)
_STOP_S = 10.0
"""How long a command may take to clean up after itself once it is to stop."""
Json = dict[str, Any]
Overrides = Sequence[str]


def serve(folder: Path) -> None:
    """Answer an assistant's calls until it closes standard input."""
    # Ignored where a shell began us in the background, and commands would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    server_of(Path(os.path.realpath(folder))).run("stdio")


def server_of(folder: Path) -> MCPServer[Any]:
    """Return the server of a folder."""
    server = MCPServer[Any](
        "planner", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"
    )

    async def answer(context: Context[Any, Any], *words: str) -> Json:
        """Return the JSON that a command prints, or raise its errors."""
        found: Json = json.loads(await _printed(folder, words, context))
        return found

    @server.tool()
    async def validate(
        context: Context[Any, Any], files: list[str], overrides: Overrides = ()
    ) -> Json:
        """Check scenario and study files without running them; list every problem of every file."""
        return await answer(context, "validate", *_options(set=overrides), "--", *files)

    @server.tool()
    async def run(
        context: Context[Any, Any],
        scenario: str,
        overrides: Overrides = (),
        replications: int = 19,
        seed: int | None = None,
        advise: bool = False,
        out: str | None = None,
    ) -> Json:
        """Simulate a scenario: SLO verdict, costs and measures. Its folder is out, or outputs/<scenario>."""
        options = _options(
            set=overrides, replications=replications, seed=seed, advise=advise, out=out
        )
        # In full, so that each replication is heard of.
        return await answer(context, "run", "--verbose", *options, "--", scenario)

    @server.tool()
    async def compare(
        context: Context[Any, Any],
        scenarios: list[str],
        baseline: str | None = None,
        futures: str | None = None,
        overrides: Overrides = (),
        replications: int = 19,
        seed: int | None = None,
        out: str | None = None,
    ) -> Json:
        """Run scenarios side by side, against the first or baseline: savings, and why a token costs more or less."""
        options = _options(
            baseline=baseline,
            futures=futures,
            set=overrides,
            replications=replications,
            seed=seed,
            out=out,
        )
        return await answer(context, "compare", *options, "--", *scenarios)

    @server.tool()
    async def size(
        context: Context[Any, Any],
        scenario: str,
        study: str | None = None,
        budget: float | None = None,
        power: float | None = None,
        accelerators: str | None = None,
        slo_target: float | None = None,
        objective: str = "net-present-cost",
        replications: int = 48,
        minutes: float | None = None,
        overrides: Overrides = (),
        seed: int | None = None,
        out: str | None = None,
        resume: bool = False,
        restart: bool = False,
    ) -> Json:
        """Find the cheapest policy that meets the SLO target; takes minutes. A stopped search can be resumed."""
        options = _options(
            study=study,
            budget=budget,
            power=power,
            accelerators=accelerators,
            slo_target=slo_target,
            objective=objective,
            replications=replications,
            minutes=minutes,
            set=overrides,
            seed=seed,
            out=out,
            resume=resume,
            restart=restart,
        )
        return await answer(context, "size", *options, "--", scenario)

    @server.tool()
    async def catalogue(context: Context[Any, Any], name: str | None = None) -> Json:
        """Show an entry of the catalogue: each value with source, date and grade; without a name, list the entries."""
        if name is not None:
            return await answer(context, "catalog", "show", "--json", "--", name)
        entries = await answer(context, "catalog", "--json")
        return {section: list(facts) for section, facts in entries.items()}

    @server.tool()
    async def explain(
        context: Context[Any, Any],
        figure: str,
        place: str | None = None,
        inputs: int = 20,
        overrides: Overrides = (),
    ) -> Json:
        """Say what a figure means and its formula; in a run's folder or a scenario, its value, parts and inputs."""
        words = [figure] if place is None else [figure, place]
        options = _options(set=overrides, inputs=inputs)
        return await answer(context, "explain", *options, "--", *words)

    def add_schema(kind: Literal["scenario", "study"]) -> None:
        @server.resource(f"planner://schema/{kind}", mime_type="application/schema+json")
        async def schema() -> str:
            """Return the JSON schema of such a file."""
            return await _printed(folder, ("schema", f"--kind={kind}"))

    add_schema("scenario")
    add_schema("study")
    return server


def _options(**options: object) -> list[str]:
    """Return the words of options, and that JSON is to be printed; what is not given has none."""
    words = ["--json"]
    for name, stated in options.items():
        flag = f"--{name.replace('_', '-')}"
        if stated is True:
            words.append(flag)
        elif isinstance(stated, list | tuple):
            words += [f"{flag}={item}" for item in stated]
        elif stated is not None and stated is not False:
            words.append(f"{flag}={stated}")
    return words


async def _printed(
    folder: Path, words: Sequence[str], context: Context[Any, Any] | None = None
) -> str:
    """Return what a command prints; what it says meanwhile is progress, and its errors are ours."""
    environment = {name: value for name, value in os.environ.items() if name != ALLOW_CODE}
    # Not even a module is found in the folder (-P): its files are data.
    process = await anyio.open_process(
        [sys.executable, "-P", "-m", "planner.cli.app", *words],
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=environment | {ONLY_UNDER: str(folder)},
        # With its workers a group, which is stopped as a whole.
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    printed: list[bytes] = []
    errors: list[str] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_collect, process.stdout, printed)
            said = 0
            rest = ""
            async for text in TextReceiveStream(process.stderr, errors="replace"):
                *lines, rest = f"{rest}{text}".split("\n")
                for line in lines:
                    said += 1
                    errors.append(line)
                    if context is not None:
                        await context.report_progress(said, message=line)
        await process.wait()
    finally:
        await _stop(process)
    # A file that is not sound is an answer of validate, with status 2.
    if not printed:
        said_wrong = [line.removeprefix("error: ") for line in errors if line.startswith("error: ")]
        raise ToolError("\n".join(said_wrong or errors))
    return b"".join(printed).decode()


async def _collect(stream: ByteReceiveStream, chunks: list[bytes]) -> None:
    """Gather what a stream brings until it ends."""
    chunks.extend([chunk async for chunk in stream])


async def _stop(process: Process) -> None:
    """Stop a command that still runs as Ctrl-C does, so that it leaves nothing half written, and wait for its end."""
    # Also while this call itself is being cancelled.
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGINT)
            with anyio.move_on_after(_STOP_S):
                await process.wait()
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.aclose()
