"""The validation page: how far the throughput formula is from every public measurement it ships with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from docs.generate.aiconfigurator import (
    ANSWERS,
    Beside,
    beside,
    beside_rows,
    cell_of,
    closer_to_measured,
    read_answers,
)
from docs.generate.frontier import (
    PartRatio,
    Point,
    chosen_points,
    measured_frontiers,
    part_ratios,
)
from docs.generate.held_out_tables import (
    LABELLED_HEADER,
    LOWER_END_HEADER,
    OWN_ROWS_HEADER,
    labelled_rows,
    lower_end_rows,
    own_rows_rows,
)
from docs.generate.left_out import (
    LEFT_OUT,
    Chosen,
    Rows,
    choices,
    chosen_among,
    fitted_rows,
    measured_layouts,
)
from docs.generate.lower_ends import LowerEnd, lower_ends
from docs.generate.own_rows import DRAWS, Pair, pairs_of_five
from docs.generate.power_fit import (
    PowerMeasurement,
    board_power_residuals,
    column,
    read_power_measurements,
)
from planner.calibration.benchmarks import DISAGGREGATED_SCENARIO, read_benchmarks
from planner.calibration.check import (
    ERROR_HEADER,
    KINDS,
    check_benchmarks,
    entries,
    error_cells,
    errors_of,
    summary,
)
from planner.catalog.calibration import (
    BIAS_FRACTION,
    BIAS_ROWS,
    SHIPPED_CALIBRATION,
    SHIPPED_MEASUREMENTS,
    Bias,
    CalibrationFile,
    read_calibration,
)
from planner.catalog.load import load_catalog, part_of, shape_of
from planner.output.blocks import Line, Mark, Panel, Picture
from planner.output.scales import TOTAL
from planner.output.svg import ratio_axis
from planner.physics.coefficients import DENSE, MIXTURE, NORMAL_90, Calibration
from planner.physics.model_on_part import memory_fit
from planner.physics.power import FITTED, PREFILL_MEMORY_FRACTION, BoardRating, board_power_w
from planner.physics.replica import ReplicaSpec, Traffic, at_concurrency, describe, price_replicas
from planner.scenario.loading import load_scenario

SHIPPED_POWER = SHIPPED_MEASUREMENTS.with_name("power_measurements.csv")
DATED_RUNS = Path(__file__).with_name("dated_runs.csv")
CHART = "validation.png"
_SCENARIO = Path(__file__).parents[2] / "scenarios" / "mixed-fleet.yaml"
"""Whose defaults a choice is made with: its clusters and workloads have no part in it."""
_REFERENCE_PART = "H200"
"""The accelerator against which others are told: most models have runs on it."""
_QUANTITIES = {
    "tpot_s": "time per token",
    "output_tokens_per_s_per_accelerator": "tokens/s",
    "ttft_s": "time to first token",
}
_BESIDE_HEADER = (
    "accelerator and models",
    "points",
    "planner",
    "range of 8 in 10",
    "AIConfigurator",
    "range of 8 in 10",
    "planner closer at",
    "no answer",
)
_PANELS = {
    "tpot_ms": "time per output token, ms",
    "ttft_ms": "time to first token, ms",
    "output_tokens_per_s_per_gpu": "output tokens/s per accelerator",
}


@cache
def shipped_check() -> tuple[pd.DataFrame, CalibrationFile]:
    """Return the shipped measurements held against the shipped calibration."""
    file = read_calibration(SHIPPED_CALIBRATION)
    return check_benchmarks(
        read_benchmarks(SHIPPED_MEASUREMENTS), load_catalog(), file.calibration()
    ), file


def validation_tables(checked: pd.DataFrame, file: CalibrationFile) -> dict[str, object]:
    """Return the figures and tables of the page, by their names in its template."""
    totals = summary(checked)
    known = checked[checked["predicted"].notna() & checked["measured"].notna()]
    by_request = file.by_request
    assert by_request is not None, "the shipped calibration is cross-validated"
    fitted = {
        "fitted": "none",
        "setting": "one setting",
        "layout": "one layout",
        "campaign": "one campaign",
    }
    first = [
        (fitted[name], str(one.rows), f"{one.mean_fraction:.1%}", f"{one.median_fraction:.1%}")
        for name, one in by_request.first_token.items()
    ]
    off = [one.predicted / one.measured - 1.0 for one in by_request.within_slo]
    targeted = [
        (one.run, f"{one.measured:,.1f}", f"{one.predicted:,.1f}", f"{error:+.0%}")
        for one, error in zip(by_request.within_slo, off, strict=True)
    ]
    held = [
        (
            f"one {group}",
            *(
                f"{one.covered_fraction:.0%} ±{one.median_half_width_fraction:.0%}"
                for one in cells.values()
            ),
        )
        for group, cells in file.coverage.items()
    ]
    cells = next(iter(file.coverage.values()))
    biases = [
        (cell, str(one.rows), f"{one.median_fraction:+.1%}", "yes" if _is_told(one) else "")
        for cell, one in file.bias.items()
    ]
    terms = ("setting", "layout", "pair", "model", "part", "first_token")
    spreads = [
        (label, *(f"{getattr(one, term):.3f}" for term in terms))
        for label, one in file.spread.items()
    ]
    labels = [
        f"{vendor}{kind}"
        for vendor in ("", *(f"{name} " for name in file.vendors))
        for kind in (DENSE, MIXTURE)
    ]
    left_out = [
        (
            f"one {group}",
            label,
            title,
            str(errors.rows),
            f"{errors.mean_fraction:.1%}",
            f"{errors.median_fraction:.1%}",
        )
        for group, quantities in file.cross_validated.items()
        for name, title in _QUANTITIES.items()
        for label in labels
        for errors in [quantities[name].get(label)]
        if errors is not None
    ]
    spread_header = (
        "models",
        "other lengths",
        "+ layout",
        "+ pair",
        "+ model",
        "+ accelerator",
        "first token",
    )
    return {
        "totals": totals,
        "chart": CHART,
        "reference_part": _REFERENCE_PART,
        "frontier": _table(
            (
                "accelerator and models",
                "points",
                "chosen / best measured",
                "range of 8 in 10",
                "chosen layout measured",
                "chosen / best, if measured",
            ),
            frontier_rows(shipped_points()),
        ),
        "part_ratios": _table(
            ("tokens/s of", "points", "measured", "chosen", "90% interval", "chosen / measured"),
            part_ratio_rows(shipped_points()),
        ),
        "dated_rows": len(read_benchmarks(DATED_RUNS)),
        "tool_asked": read_answers(ANSWERS)[0].replace(", ", " was asked on "),
        "beside": _table(_BESIDE_HEADER, beside_rows(shipped_beside())),
        "tool_closer": closer_to_measured(beside_rows(shipped_beside())),
        "beside_unseen": _table(_BESIDE_HEADER, beside_rows(unseen(shipped_beside()))),
        "choices_left_out": _table(
            (
                "left out",
                "accelerator",
                "choices",
                "predicted / measured",
                "range of 8 in 10",
                "measured / best",
            ),
            choice_rows(shipped_choices()),
        ),
        "lower_ends_every": LOWER_ENDS_EVERY,
        "lower_ends": _table(LOWER_END_HEADER, lower_end_rows(shipped_lower_ends())),
        "own_rows": _table(OWN_ROWS_HEADER, own_rows_rows(shipped_own_rows(), DRAWS)),
        "labelled": _table(LABELLED_HEADER, labelled_rows(labelled_check())),
        "errors": {
            name: _errors(e, known[known["quantity"] == name])
            for name, e in totals["quantities"].items()
        },
        "left_out": _table(("left out", "models", "quantity", "rows", "mean", "median"), left_out),
        "covered": _table(
            ("left out", *(f"{label}, {one.rows} rows" for label, one in cells.items())), held
        ),
        "biases": _table(("rows of", "rows", "signed median", "named in reports"), biases),
        "spreads": _table(spread_header, spreads),
        "first_tokens": _table(("left out", "rows", "mean", "median"), first),
        "median_off": f"{np.median(np.abs(off)):.1%}",
        "targeted": _table(("run", "measured", "predicted", "error"), targeted),
        "worst": _worst(checked),
        "power": _power(file.calibration()),
    }


@cache
def shipped_points() -> list[Point]:
    """Return the frontiers of public runs with what the planner chooses at each time per token."""
    calibration = read_calibration(SHIPPED_CALIBRATION).calibration()
    tables = [read_benchmarks(path) for path in (SHIPPED_MEASUREMENTS, DATED_RUNS)]
    both = pd.concat(tables, ignore_index=True)
    frontiers = measured_frontiers(both, load_catalog(), calibration)
    return chosen_points(frontiers, load_scenario(_SCENARIO))


LOWER_ENDS_EVERY = 5
"""Of the runs of closed loops, of which every so many is looked at: all of them take minutes."""


@cache
def shipped_lower_ends() -> list[LowerEnd]:
    """Return capacities and their lower ends beside what was measured."""
    calibration = read_calibration(SHIPPED_CALIBRATION).calibration()
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    scenario = load_scenario(_SCENARIO)
    return list(lower_ends(frame, load_catalog(), calibration, scenario, LOWER_ENDS_EVERY))


@cache
def shipped_rows() -> Rows:
    """Return the rows of the shipped fit, fitted again."""
    calibration = read_calibration(SHIPPED_CALIBRATION).calibration()
    return fitted_rows(read_benchmarks(SHIPPED_MEASUREMENTS), load_catalog(), calibration)


@cache
def shipped_own_rows() -> list[Pair]:
    """Return the pairs of the shipped table before and after five own rows."""
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    of_fit = frame[frame["scenario"] != DISAGGREGATED_SCENARIO]
    file = read_calibration(SHIPPED_CALIBRATION)
    return list(pairs_of_five(None, of_fit, file, shipped_rows(), load_catalog()))


@cache
def labelled_check() -> pd.DataFrame:
    """Return the labelled runs that the fit never saw held against the shipped calibration."""
    calibration = read_calibration(SHIPPED_CALIBRATION).calibration()
    return check_benchmarks(read_benchmarks(DATED_RUNS), load_catalog(), calibration)


@cache
def shipped_beside() -> list[Beside]:
    """Return the points of the frontiers with what the planner and AIConfigurator choose there."""
    return beside(shipped_points(), read_answers(ANSWERS)[1])


def unseen(pairs: Sequence[Beside]) -> list[Beside]:
    """Return the points of dated runs alone, which the fit has not seen, where AIConfigurator has an answer."""
    cell = ["model", "accelerator", "precision", "input_tokens", "output_tokens"]
    tables = [read_benchmarks(path) for path in (DATED_RUNS, SHIPPED_MEASUREMENTS)]
    dated, fitted = [set(table[cell].itertuples(index=False, name=None)) for table in tables]
    own = [pair for pair in pairs if cell_of(pair.point) in dated - fitted]
    return [pair for pair in own if not math.isnan(pair.aiconfigurator)]


@cache
def shipped_choices() -> dict[str, list[Chosen]]:
    """Return what is chosen among measured layouts, by what is left out; nothing first. It takes half a minute."""
    catalog = load_catalog()
    calibration = read_calibration(SHIPPED_CALIBRATION).calibration()
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    layouts = measured_layouts(frame, catalog, calibration)
    rows = shipped_rows()
    table = {"nothing": list(chosen_among(layouts, calibration, catalog))}
    for kind in LEFT_OUT:
        table[kind] = list(choices(kind, None, layouts, rows, catalog))
    return table


def choice_rows(table: Mapping[str, Sequence[Chosen]]) -> list[tuple[str, ...]]:
    """Return how far what is chosen lies from what was measured, by what is left out and accelerator."""
    rows: list[tuple[str, ...]] = []
    for kind, chosen in table.items():
        by_part: dict[str, list[Chosen]] = {}
        for one in chosen:
            by_part.setdefault(one.accelerator, []).append(one)
        for part, own in sorted(by_part.items()):
            ratios = [one.predicted_ratio for one in own]
            low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9)).tolist()
            kept = np.mean([one.measured_ratio for one in own])
            rows.append(
                (
                    kind,
                    part,
                    str(len(own)),
                    f"{middle:.2f}",
                    f"{low:.2f} to {high:.2f}",
                    f"{kept:.2f}",
                )
            )
    return rows


def frontier_rows(points: Sequence[Point]) -> list[tuple[str, ...]]:
    """Return how far what is chosen lies from the best measured, by accelerator and class of models."""
    rows: list[tuple[str, ...]] = []
    by_class: dict[tuple[bool, str], list[Point]] = {}
    for point in points:
        by_class.setdefault((point.is_mixture, point.accelerator), []).append(point)
    for (is_mixture, accelerator), own in sorted(by_class.items()):
        ratios = [point.ratio for point in own]
        of_measured = [point.ratio for point in own if point.grade == "measured"]
        low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9)).tolist()
        rows.append(
            (
                f"{accelerator}, {MIXTURE if is_mixture else DENSE}",
                str(len(own)),
                f"{middle:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{len(of_measured) / len(own):.0%}",
                f"{np.median(of_measured):.2f}" if of_measured else "",
            )
        )
    return rows


def part_ratio_rows(points: Sequence[Point]) -> list[tuple[str, ...]]:
    """Return throughput over the reference accelerator's as measured and as chosen, by model and accelerator."""
    by_pair: dict[tuple[str, str], list[PartRatio]] = {}
    for ratio in part_ratios(points, _REFERENCE_PART):
        by_pair.setdefault((ratio.model, ratio.accelerator), []).append(ratio)
    rows: list[tuple[str, ...]] = []
    for (model, accelerator), own in sorted(by_pair.items()):
        measured = float(np.median([ratio.measured for ratio in own]))
        chosen = float(np.median([ratio.chosen for ratio in own]))
        off = float(np.median([ratio.chosen / ratio.measured for ratio in own]))
        spread = math.exp(NORMAL_90 * float(np.median([ratio.log_error for ratio in own])))
        rows.append(
            (
                f"{model}, {accelerator} : {_REFERENCE_PART}",
                str(len(own)),
                f"{measured:.2f}",
                f"{chosen:.2f}",
                f"{chosen / spread:.2f} to {chosen * spread:.2f}",
                f"{off:.2f}",
            )
        )
    return rows


def _is_told(bias: Bias) -> bool:
    """Say whether a run that uses a cell names its bias."""
    return bias.rows >= BIAS_ROWS and abs(bias.median_fraction) > BIAS_FRACTION


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a Markdown table whose columns but the first are numbers."""
    ruler = ["---", *["---:" for _ in header[1:]]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ruler, *rows])


def _errors(errors: dict[str, dict[str, float]], known: pd.DataFrame) -> str:
    """Return the errors of one quantity: in all, by kind of model, and by each name."""
    rows = [
        error_cells(f"**{label}**", errors[label]) for label in ("all", *KINDS) if label in errors
    ]
    for group in ("accelerator", "engine", "model"):
        rows += [
            error_cells(str(label), errors_of(part))
            for label, part in known.groupby(group, sort=False)
        ]
    return _table(ERROR_HEADER, rows)


def _worst(checked: pd.DataFrame) -> str:
    """Return the twenty rows that are furthest off, first tokens apart."""
    names = (
        "model",
        "accelerator",
        "engine",
        "precision",
        "tp",
        "ep",
        "input_tokens",
        "output_tokens",
        "concurrency",
    )
    worst = [
        entry
        for entry in entries(checked)
        if entry["quantity"] != "ttft_ms" and "predicted" in entry
    ][:20]
    rows = [
        (
            *(str(entry[name] if entry[name] is not None else "") for name in names),
            entry["quantity"],
            f"{entry['measured']:,.1f}",
            f"{entry['predicted']:,.1f}",
            f"{entry['error_fraction']:+.0%}",
        )
        for entry in worst
    ]
    header = (
        "model",
        "accelerator",
        "engine",
        "precision",
        "tp",
        "ep",
        "in",
        "out",
        "concurrency",
        "quantity",
    )
    return _table((*header, "measured", "predicted", "error"), rows)


def _power(calibration: Calibration) -> str:
    """Return how far board power is off: on the part it was fitted on, and on boards it was not."""
    rows = read_power_measurements(SHIPPED_POWER)
    lines = []
    fitted = [row for row in rows if row.record == "board"]
    for part, precision in dict.fromkeys((row.accelerator, row.precision) for row in fitted):
        of_part = [row for row in fitted if (row.accelerator, row.precision) == (part, precision)]
        error = np.abs(board_power_residuals(of_part, FITTED) / column(of_part, "power_fraction"))
        told = f"{error.mean():.1%} on average, {error.max():.1%} at worst"
        lines.append((f"{part}, fitted", precision, f"{len(of_part)} kernels", "", "", told))
    for row in (row for row in rows if row.record == "serving"):
        measured = row.numbers["board_load_w"]
        predicted = serving_board_w(row, calibration)
        load = f"{row.workload}, {row.scenario}, concurrency {row.numbers['batch']:g}"
        told = f"{predicted / measured - 1.0:+.1%}"
        lines.append(
            (row.accelerator, row.precision, load, f"{measured:,.0f}", f"{predicted:,.0f}", told)
        )
    return _table(("board", "precision", "load", "measured W", "predicted W", "error"), lines)


def serving_board_w(row: PowerMeasurement, calibration: Calibration) -> float:
    """Return the power of one board of a replica that serves a closed loop of requests, in the row's own phase."""
    catalog = load_catalog()
    n = row.numbers
    entry = catalog.accelerator(row.accelerator)
    boards = int(n["boards"])
    rating = BoardRating(tdp_w=entry.tdp_w.value, idle_w=entry.idle_w.value)
    part = part_of(row.accelerator, catalog)
    shape = shape_of(row.workload, catalog)
    spec = ReplicaSpec(
        part=part, shape=shape, precision=row.precision, accelerators=boards, engine=row.engine
    )
    replicas = price_replicas([spec], calibration)
    work = describe([spec])
    if row.scenario == "prefill":
        compute = float(work["flops_s_per_token"][0] / replicas["prefill_s_per_token"][0])
        return float(board_power_w(rating, PREFILL_MEMORY_FRACTION, compute))
    traffic = Traffic(input_tokens=n["input_tokens"], output_tokens=n["output_tokens"])
    point = at_concurrency(replicas, np.zeros(1, dtype=int), traffic, np.array([n["batch"]]))
    batch = float(point.running_sequences[0])
    step_s = float(point.tpot_s[0])
    context = n["input_tokens"] + n["output_tokens"] / 2
    cache_s = memory_fit(part, shape, row.precision, boards).kv_bytes_per_token * context
    cache_s /= boards * part.hbm_bytes_per_s
    touched = -np.expm1(batch * float(work["log_expert_missed"][0]))
    moved_s = (
        float(work["shared_stream_s"][0])
        + float(work["routed_stream_s"][0]) * touched
        + batch * cache_s
    )
    return float(
        board_power_w(
            rating, moved_s / step_s, batch * float(work["flops_s_per_token"][0]) / step_s
        )
    )


def validation_picture(checked: pd.DataFrame) -> Picture:
    """Draw predicted against measured for every quantity, one panel each, on logarithmic axes."""
    accelerators = list(dict.fromkeys(checked.sort_index()["accelerator"]))
    panels = []
    for quantity, title in _PANELS.items():
        chosen = checked[(checked["quantity"] == quantity) & checked["predicted"].notna()]
        measured = chosen["measured"].tolist()
        predicted = chosen["predicted"].tolist()
        x = ratio_axis(measured, "measured")
        y = ratio_axis(predicted, "predicted")
        ends = [(end, end) for end in (min(measured, default=1.0), max(measured, default=1.0))]
        marks: list[Mark] = [Line(points=ends, colour=TOTAL, stroke=1.0)]
        for colour, name in enumerate(accelerators):
            shown = chosen[chosen["accelerator"] == name]
            points = list(zip(shown["measured"].tolist(), shown["predicted"].tolist(), strict=True))
            marks.append(Line(points=points, colour=colour, stroke=0.0, radius=2.6))
        panels.append(Panel(x=x, y=y, marks=marks, title=title, height=300.0))
    keys = {name: colour for colour, name in enumerate(accelerators)}
    title = "Predicted against measured, one dot for each public run"
    return Picture(title=title, panels=panels, keys=keys, shape="dot", columns=len(panels))
