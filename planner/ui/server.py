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
from planner.ui import desk as page
from planner.ui.desk import SHARED, Desk, Turns, turns_of

HOST = "127.0.0.1"
MOST_BYTES = 100_000
_MOST_TABS = 1000
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SupersededError(Exception):
    """Raised for a move that a newer one of the same tab has replaced."""


Text = Annotated[str, Field(max_length=200)]
Words = Annotated[tuple[Annotated[str, Field(max_length=300)], ...], AfterValidator(turns_of)]
_TEXT = "a text of 200 characters at most"
_WORDS = "a list of path=value, each of 300 characters at most"
_MUST = {
    "move": "a whole number from 0 on",
    "plan": _WORDS,
    "part": "answer, rest or grid",
    "stop": "true or false",
}
_MUST |= dict.fromkeys(("plans", "futures"), "a list of at most 8 lists of words")


class TabRequest(BaseModel, frozen=True, strict=True):
    """A request of a browser tab."""

    tab: Text = ""
    move: Annotated[int, Field(ge=0, lt=2**53)] = 0
    plan: Words = ()
    """The scenario's name, then what is turned; the first scenario as stated where nothing is."""
    plans: Annotated[tuple[Words, ...], Field(max_length=8)] = ()
    """Plans that were added to the grid."""
    futures: Annotated[tuple[Words, ...], Field(max_length=8)] = ()
    """Futures that were added to it, as turns."""
    part: Literal["answer", "rest", "grid"] = "answer"
    stop: bool = False
    """Whether a sizing is to end."""
    name: Text = ""
    """Name of what is to be written, where something is."""
    form: Text = ""
    """The controls that the tab shows, by their name."""


def asked_of(body: bytes) -> TabRequest:
    """Return a request from its body, or raise an HTTP error."""
    try:
        return TabRequest.model_validate_json(body)
    except ValidationError as error:
        wrong = error.errors()[0]
        if wrong["type"] == "json_invalid":
            raise HTTPException(400, "the request is not JSON") from None
        if not wrong["loc"]:
            raise HTTPException(400, "the request is not a JSON object") from None
        raise HTTPException(
            400, f"{wrong['loc'][0]} must be {_MUST.get(str(wrong['loc'][0]), _TEXT)}"
        ) from None


def _plain(status: int, sentence: str) -> Response:
    return PlainTextResponse(
        sentence, status, headers={**SAFE, "Content-Security-Policy": "default-src 'none'"}
    )


async def _answer(work: Callable[[], dict[str, Any]]) -> Response:
    """Return the response of work run in a thread; planner errors become their messages."""
    try:
        return JSONResponse(await anyio.to_thread.run_sync(work), headers=SAFE)
    except SupersededError:
        return _plain(409, "a newer move came")
    except PlannerError as error:
        return _plain(422, str(error))
    except Exception as error:  # our fault: told on the page, which stays as it was
        return _plain(
            500, f"the planner failed, which is a fault of its own: {type(error).__name__}: {error}"
        )


class Live:
    """The request handlers of the live page."""

    def __init__(self, desk: Desk) -> None:
        """Take the desk whose plans are shown."""
        self.desk = desk
        self._latest: OrderedDict[str, int] = OrderedDict()
        self.is_ending = False

    async def page(self, request: Request) -> Response:
        """Return the page's HTML; its script reads the rest of the address."""
        try:
            html = page.page(self.desk, request.query_params.get("of", ""))
        except PlannerError as error:
            return _plain(404, str(error))
        return HTMLResponse(html, headers={**SAFE, "Content-Security-Policy": page.live_policy()})

    async def show(self, request: Request) -> Response:
        """Return a part of a plan as HTML: its answer, the rest of its report, or plans by futures."""
        asked = asked_of(await request.body())
        self._latest[asked.tab] = max(asked.move, self._latest.pop(asked.tab, 0))
        while len(self._latest) > _MOST_TABS:
            self._latest.popitem(last=False)
        return await _answer(lambda: self._part(asked))

    def _part(self, asked: TabRequest) -> dict[str, Any]:
        def check() -> None:
            if self.is_ending or asked.move < self._latest.get(asked.tab, 0):
                raise SupersededError

        plans = self._plans(asked)
        plan = self.desk.plan(plans[0], check)
        if asked.part == "rest":
            return {"parts": page.rest(self.desk, plan, check)}
        shown: dict[str, Any] = {}
        if asked.part == "grid":
            before = plan.drawn
            section, left = self.desk.grid(plans, asked.futures, check)
            shown = {"grid": section_html(section), "left": left}
            if plan.drawn is before and left:  # the answer is as it was
                return shown
        parts = page.answer(self.desk, plans, check)
        return {
            "parts": parts,
            "line": page.line(self.desk, plan),
            **shown,
            **page.held(plan.knobs, asked.form),
        }

    def _plans(self, asked: TabRequest) -> list[Turns]:
        """Return the plan that is shown, then those added to the grid."""
        shown = asked.plan or (next(iter(self.desk.scenarios)),)
        return list(dict.fromkeys([shown, *(plan for plan in asked.plans if plan)]))

    async def save(self, request: Request) -> Response:
        """Write a what-if file."""
        asked = asked_of(await request.body())
        return await _answer(
            lambda: {"said": f"saved as {self.desk.save(self._plans(asked)[0], asked.name)}"}
        )

    async def share(self, request: Request) -> Response:
        """Write the page as one file, and return its address."""
        asked = asked_of(await request.body())

        def written() -> dict[str, Any]:
            path = self.desk.share(self._plans(asked), asked.futures, asked.name)
            return {"said": f"shared as {path}", "href": f"folder/{asked.name}/{SHARED}"}

        return await _answer(written)

    async def size(self, request: Request) -> Response:
        """Begin or stop a sizing where a name or a stop is given, and return what there is of it."""
        asked = asked_of(await request.body())

        def begun() -> dict[str, Any]:
            if asked.stop and self.desk.sizing is not None:
                self.desk.sizing.process.terminate()
            elif asked.name:
                self.desk.size(self._plans(asked)[0], asked.name)
            return self.desk.sized()

        return await _answer(begun)

    async def file(self, request: Request) -> Response:
        """Return a file of a sizing, or a page, written here; each has its own content policy."""
        path = self.desk.file(request.path_params["name"], request.path_params["file"])
        if path is None:
            return _plain(404, "no such file was written from this page")
        return FileResponse(path, headers=SAFE)


def build_app(desk: Desk, token: str, port: int) -> tuple[Starlette, Live]:
    """Return the web application, and the handlers of its page, behind a check of host, token and origin.

    The guard lets in what comes from this page alone: its host, its token, its origin, and no more than it would send.
    """
    live = Live(desk)
    hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    async def guard(request: Request, answer: RequestResponseEndpoint) -> Response:
        headers, size = request.headers, request.headers.get("content-length", "")
        if headers.get("host") not in hosts:  # a name that somebody else's DNS leads here
            return _plain(403, "this server answers on 127.0.0.1 alone")
        if (origin := headers.get("origin")) and origin.removeprefix("http://") not in hosts:
            return _plain(403, "this server answers its own page alone")
        if not secrets.compare_digest(request.url.path.split("/")[1].encode(), token.encode()):
            return _plain(403, "the address lacks its token: open the one that planner ui printed")
        if request.method == "POST" and not headers.get("content-type", "").startswith(
            "application/json"
        ):
            return _plain(415, "send JSON")
        is_short = size.isdigit() and int(size) <= MOST_BYTES and "transfer-encoding" not in headers
        if request.method == "POST" and not is_short:
            return _plain(
                413, f"a request says how long it is, and is {MOST_BYTES:,} bytes at most"
            )
        return await answer(request)

    async def refused(_: Request, error: Exception) -> Response:
        status, detail = (
            (error.status_code, error.detail)
            if isinstance(error, HTTPException)
            else (500, "failed")
        )
        said = {404: "there is no such page", 405: "not this way: changes are POSTed"}
        return _plain(status, said.get(status, detail))

    routes = [
        Route("/", live.page),
        Route("/show", live.show, methods=["POST"]),
        Route("/save", live.save, methods=["POST"]),
        Route("/share", live.share, methods=["POST"]),
        Route("/size", live.size, methods=["POST"]),
        Route("/folder/{name}/{file}", live.file),
    ]
    app = Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={HTTPException: refused},
    )
    return app, live


def listen(port: int) -> socket.socket:
    """Return a socket on the local machine only; port 0 takes any free one."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        message = f"port {port} cannot be used: {os.strerror(error.errno or 0)}"
        raise ScenarioError(
            Problem(message=message, hint="leave --port out to take any that is free")
        ) from None


def serve(
    desk: Desk, listening: socket.socket, say: Callable[[str], None], *, browser: bool
) -> None:
    """Serve until Ctrl-C; ``say`` is called with the address."""
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    app, live = build_app(desk, token, port)
    address = f"http://{HOST}:{port}/{token}/"

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            say(address)
            if browser:  # by a file of one's own: what a command line holds, everybody on the machine may read
                start.write(f'<meta http-equiv="refresh" content="0; url={address}">')
                start.flush()
                webbrowser.open(Path(start.name).as_uri())

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            live.is_ending = True
            if desk.sizing is not None:
                desk.sizing.process.terminate()
            await super().shutdown(sockets)

    settings = uvicorn.Config(
        app,
        log_level="error",
        lifespan="off",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    try:
        with tempfile.NamedTemporaryFile(
            "w", suffix=".html", encoding="utf-8"
        ) as start:  # for its owner alone
            Server(settings).run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn raises it anew once all is shut down
        pass
    finally:
        listening.close()
