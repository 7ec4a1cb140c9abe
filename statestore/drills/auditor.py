"""A page about the evidence of a time, for an auditor: plain HTML without scripts, which any browser prints."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from statestore import clock
from statestore.drills.chain import VerifiedChain
from statestore.drills.evidence import EvidenceDocument, Head

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem; color: #1a1a1a }
table { border-collapse: collapse; margin: 1rem 0; width: 100% }
th, td { border: 1px solid #bbb; padding: .3rem .5rem; text-align: left; vertical-align: top }
td.number { text-align: right; white-space: nowrap }
code { font-size: 12px; overflow-wrap: anywhere }
.bad { color: #a00000; font-weight: 600 } .good { color: #006400; font-weight: 600 }
"""
_VERDICTS = ("proven", "too slow", "too old", "unproven", "failed", "not done")


def auditor_page(
    application: str, chain: VerifiedChain, recorded: Head, recorded_in: str, from_ms: int, to_ms: int
) -> str:
    """Return the page.

    Parameters
    ----------
    recorded_in
        Where the head is recorded.
    from_ms, to_ms
        The time, its end excluded, ms since the epoch. The whole chain was verified.
    """
    shown = [document for document in chain.documents if from_ms <= document.ended_ms < to_ms]
    title = f"Restore drills of {application}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        f"<p>From {clock.iso(from_ms)} to {clock.iso(to_ms)}: {len(shown)} drills.",
        f"<p>This page was made at {clock.iso(clock.now_ms())}.",
        _integrity(chain, recorded, recorded_in),
        _summary(shown),
        _drills(shown),
        _meaning(shown),
    ]
    return "\n".join(parts) + "\n"


def _integrity(chain: VerifiedChain, recorded: Head, recorded_in: str) -> str:
    if chain.problems:
        problems = "".join(f"<li>{escape(problem)}" for problem in chain.problems)
        verdict = f"<p class=bad>The evidence is not intact.</p><ul class=bad>{problems}</ul>"
    else:
        verdict = (
            f"<p class=good>The evidence is intact: all {chain.head.length} documents have valid signatures, none is "
            "missing, and none is out of order.</p>"
        )
    notes = "".join(f"<p>{escape(note)}.</p>" for note in chain.notes)
    keys = ", ".join(sorted({document.key_id for document in chain.documents})) or "none"
    return (
        f"<h2>Integrity</h2>{verdict}{notes}<table>"
        f"<tr><th>Recorded head<td><code>{recorded}</code>, in {escape(recorded_in)}"
        f"<tr><th>Last document<td><code>{chain.head}</code>"
        f"<tr><th>Keys (SHA-256 of the public key)<td><code>{keys}</code></table>"
    )


def _summary(shown: Sequence[EvidenceDocument]) -> str:
    counts = {verdict: sum(document.verdict == verdict for document in shown) for verdict in _VERDICTS}
    cells = "".join(f"<tr><th>{verdict}<td class=number>{count}" for verdict, count in counts.items())
    return f"<h2>Results</h2><table>{cells}</table>"


def _drills(shown: Sequence[EvidenceDocument]) -> str:
    columns = (
        *("document", "ended", "store partition", "verdict", "detail", "restored from", "changelog offsets"),
        *("rows compared", "offsets proven", "suite", "restore, s", "objective, s", "digests", "run"),
    )
    head = "".join(f"<th>{name}" for name in columns)
    return f"<h2>Drills</h2><table><tr>{head}{''.join(map(_row, shown))}</table>"


def _row(document: EvidenceDocument) -> str:
    inputs, compared = document.inputs, document.compared
    within = document.objectives.get("restorable_within")
    source = f"snapshot {inputs.snapshot}" if inputs.snapshot else "changelog alone" if inputs.source else "-"
    offsets = "-" if inputs.start is None or inputs.end is None else f"{inputs.start} to {inputs.end - 1}"
    proven = ", ".join(f"{first} to {last}" for first, last in compared.offsets) or "none"
    digests = "<br>".join(f"{found.algorithm} <code>{escape(found.value)}</code>" for found in document.digests)
    good = "good" if document.verdict == "proven" else "bad"
    return (
        f"<tr><td class=number>{document.number}<td>{clock.iso(document.ended_ms)}<td>{escape(document.label)}"
        f"<td class={good}>{document.verdict}<td>{escape(document.detail)}<td>{escape(source)}"
        f"<td>{escape(inputs.topic or '-')} {offsets}<br><code>{escape(inputs.topic_id or '')}</code>"
        f"<td class=number>{compared.rows:,} with {compared.log_rows:,}<td>{proven}"
        f"<td>{escape(_suite(document))}"
        f"<td class=number>{document.measures.restore_ms / 1000:.3f}"
        f"<td class=number>{'-' if within is None else f'{within / 1000:.0f}'}<td>{digests}"
        f"<td>{escape(document.run.run_id)} {escape(document.run.dag_run_id or '')}"
    )


def _suite(document: EvidenceDocument) -> str:
    if (suite := document.suite) is None:
        return "-"
    return f"{suite.verdict}, {len(suite.failed)} of {suite.expectations} expectations not met"


def _meaning(shown: Sequence[EvidenceDocument]) -> str:
    meanings = {
        f"{digest.algorithm} of {digest.of}": digest.resists for document in shown for digest in document.digests
    }
    rows = "".join(f"<tr><th>{escape(name)}<td>{escape(resists)}" for name, resists in meanings.items())
    return f"<h2>What the digests resist</h2><table>{rows}</table>"
