"""`make soak-totals`: the sums of the tally as tables, written into docs/testing.md between two marks."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from demo.installation import REPOSITORY
from tests.faults.soak.tally import Campaign, Tally, TallyError, Totals, load_tally

BEGIN, END = "<!-- soak totals: written by `make soak-totals` -->", "<!-- end of the soak totals -->"
DOCUMENT = REPOSITORY / "docs" / "testing.md"


def tables(tally: Tally) -> str:
    """Return a paragraph and a table for each kind of campaign."""
    return "\n\n".join(_table(kind, totals, _of(tally, kind)) for kind, totals in tally.totals.items())


def _of(tally: Tally, kind: str) -> list[Campaign]:
    return [campaign for campaign in tally.campaigns if campaign.kind == kind]


def _table(kind: str, totals: Totals, campaigns: list[Campaign]) -> str:
    first, last = min(each.started for each in campaigns), max(each.ended for each in campaigns)
    seeds = ", ".join(f"{seed} ({number:,})" for seed, number in totals.campaigns_by_seed.items())
    commits = ", ".join(dict.fromkeys(f"`{each.commit}`" for each in campaigns))
    return "\n".join(
        [
            f"**{totals.count:,} {kind} in {len(campaigns):,} campaigns, {totals.failures:,} of them failed**, from "
            f"{first:%Y-%m-%d} to {last:%Y-%m-%d}.",
            f"Seeds, with the number of their campaigns: {seeds}. Commits: {commits}.",
            "",
            f"| point | {kind} | failures |",
            "|---|---:|---:|",
            *(f"| {name} | {point.count:,} | {point.failures:,} |" for name, point in totals.points.items()),
        ]
    )


def with_totals(text: str, tally: Tally) -> str:
    """Return a document with the tables between its marks.

    Raises
    ------
    TallyError
        If the document does not have each mark once, in this order, or the tally has no campaign.
    """
    if not tally.campaigns:
        raise TallyError("The tally is empty. Run `make soak` first.")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in before + after:
        raise TallyError(f"Expected {BEGIN} and {END} in the document, once each and in this order.")
    return f"{before}{BEGIN}\n{tables(tally)}\n{END}{after}"


def main() -> int:
    """Write the tables; 2 if that cannot be."""
    parser = ArgumentParser(prog="python -m tests.faults.soak.totals", description=__doc__)
    parser.add_argument("--tally", type=Path, default=Path("build/soak/tally.json"), help="default: %(default)s")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="default: %(default)s")
    asked = parser.parse_args()
    try:
        tally = load_tally(asked.tally)
        asked.document.write_text(with_totals(asked.document.read_text(encoding="utf-8"), tally), encoding="utf-8")
    except TallyError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{asked.document} has the totals of {len(tally.campaigns):,} campaigns.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
