"""A task's checkpoint file from before KIP-1035: emptied store by store, and what was taken out put back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from statestore.durable import write_durably
from statestore.errors import StoreCorruptedError
from statestore.formats import checkpoint_file
from statestore.model import TopicPartition
from statestore.statedir.legacy import (
    forget_legacy_offset,
    legacy_offsets,
    legacy_offsets_of,
    put_back_legacy_offsets,
)

OWN, OTHER = TopicPartition("app-s-changelog", 0), TopicPartition("app-t-changelog", 0)
NEIGHBOUR, INPUT = TopicPartition("app-s-changelog", 1), TopicPartition("orders", 0)
ALL = {OWN: 7, OTHER: None, NEIGHBOUR: 9, INPUT: 0}


@pytest.fixture
def checkpoint(paths):
    write_durably(paths.checkpoint, checkpoint_file.write(ALL))
    return paths.checkpoint


def test_a_task_without_the_file_has_no_offsets(paths):
    assert legacy_offsets(paths) == {}
    assert legacy_offsets_of(paths, "s") == {}


def test_a_store_has_the_entries_of_its_own_partition_and_of_those_it_is_filled_from(paths, checkpoint):
    assert legacy_offsets(paths) == ALL
    assert legacy_offsets_of(paths, "s") == {OWN: 7}
    assert legacy_offsets_of(paths, "s", [INPUT]) == {OWN: 7, INPUT: 0}
    assert legacy_offsets_of(paths, "u") == {}


def test_entries_are_forgotten_for_one_store_and_stay_for_the_others(paths, checkpoint):
    forget_legacy_offset(paths, "s")
    assert legacy_offsets(paths) == {OTHER: None, NEIGHBOUR: 9, INPUT: 0}
    forget_legacy_offset(paths, "s", [INPUT])
    assert legacy_offsets(paths) == {OTHER: None, NEIGHBOUR: 9}


def test_a_file_whose_last_entry_was_forgotten_is_gone(paths):
    write_durably(paths.checkpoint, checkpoint_file.write({OWN: 7}))
    forget_legacy_offset(paths, "s")
    assert not paths.checkpoint.exists()


def test_a_torn_file_tells_nothing_of_a_store_and_goes_with_the_first_that_changes(paths):
    write_durably(paths.checkpoint, "0\n2\napp-s-changelog 0 7\n")
    with pytest.raises(StoreCorruptedError):
        legacy_offsets(paths)
    assert legacy_offsets_of(paths, "s") == {}
    forget_legacy_offset(paths, "s")
    assert not paths.checkpoint.exists()


def test_entries_come_back_beside_those_that_are_there_which_are_newer(paths, checkpoint):
    forget_legacy_offset(paths, "s", [INPUT])
    put_back_legacy_offsets(paths, {OWN: 7, NEIGHBOUR: 1})
    assert legacy_offsets(paths) == {OWN: 7, OTHER: None, NEIGHBOUR: 9}


def test_where_nothing_was_taken_out_no_file_is_made_and_a_torn_one_is_left(paths):
    put_back_legacy_offsets(paths, {})
    assert not paths.checkpoint.exists()
    write_durably(paths.checkpoint, "torn")
    put_back_legacy_offsets(paths, {})
    assert paths.checkpoint.read_text() == "torn"


def test_given_a_file_that_the_disk_cannot_read_then_the_error_names_it(checkpoint, monkeypatch):
    def refuse(_):
        raise OSError(errno.EIO, "Input/output error")  # as reading raises it: without a name

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OSError, match="Input/output error") as raised:
        checkpoint_file.read(checkpoint)
    assert raised.value.filename == str(checkpoint)


def test_a_file_that_changes_keeps_its_time_and_a_new_one_has_its_own(paths, checkpoint):
    """A file that is newer was written after these offsets."""
    os.utime(checkpoint, ns=(5_000_000_000, 7_000_000_000))
    forget_legacy_offset(paths, "s")
    assert checkpoint.stat().st_mtime_ns == 7_000_000_000
    checkpoint.unlink()
    put_back_legacy_offsets(paths, {OWN: 7})
    assert checkpoint.stat().st_mtime_ns > 7_000_000_000
