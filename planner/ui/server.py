"""The live page's server: on this machine alone, behind a token, for one scenario."""

from __future__ import annotations

import functools
import json
import secrets
import socket
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from planner.errors import PlannerError, Problem, ScenarioError
from planner.ui import controls
from planner.ui.desk import Desk, Turns, turns_of

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
    """A newer move of the same tab came: nobody waits for this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a tab asks for."""

    tab: str
    move: int
    turns: Turns
    pinned: Turns | None
    """Turns of the pinned plan; None where none is pinned."""
    part: str
    """``answer``, ``rest`` or ``intervals``."""
    name: str
    """Name of what is to be written, where something is."""
    form: str
    """The controls that the tab shows, by their name."""


class Guard:
    """Lets in what comes from this page alone: its host, its token, its origin, and no more than it would send."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        """Take the token of the address and the port that is listened on."""
        self.app, self.token = app, token
        self.hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 4xx with a sentence, or pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = self._refused(Request(scope))
        await (refused or self.app)(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        headers = request.headers
        if headers.get("host") not in self.hosts:  # a name that somebody else's DNS leads here
            return _plain(403, "this server answers on 127.0.0.1 alone")
        if (origin := headers.get("origin")) and origin.removeprefix("http://") not in self.hosts:
            return _plain(403, "this server answers its own page alone")
        given = request.url.path.split("/")[1]
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            return _plain(403, "the address lacks its token: open the one that planner serve printed")
        if request.method == "POST":
            if not headers.get("content-type", "").startswith("application/json"):
                return _plain(415, "send JSON")
            size = headers.get("content-length", "")
            if not size.isdigit() or int(size) > MOST_BYTES:
                return _plain(413, f"a request says how long it is, and is {MOST_BYTES:,} bytes at most")
        return None


def _plain(status: int, sentence: str) -> Response:
    return PlainTextResponse(sentence, status, headers={**SAFE, "Content-Security-Policy": "default-src 'none'"})


class Live:
    """The requests that the page makes."""

    def __init__(self, desk: Desk) -> None:
        """Take the desk whose plans are shown."""
        self.desk = desk
        self._latest: OrderedDict[str, int] = OrderedDict()
        self.is_ending = False

    def _check(self, asked: Asked) -> None:
        if self.is_ending or asked.move < self._latest.get(asked.tab, 0):
            raise SupersededError

    async def page(self, _: Request) -> Response:
        """Return the page; what stands in the rest of its address its script asks for."""
        html = controls.page(self.desk.stated)
        return HTMLResponse(html, headers={**SAFE, "Content-Security-Policy": controls.live_policy()})

    async def show(self, request: Request) -> Response:
        """Return a part of a plan as HTML: its answer, the rest of its report, or its answer with intervals."""
        asked = asked_of(await request.body())
        self._latest[asked.tab] = max(asked.move, self._latest.pop(asked.tab, 0))
        while len(self._latest) > _MOST_TABS:
            self._latest.popitem(last=False)
        return await _answer(lambda: self._part(asked))

    def _part(self, asked: Asked) -> dict[str, Any]:
        check = functools.partial(self._check, asked)
        pinned = self.desk.plan(asked.pinned, check) if asked.pinned is not None else None
        plan = self.desk.plan(asked.turns, check)
        intervals = asked.part == "intervals"
        if intervals:
            for side in (plan, pinned):
                if side is not None:
                    self.desk.draw(side, check)
        if asked.part == "rest":
            return {"parts": controls.rest(self.desk, plan, check)}
        shown = controls.answer(self.desk, plan, pinned, intervals=intervals)
        line = controls.line(self.desk, plan, intervals=intervals)
        return {"parts": shown, "line": line, **controls.held(plan.knobs, asked.form)}

    async def save(self, request: Request) -> Response:
        """Write a what-if."""
        asked = asked_of(await request.body())
        return await _answer(lambda: {"said": f"saved as {self.desk.save(asked.turns, asked.name)}"})

    async def write(self, request: Request) -> Response:
        """Write a run folder, and say where its report is."""
        asked = asked_of(await request.body())

        def written() -> dict[str, Any]:
            folder = self.desk.write(asked.turns, asked.name)
            return {"said": f"written to {folder}", "href": f"folder/{asked.name}/report.html"}

        return await _answer(written)

    async def file(self, request: Request) -> Response:
        """Return a file of a run folder that was written from this page; a report carries its own content policy."""
        path = self.desk.file(request.path_params["name"], request.path_params["file"])
        if path is None:
            return _plain(404, "no such file was written from this page")
        return FileResponse(path, headers=SAFE)


def asked_of(body: bytes) -> Asked:
    """Read a request, or say what is wrong with it."""
    try:
        body_asked = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the request is not JSON") from None
    if not isinstance(body_asked, dict):
        raise HTTPException(400, "the request is not a JSON object")
    pinned = body_asked.get("pin")
    asked = Asked(
        tab=_text(body_asked, "tab"),
        move=_count(body_asked, "move"),
        turns=_turns(body_asked, "set"),
        pinned=None if pinned is None else _turns(body_asked, "pin"),
        part=_text(body_asked, "part") or "answer",
        name=_text(body_asked, "name"),
        form=_text(body_asked, "form"),
    )
    if asked.part not in ("answer", "rest", "intervals"):
        raise HTTPException(400, "part must be answer, rest or intervals")
    return asked


def _count(asked: Mapping[str, Any], key: str) -> int:
    number = asked.get(key, 0)
    if not isinstance(number, int) or not 0 <= number < 2**53:
        raise HTTPException(400, f"{key} must be a whole number from 0 on")
    return number


def _text(asked: Mapping[str, Any], key: str) -> str:
    text = asked.get(key, "")
    if not isinstance(text, str) or len(text) > 200:
        raise HTTPException(400, f"{key} must be a text of 200 characters at most")
    return text


def _turns(asked: Mapping[str, Any], key: str) -> Turns:
    words = asked.get(key, [])
    if not isinstance(words, list) or not all(isinstance(word, str) and len(word) <= 300 for word in words):
        raise HTTPException(400, f"{key} must be a list of path=value, each of 300 characters at most")
    return turns_of(words)


async def _answer(work: Callable[[], dict[str, Any]]) -> Response:
    """Do the work in a thread; what fails on purpose is told in its own words."""
    try:
        return JSONResponse(await anyio.to_thread.run_sync(work), headers=SAFE)
    except SupersededError:
        return _plain(409, "a newer move came")
    except PlannerError as error:
        return _plain(422, str(error))
    except Exception as error:  # our fault: told on the page, which stays as it was
        return _plain(500, f"the planner failed, which is a fault of its own: {type(error).__name__}: {error}")


def build_app(desk: Desk, token: str, port: int) -> tuple[ASGIApp, Live]:
    """Return the application, and the page behind its guard."""
    live = Live(desk)
    routes = [
        Route("/", live.page),
        Route("/show", live.show, methods=["POST"]),
        Route("/save", live.save, methods=["POST"]),
        Route("/write", live.write, methods=["POST"]),
        Route("/folder/{name}/{file}", live.file),
    ]

    async def refused(_: Request, error: Exception) -> Response:
        status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "failed")
        return _plain(
            status, {404: "there is no such page", 405: "not this way: changes are POSTed"}.get(status, detail)
        )

    app = Starlette(routes=[Mount(f"/{token}", routes=routes)], exception_handlers={HTTPException: refused})
    return Guard(app, token, port), live


def listen(port: int) -> socket.socket:
    """Return a socket on this machine alone; port 0 takes any that is free."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        message = f"port {port} cannot be used: {error.strerror}"
        raise ScenarioError(Problem(message=message, hint="leave --port out to take any that is free")) from None
    return listening


def serve(desk: Desk, listening: socket.socket, say: Callable[[str], None], *, browser: bool) -> None:
    """Serve until Ctrl-C; ``say`` is told the address."""
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
