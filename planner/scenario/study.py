"""The study: scenarios to compare, and the distributions of their uncertain inputs.

A study file names scenarios and, under ``uncertain``, the fields that are not known, each by its dotted path with a
distribution. Distributions stand here and nowhere else: a scenario file states one future, and the same scenario can
take part in several studies. ``*`` in a path stands for any name (``workloads.*.requests_per_s``), and one path is one
draw: every field it reaches, in every scenario that has it, gets the same draw.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from planner.errors import Problem, ScenarioError, raise_all
from planner.scenario.fields import EntryName, Name
from planner.scenario.loading import document_of, merge, scenario_from_document, value_at
from planner.scenario.scenario import Scenario
from planner.validation import Strict, validate
from planner.yaml_io import Document, KeyPath, Location, read_document

Number = Annotated[float, Field(ge=-1e15, le=1e15)]
MOST_VALUES = 100_000
"""Values of a discrete or empirical distribution: eleven years of hours."""
Sampling = Literal["sobol", "plain"]


class _Draw(Strict):
    """Options that every distribution has."""

    times_stated: bool = False
    """Whether the draw multiplies what the scenario states, instead of standing in its place. Default false: a draw is
    the value."""


class _Hump(_Draw):
    """A distribution between two ends, with a most likely value."""

    low: Number
    """Lowest, in the unit of the field."""
    mode: Number
    """Most likely, in the unit of the field."""
    high: Number
    """Highest, in the unit of the field."""

    @model_validator(mode="after")
    def _ordered(self) -> _Hump:
        if not (self.low <= self.mode <= self.high and self.low < self.high):
            raise ValueError(
                f"low, mode, high must rise, not {self.low:g}, {self.mode:g}, {self.high:g}"
            )
        return self


class Triangular(_Hump):
    """Rises straight to the most likely value and falls straight from it."""

    kind: Literal["triangular"]
    """Triangular."""


class Pert(_Hump):
    """A smooth hump between a lowest and a highest value: a beta distribution (Malcolm and others 1959)."""

    kind: Literal["pert"]
    """PERT."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 4.0
    """How much the most likely value counts against the ends. Default 4: the classic PERT."""


class Uniform(_Draw):
    """A uniform distribution between two ends."""

    kind: Literal["uniform"]
    """Uniform."""
    low: Number
    """Lowest, in the unit of the field."""
    high: Number
    """Highest, in the unit of the field."""

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, not {self.low:g} and {self.high:g}")
        return self


class _Cut(_Draw):
    """A distribution with tails, which may be cut."""

    low: Number | None = None
    """Where the lower tail is cut, in the unit of the field. Default: nowhere."""
    high: Number | None = None
    """Where the upper tail is cut, in the unit of the field. Default: nowhere."""

    @model_validator(mode="after")
    def _cut_in_order(self) -> _Cut:
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low must be below high, not {self.low:g} and {self.high:g}")
        return self


class Normal(_Cut):
    """The bell curve."""

    kind: Literal["normal"]
    """Normal."""
    mean: Number
    """Mean, in the unit of the field."""
    sd: Annotated[float, Field(gt=0, le=1e15)]
    """Standard deviation, in the unit of the field."""


class Lognormal(_Cut):
    """A value whose logarithm is normal: factors, prices, durations."""

    kind: Literal["lognormal"]
    """Lognormal."""
    median: Annotated[float, Field(gt=0, le=1e15)]
    """Median, in the unit of the field."""
    sigma: Annotated[float, Field(gt=0, le=10)]
    """Standard deviation of the logarithm: 0.2 is about ±20%."""


class Percentiles(_Cut):
    """A smooth distribution through three percentiles (metalog, Keelin 2016) that stays within the field's range."""

    kind: Literal["percentiles"]
    """Three percentiles."""
    p10: Number
    """One in ten lies below, in the unit of the field."""
    p50: Number
    """The median, in the unit of the field."""
    p90: Number
    """One in ten lies above, in the unit of the field."""

    @model_validator(mode="after")
    def _ordered(self) -> Percentiles:
        if not self.p10 < self.p50 < self.p90:
            raise ValueError(
                f"p10, p50, p90 must rise, not {self.p10:g}, {self.p50:g}, {self.p90:g}"
            )
        return self


class Prior(_Cut):
    """The catalogue's low, base and high figure, taken as P10, P50 and P90."""

    kind: Literal["prior"] = "prior"
    """A prior; need not be written."""
    prior: str
    """Name of the prior, as ``planner catalog priors`` lists it; under times_stated its figures are over its base."""


class Discrete(_Draw):
    """A distribution over a few values: numbers, dates or words."""

    kind: Literal["discrete"]
    """Discrete."""
    values: Annotated[
        tuple[float | int | bool | datetime.date | str, ...],
        Field(min_length=2, max_length=MOST_VALUES),
    ]
    """What may happen."""
    weights: (
        Annotated[tuple[Annotated[float, Field(ge=0, le=1e12)], ...], Field(max_length=MOST_VALUES)]
        | None
    ) = None
    """How likely each is, in any unit. Default: all the same."""

    @model_validator(mode="after")
    def _weighed(self) -> Discrete:
        if self.weights is not None and (
            len(self.weights) != len(self.values) or sum(self.weights) <= 0
        ):
            raise ValueError(
                f"needs {len(self.values)} weights that are not all 0, not {len(self.weights)}"
            )
        return self


class Empirical(_Draw):
    """A distribution of observed values, read from a CSV file."""

    kind: Literal["empirical"]
    """Empirical."""
    file: str
    """CSV file; relative to the study file."""
    column: str
    """Column that holds the values, 100,000 at most."""


Distribution = Annotated[
    Triangular | Pert | Uniform | Normal | Lognormal | Percentiles | Prior | Discrete | Empirical,
    Field(discriminator="kind"),
]


class Correlation(Strict):
    """A rank correlation between two inputs."""

    between: Annotated[tuple[str, ...], Field(min_length=2, max_length=2)]
    """Two paths, as under uncertain; throughput errors are called throughput_error.<accelerator>.<engine>.<model>."""
    rank: Annotated[float, Field(ge=-1, le=1)]
    """Spearman's rank correlation, a fraction from -1 to 1."""


class StudyScenario(Strict):
    """A scenario file, and the changes that the study makes to it."""

    extends: str
    """Scenario file; relative to the study file."""
    set: dict[str, Any] = Field(default_factory=dict)
    """What changes, written as in a scenario; null takes a key away. Default: nothing."""


class Study(Strict):
    """Scenarios to compare, and their uncertain inputs."""

    name: Name
    """Name of the study; also of its output folder."""
    description: str = ""
    """What question it answers. Default empty: the name may say enough."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    """Root of all random numbers, in place of the scenarios' own. Default 1: any number is as good."""
    scenarios: Annotated[dict[EntryName, StudyScenario], Field(min_length=1, max_length=32)]
    """Scenarios by name; the first is the one others are held against."""
    uncertain: Annotated[dict[str, Distribution], Field(max_length=96)] = Field(
        default_factory=dict
    )
    """Distributions by dotted path. Default none: chance alone varies."""
    correlations: Annotated[tuple[Correlation, ...], Field(max_length=1000)] = ()
    """Rank correlations between inputs. Default none: inputs are independent unless stated."""
    throughput_error: bool = True
    """Whether the throughput model's own error is drawn, by accelerator, engine and model, as cross-validation has it
    at that pair's distance from the measurements. Default true: the model is calibrated, not exact."""
    sampling: Sampling = "sobol"
    """How inputs are drawn: scrambled Sobol points, or plain. Default sobol: least error per run."""
    scramblings: Annotated[int, Field(ge=4, le=64)] = 8
    """Independent randomisations, from whose spread the intervals come. Default 8: a t-interval needs some."""
    detailed_replications: Annotated[int, Field(ge=16, le=1_000_000_000)] = 65_536
    """Replications kept in detail, the first ones: their figures by month make the fans, and what drives the headline
    is measured on them. Of those beyond, inputs and figures over the whole horizon are kept, a twelfth of the room.
    Default 65,536: 19 times in 20, no percentile of so many is off by more than half a point."""
    objective: str = "cost_per_million_tokens_usd"
    """Output that decides which scenario is better: any measure of a run, such as irr_per_year or revenue_usd, or how
    it serves. Default: what the question is about."""

    _document: Document = PrivateAttr(default_factory=lambda: Document({}))
    _notes: tuple[str, ...] = PrivateAttr(default=())

    @property
    def notes(self) -> tuple[str, ...]:
        """The inputs drawn and their priors, for a study generated from a scenario."""
        return self._notes

    @property
    def document(self) -> Document:
        """The user's content, with the location of each value."""
        return self._document

    def problem(self, path: KeyPath, message: str, hint: str | None = None) -> Problem:
        """Return a problem with the location of a value in the study file."""
        return self._document.problem(path, message, hint)


def load_study(path: Path, overrides: tuple[str, ...] = ()) -> tuple[Study, dict[str, Scenario]]:
    """Return a study and its scenarios; ``overrides`` apply to every scenario as ``--set`` does to one."""
    document = read_document(path)
    notes: tuple[str, ...] = ()
    written = document.content.keys() if isinstance(document.content, dict) else set()
    if "scenarios" not in written and written & {"workloads", "clusters", "extends"}:
        document, notes = _study_of_priors(path, overrides)
    uncertain = document.content.get("uncertain") if isinstance(document.content, dict) else None
    for entry in uncertain.values() if isinstance(uncertain, dict) else ():
        if isinstance(entry, dict) and "prior" in entry:
            entry.setdefault("kind", "prior")  # {prior: name} is enough
    study = validate(Study, document)
    study._document = document
    study._notes = notes
    scenarios: dict[str, Scenario] = {}
    problems: list[Problem] = []
    for name, entry in study.scenarios.items():
        try:  # its file with the study's changes and the command line's
            file = path.parent / entry.extends
            where = ("scenarios", name)
            if not file.is_file():
                raise ScenarioError(study.problem((*where, "extends"), f"no such file: {file}"))
            base = document_of(file)
            places = document.locations.items()
            locations = {
                key[3:]: place for key, place in places if key[:3] == (*where, "set") and key[3:]
            }
            changes = document.content["scenarios"][name].get("set") or {}
            merge(base, Document({**changes, "name": name}, locations))
            scenarios[name] = scenario_from_document(base, overrides)
        except ScenarioError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    raise_all(problems)
    (first_name, first), *others = scenarios.items()
    for name, other in others:
        if (other.start, other.horizon_months) != (first.start, first.horizon_months):
            message = (
                f"runs {other.horizon_months} months from {other.start}, but {first_name} runs {first.horizon_months} "
                f"from {first.start}; scenarios of one study share their months"
            )
            problems.append(study.problem(("scenarios", name), message))
    raise_all(problems)
    return study, scenarios


def _study_of_priors(path: Path, overrides: tuple[str, ...]) -> tuple[Document, tuple[str, ...]]:
    """Return a generated study that draws a scenario's inputs from their priors, and its notes.

    What a scenario states is known, what it leaves to a default is drawn from the default's prior, and what is never
    known (traffic, failures, incidents, resale) is drawn as a factor on whatever is stated. What is zero is not used.
    """
    scenario = scenario_from_document(document_of(path), overrides)
    catalog = scenario.load_catalog()
    filled = scenario.model_dump(by_alias=True)
    stated = scenario.document.content
    uncertain: dict[str, Any] = {}
    notes = [
        "what the scenario states is taken as known; what it leaves open is drawn from the catalogue's priors"
    ]
    for name, prior in catalog.priors.items():
        clusters = [
            cluster
            for cluster, entry in scenario.machines.items()
            if prior.accelerator in (None, entry.accelerator)
            and prior.vendor in (None, catalog.accelerator(entry.accelerator).vendor.value)
        ]
        in_place = None if prior.unless is None else value_at(stated, prior.unless.split("."))
        if prior.drawn_for is None or not clusters or in_place is not None:
            continue
        first, *rest = prior.drawn_for.split(".*.")
        names = clusters if first == "clusters" else list(scenario.workloads) if rest else [""]
        drawn = []
        for (
            owner
        ) in names:  # what it has, has a use for (it is not zero), and does not itself state
            field = prior.drawn_for.replace("*", owner).split(".")
            if value_at(filled, field, absent=0) != 0 and (
                prior.times_stated or value_at(stated, field) is None
            ):
                drawn.append(owner)
        if drawn:
            names_of = drawn[0] if len(drawn) == 1 else f"{{{','.join(drawn)}}}"
            key = prior.drawn_for.replace("*", names_of)
            uncertain[key] = {"prior": name, "times_stated": prior.times_stated}
            scale, factor = (
                (prior.base, " times what is stated") if prior.times_stated else (1.0, "")
            )
            figures = " to ".join(
                f"{float(f'{figure / scale:.3g}'):g}" for figure in (prior.low, prior.high)
            )
            notes.append(
                f"{key} is drawn: {figures}{factor} (P10 to P90; {name}, grade {prior.grade})"
            )
    content = {
        "name": f"{scenario.name}-priors",
        "description": f"How sure is {scenario.name}? Drawn from the catalogue's priors.",
        "scenarios": {scenario.name.replace(".", "-"): {"extends": path.name}},
        "uncertain": uncertain,
    }
    return Document(content, {(): Location(str(path), None)}), tuple(notes)
