"""The page around the sections: styles, script, and a policy that lets it load nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.reporting.report.html import Html, element, join

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the report."""

    key: str
    """Anchor."""
    title: str
    """The question it answers."""
    body: Html
    """The answer."""


@functools.cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Return the content policy: our own script by its hash, inline styles, and no address whatever."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def page(title: str, lead: str, sections: Sequence[Section]) -> bytes:
    """Return the whole file."""
    style, script = _asset("report.css"), _asset("report.js")
    head = join(
        [
            Html('<meta charset="utf-8">'),
            element("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("meta", name="referrer", content="no-referrer"),
            element("title", title),
            Html(f"<style>{style}</style>"),
        ],
        "\n",
    )
    links = [element("li", element("a", s.title, href=f"#{s.key}")) for s in sections]
    parts = [
        element("section", element("h2", s.title, id=f"{s.key}-title"), s.body, id=s.key,
                aria_labelledby=f"{s.key}-title")
        for s in sections
    ]  # fmt: skip
    body = join(
        [
            element("a", "Skip to the answer", href="#answer", class_="skip"),
            element("header", element("h1", title), element("p", lead, class_="lead")),
            element("nav", element("ul", *links), aria_label="Sections"),
            element("main", join(parts, "\n")),
            element("footer", element("p", "Written by datacenter-planner. This file loads nothing from anywhere.")),
            Html(f"<script>{script}</script>"),
        ],
        "\n",
    )
    whole = f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'
    return whole.encode("utf-8")


def code(content: str) -> Html:
    """Return something to type."""
    return element("code", content)


def command(content: str) -> Html:
    """Return a command on a line of its own."""
    return element("pre", element("code", content), tabindex="0", aria_label=f"Command: {content}", role="region")
