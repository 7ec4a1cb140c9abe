"""What is known of stores in quarantine, and when nobody may remove them yet."""

from __future__ import annotations

import pytest

from statestore.durable import write_durably
from statestore.errors import InvalidStateError
from statestore.recovery.quarantine import UNREADABLE, kept_by_age, last_replaced, quarantined
from statestore.reports import Status
from statestore.statedir.beside import Beside, beside_quarantined


@pytest.mark.parametrize(
    ("status", "kept"),
    [(Status.AHEAD, "AHEAD"), (Status.REPLACED, "REPLACED"), (Status.CORRUPT, None), (None, None)],
)
def test_only_what_the_log_may_have_lost_is_kept_by_age(paths, status, kept):
    assert kept_by_age(paths, "s", "run") is None
    write_durably(paths.quarantined_own("s", "run"), Beside(status=status).model_dump_json())
    assert kept_by_age(paths, "s", "run") == kept


@pytest.mark.parametrize("text", ["", "{", '{"status":"AHEAF"}', '{"status":"AHEAD","other":1}'])
def test_a_store_of_which_nothing_can_be_read_any_more_is_kept_and_not_put_back(paths, text):
    write_durably(paths.quarantined_own("s", "run"), text)
    assert kept_by_age(paths, "s", "run") == UNREADABLE
    with pytest.raises(InvalidStateError, match=r"(?s)run\.json is damaged.*remove the file to put that store back"):
        beside_quarantined(paths, "s", "run")


def test_a_file_among_them_is_no_predecessor(paths):
    directory = paths.quarantine("s", "run")
    directory.mkdir(parents=True)
    (directory.parent / "notes.txt").write_text("not a store")
    assert quarantined(paths, "s") == [directory]
    assert last_replaced(paths, "s") == directory
