"""The files of commits: a commit is read as it was written, and damage is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import StoreCorruptedError
from statestore.model import TopicPartition
from statestore.stores import commit_log
from statestore.stores.commit_log import Commit, CommitLog, Piece, numbers
from statestore.stores.table import DeletedRange

LOG = TopicPartition("a-log", 3)
cells = st.binary(max_size=40)
pieces = st.lists(
    st.builds(
        Piece,
        st.sampled_from(["default", "keyValueWithTimestamp"]),
        st.lists(st.builds(DeletedRange, cells, cells), max_size=3),
        st.dictionaries(cells, st.none() | cells, max_size=20),
    ),
    max_size=4,
)


def applied(found):
    """Return the rows that pieces leave; it does not depend on how they are cut."""
    rows = {}
    for family, ranges, changes in found:
        for start, stop in ranges:
            rows = {at: value for at, value in rows.items() if not (at[0] == family and start <= at[1] < stop)}
        rows.update({(family, key): value for key, value in changes.items()})
    return rows


@pytest.mark.behaviour("T9")
@given(
    databases=st.dictionaries(st.sampled_from(["", "s.0", "s.60000"]), pieces), part_bytes=st.sampled_from([30, 999])
)
def test_a_commit_is_read_as_it_was_written(tmp_path_factory, databases, part_bytes):
    log = CommitLog(tmp_path_factory.mktemp("log") / "s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "_PART_BYTES", part_bytes)
        number, size = log.add(databases, {LOG: 7}, None)
    path = log._directory / str(number)
    assert path.stat().st_size == size
    with path.open("rb") as file:
        commit = Commit(file)
        assert (list(commit.databases), commit.offsets, commit.position) == (list(databases), {LOG: 7}, None)
        for name, expected in databases.items():
            assert applied(commit.pieces(name)) == applied(expected)


@pytest.mark.behaviour("T9")
def test_every_shortened_or_changed_file_is_found_to_be_damaged(tmp_path: Path) -> None:
    log = CommitLog(tmp_path / "s")
    number, size = log.add({"": [Piece("default", (), {b"a": b"1", b"b": None})]}, {LOG: 7}, {LOG: 9})
    path = tmp_path / "s" / str(number)
    whole = path.read_bytes()
    for at in range(size):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            with path.open("rb") as file, pytest.raises(StoreCorruptedError):
                Commit(file)


def test_numbers_grow_also_from_one_process_to_the_next(tmp_path: Path) -> None:
    added = [CommitLog(tmp_path / "s").add({}, {}, None)[0] for _ in range(3)]
    assert numbers(tmp_path / "s") == sorted(set(added)) == added
    assert numbers(tmp_path / "none") == []
