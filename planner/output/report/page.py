"""The page around the sections: styles, script, and a policy that lets it load nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.output.report.html import BREAK, Html, element, filled, join

_FOLDER = Path(__file__).parent
TITLES = {
    "answer": "What should we do?",
    "time": "How it goes over time",
    "money": "Where the money goes",
    "losses": "Where capacity was lost, and to what",
    "hangs": "What the answer hangs on",
    "assumptions": "What it assumes",
    "error": "How wrong the model is",
    "reproduce": "How to get it again",
}
"""The questions of a report by the anchors of their sections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the report."""

    key: str
    """Anchor."""
    body: Html
    """The answer."""
    asks: str = ""
    """The question it answers, where that is not the usual one of its anchor."""

    @property
    def title(self) -> str:
        """The question it answers."""
        return self.asks or TITLES[self.key]


@functools.cache
def asset(name: str) -> str:
    """Return a style or script that lies beside this file."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def policy(*scripts: str) -> str:
    """Return the content policy: our own scripts by their hashes, inline styles, and no address whatever."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def page(title: str, lead: str, sections: Sequence[Section], memo: Html = Html("")) -> bytes:  # noqa: B008 - frozen text
    """Return the whole file; ``memo`` is what it prints as, where there is one."""
    style, script = asset("report.css") + (asset("memo.css") if memo else ""), asset("report.js")
    links = [element("li", element("a", section.title, href=f"#{section.key}")) for section in sections]
    choice = element(
        "p",
        element(
            "label",
            element("input", type="checkbox", id="whole"),
            " Print all of this report, not the two-page memo of it",
        ),
    )
    document = filled(
        "page.html",
        title=title,
        lead=lead,
        links=join(links),
        sections=join(map(shown, sections), "\n"),
        choice=choice if memo else "",
        memo=element("article", element("h1", title), BREAK, memo, class_="memo", aria_hidden="true") if memo else "",
        policy=policy(script),
        style=Html(style),
        script=Html(script),
    )
    return f"{document}\n".encode()


def shown(section: Section) -> Html:
    """Return a section under its question."""
    heading = element("h2", section.title, id=f"{section.key}-title")
    return element("section", heading, section.body, id=section.key, aria_labelledby=f"{section.key}-title")


def code(content: str) -> Html:
    """Return something to type."""
    return element("code", content)


def command(content: str) -> Html:
    """Return a command on a line of its own."""
    return element("pre", element("code", content), tabindex="0", aria_label=f"Command: {content}", role="region")
