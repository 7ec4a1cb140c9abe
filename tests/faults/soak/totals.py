"""`make soak-totals`: the sums of the tally as tables, written into docs/testing.md between two marks."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from tests.documents import DOCS, with_generated
from tests.everything.suites import SOAK
from tests.everything.tree import tree_hash
from tests.faults.soak.tally import Campaign, Tally, TallyError, Totals, load_tally

BEGIN, END = "<!-- soak totals: written by `make soak-totals` -->", "<!-- end of the soak totals -->"
DOCUMENT = DOCS / "testing.md"


def tables(tally: Tally, present: str) -> str:
    """Return a paragraph and a table for each kind of campaign; `present` is the hash of the present files."""
    return "\n\n".join(_table(kind, totals, tally, present) for kind, totals in tally.totals.items())


def _of(tally: Tally, kind: str) -> list[Campaign]:
    return [campaign for campaign in tally.campaigns if campaign.kind == kind]


def _table(kind: str, totals: Totals, tally: Tally, present: str) -> str:
    campaigns = _of(tally, kind)
    first, last = min(each.started for each in campaigns), max(each.ended for each in campaigns)
    seeds = ", ".join(f"{seed} ({number:,})" for seed, number in totals.campaigns_by_seed.items())
    commits = ", ".join(dict.fromkeys(f"`{each.commit}`" for each in campaigns))
    return "\n".join(
        [
            f"**{totals.count:,} {kind} in {len(campaigns):,} campaigns, {totals.failures:,} of them failed**, from "
            f"{first:%Y-%m-%d} to {last:%Y-%m-%d}.",
            f"Seeds, with the number of their campaigns: {seeds}. Commits: {commits}.",
            f"Hashes of the tested files, with their {kind}: {_hashes(tally.counts_by_tree(kind))}.",
            f"When this was written, the hash was `{present}`: {tally.count(kind, present):,} of these {kind} hold "
            "for it.",
            "",
            f"| point | {kind} | failures |",
            "|---|---:|---:|",
            *(f"| {name} | {point.count:,} | {point.failures:,} |" for name, point in totals.points.items()),
        ]
    )


def _hashes(counts: dict[str, int]) -> str:
    return ", ".join(f"{f'`{tree}`' if tree else 'not recorded'} ({count:,})" for tree, count in counts.items())


def standing(tally: Tally, present: str) -> str:
    """Return in one line how much of a tally holds for the present files, which have the hash `present`."""
    counts = (f"{tally.count(kind, present):,} of {totals.count:,} {kind}" for kind, totals in tally.totals.items())
    told = f"{', '.join(counts)} hold" if tally.totals else "nothing is tallied"
    return f"soak: {told} for the present files, {present}"


def with_totals(text: str, tally: Tally, present: str) -> str:
    """Return a document with the tables between its marks; `present` is the hash of the present files.

    Raises
    ------
    TallyError
        If the document does not have each mark once, in this order, or the tally has no campaign.
    """
    if not tally.campaigns:
        raise TallyError("The tally is empty. Run `make soak` first.")
    try:
        return with_generated(text, BEGIN, END, tables(tally, present))
    except ValueError as error:
        raise TallyError(str(error)) from error


def main() -> int:
    """Write the tables; 2 if that cannot be."""
    parser = ArgumentParser(prog="python -m tests.faults.soak.totals", description=__doc__)
    parser.add_argument("--tally", type=Path, default=Path("build/soak/tally.json"), help="default: %(default)s")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="default: %(default)s")
    asked = parser.parse_args()
    try:
        tally = load_tally(asked.tally)
        text = with_totals(asked.document.read_text(encoding="utf-8"), tally, tree_hash(SOAK))
        asked.document.write_text(text, encoding="utf-8")
    except TallyError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{asked.document} has the totals of {len(tally.campaigns):,} campaigns.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
