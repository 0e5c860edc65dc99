"""A client of yaml-language-server, the server behind YAML in VS Code, Neovim, Helix, Emacs and others."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SERVER = (
    Path(__file__).parent / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"
)


class LanguageServer:
    """One running server, spoken to over its standard streams by the Language Server Protocol."""

    def __init__(self, node: str, folder: Path) -> None:
        """Start the server and shake hands; no schema store, so that nothing is fetched from anywhere."""
        self.process = subprocess.Popen(
            [node, str(SERVER), "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
        )
        self.folder = folder
        self.asked = 0
        self.diagnostics: dict[str, list[dict[str, Any]]] = {}
        settings = {
            "yaml": {
                "validate": True,
                "hover": True,
                "completion": True,
                "schemaStore": {"enable": False},
            }
        }
        self.settings = settings["yaml"]
        can = {"textDocument": {"hover": {}, "completion": {}, "publishDiagnostics": {}},
               "workspace": {"configuration": True}}  # fmt: skip
        self.ask("initialize", {"processId": None, "rootUri": folder.as_uri(), "capabilities": can})
        self.tell("initialized", {})
        self.tell("workspace/didChangeConfiguration", {"settings": settings})

    def close(self) -> None:
        """End the server."""
        self.ask("shutdown", None)
        self.tell("exit", None)
        self.process.wait(timeout=20)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def open(self, path: Path) -> list[dict[str, Any]]:
        """Open a file as an editor does and return what the server finds wrong with it."""
        return self.open_all([path])[0]

    def open_all(self, paths: Sequence[Path]) -> list[list[dict[str, Any]]]:
        """Open files at once, since the server waits a moment after each, and return what is wrong with each."""
        for path in paths:
            item = {
                "uri": path.as_uri(),
                "languageId": "yaml",
                "version": 1,
                "text": path.read_text(),
            }
            self.diagnostics.pop(path.as_uri(), None)
            self.tell("textDocument/didOpen", {"textDocument": item})
        while not all(path.as_uri() in self.diagnostics for path in paths):
            self._take(self._read())
        return [self.diagnostics[path.as_uri()] for path in paths]

    def complete(self, path: Path, line: int, column: int) -> list[str]:
        """Return what the server offers at a place."""
        found = self.ask("textDocument/completion", self._place(path, line, column))
        return [item["label"] for item in (found["items"] if isinstance(found, dict) else found)]

    def hover(self, path: Path, line: int, column: int) -> str:
        """Return what the server says about a place."""
        found = self.ask("textDocument/hover", self._place(path, line, column))
        return "" if found is None else str(found["contents"]["value"])

    def ask(self, method: str, parameters: Any) -> Any:
        """Send a request and return its answer, answering what the server asks meanwhile."""
        self.asked += 1
        self._send({"id": self.asked, "method": method, "params": parameters})
        while True:
            message = self._read()
            if message.get("id") == self.asked and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            self._take(message)

    def tell(self, method: str, parameters: Any) -> None:
        """Send a notification."""
        self._send({"method": method, "params": parameters})

    def _place(self, path: Path, line: int, column: int) -> dict[str, Any]:
        return {
            "textDocument": {"uri": path.as_uri()},
            "position": {"line": line, "character": column},
        }

    def _take(self, message: dict[str, Any]) -> None:
        """Keep diagnostics; answer the server's own requests."""
        if message.get("method") == "textDocument/publishDiagnostics":
            self.diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "id" in message and "method" in message:
            answer: Any = None
            if message["method"] == "workspace/configuration":
                sections = [item.get("section") for item in message["params"]["items"]]
                answer = [self.settings if section == "yaml" else None for section in sections]
            self._send({"id": message["id"], "result": answer})

    def _send(self, message: dict[str, Any]) -> None:
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
        self.process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        stream = self.process.stdout
        assert stream is not None
        length = 0
        while line := stream.readline().strip():
            name, _, size = line.partition(b":")
            length = int(size) if name.lower() == b"content-length" else length
        assert length, "the language server has gone"
        found: dict[str, Any] = json.loads(stream.read(length))
        return found
