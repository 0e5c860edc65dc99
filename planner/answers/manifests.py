"""What a folder's manifest says of the answer in it, as far as a report reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from planner.answers.json_records import read_record
from planner.files import MANIFEST
from planner.output.folder import Contents
from planner.records import record
from planner.scenario.scenario import SloTarget


@record
class CatalogueIdentity:
    """The catalogue that an answer rests on."""

    assumptions: str | None = None
    version: str | None = None
    sha256: str | None = None


@record
class StudyDesign:
    """The design of a study: montecarlo or tornado."""

    name: str = ""


@record
class WorkIdentity:
    """What identifies work that can be resumed: a study, a sweep or a sizing."""

    version: str | None = None
    seed: int | None = None
    catalogue: str | None = None
    study: str | None = None
    scenarios: Mapping[str, str] = field(default_factory=dict)
    """Hashes by scenario."""
    design: StudyDesign = field(default_factory=StudyDesign)


@record
class Manifest:
    """The manifest of any answer; what its kind does not have is empty."""

    version: str | None = None
    seed: int | None = None
    replications: int | None = None
    replication: int | None = None
    command: Sequence[str] = ()
    """What makes the answer again."""
    scenario: str | None = None
    scenario_file: str = ""
    scenario_sha256: str | None = None
    overrides: Sequence[str] = ()
    scenarios: Mapping[str, str] = field(default_factory=dict)
    """Hashes by scenario, of a comparison."""
    catalog: CatalogueIdentity = field(default_factory=CatalogueIdentity)
    identity: WorkIdentity = field(default_factory=WorkIdentity)
    warnings: Sequence[str] = ()
    vary: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The values of each key that a sweep varies."""
    slo_target: SloTarget = field(default_factory=SloTarget)
    """That of a sweep's scenario."""
    objective: str = "levelised_cost_per_million_tokens_usd"
    """The figure that a study is about."""
    detailed: int | None = None
    """Replications behind a study's fans and drivers, where they are not all."""
    dropped: Sequence[str] = ()
    """What a study says of replications that could not be run."""

    @classmethod
    def read(cls, contents: Contents) -> Manifest:
        """Return the manifest of a folder."""
        return read_record(cls, contents.manifest, MANIFEST)
