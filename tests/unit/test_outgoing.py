"""Changes on their way to a log: the last one of each store in a commit has the position of the commit."""

from __future__ import annotations

import pytest
from outputs import Lists

from statestore.formats.position import decode, position_headers
from statestore.model import TopicPartition
from statestore.stores.shortcuts import WriteAccess
from statestore.tasks.outgoing import Outgoing

INPUT = TopicPartition("in", 0)


class Logged(Lists):
    """Changes with their headers, by store."""

    def log_many(self, store, keys, values, timestamps, headers=None, count=None):
        """Add the headers to each row."""
        count = len(keys) if count is None else count
        rows = list(zip(keys, headers or [()] * len(keys), strict=True))[:count]
        self.logged += [(store, *row) for row in rows]


@pytest.fixture
def output():
    return Logged()


@pytest.fixture
def outgoing(output):
    return Outgoing(output, {"s": True, "with headers": False}, failed=lambda error: None, access=WriteAccess())


def add(outgoing, store, *keys, headers=()):
    outgoing.changes_of(store).changes.extend((key, b"v", 1, *headers) for key in keys)


@pytest.mark.behaviour("K20")
def test_the_last_change_of_a_commit_has_its_position_and_no_other(outgoing, output):
    for offset in (7, 9):
        add(outgoing, "s", b"a", b"b")
        outgoing.hand_on()
        outgoing.log_many("s", [b"c", b"d"], [b"v", None], [1, 1])
        outgoing.hand_on()
        outgoing.finish({INPUT: offset})
    found = [(key, decode(headers[1][1]) if headers else {}) for _, key, headers in output.logged]
    assert found == [
        *[(key, {}) for key in (b"a", b"b", b"c")],
        (b"d", {INPUT: 7}),
        *[(key, {}) for key in (b"a", b"b", b"c")],
        (b"d", {INPUT: 9}),
    ]
    assert outgoing.logged == 8
    outgoing.finish({INPUT: 10})
    assert len(output.logged) == 8, "a commit without changes logs nothing"


@pytest.mark.behaviour("K20")
def test_a_store_with_headers_logs_its_own_alone_and_holds_nothing_back(outgoing, output):
    own = (("of", b"record"),)
    add(outgoing, "with headers", b"a", headers=[own])
    outgoing.hand_on()
    assert output.logged == [("with headers", b"a", own)]
    outgoing.log_many("with headers", [b"b"], [b"v"], [1])
    outgoing.finish({INPUT: 7})
    assert output.logged[1:] == [("with headers", b"b", ())]


def test_without_a_position_everything_is_logged_without_it(outgoing, output):
    add(outgoing, "s", b"a")
    outgoing.hand_on()
    assert output.logged == []
    outgoing.finish({})
    assert output.logged == [("s", b"a", ())]


def test_a_change_that_is_held_back_is_not_taken_back_with_a_later_record(outgoing, output):
    add(outgoing, "s", b"a")
    outgoing.hand_on()
    outgoing.begin_record()
    add(outgoing, "s", b"poison")
    outgoing.log_many("s", [b"poison too"], [b"v"], [1])
    outgoing.take_back()
    outgoing.finish({INPUT: 7})
    assert output.logged == [("s", b"a", position_headers({INPUT: 7}))]


def test_many_changes_come_after_the_one_that_was_held_back(outgoing, output):
    outgoing.log_many("s", [], [], [])
    for key in (b"a", b"b"):
        outgoing.log_many("s", [key], [b"v"], [1])
    outgoing.finish({})
    assert [key for _, key, _ in output.logged] == [b"a", b"b"]
