"""Audit records as a page that can only be read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from statestore.audit import AuditRecord

#: Records of one page, the newest.
MOST_RECORDS = 1_000
_COLUMNS = ("Time", "Action", "By", "Applications", "Store partitions", "Accepts loss", "Run")


def audit_page(records: Sequence[AuditRecord], total: int) -> str:
    """Return a page of records in the given order.

    Parameters
    ----------
    total
        Number of records, also of those that are not given.
    """
    rows = "".join(_row(record) for record in records)
    heads = "".join(f"<th>{name}" for name in _COLUMNS)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<link rel='stylesheet' href='ui/data-docs.css'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'><title>Audit records</title></head><body>"
        f"<div class='container-fluid'><h1>Audit records</h1><p>The newest {len(records):,} of {total:,}. "
        "<code>statestore audit --csv</code> exports all of them.</p>"
        f"<table class='index'><thead><tr>{heads}</thead><tbody>{rows}</tbody></table></div></body></html>"
    )


def _row(record: AuditRecord) -> str:
    cells = (
        datetime.fromtimestamp(record.at_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        record.action,
        f"{record.by} on {record.host}",
        ", ".join(record.applications),
        ", ".join(record.store_partitions) or "as the report says",
        "yes" if record.accepts_loss else "",
        record.dag_run_id or record.run_id or "",
    )
    return "<tr>" + "".join(
        f"<td data-name='{name}'>{escape(cell)}</td>" for name, cell in zip(_COLUMNS, cells, strict=True)
    )
