"""The how-to page's commands run in order and print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "fit-your-traffic.md"


def test_commands_on_the_page_print_what_it_shows(tmp_path: Path) -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```\n", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "120",
    }
    printed = ""
    compared = 0
    for kind, text in blocks:
        if kind == "bash":
            done = subprocess.run(
                ["bash", "-ec", text],
                cwd=tmp_path,
                env=environment,
                text=True,
                capture_output=True,
                check=False,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            printed = done.stderr + done.stdout
        elif kind == "text":
            assert printed.split() == text.split()
            compared += 1
        elif kind == "yaml":
            assert (tmp_path / "storefront.yaml").read_text(encoding="utf-8").strip() == text.strip()
            compared += 1
    assert compared == 4


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)", PAGE.read_text(encoding="utf-8")))
def test_links_on_the_page_lead_somewhere(link: str) -> None:
    assert (PAGE.parent / link).exists()
