from __future__ import annotations

from planner.answers.assumptions import model_error
from planner.catalog.calibration import SHIPPED_CALIBRATION, read_calibration


def test_the_table_is_the_shipped_calibration() -> None:
    columns = model_error().columns
    shipped = read_calibration(SHIPPED_CALIBRATION)
    rows = list(zip(*columns.values(), strict=True))
    assert len(rows) >= 6
    for (
        quantity,
        group,
        number,
        median,
        mean,
        unseen_median,
        unseen_mean,
        measured_width,
        unseen_width,
    ) in rows:
        fitted = shipped.fitted[quantity][group]
        assert (number, median, mean) == (fitted.rows, fitted.median_fraction, fitted.mean_fraction)
        unseen = shipped.cross_validated["model"][quantity][group]
        assert (unseen_median, unseen_mean) == (unseen.median_fraction, unseen.mean_fraction)
        if group == "all":
            assert measured_width is unseen_width is None
        elif quantity == "ttft_s":
            assert measured_width == unseen_width
        else:
            assert 0.05 < measured_width < unseen_width


def test_without_cross_validation_the_cells_are_empty() -> None:
    shipped = read_calibration(SHIPPED_CALIBRATION)
    columns = model_error(shipped.model_copy(update={"cross_validated": {}})).columns
    assert set(columns["holdout_median_fraction"]) == {None}
    assert columns["quantity"]
