"""The sidecar files of a store: saved when it is replaced, and restored if the store is put back.

A new store's record is put beside it in the same way.

quarantine-own/<store>/<label>.json      seal, digests, mode, record and offsets as text, the legacy checkpoint's
                                         entries, and how the store was judged; what is not known is left out

The swap's journal carries it until the swap is done (`swap.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from statestore.durable import read_checked, remove_durably, write_checked, write_durably
from statestore.errors import InvalidStateError, is_damage
from statestore.model import TopicPartition
from statestore.reports import Loss, Status
from statestore.statedir.legacy import legacy_offsets_of, put_back_legacy_offsets
from statestore.statedir.paths import TaskPaths


class Judgement(NamedTuple):
    """How a store was judged when it was replaced: what it was, and what its successor may lack of it."""

    status: Status
    loss: Loss
    why: str = ""


class Sidecar(BaseModel):
    """Sidecar files of a store.

    Attributes
    ----------
    seal, digests, mode, record, snapshot, offsets
        Content of our files; None where there was none.
    legacy
        The store's entries in the legacy checkpoint file.
    status, loss, why
        How the store was judged when it was replaced; None: not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seal: str | None = None
    digests: str | None = None
    mode: str | None = None
    record: str | None = None
    snapshot: str | None = None
    offsets: str | None = None
    legacy: tuple[tuple[TopicPartition, int | None], ...] = ()
    status: Status | None = None
    loss: Loss | None = None
    why: str = ""


def take_down(paths: TaskPaths, store: str, changelogs: Sequence[TopicPartition], verdict: Judgement | None) -> Sidecar:
    """Read what is there now; what is no text of ours was of no use before either."""
    found = {name: read_text(path) for name, path in _files(paths, store).items()}
    judged = verdict._asdict() if verdict else {}
    return Sidecar(**found, legacy=tuple(legacy_offsets_of(paths, store, changelogs).items()), **judged)


def beside_quarantined(paths: TaskPaths, store: str, label: str) -> Sidecar:
    """Sidecar files of a store in quarantine; none if it was replaced before they were kept.

    Raises
    ------
    InvalidStateError
        If it was kept, and cannot be read.
    """
    path = paths.quarantined_own(store, label)
    try:
        return Sidecar.model_validate_json(read_checked(path))
    except FileNotFoundError:
        return Sidecar()
    except ValueError as error:
        raise InvalidStateError(
            f"{path} is damaged: expected what lay beside the replaced store {label}, found {error}; remove the file "
            "to put that store back without it"
        ) from error


def keep_others(paths: TaskPaths, store: str, verdict: Judgement) -> None:
    """Judge the copies in quarantine as the store that is replaced now.

    They were judged by what the log could give then. If it has lost something since, one of them may be the only copy.
    """
    for path in sorted(paths.replaced_own(store).glob("*.json")):
        try:
            beside = beside_quarantined(paths, store, path.stem)
        except InvalidStateError:  # nobody removes a copy of which nothing can be read
            continue
        if beside.loss is Loss.NONE:
            why = f"its changelog has lost something since: {verdict.why}"
            judged = beside.model_copy(update={"loss": verdict.loss, "why": why})
            write_checked(path, judged.model_dump_json(exclude_none=True))


def put_back(paths: TaskPaths, store: str, beside: Sidecar) -> None:
    """Make it so again, durably: what there was is written, what there was not is removed."""
    for name, path in _files(paths, store).items():
        text = getattr(beside, name)
        if text is None:
            remove_durably(path)
        else:
            write_durably(path, text)
    put_back_legacy_offsets(paths, dict(beside.legacy))


def _files(paths: TaskPaths, store: str) -> dict[str, Path]:
    # The seal comes last: it vouches for the record.
    return {
        "digests": paths.digests(store),
        "mode": paths.mode(store),
        "record": paths.record(store),
        "snapshot": paths.snapshot(store),
        "offsets": paths.offsets(store),
        "seal": paths.seal(store),
    }


def read_text(path: Path) -> str | None:
    """Return a file of ours as text; None if it is not there, or is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    except OSError as error:
        if not is_damage(error):
            raise
        return None
