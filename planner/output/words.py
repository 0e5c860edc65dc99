"""Numbers as a reader meets them."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SCALES = ((1e15, "quadrillion"), (1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_SHORT = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
NOTHING = "–"


def percent(share: float | None, decimals: int = 1) -> str:
    """Return 30.4% for 0.304; what is not nothing never reads as 0.0%."""
    if share is None or not math.isfinite(share):
        return NOTHING
    # Half of the last digit shown: below, it would be rounded away.
    smallest = 0.5 * 10.0 ** -(decimals + 2)
    if 0 < abs(share) < smallest:
        return f"<{10.0**-decimals:.{decimals}f}%"
    return f"{share + 0.0:.{decimals}%}"  # −0 is 0


def _scaled(number: float, scales: Sequence[tuple[float, str]], form: str) -> str | None:
    """Return a number over the largest scale that it reaches, with the scale's name; None below all of them."""
    size = abs(number)
    for scale, word in scales:
        if size >= scale:
            return f"{number / scale:{form}} {word}"
    return None


def dollars(amount_usd: float | None) -> str:
    """Return $95.6 million for 95,590,127."""
    if amount_usd is None or not math.isfinite(amount_usd):
        return NOTHING
    sign = "−" if round(amount_usd) < 0 else ""
    size = abs(amount_usd)
    text = _scaled(size, _SCALES, ",.1f") or f"{size:,.0f}"
    return f"{sign}${text}"


def short_dollars(amount_usd: float | None, pattern: str = ",.1f") -> str:
    """Return $95.6M for 95,590,127, for a line that has several."""
    if amount_usd is None or not math.isfinite(amount_usd):
        return NOTHING
    sign = "−" if amount_usd < 0 else ""
    size = abs(amount_usd)
    scales = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
    text = _scaled(size, scales, pattern) or f"{size:,.0f}"
    return f"{sign}${text.replace(' ', '')}"


def unit_price(amount_usd: float | None) -> str:
    """Return a cost per million tokens with three significant digits, $0.131."""
    if amount_usd is None or not math.isfinite(amount_usd):
        return NOTHING
    # What rounds to nothing at six decimals is still not nothing.
    if round(amount_usd, 6) == 0:
        return "$0" if amount_usd == 0 else "<$0.000001"
    sign = "−" if amount_usd < 0 else ""
    size = abs(amount_usd)
    power = math.floor(math.log10(size))
    digits = max(0, 2 - power)
    return f"{sign}${size:,.{min(digits, 6)}f}"


def count(number: float | None) -> str:
    """Return 730.4 trillion for 730,366,435,860,103."""
    if number is None or not math.isfinite(number):
        return NOTHING
    return _scaled(number, _SCALES, ",.1f") or f"{round(number):,}"


def short(number: float) -> str:
    """Return 730 T for 730,366,435,860,103: for axes and narrow tables."""
    return _scaled(number, _SHORT, ".3g") or f"{number:.3g}"


def axis_label(number: float, unit: str) -> str:
    """Return a number as an axis shows it, by the unit of its chart: percent, usd or anything else."""
    match unit:
        case "percent":
            return f"{number * 100:.4g}%"
        case "usd":
            sign = "−" if number < 0 else ""
            size = abs(number)
            return f"{sign}${size:.4g}" if size < 1e3 else f"{sign}${short(size).replace(' ', '')}"
        case _:
            return short(number)


def figure(cell: str) -> str:
    """Return a number that a file gives in full with four significant digits; anything else as it stands."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    # Infinity is text, as in the file.
    if not math.isfinite(number):
        return cell
    rounded = float(f"{number:.4g}")
    return f"{rounded:,.10g}"


def measured(number: float | None, name: str) -> str:
    """Return a figure as its name says it should be read: money, a price of a million tokens, a share or a count."""
    if number is None or not math.isfinite(number):
        return NOTHING
    if name.endswith("_usd"):
        is_price = "_per_million_" in name or name.endswith("_h_usd")
        if is_price:
            return unit_price(number)
        return dollars(number)
    # A plan is judged by the second decimal.
    if name in ("slo_attainment_fraction", "shed_fraction"):
        return percent(number, 2)
    if name.endswith(("_fraction", "_per_year")):
        return percent(number)
    if abs(number) >= 100:
        return count(number)
    return f"{number + 0.0:,.3g}"  # −0 is 0


def spoken(name: str) -> str:
    """Return a figure's name as words, without its unit."""
    return name.removesuffix("_usd").removesuffix("_fraction").replace("_", " ")


def input_words(path: str) -> str:
    """Return a key of a scenario as a reader says it: requests per s, all workloads; unit price, h200."""
    section, _, rest = path.partition(".")
    if section == "throughput_error":
        return f"throughput against the formula, {rest}"
    owner = ""
    key = rest or section
    # Workloads and clusters have names, whose settings come after them.
    if section in ("workloads", "clusters"):
        owner, _, key = rest.partition(".")
    words = key or owner
    plain = words.replace("_", " ").replace(".", " ")
    for unit in (" usd", " fraction", " ratio"):
        plain = plain.replace(unit, "")
    owners = f"all {section}" if owner == "*" else owner.rstrip("*-")
    return f"{plain}, {owners}" if owners and key else plain
