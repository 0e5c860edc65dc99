"""``planner mcp`` by a real client of the protocol's own package, the server in a process of its own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from planner.cli import plans
from planner.cli.explain import explain
from planner.scenario.schema import scenario_schema
from tests.conftest import TINY, Planner, WriteScenario, files_of

GROWING = TINY.replace(
    "requests_per_s: 5", "requests_per_s: 5\n    growth: {kind: compound, per_year: 0.4}"
)
DOUBLED = "workloads.chat.growth.per_year=0.8"
Talk = Callable[[Client], Awaitable[None]]


def converse(folder: Path, talk: Talk) -> None:
    """Start the server of a folder as an assistant does, talk with it, and let it end."""
    words = ["-m", "planner.cli.app", "mcp", "--folder", str(folder)]
    environment = {"PLANNER_ALLOW_CODE": "1", "PATH": os.environ["PATH"]}
    server = StdioServerParameters(command=sys.executable, args=words, env=environment)

    async def meet() -> None:
        async with Client(server) as client:
            await talk(client)

    anyio.run(meet)


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    called = await client.call_tool(tool, arguments)
    assert not called.is_error, called.content
    found = called.structured_content
    assert isinstance(found, dict)
    return found


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    called = await client.call_tool(tool, arguments)
    text = getattr(called.content[0], "text", "")
    assert called.is_error, text
    return str(text)


def test_what_if_growth_doubles(write: WriteScenario, planner: Planner) -> None:
    file = write(GROWING)

    async def talk(client: Client) -> None:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {"validate", "run", "compare", "size", "catalogue", "explain"}
        (checked,) = (await answer(client, "validate", files=["tiny.yaml"]))["files"]
        assert checked["ok"]

        stages: list[str] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            stages.append(message or "")

        arguments = {"scenario": "tiny.yaml", "replications": 2, "out": "as-planned"}
        called = await client.call_tool("run", arguments, progress_callback=hear)
        assert called.structured_content is not None
        planned = called.structured_content
        assert stages[0].startswith("simulating tiny")
        assert any(stage.startswith("2 of 2 replications") for stage in stages)
        asked = {**arguments, "overrides": [DOUBLED], "out": "doubled"}
        doubled = await answer(client, "run", **asked)
        demand = "demand_tokens"
        assert doubled["clusters"]["fleet"][demand] > planned["clusters"]["fleet"][demand]
        why = await answer(client, "explain", figure="shed_fraction", place="doubled", inputs=500)
        assert why["value"] == doubled["clusters"]["fleet"]["shed_fraction"]
        (stated,) = [row for row in why["inputs"] if "growth.per_year" in row["path"]]
        assert (stated["value"], stated["grade"]) == ("0.8", "user")
        part = await answer(client, "catalogue", name="H200")
        assert part["facts"]["hbm_gb"]["value"] == 141
        assert "needs two" in await refusal(client, "compare", scenarios=["tiny.yaml"])
        assert "no such file" in await refusal(client, "size", scenario="none.yaml", budget=1e6)
        # What the command prints, and what it writes.
        printed = planner("run", file, "-n", "2", "--set", DOUBLED, "--out", "own", "--json")
        assert json.loads(printed.out) == doubled

    converse(file.parent, talk)
    by_assistant = files_of(file.parent / "doubled")
    by_hand = files_of(file.parent / "own")
    assert by_assistant["ledger.csv"] == by_hand["ledger.csv"]


def test_nothing_outside_the_folder_is_read_or_written(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(TINY)
    secret = tmp_path / "secret.yaml"
    secret.write_text(TINY)
    (folder / "link.yaml").symlink_to(secret)
    (folder / "way").symlink_to(tmp_path)
    (folder / "extends.yaml").write_text("extends: ../secret.yaml\nname: other\n")
    code = "def stop(context):\n    open('ran', 'w').close()\n    yield context.after_h(1)\n"
    (folder / "code.py").write_text(code)
    processes = "processes: [{file: code.py, function: stop}]\n"
    (folder / "coded.yaml").write_text(TINY + processes)
    # A module of a library's name would be found before the library.
    (folder / "yaml.py").write_text("open('ran', 'w').close()\n")

    async def talk(client: Client) -> None:
        outside = "lies outside the folder"
        links = ["link.yaml", "way/secret.yaml", "extends.yaml"]
        called = await client.call_tool(
            "validate", {"files": [str(secret), "../secret.yaml", *links]}
        )
        assert called.structured_content is not None
        for checked in called.structured_content["files"]:
            assert outside in checked["problems"][0], checked
        run = partial(refusal, client, "run", replications=1)
        overlay = f"catalog.overlay={secret}"
        assert outside in await run(scenario="tiny.yaml", overrides=[overlay])
        for out in ("../out", "way/out"):
            assert outside in await run(scenario="tiny.yaml", out=out)
        assert outside in await refusal(client, "explain", figure="cost_usd", place="..")
        assert "is code" in await run(scenario="coded.yaml")
        assert "no such file" in await run(scenario="--allow-code")
        schema = await client.read_resource("planner://schema/scenario")
        assert json.loads(schema.contents[0].model_dump()["text"]) == scenario_schema()

    converse(folder, talk)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given", "secret.yaml"]
    assert not (folder / "ran").exists()


def test_a_cancelled_run_stops_and_leaves_nothing(write: WriteScenario) -> None:
    folder = write().parent
    # Earlier tests of this worker may have left processes of their own.
    others = set(psutil.Process().children())

    async def talk(client: Client) -> None:
        (server,) = set(psutil.Process().children()) - others
        with anyio.CancelScope() as scope:

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                # Replications are being drawn, by forks too.
                if "replications" in (message or ""):
                    scope.cancel()

            arguments = {"scenario": "tiny.yaml", "replications": 10_000, "out": "half"}
            await client.call_tool("run", arguments, progress_callback=hear)
        assert scope.cancelled_caught
        deadline = time.monotonic() + 20
        while server.children(recursive=True) and time.monotonic() < deadline:
            await anyio.sleep(0.05)
        assert not server.children(recursive=True)
        # The server goes on.
        assert await answer(client, "explain", figure="cost_usd")

    converse(folder, talk)
    assert [path.name for path in folder.iterdir()] == ["tiny.yaml"]


def test_without_the_extra_it_says_what_to_install(
    planner: Planner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert planner("mcp", "--folder", tmp_path / "none").code == 2
    loaded = [name for name in sys.modules if name.split(".")[0] == "mcp"]
    for name in (*loaded, "planner.mcp.server"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    planner("mcp", "--folder", tmp_path).refused("datacenter-planner[mcp]")


def test_tools_have_the_options_of_their_commands(tmp_path: Path) -> None:
    from planner.mcp.server import server_of  # noqa: PLC0415 - the process above has its own

    async def schemas() -> dict[str, dict[str, Any]]:
        return {tool.name: tool.input_schema for tool in await server_of(tmp_path).list_tools()}

    import inspect  # noqa: PLC0415

    by_name = anyio.run(schemas)
    for command in (plans.run, plans.compare, plans.size, explain):
        options = inspect.signature(command).parameters
        properties = by_name[command.__name__]["properties"]
        assert set(properties) <= set(options)
        for name, described in properties.items():
            default = options[name].default
            if default is not inspect.Parameter.empty and default is not None:
                assert described["default"] == default, name
