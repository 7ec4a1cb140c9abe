"""What a key-value store does, whatever its format, engine and transactions."""

from __future__ import annotations

import pytest

from statestore.stores.readers import IsolationLevel
from tests.compositions import CHANGELOG, compositions

key_value = compositions(kind="key-value")
KEYS = ["a", "aa", "ab", "b", "b\0", "c", "é"]


@pytest.fixture(params=["committed", "staged", "in part"])
def filled(request, store):
    """A store with the rows of KEYS, committed or not; where it has no transactions that is no difference."""
    halves = {"committed": KEYS, "staged": [], "in part": KEYS[::2]}
    for key in [*halves[request.param], None, *KEYS]:
        if key is None:
            store.store.commit({CHANGELOG: 0})
        elif store.store.get(key) is None:
            store.store.put(key, store.value(key))
    return store


def keys(rows):
    """Keys of an iterator, in its order."""
    return [key for key, _ in rows]


@key_value
@pytest.mark.behaviour("T2")
def test_a_range_has_both_its_ends_and_nothing_beyond(filled):
    store = filled.store
    assert list(store.range("aa", "b")) == [(key, filled.value(key)) for key in ("aa", "ab", "b")]
    assert keys(store.range(None, "b")) == ["a", "aa", "ab", "b"]
    assert keys(store.range("b", None)) == ["b", "b\0", "c", "é"]
    assert keys(store.range("bb", "bz")) == keys(store.range("c", "a")) == []
    assert keys(store.range("c", "c")) == ["c"]
    assert keys(store.range()) == keys(store.all()) == KEYS


@key_value
@pytest.mark.behaviour("T2")
def test_a_reverse_range_is_the_range_backward(filled):
    store = filled.store
    for ends in [(None, None), ("aa", "b"), (None, "b"), ("b", None), ("bb", "bz"), ("c", "a"), ("c", "c")]:
        assert list(store.reverse_range(*ends)) == list(store.range(*ends))[::-1]
    assert keys(store.reverse_all()) == KEYS[::-1]


@key_value
@pytest.mark.behaviour("T2")
def test_a_prefix_scan_has_the_keys_that_start_with_it(filled):
    store = filled.store
    assert keys(store.prefix_scan(b"a")) == ["a", "aa", "ab"]
    assert keys(store.prefix_scan(b"b")) == ["b", "b\0"]
    assert keys(store.prefix_scan("é".encode()[:1])) == ["é"]
    assert keys(store.prefix_scan(b"\xff")) == keys(store.prefix_scan(b"ac")) == []
    assert keys(store.prefix_scan(b"")) == KEYS
    with pytest.raises(TypeError, match="encode it first"):
        store.prefix_scan("a")


@key_value
def test_many_keys_are_read_in_their_order(filled):
    filled.store.put("aa", None)
    filled.store.put("b", filled.value("new"))
    asked = ["c", "absent", "b", "aa", "c"]
    expected = [filled.value("c"), None, filled.value("new"), None, filled.value("c")]
    assert filled.store.get_many(asked) == expected == [filled.store.get(key) for key in asked]
    assert filled.store.get_many([]) == []


@key_value
def test_put_if_absent_writes_where_there_is_nothing_and_returns_what_was_there(filled):
    logged = []
    filled.store.log_changes_to(lambda key, *_: logged.append(key))
    assert filled.store.put_if_absent("a", filled.value("new")) == filled.value("a")
    assert filled.store.put_if_absent("d", filled.value("new")) is None
    assert filled.store.put_if_absent("e", None) is None
    assert (filled.store.get("a"), filled.store.get("d")) == (filled.value("a"), filled.value("new"))
    assert filled.store.get("e") is None
    assert logged == [b"d"]


@key_value
def test_put_all_writes_every_row_in_order_or_none(filled):
    filled.store.put_all([("a", filled.value("1")), ("b", None), ("d", filled.value("2")), ("d", filled.value("3"))])
    assert [filled.store.get(key) for key in ("a", "b", "d")] == [filled.value("1"), None, filled.value("3")]
    with pytest.raises(TypeError):
        filled.store.put_all([("a", filled.value("4")), (None, filled.value("5"))])
    assert filled.store.get("a") == filled.value("1")


@key_value
def test_delete_returns_what_was_there_and_is_logged(filled):
    logged = []
    filled.store.log_changes_to(lambda *change: logged.append(change))
    assert filled.store.delete("b") == filled.value("b")
    assert filled.store.delete("b") is None
    assert filled.store.get("b") is None
    assert logged == [(b"b", None, None)] * 2


@key_value
@pytest.mark.behaviour("T6")
def test_a_range_delete_hides_the_rows_and_a_later_put_wins(filled):
    store = filled.store
    before, backward = store.all(), store.reverse_all()
    next(before)
    store.delete_range("aa", "aa")
    between = store.all()
    store.delete_range("aa", "b")
    store.put("ab", filled.value("later"))
    assert list(store.all()) == [
        (key, filled.value("later" if key == "ab" else key)) for key in ("a", *KEYS[2:3], *KEYS[4:])
    ]
    assert (store.get("aa"), store.get("b"), store.get_many(["b", "ab"])) == (None, None, [None, filled.value("later")])
    assert keys(store.reverse_range("a", "b")) == ["ab", "a"]
    assert keys(before) == KEYS[1:], "an iterator that was open is not affected"
    assert keys(backward) == KEYS[::-1]
    assert keys(between) == [key for key in KEYS if key != "aa"]
    store.commit({CHANGELOG: 9})
    assert keys(store.all()) == ["a", "ab", "b\0", "c", "é"]


@compositions(kind="key-value", transactional=True)
@pytest.mark.behaviour("T6")
def test_a_range_delete_is_staged_like_any_write(store):
    store.fill([1, 2, 3], "old")
    store.store.commit({CHANGELOG: 2})
    store.store.delete_range("k02", None)
    assert store.rows() == {1: "old"}
    assert store.rows(store.reader(IsolationLevel.READ_COMMITTED)) == {1: "old", 2: "old", 3: "old"}
    store.store.rollback()
    assert store.rows() == {1: "old", 2: "old", 3: "old"}


@key_value
@pytest.mark.behaviour("T6")
@pytest.mark.parametrize(
    ("start", "stop", "left"),
    [(None, None, []), (None, "c", ["é"]), ("b", None, ["a", "aa", "ab"]), ("c", "a", KEYS), ("x", "y", KEYS)],
)
def test_a_range_delete_has_open_ends_and_one_of_nothing_does_nothing(store, start, stop, left):
    logged = []
    for key in KEYS:
        store.store.put(key, store.value(key))
    store.store.log_changes_to(lambda key, *_: logged.append(key.decode()))
    store.store.delete_range(start, stop)
    assert keys(store.store.all()) == left
    assert logged == [key for key in KEYS if key not in left]


@key_value
def test_range_deletes_that_overlap_and_follow_one_another_add_up(store):
    store.fill(range(12), "text")
    store.store.commit({CHANGELOG: 11})
    for start, stop in [("k02", "k03"), ("k08", "k09"), ("k03", "k05"), ("k04", "k08")]:
        store.store.delete_range(start, stop)
    store.put(5, "back")
    assert store.rows() == {0: "text", 1: "text", 5: "back", 10: "text", 11: "text"}
    store.store.commit({CHANGELOG: 30})
    assert store.rows() == {0: "text", 1: "text", 5: "back", 10: "text", 11: "text"}


@key_value
def test_an_empty_store_says_so(store):
    assert store.store.is_empty
    store.put(1, "text")
    assert not store.store.is_empty
    store.store.delete_range()
    assert store.store.is_empty
