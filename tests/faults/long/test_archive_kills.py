"""Kills of all that works on an archive, drawn from a seed: `make faults SEED=...` repeats them."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

from statestore.archive import upload
from statestore.archive.fetch import fetch
from tests.archive.snapshots import publish
from tests.faults.archive_cycles import ArchiveCycles
from tests.faults.archive_oracle import ArchiveOracle
from tests.faults.children import Kill
from tests.faults.made import processor_subject
from tests.faults.repeated import campaigns, repeat
from tests.faults.subject import Subject

SEED = int(os.environ.get("FAULTS_SEED", "1"))
KILLS = int(os.environ.get("FAULTS_ARCHIVE_KILLS", "200"))
CAMPAIGNS = campaigns(KILLS)


@pytest.mark.share_for("campaign-0", why="one application")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("number", CAMPAIGNS, ids=[f"seed-{SEED}-campaign-{at}" for at in CAMPAIGNS])
def test_killed_anywhere_what_an_archive_has_is_true_and_gives_the_stores_again(
    bootstrap_servers: str, tmp_path: Path, number: int
) -> None:
    repeat(ArchiveCycles(bootstrap_servers, tmp_path, SEED, number), SEED, number)


@pytest.fixture
def subject(bootstrap_servers: str, tmp_path: Path) -> Subject:
    """An application with an archive, whose snapshots are true."""
    made = processor_subject(bootstrap_servers, tmp_path, archive=f"file://{tmp_path}/archive")
    made.begin(processed=30, waiting=20)
    ArchiveOracle(made).check()
    return made


def _nothing_uploaded(*_: object) -> None:
    """Write manifests without uploading what they name."""
    upload.Uploading._upload = lambda *_: None  # type: ignore[method-assign]


def test_a_manifest_before_its_files_is_found_out(subject: Subject) -> None:
    subject.child(kill=Kill("snapshot, manifest written"), hooks=[_nothing_uploaded]).killed()
    subject.run()
    with pytest.raises(AssertionError, match="snapshots that cannot be used"):
        ArchiveOracle(subject).check()


@pytest.mark.share_for(why="cheap")
def test_a_snapshot_that_says_to_have_more_than_it_has_is_found_out(subject: Subject, tmp_path: Path) -> None:
    looking = ArchiveOracle(subject)
    (before,) = looking.snapshots("counts")
    subject.run()
    later = looking.snapshots("counts")[0]
    fetch(looking.objects, before, tmp_path / "copy", {})
    wrong = before.model_copy(update={"committed": later.committed, "uuid": uuid4().hex})
    publish(looking.objects, wrong, tmp_path / "copy")
    with pytest.raises(AssertionError, match=f"snapshot {wrong.name} of counts is not its changelog's fold"):
        looking.check()
