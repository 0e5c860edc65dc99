"""The live page's server: local only, behind a token."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import webbrowser
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import uvicorn
from pydantic import AfterValidator, BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)
from starlette.routing import Mount, Route

from planner.errors import PlannerError, Problem, ScenarioError
from planner.output.html import section_html
from planner.scenario.schema import SCHEMA_FILE
from planner.ui.intake import MAX_FILE_BYTES, TAB, Answers, described
from planner.ui.page import (
    controls_update,
    live_policy,
    page_html,
    start_html,
    start_policy,
)
from planner.ui.settings import future_name, refusal
from planner.ui.workbench import SHARED_PAGE, PlanKey, Workbench, latest_changes

HOST = "127.0.0.1"
MAX_BYTES = 100_000
"""Length of a request that the page would send at most."""
_MAX_TABS = 1000
"""Tabs whose latest change is remembered."""
SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SupersededError(Exception):
    """Raised for a move that a newer one of the same tab has replaced."""


Text = Annotated[str, Field(max_length=200)]
Words = Annotated[tuple[Annotated[str, Field(max_length=300)], ...], AfterValidator(latest_changes)]
_TEXT_RULE = "a text of 200 characters at most"
_LISTS_RULE = "a list of at most 8 lists of words"
_FIELD_RULES = {
    "move": "a whole number from 0 on",
    "plan": "a list of path=value, each of 300 characters at most",
    "part": "answer, rest or grid",
    "stop": "true or false",
    "plans": _LISTS_RULE,
    "futures": _LISTS_RULE,
}
"""What a field of a request must be; any other is a text."""


class TabRequest(BaseModel, frozen=True, strict=True):
    """A request of a browser tab."""

    tab: Text = ""
    move: Annotated[int, Field(ge=0, lt=2**53)] = 0
    plan: Words = ()
    """The scenario's name, then its changes; the first scenario as stated where there is nothing."""
    plans: Annotated[tuple[Words, ...], Field(max_length=8)] = ()
    """Plans that were added to the grid."""
    futures: Annotated[tuple[Words, ...], Field(max_length=8)] = ()
    """Futures that were added to it, as changes."""
    part: Literal["answer", "rest", "grid"] = "answer"
    stop: bool = False
    """Whether a sizing is to end."""
    name: Text = ""
    """Name of what is to be written, where something is."""
    form: Text = ""
    """The controls that the tab shows, by their hash."""


def read_request(body: bytes) -> TabRequest:
    """Return a request from its body, or raise an HTTP error."""
    try:
        return TabRequest.model_validate_json(body)
    except ValidationError as error:
        # The first is enough: the page sends none of these.
        problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        raise HTTPException(400, "the request is not JSON")
    if not problem["loc"]:
        raise HTTPException(400, "the request is not a JSON object")
    field = str(problem["loc"][0])
    rule = _FIELD_RULES.get(field, _TEXT_RULE)
    raise HTTPException(400, f"{field} must be {rule}")


def read_answers(body: bytes) -> Answers:
    """Return answers from a request's body, or raise an HTTP error."""
    try:
        return Answers.model_validate_json(body)
    except ValidationError as error:
        # The first is enough: the page sends none of these.
        problem = error.errors()[0]
    place = ".".join(map(str, problem["loc"]))
    raise HTTPException(400, f"answers: {place}: {problem['msg']}")


def _plain(status: int, sentence: str) -> Response:
    headers = {**SAFE_HEADERS, "Content-Security-Policy": "default-src 'none'"}
    return PlainTextResponse(sentence, status, headers=headers)


async def _respond(work: Callable[[], dict[str, Any]]) -> Response:
    """Return the response of work run in a thread; planner errors become their messages."""
    try:
        content = await anyio.to_thread.run_sync(work)
        return JSONResponse(content, headers=SAFE_HEADERS)
    except SupersededError:
        return _plain(409, "a newer move came")
    except ScenarioError as error:
        return _plain(422, refusal(error))
    except PlannerError as error:
        return _plain(422, str(error))
    except Exception as error:  # our fault: printed on the page, which stays as it was
        message = "the planner failed because of a fault in its own code"
        return _plain(500, f"{message}: {type(error).__name__}: {error}")


class Live:
    """The request handlers of the live page."""

    def __init__(self, workbench: Workbench) -> None:
        """Take the workbench whose plans are shown."""
        self.workbench = workbench
        self._latest: OrderedDict[str, int] = OrderedDict()
        """The newest move of each tab."""
        self.is_ending = False

    async def page(self, request: Request) -> Response:
        """Return the page's HTML; its script reads the rest of the address."""
        name = request.query_params.get("of", "")
        is_start = "start" in request.query_params or (not name and self.workbench.asks_first)
        workbench = self.workbench
        if is_start:
            examples = workbench.listed(drafts=False)
            headers = {**SAFE_HEADERS, "Content-Security-Policy": start_policy()}
            return HTMLResponse(start_html(examples), headers=headers)
        try:
            scenario = workbench.stated(name)
        except PlannerError as error:
            return _plain(404, str(error))
        # Before the first plan: the script asks for it when the page is there.
        is_draft = scenario.name in workbench.drafts
        # A draft is one's own, and stands beside other drafts alone.
        html = page_html(scenario, workbench.listed(drafts=is_draft), is_draft=is_draft)
        headers = {**SAFE_HEADERS, "Content-Security-Policy": live_policy()}
        return HTMLResponse(html, headers=headers)

    async def show(self, request: Request) -> Response:
        """Return a part of a plan as HTML: its answer, the rest of its report, or plans by futures."""
        tab_request = read_request(await request.body())
        tab = tab_request.tab
        # A request may come after a newer one of its tab: the newer stays the latest.
        latest = self._latest.pop(tab, 0)
        self._latest[tab] = max(tab_request.move, latest)
        # The tab that was silent longest goes first.
        while len(self._latest) > _MAX_TABS:
            self._latest.popitem(last=False)
        return await _respond(lambda: self._part(tab_request))

    def _part(self, request: TabRequest) -> dict[str, Any]:
        def check() -> None:
            latest = self._latest.get(request.tab, 0)
            if self.is_ending or request.move < latest:
                raise SupersededError

        plans = self._plans(request)
        plan_run = self.workbench.plan(plans[0], check)
        if request.part == "rest":
            return {"parts": self.workbench.rest(plan_run, check)}
        grid: dict[str, Any] = {}
        if request.part == "grid":
            earlier = plan_run.replications
            section, missing = self.workbench.grid(plans, request.futures, check)
            grid = {"grid": section_html(section), "left": missing}
            # The answer is sent again when it has got its intervals, and with the last cell.
            if plan_run.replications is earlier and missing:
                return grid
        return {
            "parts": self.workbench.answer(plans, check),
            "line": self.workbench.line(plan_run),
            "futures": [future_name(future) for future in request.futures],
            **grid,
            **controls_update(plan_run.settings, request.form),
        }

    def _plans(self, request: TabRequest) -> list[PlanKey]:
        """Return the plan that is shown, then those of the grid beside it: as it was opened, then those added."""
        # A page opened without a query shows the first scenario as stated.
        plan = request.plan or (self.workbench.stated("").name,)
        added = [added_plan for added_plan in request.plans if added_plan]
        opened = [plan[:1]] if added else []
        return [plan, *opened, *added]

    async def save(self, request: Request) -> Response:
        """Write a what-if file."""
        tab_request = read_request(await request.body())

        def write() -> dict[str, Any]:
            plan = self._plans(tab_request)[0]
            path = self.workbench.save(plan, tab_request.name, tab_request.futures)
            said = f"saved as {path.name} in {path.absolute().parent}"
            if plan[0] in self.workbench.drafts:
                said += f", with {SCHEMA_FILE} for editors beside it"
            return {"said": said}

        return await _respond(write)

    async def share(self, request: Request) -> Response:
        """Write the page as one file, and return its address."""
        tab_request = read_request(await request.body())
        name = tab_request.name

        def write() -> dict[str, Any]:
            plans = self._plans(tab_request)
            path = self.workbench.share(plans, tab_request.futures, name)
            return {"said": f"shared as {path}", "href": f"folder/{name}/{SHARED_PAGE}"}

        return await _respond(write)

    async def memo(self, request: Request) -> Response:
        """Write a plan's run folder with its memo, and return the memo's address."""
        tab_request = read_request(await request.body())
        name = tab_request.name

        def write() -> dict[str, Any]:
            folder = self.workbench.memo(self._plans(tab_request)[0], name)
            return {"said": f"written to {folder}", "href": f"folder/{name}/memo.html"}

        return await _respond(write)

    async def keep(self, request: Request) -> Response:
        """Write a file that was dropped on the page into the folder of its tab."""
        query = request.query_params
        tab = query.get("tab", "")
        if not TAB.fullmatch(tab):
            return _plain(400, "tab must be a word")
        try:
            path = self.workbench.intake.file(tab, query.get("name", ""))
            with path.open("wb") as stream:
                async for chunk in request.stream():
                    stream.write(chunk)
        except PlannerError as error:
            return _plain(422, str(error))
        return JSONResponse({}, headers=SAFE_HEADERS)

    async def draft(self, request: Request) -> Response:
        """Return what answers come to, and what is wrong with them; where asked, show their plan."""
        answers = read_answers(await request.body())
        workbench = self.workbench
        intake = workbench.intake

        def make() -> dict[str, Any]:
            try:
                benchmarks = intake.benchmarks(answers)
                arguments = intake.arguments(answers)
                draft = intake.draft(answers)
                if answers.open:
                    workbench.add_draft(draft, arguments)
                    # What no run can be made of is said beside the question too.
                    workbench.plan((draft.name,))
            except ScenarioError as error:
                return {"problems": intake.problems(error, answers)}
            shown = described(draft, arguments)
            return {"name": draft.name, "problems": [], "benchmarks": benchmarks, **shown}

        return await _respond(make)

    async def forget(self, request: Request) -> Response:
        """Remove a file of a tab."""
        answers = read_answers(await request.body())

        def remove() -> dict[str, Any]:
            for file in answers.files:
                self.workbench.intake.forget(answers.tab, file.name)
            return {}

        return await _respond(remove)

    async def size(self, request: Request) -> Response:
        """Begin or stop a sizing where a name or a stop is given, and return what there is of it."""
        tab_request = read_request(await request.body())

        def begin_or_stop() -> dict[str, Any]:
            if tab_request.stop and self.workbench.sizing is not None:
                self.workbench.sizing.process.terminate()
            elif tab_request.name:
                plan = self._plans(tab_request)[0]
                self.workbench.size(plan, tab_request.name)
            return self.workbench.sizing_state()

        return await _respond(begin_or_stop)

    async def file(self, request: Request) -> Response:
        """Return a file of a sizing, or a page, written here; each has its own content policy."""
        parameters = request.path_params
        path = self.workbench.find_file(parameters["name"], parameters["file"])
        if path is None:
            return _plain(404, "no such file was written from this page")
        return FileResponse(path, headers=SAFE_HEADERS)


def build_app(workbench: Workbench, token: str, port: int) -> tuple[Starlette, Live]:
    """Return the web application, and the handlers of its page, behind a check of host, token and origin.

    The guard lets in what comes from this page alone: its host, its token, its origin, and no more than it would send.
    """
    live = Live(workbench)
    # Browsers may show either name of this machine.
    hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    async def guard(request: Request, respond: RequestResponseEndpoint) -> Response:
        headers = request.headers
        if headers.get("host") not in hosts:  # a name that somebody else's DNS leads here
            return _plain(403, "this server answers only on 127.0.0.1")
        origin = headers.get("origin")
        if origin and origin.removeprefix("http://") not in hosts:
            return _plain(403, "this server answers only its own page")
        # Compared in constant time, so that no answer's delay tells how much of a guess is right.
        guess = request.url.path.split("/")[1]
        if not secrets.compare_digest(guess.encode(), token.encode()):
            return _plain(
                403, "the address lacks its token: open the address that planner ui printed"
            )
        if request.method == "POST":
            content_type = headers.get("content-type", "")
            is_file = request.url.path.endswith("/keep")
            # Neither kind is one that another site's form could send.
            expected = "application/octet-stream" if is_file else "application/json"
            if not content_type.startswith(expected):
                return _plain(415, "send the file's bytes" if is_file else "send JSON")
            size = headers.get("content-length", "")
            most = MAX_FILE_BYTES if is_file else MAX_BYTES
            is_short = size.isdigit() and int(size) <= most
            # A chunked body may be longer than it says.
            if not is_short or "transfer-encoding" in headers:
                thing = "file" if is_file else "request"
                rule = f"a {thing} says how long it is, and is {most:,} bytes at most"
                return _plain(413, rule)
        return await respond(request)

    async def refuse(_: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            return _plain(500, "failed")
        sentences = {404: "there is no such page", 405: "not this way: changes are POSTed"}
        sentence = sentences.get(error.status_code, error.detail)
        return _plain(error.status_code, sentence)

    routes = [
        Route("/", live.page),
        Route("/show", live.show, methods=["POST"]),
        Route("/save", live.save, methods=["POST"]),
        Route("/share", live.share, methods=["POST"]),
        Route("/memo", live.memo, methods=["POST"]),
        Route("/keep", live.keep, methods=["POST"]),
        Route("/forget", live.forget, methods=["POST"]),
        Route("/draft", live.draft, methods=["POST"]),
        Route("/size", live.size, methods=["POST"]),
        Route("/folder/{name}/{file}", live.file),
    ]
    app = Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={HTTPException: refuse},
    )
    return app, live


def listen(port: int) -> socket.socket:
    """Return a socket on the local machine only; port 0 takes any free one."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        message = f"port {port} cannot be used: {os.strerror(error.errno or 0)}"
        hint = "leave --port out to use any free port"
        raise ScenarioError(Problem(message=message, hint=hint)) from None


def serve(
    workbench: Workbench,
    listening: socket.socket,
    print_address: Callable[[str], None],
    *,
    browser: bool,
) -> None:
    """Serve until Ctrl-C; ``print_address`` is called with the address."""
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    app, live = build_app(workbench, token, port)
    address = f"http://{HOST}:{port}/{token}/"

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print_address(address)
            if browser:
                # The browser is led there by a file for its owner alone: what a command line
                # holds, everybody on the machine may read.
                redirect.write(f'<meta http-equiv="refresh" content="0; url={address}">')
                redirect.flush()
                webbrowser.open(Path(redirect.name).as_uri())

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            live.is_ending = True  # runs under way end at their next check
            if workbench.sizing is not None:
                workbench.sizing.process.terminate()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level="error",
        lifespan="off",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as redirect:
            Server(config).run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn raises it anew once all is shut down
        pass
    finally:
        listening.close()
