"""Two runs of the same application at the same time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults import oracle
from tests.faults.children import Child
from tests.faults.made import processor_subject


@pytest.mark.share_for("2", why="two hosts: no lock helps")
@pytest.mark.parametrize("hosts", [1, 2])
def test_two_runs_at_once_are_one_after_the_other_or_one_is_fenced(
    bootstrap_servers: str, tmp_path: Path, hosts: int
) -> None:
    subject = processor_subject(bootstrap_servers, tmp_path, commit_interval_ms=10)
    subject.produce(20)
    subject.run()
    other = tmp_path / "other host" if hosts == 2 else subject.state_dir
    if hosts == 2:
        shutil.copytree(subject.state_dir, other)
    subject.produce(300)
    children = []
    for number, where in enumerate((subject.state_dir, other)):
        # Long enough for the second to come after the first, also on a slow machine.
        patient = [spec.model_copy(update={"lock_wait_s": 80.0}) for spec in subject.specs(0, where)]
        children.append(Child(patient, tmp_path / f"run-{where.name}-{number}"))
    rows = [row for child in children for row in child.rows()]
    failures = [row.failure.kind for row in rows if row.failure]
    assert failures in ([], ["FencedError"])
    assert hosts == 2 or failures == []  # on one host the lock lets the second wait
    subject.run()
    oracle.check(subject)
