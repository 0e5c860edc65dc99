"""The live page's server: local only, behind a token, for one scenario."""

from __future__ import annotations

import os
import secrets
import socket
import webbrowser
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any, Literal

import anyio
import uvicorn
from pydantic import AfterValidator, BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from planner.errors import PlannerError, Problem, ScenarioError
from planner.ui import desk as page
from planner.ui.desk import Desk, turns_of

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
_TEXT, _WORDS = "a text of 200 characters at most", "a list of path=value, each of 300 characters at most"
_MUST = {"move": "a whole number from 0 on", "set": _WORDS, "pin": _WORDS, "part": "answer, rest or intervals"}


class TabRequest(BaseModel, frozen=True, strict=True):
    """A request of a browser tab."""

    tab: Text = ""
    move: Annotated[int, Field(ge=0, lt=2**53)] = 0
    turns: Annotated[Words, Field(alias="set")] = ()
    pinned: Annotated[Words | None, Field(alias="pin")] = None
    """Turns of the pinned plan; None where none is pinned."""
    part: Literal["answer", "rest", "intervals"] = "answer"
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
        raise HTTPException(400, f"{wrong['loc'][0]} must be {_MUST.get(str(wrong['loc'][0]), _TEXT)}") from None


def _plain(status: int, sentence: str) -> Response:
    return PlainTextResponse(sentence, status, headers={**SAFE, "Content-Security-Policy": "default-src 'none'"})


async def _answer(work: Callable[[], dict[str, Any]]) -> Response:
    """Return the response of work run in a thread; planner errors become their messages."""
    try:
        return JSONResponse(await anyio.to_thread.run_sync(work), headers=SAFE)
    except SupersededError:
        return _plain(409, "a newer move came")
    except PlannerError as error:
        return _plain(422, str(error))
    except Exception as error:  # our fault: told on the page, which stays as it was
        return _plain(500, f"the planner failed, which is a fault of its own: {type(error).__name__}: {error}")


class Live:
    """The request handlers of the live page."""

    def __init__(self, desk: Desk) -> None:
        """Take the desk whose plans are shown."""
        self.desk = desk
        self._latest: OrderedDict[str, int] = OrderedDict()
        self.is_ending = False

    async def page(self, _: Request) -> Response:
        """Return the page's HTML; its script reads the rest of the address."""
        html = page.page(self.desk.stated)
        return HTMLResponse(html, headers={**SAFE, "Content-Security-Policy": page.live_policy()})

    async def show(self, request: Request) -> Response:
        """Return a part of a plan as HTML: its answer, the rest of its report, or its answer with intervals."""
        asked = asked_of(await request.body())
        self._latest[asked.tab] = max(asked.move, self._latest.pop(asked.tab, 0))
        while len(self._latest) > _MOST_TABS:
            self._latest.popitem(last=False)
        return await _answer(lambda: self._part(asked))

    def _part(self, asked: TabRequest) -> dict[str, Any]:
        def check() -> None:
            if self.is_ending or asked.move < self._latest.get(asked.tab, 0):
                raise SupersededError

        pinned = self.desk.plan(asked.pinned, check) if asked.pinned is not None else None
        plan = self.desk.plan(asked.turns, check)
        if asked.part == "rest":
            return {"parts": page.rest(self.desk, plan, check)}
        intervals = asked.part == "intervals"
        for side in (plan, pinned):
            if intervals and side is not None:
                self.desk.draw(side, check)
        shown = page.answer(self.desk, plan, pinned, intervals=intervals)
        line = page.line(self.desk, plan, intervals=intervals)
        return {"parts": shown, "line": line, **page.held(plan.knobs, asked.form)}

    async def save(self, request: Request) -> Response:
        """Write a what-if file."""
        asked = asked_of(await request.body())
        return await _answer(lambda: {"said": f"saved as {self.desk.save(asked.turns, asked.name)}"})

    async def write(self, request: Request) -> Response:
        """Write a run folder, and return the address of its report."""
        asked = asked_of(await request.body())

        def written() -> dict[str, Any]:
            folder = self.desk.write(asked.turns, asked.name)
            return {"said": f"written to {folder}", "href": f"folder/{asked.name}/report.html"}

        return await _answer(written)

    async def file(self, request: Request) -> Response:
        """Return a file of a run folder written from this page; a report has its own content policy."""
        path = self.desk.file(request.path_params["name"], request.path_params["file"])
        if path is None:
            return _plain(404, "no such file was written from this page")
        return FileResponse(path, headers=SAFE)


def build_app(desk: Desk, token: str, port: int) -> tuple[Starlette, Live]:
    """Return the web application, and the handlers of its page, behind a check of host, token and origin.

    The guard lets in what comes from this page alone: its host, its token, its origin, and no more than it would send.
    """
    live, hosts = Live(desk), {f"{HOST}:{port}", f"localhost:{port}"}

    async def guard(request: Request, answer: RequestResponseEndpoint) -> Response:
        headers, size = request.headers, request.headers.get("content-length", "")
        if headers.get("host") not in hosts:  # a name that somebody else's DNS leads here
            return _plain(403, "this server answers on 127.0.0.1 alone")
        if (origin := headers.get("origin")) and origin.removeprefix("http://") not in hosts:
            return _plain(403, "this server answers its own page alone")
        if not secrets.compare_digest(request.url.path.split("/")[1].encode(), token.encode()):
            return _plain(403, "the address lacks its token: open the one that planner ui printed")
        if request.method == "POST" and not headers.get("content-type", "").startswith("application/json"):
            return _plain(415, "send JSON")
        is_short = size.isdigit() and int(size) <= MOST_BYTES and "transfer-encoding" not in headers
        if request.method == "POST" and not is_short:
            return _plain(413, f"a request says how long it is, and is {MOST_BYTES:,} bytes at most")
        return await answer(request)

    async def refused(_: Request, error: Exception) -> Response:
        status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "failed")
        said = {404: "there is no such page", 405: "not this way: changes are POSTed"}
        return _plain(status, said.get(status, detail))

    routes = [
        Route("/", live.page),
        Route("/show", live.show, methods=["POST"]),
        Route("/save", live.save, methods=["POST"]),
        Route("/write", live.write, methods=["POST"]),
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
        raise ScenarioError(Problem(message=message, hint="leave --port out to take any that is free")) from None


def serve(desk: Desk, listening: socket.socket, say: Callable[[str], None], *, browser: bool) -> None:
    """Serve until Ctrl-C; ``say`` is called with the address."""
    port, token = listening.getsockname()[1], secrets.token_urlsafe(24)
    app, live = build_app(desk, token, port)
    address = f"http://{HOST}:{port}/{token}/"

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            say(address)
            if browser:
                webbrowser.open(address)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            live.is_ending = True
            await super().shutdown(sockets)

    settings = uvicorn.Config(
        app, log_level="error", lifespan="off", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    try:
        Server(settings).run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn raises it anew once all is shut down
        pass
    finally:
        listening.close()
