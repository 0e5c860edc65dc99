"""A headless Chromium spoken to over its debugging pipe: no driver, no port, no further package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip


KEY_CODES = {"Tab": 9, "Enter": 13, " ": 32}
KEY_TEXTS = {"Enter": "\r"}


def find_chromium() -> str | None:
    """Return the browser's path, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class PageLeftError(Exception):
    """Raised where a page has gone to another address before it could answer."""


class Browser:
    """One browser with one page."""

    def __init__(self, profile: Path, timeout_s: float = 40.0) -> None:
        command = find_chromium()
        assert command, "no Chromium"
        self.timeout_s = timeout_s
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._buffer = b""
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, command, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._enter(self.call("Target.createTarget", {"url": "about:blank"})["targetId"])

    def _enter(self, target: str) -> None:
        self.session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.page(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self.process.kill()
        self.process.wait()
        os.close(self._read)
        os.close(self._write)

    def _receive(self, until: float) -> dict[str, Any]:
        """Return the next message; ``until`` bounds the whole wait, since other messages may come on and on."""
        while b"\0" not in self._buffer and time.monotonic() < until:
            ready, _, _ = select.select([self._read], [], [], 1.0)
            if ready:
                chunk = os.read(self._read, 1 << 20)
                assert chunk, "the browser has ended"
                self._buffer += chunk
        if time.monotonic() >= until:
            raise TimeoutError("the browser does not answer")
        message, self._buffer = self._buffer.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def call(
        self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Call a method of the protocol and return its result; what happens meanwhile is kept in ``events``."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.timeout_s
        while True:
            found = self._receive(until)
            if found.get("id") == number:
                if "navigated or closed" in str(found.get("error")):
                    raise PageLeftError(method)
                assert "error" not in found, (method, found["error"])
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def page(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method on the page."""
        return self.call(method, parameters, self.session)

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until an event has come."""
        until = time.monotonic() + self.timeout_s
        while not any(wanted(event) for event in self.events):
            self.events.append(self._receive(until))

    def open(self, path: Path) -> None:
        """Open a file, and wait until it is loaded."""
        self.visit(path.absolute().as_uri())

    def visit(self, address: str) -> None:
        """Go to an address, and wait until it is loaded."""
        self.events.clear()
        self.page("Page.navigate", url=address)
        self.wait_for(lambda event: event.get("method") == "Page.loadEventFired")

    @contextlib.contextmanager
    def another_tab(self) -> Iterator[None]:
        """Be in another tab for a while; the one before goes on."""
        before = self.session
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._enter(target)
        yield
        self.call("Target.closeTarget", {"targetId": target})
        self.session = before

    def evaluate(self, script: str) -> Any:
        """Evaluate JavaScript in the page and return its value."""
        found = self.page(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Give the page another window."""
        scale = 2 if mobile else 1
        self.page("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=mobile)  # fmt: skip
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def colour_scheme(self, name: str) -> None:
        """Choose light or dark."""
        self.page(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}]
        )

    def mouse(
        self, kind: str, x: float, y: float, *, button: str = "none", buttons: int = 0
    ) -> None:
        """Move the mouse, or press or release its button."""
        self.page(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button=button,
            buttons=buttons,
            clickCount=1,
        )

    def key(self, name: str) -> None:
        """Press a key."""
        text = {"text": KEY_TEXTS.get(name, name)} if len(name) == 1 or name in KEY_TEXTS else {}
        # What a key does of itself, such as to move the focus, goes by its code.
        code = {"windowsVirtualKeyCode": KEY_CODES[name]} if name in KEY_CODES else {}
        self.page("Input.dispatchKeyEvent", type="keyDown", key=name, **text, **code)
        self.page("Input.dispatchKeyEvent", type="keyUp", key=name, **code)

    def type(self, text: str) -> None:
        """Type text into what has the focus."""
        self.page("Input.insertText", text=text)

    def choose(self, selector: str, *files: Path) -> None:
        """Choose files in a file input."""
        root = self.page("DOM.getDocument")["root"]["nodeId"]
        node = self.page("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.page("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the page."""
        shot = self.page("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def errors(self) -> list[str]:
        """Return what the console complained of."""
        found = []
        for event in self.events:
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(str(event["params"]["exceptionDetails"]))
                case "Log.entryAdded" if event["params"]["entry"]["level"] in ("error", "warning"):
                    found.append(str(event["params"]["entry"]))
                case "Runtime.consoleAPICalled" if event["params"]["type"] in ("error", "warning"):
                    found.append(str(event["params"]))
        return found

    def requests(self) -> list[str]:
        """Return every address that the page asked for."""
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]  # fmt: skip
