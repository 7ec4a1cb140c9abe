"""How many records of a changelog a rewrite has written: kept by topic, and read by partition."""

from __future__ import annotations

import re

import pytest

from statestore.durable import write_durably
from statestore.errors import InvalidStateError
from statestore.statedir.rewritten import keep_rewritten, rewritten_records


def test_the_records_of_each_partition_are_kept_by_the_topic(tmp_path):
    keep_rewritten(tmp_path, "app", "one", [3, 0, 7])
    keep_rewritten(tmp_path, "app", "another", [5])
    kept = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert kept == [f".statestore/app/rewritten/{topic_id}.json" for topic_id in ("another", "one")]
    assert [rewritten_records(tmp_path, "app", "one", partition) for partition in range(4)] == [3, 0, 7, 0]
    assert rewritten_records(tmp_path, "app", "another", 0) == 5


def test_a_topic_that_no_rewrite_has_written_has_none(tmp_path):
    keep_rewritten(tmp_path, "app", "one", [3])
    assert rewritten_records(tmp_path, "app", "another", 0) == 0
    assert rewritten_records(tmp_path, "other", "one", 0) == 0


@pytest.mark.parametrize("text", ["", "[3", '{"0": 3}'])
def test_given_a_file_that_cannot_be_read_then_the_error_names_it_and_what_to_do(tmp_path, text):
    path = tmp_path / ".statestore" / "app" / "rewritten" / "one.json"
    write_durably(path, text)
    said = (
        "It said how many records of the changelog a rewrite has written. To restore as of a point after these, "
        "delete it"
    )
    with pytest.raises(InvalidStateError, match=rf"(?s)^{re.escape(str(path))} cannot be read: .*\. {said}$"):
        rewritten_records(tmp_path, "app", "one", 0)
