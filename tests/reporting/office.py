"""Workbooks read back, and calculated anew by LibreOffice."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import zipfile
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


def sheets_of(content: bytes) -> dict[str, list[list[Any]]]:
    book = CalamineWorkbook.from_filelike(io.BytesIO(content))
    return {name: book.get_sheet_by_name(name).to_python(skip_empty_area=False) for name in book.sheet_names}


def column(sheet: list[list[Any]], name: str) -> list[Any]:
    place = sheet[0].index(name)
    return [row[place] for row in sheet[1:]]


def measures(sheets: dict[str, list[list[Any]]]) -> dict[str, float]:
    return {row[0]: row[1] for row in sheets["Summary"] if isinstance(row[1], float)}


def recalculate(content: bytes, folder: Path) -> dict[str, list[list[Any]]]:
    """Return the sheets after LibreOffice has calculated every formula anew."""
    assert OFFICE is not None
    profile = folder / "profile"
    (profile / "user").mkdir(parents=True)
    (profile / "user" / "registrymodifications.xcu").write_text(RECALCULATE_ALWAYS, encoding="utf-8")
    source = folder / "workbook.xlsx"
    source.write_bytes(content)
    command = [OFFICE, f"-env:UserInstallation={profile.as_uri()}", "--headless"]
    command += ["--convert-to", "xlsx:Calc MS Excel 2007 XML"]
    subprocess.run(
        [*command, "--outdir", str(folder / "out"), str(source)], check=True, capture_output=True, timeout=170
    )
    return sheets_of((folder / "out" / "workbook.xlsx").read_bytes())


def with_cells(content: bytes, cells: dict[str, float]) -> bytes:
    """Return the workbook with other numbers typed into cells of the summary sheet; nothing else is touched."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.namelist():
            text = old.read(entry)
            if entry == "xl/worksheets/sheet1.xml":
                sheet = text.decode()
                for cell, number in cells.items():
                    sheet, count = re.subn(rf'(<c r="{cell}"[^>]*><v>)[^<]*(</v>)', rf"\g<1>{number!r}\g<2>", sheet)
                    assert count == 1, cell
                text = sheet.encode()
            new.writestr(entry, text)
    return target.getvalue()
