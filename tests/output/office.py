"""Workbooks read back, and calculated anew by LibreOffice."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from python_calamine import CalamineWorkbook

OFFICE = shutil.which("soffice") or shutil.which("libreoffice")
NEEDS_OFFICE = pytest.mark.skipif(
    OFFICE is None, reason="LibreOffice is not installed: the workbook was NOT recalculated"
)
RECALCULATE_ALWAYS = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop></item>
</oor:items>"""
YELLOW = "FFFFF4C2"

Sheet = list[list[Any]]


def sheets_of(content: bytes) -> dict[str, Sheet]:
    book = CalamineWorkbook.from_filelike(io.BytesIO(content))
    return {
        name: book.get_sheet_by_name(name).to_python(skip_empty_area=False)
        for name in book.sheet_names
    }


def column(sheet: Sheet, name: str, headings: int = 0) -> list[Any]:
    place = sheet[headings].index(name)
    return [row[place] for row in sheet[headings + 1 :]]


def measures(sheets: dict[str, Sheet]) -> dict[str, float]:
    return {row[0]: row[1] for row in sheets["Summary"] if isinstance(row[1], float)}


def recalculate(books: Mapping[str, bytes], folder: Path) -> dict[str, dict[str, Sheet]]:
    """Return the sheets of some workbooks after one LibreOffice has calculated every formula of them anew."""
    assert OFFICE is not None
    profile = folder / "profile"
    (profile / "user").mkdir(parents=True)
    (profile / "user" / "registrymodifications.xcu").write_text(
        RECALCULATE_ALWAYS, encoding="utf-8"
    )
    for place, content in enumerate(books.values()):
        (folder / f"{place}.xlsx").write_bytes(content)
    command = [OFFICE, f"-env:UserInstallation={profile.as_uri()}", "--headless"]
    command += ["--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", str(folder / "out")]
    command += [str(folder / f"{place}.xlsx") for place in range(len(books))]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return {
        name: sheets_of((folder / "out" / f"{place}.xlsx").read_bytes())
        for place, name in enumerate(books)
    }


def live_cells(content: bytes) -> dict[str, tuple[str, float]]:
    """Return the yellow cells of the inputs by their labels: address, and what stands there."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        sheet = book.read("xl/worksheets/sheet2.xml").decode()
        styles = book.read("xl/styles.xml").decode()
    yellow = [
        place
        for place, fill in enumerate(re.findall(r"<fill>.*?</fill>", styles))
        if YELLOW in fill
    ]
    formats = re.search(r"<cellXfs.*?</cellXfs>", styles, re.DOTALL)
    assert formats
    fills = [int(fill) for fill in re.findall(r'<xf [^>]*fillId="(\d+)"', formats[0])]
    rows = sheets_of(content)["Inputs"]
    found = {}
    for cell, row, style, number in re.findall(r'<c r="(B(\d+))" s="(\d+)"><v>([^<]*)</v>', sheet):
        if fills[int(style)] in yellow:
            found[rows[int(row) - 1][0]] = (cell, float(number))
    return found


def with_cells(content: bytes, cells: dict[str, float]) -> bytes:
    """Return the workbook with other numbers typed into cells of the inputs; nothing else is touched."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.namelist():
            text = old.read(entry)
            if entry == "xl/worksheets/sheet2.xml":
                sheet = text.decode()
                for cell, number in cells.items():
                    sheet, count = re.subn(
                        rf'(<c r="{cell}"[^>]*><v>)[^<]*(</v>)', rf"\g<1>{number!r}\g<2>", sheet
                    )
                    assert count == 1, cell
                text = sheet.encode()
            new.writestr(entry, text)
    return target.getvalue()
