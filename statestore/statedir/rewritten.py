"""How many records at the start of a changelog are the rows of a store that a rewrite has written.

<state.dir>/.statestore/<application.id>/rewritten/<topic id>.json   by partition

They are in no order of time, and no store ever had only some of them: there is no state as of a point among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from statestore.durable import read_checked, write_checked
from statestore.errors import InvalidStateError
from statestore.statedir.paths import rewrite_journal

_RECORDS = TypeAdapter(tuple[int, ...])


def keep_rewritten(state_dir: Path, application: str, topic_id: str | None, records: Sequence[int]) -> None:
    """Write down, durably, how many records of each partition a rewrite has written."""
    write_checked(_path(state_dir, application, topic_id), _RECORDS.dump_json(tuple(records)).decode())


def rewritten_records(state_dir: Path, application: str, topic_id: str, partition: int) -> int:
    """Return how many records at the start of a changelog partition a rewrite has written; 0: none, or it is not known.

    Raises
    ------
    InvalidStateError
        If what was written down cannot be read.
    """
    path = _path(state_dir, application, topic_id)
    try:
        records = _RECORDS.validate_json(read_checked(path))
    except FileNotFoundError:
        return 0
    except ValueError as error:
        raise InvalidStateError(
            f"{path} cannot be read: {error}. It said how many records of the changelog a rewrite has written. To "
            "restore as of a point after these, delete it"
        ) from error
    return records[partition] if partition < len(records) else 0


def _path(state_dir: Path, application: str, topic_id: str | None) -> Path:
    return rewrite_journal(state_dir, application).with_name("rewritten") / f"{topic_id}.json"
