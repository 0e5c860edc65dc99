"""Support: which engine serves which model on which accelerator, in which precision and with which feature.

Support is a fact with a source and a date, as a price is. The shipped rows lie in ``engine_support.csv``; a user's own
are entries ``engine_support`` of an overlay. A row names models, accelerators and precisions one by one, or groups of
them: a vendor's accelerators, a class of models, any.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from planner.catalog.entries import (
    Accelerator,
    EngineSupport,
    Feature,
    Model,
    Stack,
    Status,
)
from planner.data_files import data_rows
from planner.records import record

ANY = "any"
"""Word of a row for all models, accelerators or precisions."""
Levels = tuple[int, int, int]
"""How specifically a row speaks of a model, an accelerator and a precision."""
_BY_CLASS = 1
"""Level of a row that speaks of another model of the class."""
REFUSED: tuple[Status, ...] = ("not-supported", "broken")
"""Statuses with which an engine is no candidate."""
_SEEN: tuple[Status, ...] = ("public-sweep", "documented")
"""Statuses of one model from which others of its class may be taken to run."""
_STRENGTH: dict[Status, int] = {
    "public-sweep": 2,
    "not-supported": 1,
    "broken": 1,
    "experimental": 0,
    "documented": 0,
}
"""Among rows as specific: what runs in public runs, whatever a page says, and a fault goes before a page."""


@record
class SupportRow:
    """One statement of a source."""

    engine: str
    models: tuple[str, ...]
    """Names of models or classes of models, or any."""
    accelerators: tuple[str, ...]
    """Names of accelerators or vendors, or any."""
    precisions: tuple[str, ...]
    feature: Feature
    status: Status
    since: datetime.date | None
    """When it was first so, or first stated; None: unknown."""
    until: datetime.date | None
    """From when on it is so no more; None: it still is."""
    source: str
    """A key of the catalogue's sources, or the source in words."""
    grade: str
    note: str
    is_own: bool = False
    """Whether a user states it: then it goes before all shipped rows."""

    def holds_on(self, image_date: datetime.date | None) -> bool:
        """Return whether it is so of an engine's image of a date; None: of the newest."""
        if image_date is None:
            return self.until is None
        # What is not supported later was not supported before.
        begins = self.since is None or self.since <= image_date or self.status == "not-supported"
        return begins and (self.until is None or image_date < self.until)

    def in_words(self) -> str:
        """Return the statement in words, with its date and note."""
        words = self.status.replace("-", " ")
        if self.since is not None:
            # A page says what is so on the day it is read, and not since when.
            preposition = "since" if self.status in ("public-sweep", "broken") else "as of"
            words += f" {preposition} {self.since}"
        return f"{words}: {self.note}" if self.note else words


@record
class _ModelNames:
    """Under which names rows speak of a model."""

    name: str
    family: frozenset[str]
    """Models of its shape."""
    root: str
    """The model that its family is named after."""
    architecture_class: str
    peers: frozenset[str]
    """Models of its class."""

    def level(self, row: SupportRow) -> int:
        """Return how specifically a row speaks of the model; 0: not at all."""
        # What one of a family lacks (a sparse attention, say) the model that it descends from need not lack.
        relatives = {self.name, self.root} if row.status in REFUSED else self.family
        if relatives.issuperset(row.models):
            return 5
        if not relatives.isdisjoint(row.models):
            return 4
        if self.architecture_class in row.models:
            return 3
        if ANY in row.models:
            return 2
        is_seen = row.status in _SEEN
        return _BY_CLASS if is_seen and not self.peers.isdisjoint(row.models) else 0


@functools.cache
def shipped_support() -> tuple[SupportRow, ...]:
    """Return the shipped rows."""
    return tuple(_shipped_row(row) for row in data_rows(__file__, "engine_support.csv"))


def _shipped_row(row: dict[str, str]) -> SupportRow:
    return SupportRow(
        engine=row["engine"],
        models=tuple(row["model"].split()),
        accelerators=tuple(row["accelerator"].split()),
        precisions=tuple(row["precision"].split()),
        feature=row["feature"],  # type: ignore[arg-type]
        status=row["status"],  # type: ignore[arg-type]
        since=_day(row["since"]),
        until=_day(row["until"]),
        source=row["source"],
        grade=row["grade"],
        note=row["note"],
    )


def _day(text: str) -> datetime.date | None:
    return datetime.date.fromisoformat(text) if text else None


class SupportMatrix:
    """What the shipped rows and a user's own say of engine, model, accelerator, precision and feature."""

    def __init__(
        self,
        own: Iterable[EngineSupport],
        accelerators: Mapping[str, Accelerator],
        models: Mapping[str, Model],
        stacks: Iterable[Stack],
    ) -> None:
        """Take over a user's own statements beside the shipped ones, and what rows may speak of."""
        self._vendors = {name: part.vendor.value for name, part in accelerators.items()}
        self._engines: dict[str, list[str]] = {}
        for stack in stacks:
            self._engines.setdefault(stack.vendor.value, []).append(stack.engine.value)
        self._models = _model_names(models)
        self._rows: dict[tuple[str, str], list[SupportRow]] = {}
        for row in (*map(_own_row, own), *shipped_support()):
            self._rows.setdefault((row.engine, row.feature), []).append(row)
        # A study asks the same of every plan.
        self._memo: dict[tuple[object, ...], SupportRow | None] = {}

    def row(
        self,
        engine: str,
        model: str,
        accelerator: str,
        precision: str,
        feature: Feature = "serving",
        image_date: datetime.date | None = None,
    ) -> SupportRow | None:
        """Return the row that counts, of an engine's image of a date or the newest; None where nothing is known.

        A user's own rows come first. A row that is less specific than another in model, accelerator and precision does
        not count. Of the rest what runs in public comes before a fault, a fault before a page, and then the newest.
        """
        key = (engine, model, accelerator, precision, feature, image_date)
        if key not in self._memo:
            self._memo[key] = self._resolved(*key)
        return self._memo[key]

    def _resolved(
        self,
        engine: str,
        model: str,
        accelerator: str,
        precision: str,
        feature: Feature,
        image_date: datetime.date | None,
    ) -> SupportRow | None:
        names = self._models[model]
        vendor = self._vendors[accelerator]
        matches: list[tuple[Levels, SupportRow]] = []
        for row in self._rows.get((engine, feature), ()):
            levels = (
                names.level(row),
                _group_level(row.accelerators, accelerator, vendor),
                _group_level(row.precisions, precision, ""),
            )
            if all(levels) and row.holds_on(image_date):
                matches.append((levels, row))
        own = [match for match in matches if match[1].is_own]
        direct = [match for match in matches if match[0][0] > _BY_CLASS]
        # What others of its class do tells something only where nobody speaks of the model.
        candidates = own or direct or matches
        if not candidates:
            return None
        most_specific = []
        for levels, row in candidates:
            if not any(_is_covered(levels, others) for others, _ in candidates):
                most_specific.append((levels, row))

        def rank(match: tuple[Levels, SupportRow]) -> tuple[int, datetime.date]:
            _, row = match
            return _STRENGTH[row.status], row.since or datetime.date.min

        levels, best = max(most_specific, key=rank)
        if levels[0] == _BY_CLASS:
            return replace(best, status="documented", note=f"for {best.models[0]}, of its class")
        return best

    def is_practised(
        self,
        engine: str,
        model: str,
        accelerator: str,
        precision: str,
        feature: Feature,
        image_date: datetime.date | None = None,
    ) -> bool:
        """Return whether a feature runs in public there, or is documented, for the model or others of its class.

        What a page says of any model is no practice.
        """
        row = self.row(engine, model, accelerator, precision, feature, image_date)
        return row is not None and row.status in _SEEN and ANY not in row.models

    def refusal(
        self,
        engine: str,
        model: str,
        accelerator: str,
        precision: str,
        feature: Feature = "serving",
        image_date: datetime.date | None = None,
    ) -> str | None:
        """Return why an engine is no candidate, and which are; None where it is one, be it that nothing is known."""
        row = self.row(engine, model, accelerator, precision, feature, image_date)
        if row is None or row.status not in REFUSED:
            return None
        supported = []
        for other in self._engines.get(self._vendors[accelerator], []):
            stated = self.row(other, model, accelerator, precision, feature, image_date)
            if stated is not None and stated.status not in REFUSED:
                supported.append(other)
        does = "does not serve" if feature == "serving" else f"does not do {feature} serving of"
        instead = f"{', '.join(supported)} do" if supported else "no engine is known to"
        if len(supported) == 1:
            instead = f"{supported[0]} does"
        return (
            f"{engine} {does} {model} at {precision} on {accelerator}: {row.in_words()} "
            f"(source {row.source}); {instead}"
        )


def _is_covered(levels: Levels, others: Levels) -> bool:
    """Return whether another row is as specific in everything, and more so in something."""
    return levels != others and all(other >= own for own, other in zip(levels, others, strict=True))


def _group_level(names: Sequence[str], name: str, group: str) -> int:
    """Return how specifically names speak of one: alone 4, in a list 3, by its group 2, as any 1, not at all 0."""
    if name in names:
        return 4 if len(names) == 1 else 3
    if group in names:
        return 2
    return 1 if ANY in names else 0


def _model_names(models: Mapping[str, Model]) -> dict[str, _ModelNames]:
    """Return the names of each model."""
    roots = {}
    classes = {}
    for name, model in models.items():
        roots[name] = model.family.value if model.family else name
        classes[name] = model.architecture_class.value
    names = {}
    for name, root in roots.items():
        names[name] = _ModelNames(
            name=name,
            family=frozenset(_with(roots, root)) | {root},
            root=root,
            architecture_class=classes[name],
            peers=frozenset(_with(classes, classes[name])),
        )
    return names


def _with(table: Mapping[str, str], value: str) -> Iterable[str]:
    return (name for name, entry in table.items() if entry == value)


def _own_row(entry: EngineSupport) -> SupportRow:
    """Return a user's own statement as a row."""
    status = entry.status
    return SupportRow(
        engine=entry.engine.value,
        models=tuple(entry.model.value.split()),
        accelerators=tuple(entry.accelerator.value.split()),
        precisions=tuple(entry.precision.value.split() if entry.precision else [ANY]),
        feature=entry.feature.value if entry.feature else "serving",
        status=status.value,
        since=entry.since.value if entry.since else None,
        until=entry.until.value if entry.until else None,
        source=status.source,
        grade=status.grade,
        note=status.note or "",
        is_own=True,
    )
