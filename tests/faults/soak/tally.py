"""The tally of a soak: a JSON file that has each finished campaign once, and the sums over all of them.

Each campaign that ends replaces the file as a whole, so a kill leaves it as it was before or after. A campaign that was
interrupted is not in it and is run again. The sums are computed again when the file is read: a file that was damaged,
or changed by hand, is refused and left as it is.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from statestore.durable import write_durably
from statestore.errors import StateStoreError

VERSION = 1
Count = Annotated[int, Field(ge=0)]


class TallyError(StateStoreError):
    """The tally cannot be used as it is."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(_Model):
    """What went wrong in a campaign.

    Attributes
    ----------
    point
        Where: a point that was killed at, or what was done then.
    error
        The end of the traceback.
    repeat
        The command that runs the campaign again.
    """

    point: str
    error: str
    repeat: str


class Campaign(_Model):
    """A campaign that has ended.

    Attributes
    ----------
    kind, seed, number, length
        What draws it again, from the code of `commit`. Seed and number tell it from others of its kind; the length is
        how much it was to count.
    commit
        Of the code; `+changes` if its files were not as committed.
    tree
        The hash of the files that a soak tests (tests/everything/tree.py). Empty if it was not recorded.
    counts
        How often each point was met, and all was well afterwards.
    """

    kind: str
    seed: int
    number: Count
    length: Count
    commit: str
    tree: str = ""
    started: datetime
    ended: datetime
    counts: dict[str, Count]
    failure: Failure | None = None

    @property
    def id(self) -> tuple[str, int, int]:
        """What no other campaign has."""
        return self.kind, self.seed, self.number

    def failed_before(self, tree: str) -> bool:
        """Return whether it failed with files that had another hash."""
        return self.failure is not None and self.tree != tree


class Point(_Model):
    """Sums of a point."""

    count: Count = 0
    failures: Count = 0


class Totals(_Model):
    """Sums of all campaigns of a kind."""

    count: Count
    failures: Count
    campaigns_by_seed: dict[int, Count]
    points: dict[str, Point]


class Tally(_Model):
    """All campaigns that have ended, in that order, and their sums by kind."""

    version: int = VERSION
    totals: dict[str, Totals] = {}
    campaigns: tuple[Campaign, ...] = ()

    def with_campaign(self, campaign: Campaign) -> Self:
        """Return the tally with one more campaign, in place of the same one that failed with other code.

        Raises
        ------
        TallyError
            If it has it already.
        """
        kept = tuple(
            other for other in self.campaigns if other.id != campaign.id or not other.failed_before(campaign.tree)
        )
        if campaign.id in {other.id for other in kept}:
            raise TallyError(f"campaign {campaign.number} of {campaign.kind}, seed {campaign.seed}, is in the tally")
        campaigns = (*kept, campaign)
        return self.model_copy(update={"campaigns": campaigns, "totals": _totals(campaigns)})

    @property
    def ids(self) -> set[tuple[str, int, int]]:
        """What is not to be run again."""
        return {campaign.id for campaign in self.campaigns}

    def counts_by_tree(self, kind: str) -> dict[str, int]:
        """Return by hash how many points of a kind of campaign were met, and all was well; the oldest hash first."""
        counts: Counter[str] = Counter()
        for campaign in self.campaigns:
            if campaign.kind == kind:
                counts[campaign.tree] += sum(campaign.counts.values())
        return dict(counts)

    def count(self, kind: str, tree: str) -> int:
        """Return how many of these points the campaigns of one hash have met."""
        return self.counts_by_tree(kind).get(tree, 0)


def _totals(campaigns: tuple[Campaign, ...]) -> dict[str, Totals]:
    totals: dict[str, Totals] = {}
    for kind in sorted({campaign.kind for campaign in campaigns}):
        of_kind = [campaign for campaign in campaigns if campaign.kind == kind]
        counts: Counter[str] = Counter()
        for campaign in of_kind:
            counts.update(campaign.counts)
        failures = Counter(campaign.failure.point for campaign in of_kind if campaign.failure)
        totals[kind] = Totals(
            count=counts.total(),
            failures=failures.total(),
            campaigns_by_seed=dict(sorted(Counter(campaign.seed for campaign in of_kind).items())),
            points={name: Point(count=counts[name], failures=failures[name]) for name in sorted({*counts, *failures})},
        )
    return totals


def load_tally(path: Path) -> Tally:
    """Read a tally; an empty one if there is no file.

    Raises
    ------
    TallyError
        If the file cannot be read or contradicts itself.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Tally()
    except (OSError, UnicodeDecodeError) as error:
        raise TallyError(_refusal(path, str(error))) from error
    try:
        tally = Tally.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TallyError(_refusal(path, f"{where}: {first['msg']}" if where else first["msg"])) from error
    if tally.version != VERSION:
        raise TallyError(_refusal(path, f"it has version {tally.version}, expected {VERSION}"))
    if len(tally.ids) != len(tally.campaigns):
        raise TallyError(_refusal(path, "it has a campaign twice"))
    if tally.totals != _totals(tally.campaigns):
        raise TallyError(_refusal(path, "its totals are not the sums of its campaigns"))
    return tally


def save_tally(path: Path, tally: Tally) -> None:
    """Replace the file durably."""
    write_durably(path, tally.model_dump_json(indent=1) + "\n")


def _refusal(path: Path, why: str) -> str:
    return (
        f"The tally {path} cannot be used: {why}. It was left as it is. "
        "Put a whole copy in its place, or move it away to begin a new tally."
    )
