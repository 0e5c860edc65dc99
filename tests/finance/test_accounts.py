"""The one table of accounts: a new account is a row, a member and a price, and every output shows it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import planner
from planner.engine.processes import PRICED
from planner.finance.accounts import ACCOUNT_ORDER, CAPEX_ACCOUNTS, Account, View
from tests.conftest import TINY
from tests.contracts.source import trees

ROW = (
    "security,cash accrual economic,operating_expense,accelerators,accelerator,cost,yes,month,invoice,process,"
    "people,capacity,-,Usage,Management and Governance,Guards and cameras.\n"
)
LOOK_AT_OUTPUTS = """
import sys
from pathlib import Path
import pandas as pd
from planner.actuals.months import BOOKED
from planner.answers.run import write_run
from planner.engine.processes import PRICED
from planner.finance.accounting.measures import measures
from planner.finance.accounts import Account
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.studies.compare import factors_of

def run(usd):
    path = Path("tiny.yaml")
    return simulate(load_scenario(path, [f"finance.security_usd_per_accelerator_year={usd}", "horizon_months=4"]))

base, guarded = run(0), run(1200)
paid = guarded.ledger.account_cents(Account.SECURITY)
accelerators = sum(c.nodes * c.accelerators_per_node for c in guarded.plan.clusters)
assert abs(paid / 100 - 1200 / 12 * 4 * accelerators) < 0.01 * paid, paid
names = ("cost_usd", "pl_cost_usd", "tco_usd", "cash_usd")
more = {name: measures(guarded)[name] - measures(base)[name] for name in names}
assert all(abs(100 * usd - paid) < 1 for usd in more.values()), (more, paid)
by_hour = [factors_of(result).people_usd for result in (base, guarded)]
assert abs((by_hour[1] - by_hour[0]) * guarded.plan.hours * accelerators - paid / 100) < 0.01 * paid, by_hour
assert "security" in PRICED and Account.SECURITY in BOOKED
for frame, column in ((guarded.statements(), "operating_expense_usd"), (guarded.unit_economics(), "cost_usd")):
    before = (base.statements() if column.startswith("op") else base.unit_economics())[column].sum()
    assert abs(frame[column].sum() - before - paid / 100) < 0.01, column
write_run(guarded, Path("out"))
for name in ("ledger", "accounts", "focus"):
    assert "security" in Path("out", f"{name}.csv").read_text(encoding="utf-8-sig"), name
focus = pd.read_csv("out/focus.csv", encoding="utf-8-sig")
assert abs(focus[focus.ServiceName == "security"].EffectiveCost.sum() * 100 - paid) < 1
assert "security" in Path("out", "report.html").read_text()
"""


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Copy the program with one more account: a row, a member, a field of the scenario and its price."""
    package = tmp_path / "planner"
    shutil.copytree(
        Path(planner.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    with (package / "finance" / "accounts.csv").open("a") as table:
        table.write(ROW)
    last_member = f'    {ACCOUNT_ORDER[-1].name} = "{ACCOUNT_ORDER[-1]}"\n'
    _edit(
        package / "finance" / "accounts.py",
        last_member,
        f'{last_member}    SECURITY = "security"\n',
    )
    _edit(
        package / "scenario" / "finance.py",
        "    licence_usd_per_accelerator_year",
        '    security_usd_per_accelerator_year: float = 0.0\n    """Guards. Default 0: none."""\n'
        "    licence_usd_per_accelerator_year",
    )
    _edit(
        package / "finance" / "pricing.py",
        "            Account.LICENCES:",
        "            Account.SECURITY: finance.security_usd_per_accelerator_year,\n"
        "            Account.LICENCES:",
    )
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path


def _python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_new_account_is_in_every_output(copied: Path) -> None:
    finished = _python(copied, LOOK_AT_OUTPUTS)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("accounts.csv", ",people,capacity,-,Usage", ",,capacity,-,Usage", "security has no cause"),
        ("accounts.csv", "people,capacity,-,Usage", "people,-,-,Usage", "needs a behaviour"),
        ("accounts.csv", "security,cash", "guards,cash", "no row of the account security"),
        (
            "accounts.csv",
            ",accelerators,accelerator,cost",
            ",guards,guard,cost",
            "driver of security",
        ),
        ("accounts.py", '    SECURITY = "security"\n', "", "differ: security"),
    ],
)
def test_a_missing_cell_stops_the_program(
    copied: Path, file: str, old: str, new: str, message: str
) -> None:
    path = copied / "planner" / "finance" / file
    text = path.read_text()
    # The last row is the new account's.
    place = text.rindex(old)
    path.write_text(text[:place] + new + text[place + len(old) :])
    finished = _python(copied, "import planner.finance.accounts")
    assert finished.returncode == 1
    assert message in finished.stderr


def test_a_yearly_account_without_a_price_stops_the_run(copied: Path) -> None:
    _edit(
        copied / "planner" / "finance" / "pricing.py",
        "            Account.SECURITY: finance.security_usd_per_accelerator_year,\n",
        "",
    )
    finished = _python(copied, LOOK_AT_OUTPUTS)
    assert "the account security has no price" in finished.stderr


def test_every_account_that_is_repriced_runs_through_its_months() -> None:
    assert all(View.CASH in Account(name).views for name in PRICED)


def test_every_account_is_posted() -> None:
    chart = Path("planner/finance/accounts.py")
    named = {
        node.attr
        for path, tree in trees("planner/finance").items()
        if path != chart
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    }
    # What is bought is posted account by account, in the order of a node's prices.
    posted_by_name = [account for account in Account if account not in CAPEX_ACCOUNTS]
    silent = [account for account in posted_by_name if account.name not in named]
    assert not silent, f"no module of planner/finance prices or posts {silent}"
