"""The study: scenarios to compare, and the distributions of their uncertain inputs.

A study file names scenarios and, under ``uncertain``, the fields that are not known, each by its dotted path with a
distribution. Distributions stand here and nowhere else: a scenario file states one future, and the same scenario can
take part in several studies. ``*`` in a path stands for any name (``workloads.*.requests_per_s``), and one path is one
draw: every field it reaches, in every scenario that has it, gets the same draw.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from planner.catalog.entries import Range
from planner.errors import Problem, ScenarioError, raise_all
from planner.scenario.fields import EntryName, Name, NonNegative
from planner.scenario.loading import document_of, mapping_keys, merge, scenario_from_document
from planner.scenario.scenario import Scenario
from planner.validation import Strict, validate
from planner.yaml_io import Document, KeyPath, Location, read_document, value_at

# Wide enough for every field; the field itself checks what is drawn.
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
MOST_VALUES = 100_000
"""Values of a discrete distribution: eleven years of hours."""


class _Draw(Strict):
    """Options that every distribution has."""

    times_stated: bool = False
    """Whether the value drawn is a factor on the value stated in the scenario, instead of replacing it. Default false:
    the value drawn replaces the stated one."""


class _ThreePoint(_Draw):
    """A three-point estimate: two ends and a most likely value between them."""

    low: Number
    """Lowest value, in the unit of the uncertain field."""
    mode: Number
    """Most likely value, in the unit of the uncertain field."""
    high: Number
    """Highest value, in the unit of the uncertain field."""

    @model_validator(mode="after")
    def _ordered(self) -> _ThreePoint:
        # The mode may lie at an end; ends that meet would leave nothing to draw.
        is_between = self.low <= self.mode <= self.high
        if not is_between or self.low == self.high:
            raise ValueError(
                f"low, mode, high must rise, not {self.low:g}, {self.mode:g}, {self.high:g}"
            )
        return self


class Triangular(_ThreePoint):
    """A density that rises linearly to the most likely value and falls linearly from it."""

    kind: Literal["triangular"]
    """Triangular."""


class Pert(_ThreePoint):
    """A smooth peak between a lowest and a highest value (a beta distribution, Malcolm and others 1959)."""

    kind: Literal["pert"]
    """PERT."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 4.0
    """Weight of the most likely value; each end has weight 1. Default 4: the classic PERT."""


class _Truncated(_Draw):
    """A distribution with tails, which may be cut."""

    low: Number | None = None
    """Lowest value that may be drawn, in the unit of the uncertain field. Default: the lower tail is not cut."""
    high: Number | None = None
    """Highest value that may be drawn, in the unit of the uncertain field. Default: the upper tail is not cut."""

    @model_validator(mode="after")
    def _cut_in_order(self) -> _Truncated:
        if self.low is None or self.high is None:
            return self
        # Ends that meet would leave nothing to draw.
        if not self.low < self.high:
            raise ValueError(f"low must be below high, not {self.low:g} and {self.high:g}")
        return self


class Uniform(_Truncated):
    """A uniform distribution between two ends."""

    kind: Literal["uniform"]
    """Uniform."""
    low: Number
    """Lowest value, in the unit of the uncertain field."""
    high: Number
    """Highest value, in the unit of the uncertain field."""


class Normal(_Truncated):
    """The bell curve."""

    kind: Literal["normal"]
    """Normal."""
    mean: Number
    """Mean, in the unit of the uncertain field."""
    sd: Annotated[float, Field(gt=0, le=1e15)]
    """Standard deviation, in the unit of the uncertain field."""


class Lognormal(_Truncated):
    """A value whose logarithm is normal: factors, prices, durations."""

    kind: Literal["lognormal"]
    """Lognormal."""
    median: Annotated[float, Field(gt=0, le=1e15)]
    """Median, in the unit of the uncertain field."""
    sigma: Annotated[float, Field(gt=0, le=10)]
    """Standard deviation of the natural logarithm: 0.2 is about ±20%."""


class Percentiles(_Truncated):
    """A smooth distribution through three percentiles (metalog, Keelin 2016) that stays within the field's range."""

    kind: Literal["percentiles"]
    """Three percentiles."""
    p10: Number
    """10th percentile: one draw in ten is lower; in the unit of the uncertain field."""
    p50: Number
    """Median, in the unit of the uncertain field."""
    p90: Number
    """90th percentile: one draw in ten is higher; in the unit of the uncertain field."""

    @model_validator(mode="after")
    def _ordered(self) -> Percentiles:
        # A metalog through equal percentiles has no density there.
        if not self.p10 < self.p50 < self.p90:
            raise ValueError(
                f"p10, p50, p90 must rise, not {self.p10:g}, {self.p50:g}, {self.p90:g}"
            )
        return self


class Prior(_Truncated):
    """The catalogue's low, base and high figures, used as P10, P50 and P90."""

    kind: Literal["prior"] = "prior"
    """Distribution of a prior; this key may be left out."""
    prior: str
    """Name of the prior, as listed by ``planner catalog priors``. With times_stated, its three figures are first
    divided by its base."""


class Discrete(_Draw):
    """A distribution over a few values: numbers, dates or words."""

    kind: Literal["discrete"]
    """Discrete."""
    values: Annotated[
        tuple[float | int | bool | datetime.date | str, ...],
        Field(min_length=2, max_length=MOST_VALUES),
    ]
    """The possible values."""
    weights: Annotated[tuple[NonNegative, ...], Field(max_length=MOST_VALUES)] | None = None
    """Likelihood of each value, as a weight in any unit. Default: all values are equally likely."""

    @model_validator(mode="after")
    def _weighed(self) -> Discrete:
        weights = self.weights
        if weights is None:
            return self
        count = len(self.values)
        if len(weights) != count or sum(weights) <= 0:
            raise ValueError(f"needs {count} weights that are not all 0, not {len(weights)}")
        return self


Distribution = Annotated[
    Triangular | Pert | Uniform | Normal | Lognormal | Percentiles | Prior | Discrete,
    Field(discriminator="kind"),
]


class Correlation(Strict):
    """A rank correlation between two inputs."""

    between: Annotated[tuple[str, ...], Field(min_length=2, max_length=2)]
    """Paths of the two inputs, as under uncertain. A throughput error has the path
    throughput_error.<accelerator>.<engine>.<model>."""
    rank: Annotated[float, Field(ge=-1, le=1)]
    """Spearman's rank correlation, a fraction from -1 to 1."""


class StudyScenario(Strict):
    """A scenario file, and the changes that the study makes to it."""

    extends: str
    """Scenario file; its path is relative to the study file."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Changes to the scenario, written as in a scenario file; null removes a key. Default: no changes."""


class Study(Strict):
    """Scenarios to compare, and their uncertain inputs."""

    name: Name
    """Name of the study and of its output folder."""
    description: str = ""
    """Question that the study answers. Default empty: the name may say enough."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    """Seed of all random numbers, in place of the seeds of the scenarios. Default 1: any other number is as good."""
    scenarios: Annotated[dict[EntryName, StudyScenario], Field(min_length=1, max_length=32)]
    """Scenarios by name. The first one is the baseline with which the others are compared."""
    uncertain: Annotated[dict[str, Distribution], Field(max_length=96)] = Field(
        default_factory=dict
    )
    """Distributions of uncertain inputs, by dotted path. Default none: replications differ only in their random
    events."""
    correlations: Annotated[tuple[Correlation, ...], Field(max_length=1000)] = ()
    """Rank correlations between inputs. Default none: inputs are independent unless stated."""
    throughput_error: bool = True
    """Whether the error of the throughput model is drawn too, separately for each accelerator, engine and model. Its
    size comes from cross-validation: it is small for what was measured itself, and larger the less closely related
    measurements are. Default true: predictions of the model are not exact."""
    scramblings: Annotated[int, Field(ge=4, le=64)] = 8
    """Number of independent randomisations of the points at which inputs are drawn. The spread between them gives the
    intervals. Default 8: a t-interval needs several."""
    detailed_replications: Annotated[int, Field(ge=16, le=1_000_000_000)] = 65_536
    """Number of replications, counted from the first, of which all details are kept. Fan charts use their monthly
    figures, and drivers of the objective are computed from them. For later replications only inputs and figures over
    the whole horizon are kept, which takes a twelfth of the space. Default 65,536: with this many, an estimated
    percentile is within half a point of the true one 19 times in 20."""
    objective: str = "levelised_cost_per_million_tokens_usd"
    """Output that decides which scenario is better: any measure of a run, such as irr_per_year or revenue_usd, or a
    measure of its service, such as its SLO attainment. Default: most questions are about cost per token."""

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
    if _is_scenario(document):
        document, notes = _study_of_priors(path, overrides)
    uncertain = value_at(document.content, ("uncertain",))
    # What is no mapping is left to validation.
    distributions = uncertain.values() if isinstance(uncertain, dict) else ()
    for distribution in distributions:
        if isinstance(distribution, dict) and "prior" in distribution:
            distribution.setdefault("kind", "prior")  # {prior: name} is enough
    study = validate(Study, document)
    study._document = document
    study._notes = notes
    scenarios: dict[str, Scenario] = {}
    problems: list[Problem] = []
    for name, entry in study.scenarios.items():
        try:
            file = path.parent / entry.extends
            base = _changed_scenario(study, name, file)
            scenarios[name] = scenario_from_document(base, overrides)
        except ScenarioError as error:
            # Scenarios that extend one file share its problems.
            unseen = [problem for problem in error.problems if problem not in problems]
            problems += unseen
    raise_all(problems)
    _check_months(study, scenarios)
    return study, scenarios


def _is_scenario(document: Document) -> bool:
    """Return whether a file that should be a study is a scenario, whose priors are then drawn."""
    keys = mapping_keys(document.content)
    states_plan = bool(keys & {"workloads", "clusters", "extends"})
    return states_plan and "scenarios" not in keys


def _changed_scenario(study: Study, name: str, file: Path) -> Document:
    """Return one of a study's scenario files with the study's changes, which keep their places in the study file."""
    path = ("scenarios", name)
    if not file.is_file():
        message = f"no such file: {file}"
        raise ScenarioError(study.problem((*path, "extends"), message))
    base = document_of(file)
    start = (*path, "set")
    locations = {}
    for key, place in study.document.locations.items():
        # The mapping of changes itself has no place in the scenario: only what is below it.
        if key[:3] == start and len(key) > 3:
            locations[key[3:]] = place
    changes = value_at(study.document.content, start) or {}
    merge(base, Document({**changes, "name": name}, locations))
    return base


def _check_months(study: Study, scenarios: Mapping[str, Scenario]) -> None:
    """Raise an error for scenarios that run over other months than the first."""
    baseline_name, baseline = next(iter(scenarios.items()))
    problems = []
    months = (baseline.start, baseline.horizon_months)
    for name, scenario in scenarios.items():
        if (scenario.start, scenario.horizon_months) != months:
            message = (
                f"runs {scenario.horizon_months} months from {scenario.start}, but {baseline_name} runs "
                f"{baseline.horizon_months} from {baseline.start}; scenarios of one study must have the same months"
            )
            problems.append(study.problem(("scenarios", name), message))
    raise_all(problems)


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
        "values that the scenario states are taken as known; values that it leaves open are drawn from the catalogue's "
        "priors"
    ]
    for name, prior in catalog.priors.items():
        field = prior.drawn_for
        if field is None:
            continue
        # Some priors give way to another key that says the same.
        if prior.unless and value_at(stated, prior.unless.split(".")) is not None:
            continue
        owners = []
        for owner in _owners(prior, field, scenario):
            keys = field.replace("*", owner).split(".")
            # A field that the scenario does not have counts as zero: it has no use for a draw.
            is_used = value_at(filled, keys, absent=0) != 0
            if prior.used_by:
                is_used = any(_is_stated(filled, user.split(".")) for user in prior.used_by)
            is_open = prior.times_stated or value_at(stated, keys) is None
            if is_used and is_open:
                owners.append(owner)
        if owners:
            names = owners[0] if len(owners) == 1 else f"{{{','.join(owners)}}}"
            key = field.replace("*", names)
            uncertain[key] = {"prior": name, "times_stated": prior.times_stated}
            notes.append(f"{key} is drawn: {_range_text(prior)}; {name}, grade {prior.grade})")
    content = {
        "name": f"{scenario.name}-priors",
        "description": f"How sure is {scenario.name}? Drawn from the catalogue's priors.",
        "scenarios": {scenario.name.replace(".", "-"): {"extends": path.name}},
        "uncertain": uncertain,
    }
    # It stands in no file, so that it has no line.
    locations: dict[KeyPath, Location] = {(): Location(str(path), None)}
    return Document(content, locations), tuple(notes)


def _is_stated(content: Any, keys: list[str]) -> bool:
    """Return whether a scenario with all its defaults has something at a path, ``*`` being any name."""
    if not keys:
        return content is not None
    if not isinstance(content, dict):
        return False
    key, *rest = keys
    names = content if key == "*" else [key]
    return any(_is_stated(content.get(name), rest) for name in names)


def _owners(prior: Range, field: str, scenario: Scenario) -> list[str]:
    """Return the names that ``*`` in a prior's field may stand for: its clusters, all workloads, or one empty name.

    A prior of an accelerator or a vendor of which the scenario has no machines has none.
    """
    catalog = scenario.load_catalog()
    clusters = []
    for name, cluster in scenario.machines.items():
        # A prior without an accelerator or vendor is of all of them.
        vendor = catalog.accelerator(cluster.accelerator).vendor.value
        is_of_part = prior.accelerator in (None, cluster.accelerator)
        if is_of_part and prior.vendor in (None, vendor):
            clusters.append(name)
    section, *keys = field.split(".*.")
    if section == "clusters" or not clusters:
        return clusters
    if keys:
        # What follows another is drawn with it.
        workloads = scenario.workloads.items()
        return [name for name, workload in workloads if workload.follows is None]
    return [""]


def _range_text(prior: Range) -> str:
    """Return the range of a prior in words, up to its name: of a factor, over the prior's base."""
    scale = prior.base if prior.times_stated else 1.0
    # Rounded to three digits first: of 1000 the plain format would make 1e+03.
    ends = [float(f"{end / scale:.3g}") for end in (prior.low, prior.high)]
    figures = " to ".join(f"{end:g}" for end in ends)
    factor = " times what is stated" if prior.times_stated else ""
    return f"{figures}{factor} (P10 to P90"
