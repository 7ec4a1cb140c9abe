"""A thread that makes the next item changes neither the items nor the errors."""

from __future__ import annotations

import threading

import pytest

from statestore.bulk.ahead import one_ahead


def test_items_come_in_their_order_and_the_next_is_made_meanwhile():
    made = [threading.Event() for _ in range(5)]

    def source():
        for number in range(4):
            made[number].set()
            yield number
        made[4].set()

    for number in one_ahead(source()):
        assert made[number + 1].wait(10)
    assert number == 3


def test_an_error_comes_where_its_item_was_to_come():
    def source():
        yield 1
        raise ValueError("the second")

    items = one_ahead(source())
    assert next(items) == 1
    with pytest.raises(ValueError, match="the second"):
        next(items)


def test_closing_it_closes_the_source_and_leaves_no_thread():
    ended, before = [], threading.active_count()

    def source():
        try:
            yield from range(10)
        finally:
            ended.append(True)

    items = one_ahead(source())
    assert next(items) == 0
    items.close()
    assert ended == [True]
    assert threading.active_count() == before
