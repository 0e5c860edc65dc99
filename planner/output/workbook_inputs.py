"""The yellow cells of a run's workbook: the figures of the scenario that its sheets follow, and where they stand.

Each names the key of the scenario that it is (``planner run --set KEY=…``). An input that the sheets cannot follow in a
run is not painted yellow, and the sheet says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.finance.accounts import ACCOUNT_CODES, CAPITAL_CHARGE_ACCOUNTS, Account
from planner.finance.cents import cents
from planner.finance.depreciation import Cohorts
from planner.finance.purchase import DiscountTier
from planner.output.workbook import Sheets, SheetTable, address, write_plain
from planner.plan.contracts import rent_prior
from planner.run.result import RunResult
from planner.scenario.contract import FinanceLease

Posted = Sequence[tuple[Account, Floats]]

SHEET = "Assumptions"
INPUT_ROW = 4
"""Row of the first input, counting from zero."""
NOW, SIMULATED, UNIT, KEY, NOTE = 1, 2, 3, 4, 5
DISCOUNT_RATE, ELECTRICITY, SPACE = "discount rate", "electricity", "space"
ENGINEERS, STAFF, CREWS = "engineers", "staff", "crews"
INPUT_PRICE, OUTPUT_PRICE, CACHED_PRICE, BURST = "input price", "output price", "cached price", "burst"
PRICE, DISCOUNT, NET_PRICE, LIFE, RESIDUAL, RENT = "price", "discount", "net price", "life", "residual", "rent"
_ZERO = "does not follow: a price of zero cannot be scaled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A figure of the scenario that may be changed in the workbook."""

    name: str
    """One of the names above."""
    label: str
    unit: str
    key: str
    """What ``--set`` changes; empty where no single key says it."""
    simulated: float | None
    cluster: int = -1
    """The cluster that it belongs to; −1 for none."""
    fixed: str = ""
    """Why the sheets do not follow it; empty where they do."""
    formula: str = ""
    """Of a cell that follows from inputs, and is none itself."""

    @property
    def is_live(self) -> bool:
        """Whether its cell is yellow."""
        return not self.fixed and not self.formula


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a workbook, in the order of their rows."""

    entries: tuple[Input, ...]

    def place(self, name: str, cluster: int = -1) -> int | None:
        """Return where an input stands; None where the run has none."""
        places = (k for k, known in enumerate(self.entries) if (known.name, known.cluster) == (name, cluster))
        return next(places, None)

    def cell(self, name: str, cluster: int = -1, column: int = NOW) -> str:
        """Return the address of what an input is now, or of what was simulated."""
        place = self.place(name, cluster)
        assert place is not None
        return f"{SHEET}!{address(INPUT_ROW + place, column, fixed='RC')}"

    def is_live(self, name: str, cluster: int = -1) -> bool:
        """Return whether the sheets follow an input, or follow what its cell is computed from."""
        place = self.place(name, cluster)
        return place is not None and not self.entries[place].fixed

    def ratio(self, name: str, cluster: int = -1) -> str:
        """Return what an input is now over what was simulated, as a formula; 1 where the sheets do not follow it."""
        if not self.is_live(name, cluster):
            return "1"
        return f"({self.cell(name, cluster)}/{self.cell(name, cluster, SIMULATED)})"


def inputs_of(result: RunResult, posted: Posted, unfollowed: Mapping[int, str], assets: Cohorts) -> Inputs:
    """Return the inputs of a run; ``unfollowed`` says by cluster why the sheets cannot follow a price."""
    accounts = {account for account, amounts in posted if amounts.any()}
    rented = sum((amounts.sum(axis=0) for account, amounts in posted if account is Account.RENT), np.array(0.0))
    rows = [*_general(result, accounts), *_token_prices(result)]
    for index, cluster in enumerate(result.plan.clusters):
        if cluster.rent is not None:
            rows.append(_rent(result, index, paid=bool(rented.ndim and rented[index] > 0)))
        else:
            books = _books_unfollowed(result, index, assets)
            rows += _of_cluster(result, index, (unfollowed.get(index, ""), books), len(rows))
    return Inputs(tuple(rows))


def _priced(name: str, label: str, unit: str, key: str, usd: float, posted: bool = True) -> Input:
    """Return a price by which what was posted is scaled."""
    nothing = "" if posted else "does not follow: nothing is paid for it in this run"
    return Input(name=name, label=label, unit=unit, key=key, simulated=usd, fixed=nothing if usd > 0 else _ZERO)


def _general(result: RunResult, posted: Set[Account]) -> list[Input]:
    """Return the inputs of the whole site."""
    money = result.plan.money
    upkeep, by_hour = money.upkeep, money.power.hourly_usd_per_kwh is not None
    people = Account.OPERATIONS_STAFF in posted
    charged = [account for account in CAPITAL_CHARGE_ACCOUNTS if account is not Account.COST_OF_CAPITAL]
    other = any((result.ledger.account_code == ACCOUNT_CODES[account]).any() for account in charged)
    why = {
        "does not follow: capital in orders, leases or a building is charged as simulated": other,
        "does not follow: stated in real terms": result.scenario.finance.discount_rate_basis == "real",
    }
    rate = Input(
        name=DISCOUNT_RATE, label="Discount rate", unit="a year", key="finance.discount_rate_per_year",
        simulated=money.capital.discount_rate_per_year,
        fixed=next((reason for reason, holds in why.items() if holds), ""),
    )  # fmt: skip
    power = _priced(
        ELECTRICITY, "Electricity, average of its windows" if by_hour else "Electricity", "USD/kWh",
        "" if by_hour else "site.electricity_usd_per_kwh", _electricity_usd_per_kwh(result), Account.ENERGY in posted,
    )  # fmt: skip
    inputs = [
        rate,
        power,
        _priced(
            SPACE, "Rent of space and power provisioned", "USD/kW and month", "site.colocation_usd_per_kw_month",
            money.power.colocation_usd_per_kw_month, Account.COLOCATION in posted,
        ),
        _priced(
            ENGINEERS, "Salary of a software engineer", "USD a year", "software.engineer_usd_per_year",
            upkeep.engineer_usd_per_year, Account.SOFTWARE_ENGINEERS in posted,
        ),
        _priced(
            STAFF, "Salary of operations staff", "USD a year", "finance.operations_staff_usd_per_year",
            upkeep.staff_usd_per_year, people and upkeep.staff_per_accelerator > 0,
        ),
        _priced(
            CREWS, "Cost of a repair crew", "USD a year", "finance.repair_crew_usd_per_year",
            upkeep.crew_usd_per_year, people,
        ),
    ]  # fmt: skip
    if money.market.burst is not None:
        key, usd = "finance.burst_rental.usd_per_accelerator_h", money.market.burst.usd_per_accelerator_h
        inputs.append(_priced(BURST, "Rent for what would be shed", "USD/accelerator and hour", key, usd))
    return inputs


def _electricity_usd_per_kwh(result: RunResult) -> float:
    """Return the price of energy on the first day; under time-of-use windows, what a kWh cost on average."""
    power = result.plan.money.power
    if power.hourly_usd_per_kwh is None:
        return float(power.monthly_usd_per_kwh[0])
    paid = result.ledger.account_cents(Account.ENERGY) + result.ledger.account_cents(Account.COOLING)
    energy = float(result.monthly.facility_kwh.sum())
    return round(paid / 100 / energy, 6) if energy > 0 else 0.0


def _token_prices(result: RunResult) -> list[Input]:
    """Return what the tokens are sold for on the first day."""
    price, key = result.scenario.finance.token_price, "finance.token_price"
    if price is None:
        why = "does not follow: the tokens are not sold; state finance.token_price and run again"
        return [
            Input(
                name=name, label=f"Token price, {kind}", unit="USD/million tokens", key=key, simulated=None, fixed=why
            )
            for name, kind in ((INPUT_PRICE, "input"), (OUTPUT_PRICE, "output"))
        ]
    stated = {
        INPUT_PRICE: ("input", price.input_usd_per_million_tokens),
        OUTPUT_PRICE: ("output", price.output_usd_per_million_tokens),
        CACHED_PRICE: ("cached_input", price.cached_input_usd_per_million_tokens),
    }
    return [
        _priced(
            name, f"Token price, {kind.replace('_', ' ')}", "USD/million tokens",
            f"{key}.{kind}_usd_per_million_tokens", usd,
        )
        for name, (kind, usd) in stated.items()
        if usd is not None
    ]  # fmt: skip


def _of_cluster(result: RunResult, index: int, fixed: tuple[str, str], row: int) -> list[Input]:
    """Return the inputs of a cluster, the first of them in this row; ``fixed`` is why price and books do not follow."""
    unfollowed, books = fixed
    plan, cluster = result.plan.clusters[index], result.scenario.clusters[result.plan.clusters[index].name]
    key = f"clusters.{plan.name}"
    capital = result.plan.money.capital
    entry = result.scenario.load_catalog().accelerator(cluster.accelerator)
    listed = cluster.unit_price_usd
    if listed is None:
        listed = entry.unit_price_usd.value if entry.unit_price_usd else 0.0
    book, units = plan.price_book, max(cluster.nodes, 1) * plan.accelerators_per_node
    tier = volume_discount(book.list_price.tiers if book else (), units)
    listed_at, discount_at = (f"{SHEET}!{address(INPUT_ROW + row + k, NOW, fixed='RC')}" for k in (0, 1))
    net = f"=INT({listed_at}*(1-{discount_at})*{1.0 - tier!r}*{units}*100+0.500001)/100/{units}"
    net_usd = plan.prices_usd[0] / plan.accelerators_per_node
    if book is not None and (order := book.list_price.order_cents(units) / 100 / units) not in (0.0, net_usd):
        net += f"*{net_usd / order!r}"  # what moves prices between today and the order
    by_curve = capital.residual_fraction[index] is None
    curved = "does not follow: the resale curve gives the residual" if by_curve else ""
    return [
        Input(
            name=PRICE, label=f"{plan.name}: price of an accelerator", unit="USD", key=f"{key}.unit_price_usd",
            simulated=listed, fixed=unfollowed or ("" if listed > 0 else _ZERO), cluster=index,
        ),
        Input(
            name=DISCOUNT, label=f"{plan.name}: discount", unit="share of the price", key=f"{key}.discount_fraction",
            simulated=cluster.discount_fraction, fixed=unfollowed or ("" if listed > 0 else _ZERO), cluster=index,
        ),
        Input(
            name=NET_PRICE, label=f"{plan.name}: price after discounts", unit="USD", key="",
            simulated=net_usd, fixed=unfollowed, formula=net, cluster=index,
        ),
        Input(
            name=LIFE, label=f"{plan.name}: book life", unit="months", key=f"{key}.depreciation_months",
            simulated=capital.depreciation_months[index], fixed=books or curved, cluster=index,
        ),
        Input(
            name=RESIDUAL, label=f"{plan.name}: residual of the books", unit="share of cost",
            key=f"{key}.residual_fraction", simulated=capital.residual_fraction[index], fixed=books or curved,
            cluster=index,
        ),
    ]  # fmt: skip


def _rent(result: RunResult, index: int, *, paid: bool) -> Input:
    """Return the rent of an accelerator-hour that is stated, or else the catalogue's."""
    name = result.plan.clusters[index].name
    cluster = result.scenario.clusters[name]
    contract = cluster.contract
    usd = None if contract is None or isinstance(contract, FinanceLease) else contract.usd_per_accelerator_h
    if usd is None:
        usd = result.scenario.load_catalog().priors[rent_prior(cluster)].base
    key, unit = f"clusters.{name}.contract.usd_per_accelerator_h", "USD/accelerator and hour"
    rent = _priced(RENT, f"{name}: rent", unit, key, usd, paid)
    return replace(rent, cluster=index)


def volume_discount(tiers: Sequence[DiscountTier], units: int) -> float:
    """Return the discount of the tier that an order of so many accelerators reaches; none below the first."""
    reached = [tier.discount_fraction for tier in tiers if tier.minimum_units <= units]
    return float(reached[-1]) if reached else 0.0


def _books_unfollowed(result: RunResult, index: int, assets: Cohorts) -> str:
    """Return why the sheets do not follow a cluster's life and residual; empty where they do."""
    owned, capital = result.plan.clusters[index].owned, result.plan.money.capital
    cohorts = [row for row, cohort in enumerate(result.cohorts) if cohort.cluster == index]
    if not cohorts:
        return "does not follow: no machines were bought"
    if result.plan.clusters[index].lease is not None:
        return "does not follow: what the lessor is paid is as simulated"
    if capital.declining_factor > 0:
        return "does not follow: declining balance is as simulated"
    if owned is not None and not owned.book_value_usd is owned.remaining_months is None:
        return "does not follow: machines owned already have a stated book value or life"
    share, cost = capital.residual_fraction[index], cents(assets.cost_usd[cohorts])
    residual = None if share is None else cents(np.minimum(cost / 100 * share, cost / 100))
    same_life = (assets.life_months[cohorts] == capital.depreciation_months[index]).all()
    if (
        capital.has_components(index)
        or not same_life
        or (residual is not None and (residual != cents(assets.residual_usd[cohorts])).any())
    ):
        return "does not follow: its parts have books of their own"
    return ""


def write_assumptions(sheets: Sheets, inputs: Inputs, listed: SheetTable) -> None:
    """Write the yellow cells, and below them every assumption with its source."""
    sheet, formats = sheets[SHEET], sheets.formats
    sheet.write_string(0, 0, "Assumptions", formats["title"])
    note = "Change a yellow cell and every sheet follows, as a new run with that key of the scenario would."
    sheet.write_string(1, 0, note, formats["note"])
    headings = ("Input", "Now", "As simulated", "Unit", "Key of the scenario", "Note")
    sheet.write_row(INPUT_ROW - 1, 0, headings, formats["heading"])
    for row, cell in enumerate(inputs.entries, start=INPUT_ROW):
        style = {DISCOUNT_RATE: "percent", DISCOUNT: "percent", RESIDUAL: "percent", LIFE: "count"}.get(
            cell.name, "number"
        )
        sheet.write_string(row, 0, cell.label)
        for column, text in ((UNIT, cell.unit), (KEY, cell.key), (NOTE, cell.fixed)):
            sheet.write_string(row, column, text, formats["note" if column == NOTE else "unit"])
        if cell.simulated is None:
            continue
        sheet.write_number(row, SIMULATED, cell.simulated, formats[style])
        if cell.formula and not cell.fixed:
            sheet.write_formula(row, NOW, cell.formula, formats[style], cell.simulated)
        else:
            sheet.write_number(row, NOW, cell.simulated, formats[f"{style}_in" if cell.is_live else style])
        if cell.is_live:
            _validate(sheet, row, cell)
    write_plain(sheet, sheets, listed, row=INPUT_ROW + len(inputs.entries) + 2)
    sheet.freeze_panes(INPUT_ROW, 1)
    sheet.set_column(0, 0, 44)
    sheet.set_column(1, len(listed.headings), 26)
    sheet.set_column(KEY, KEY, 52)


def _validate(sheet: Any, row: int, cell: Input) -> None:
    """Let a cell take only what the scenario's key may be."""
    low, high = {
        DISCOUNT_RATE: (-0.99, 10.0), DISCOUNT: (0.0, 0.999999), RESIDUAL: (0.0, 1.0), LIFE: (1, 240),
    }.get(cell.name, (0.0, 1e12))  # fmt: skip
    rule = {
        "validate": "integer" if cell.name == LIFE else "decimal",
        "criteria": "between", "minimum": low, "maximum": high,
        "error_title": cell.label[:32], "error_message": f"between {low:g} and {high:g}",
    }  # fmt: skip
    sheet.data_validation(row, NOW, row, NOW, rule)
