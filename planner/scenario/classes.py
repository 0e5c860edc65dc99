"""Workload classes: sourced figures that stand beneath what a user states under ``class: chat``."""

from __future__ import annotations

from typing import Any

from planner.catalog.load import workload_class, workload_class_names
from planner.yaml_io import Document, KeyPath, Location

_PATHS: dict[str, KeyPath] = {
    "input_mean_tokens": ("tokens", "input", "mean"),
    "input_p95_tokens": ("tokens", "input", "p95"),
    "output_mean_tokens": ("tokens", "output", "mean"),
    "output_p95_tokens": ("tokens", "output", "p95"),
    "prefix_cache_hit_fraction": ("prefix_cache_hit_fraction",),
    "peak_to_mean": ("shape", "peak_to_mean"),
    "trough_to_mean": ("shape", "trough_to_mean"),
    "weekend_fraction": ("shape", "weekend_fraction"),
    "noise_sigma": ("noise", "sigma"),
    "noise_correlation_h": ("noise", "correlation_h"),
    "burst_index_of_dispersion": ("burst_index_of_dispersion",),
    "ttft_s": ("slo", "ttft_s"),
    "tpot_s": ("slo", "tpot_s"),
    "priority": ("priority",),
    "deferrable_within_h": ("deferrable_within_h",),
}


def lay_classes_under(document: Document) -> None:
    """Fill in, for each workload that names a class, what the user did not state."""
    workloads = document.content.get("workloads") if isinstance(document.content, dict) else None
    if not isinstance(workloads, dict):
        return
    filled = dict(workloads)
    for name, stated in workloads.items():
        if isinstance(stated, dict) and stated.get("class") in workload_class_names():
            filled[name] = _filled(document, ("workloads", name), stated)
    document.content = {**document.content, "workloads": filled}


def _filled(document: Document, place: KeyPath, stated: dict[str, Any]) -> dict[str, Any]:
    """Return a workload with its class's figures beneath the stated ones."""
    kind = stated["class"]
    figures = workload_class(kind)
    result: dict[str, Any] = dict(stated)
    shape = stated.get("shape")
    own_shape = isinstance(shape, dict) and bool({"peak_to_mean", "weekend_fraction", "weekly_profile"} & set(shape))
    for field, path in _PATHS.items():
        value = figures.get(field)
        if value is None or (path[0] == "shape" and own_shape):
            continue  # a shape of one's own is taken whole: peak, trough and weekend belong together
        if path[0] == "tokens" and _stated_at(stated, (*path[:-1], "quantiles")):
            continue
        if field.endswith("p95_tokens"):
            value = _scaled_p95(stated, path, figures, field)
        if field == "deferrable_within_h" and stated.get("priority", "deferrable") != "deferrable":
            continue
        _set_default(result, path, value, document, place, kind)
    return result


def _scaled_p95(stated: dict[str, Any], path: KeyPath, figures: dict[str, Any], field: str) -> float:
    """Keep the class's spread around a mean of the user's own."""
    stated_mean = _stated_at(stated, (*path[:-1], "mean"))
    mean = figures[field.replace("p95", "mean")]
    spread: float = figures[field] / mean
    usable = isinstance(stated_mean, int | float) and not isinstance(stated_mean, bool)
    return spread * (float(stated_mean) if usable else float(mean))


def _stated_at(stated: Any, path: KeyPath) -> Any:
    """Return what the user states at a path, None for nothing."""
    for key in path:
        stated = stated.get(key) if isinstance(stated, dict) else None
    return stated


def _set_default(
    target: dict[str, Any], path: KeyPath, value: Any, document: Document, place: KeyPath, kind: str
) -> None:
    """Set a value at a path unless something stands there."""
    for key in path[:-1]:
        below = target.get(str(key))
        if below is not None and not isinstance(below, dict):
            return  # not a mapping: validation will say so
        below = dict(below or {})
        target[str(key)] = below
        target = below
    if str(path[-1]) not in target:
        target[str(path[-1])] = value
        document.locations[(*place, *path)] = Location(f"workload class {kind}", None)
