"""Many rows at once, and the undoing of one record, over every composition and over stores of a user's own."""

from __future__ import annotations

import pytest
from custom import MINE, Supplier
from store_under_test import SLOT_MS, StoreUnderTest, time_of

from statestore.formats import window_key
from statestore.model import StoreFormat
from tests.compositions import ALL, CHANGELOG, Composition, compositions, gated

#: A record beyond this slot makes the first segment expire: retention is six hours, a slot half an hour.
FAR = 60


OURS = [pytest.param(one, None, id=f"ours-{one}") for one in ALL]
#: A user's own stores, which have no batch writes; a persistent one of theirs does not know timestamps.
OTHERS = [pytest.param(one, MINE[one.kind], id=f"others-{one}") for one in ALL if not one.transactional]
every_store = pytest.mark.parametrize(("composition", "made"), OURS + OTHERS)


@pytest.fixture
def any_store(composition, made, home):
    """A store of each composition, ours or a user's."""
    supplier = None if made is None else Supplier(made, persistent=composition.persistent)
    store = StoreUnderTest(composition, home, supplier=supplier)
    yield store
    store.close(clean=False)


def texts(store):
    """Texts by slot, whatever timestamps they have."""
    kind = store.composition.kind
    found = {key if kind == "key-value" else key.key: value for key, value in store.store.all()}
    return {int(key[1:]): value if isinstance(value, str) else value[0] for key, value in sorted(found.items())}


class Log:
    """Changes as they are logged, one by one and many at once."""

    def __init__(self, store):
        self.changes = []
        self.calls = 0
        self.store = store
        store.store.log_changes_to(self.log, self.log_many)

    def log(self, key, value, timestamp, headers=()):
        self.changes.append((key, value, timestamp))

    def log_many(self, keys, values, timestamps):
        self.calls += 1
        self.changes += zip(keys, values, timestamps, strict=True)


def put_rows(store, changes):
    """Write (slot, text) pairs at once; the timestamp is the one that the store's `value` gives a text."""
    store.store.put_rows(
        [store.row_key(slot) for slot, _ in changes],
        [None if text is None else text.encode() for _, text in changes],
        [1_000 + len(text or "") for _, text in changes],
    )


def logged(store, changes):
    """What `put_rows` of these changes logs."""
    return [
        (store.row_key(slot), None if text is None else text.encode(), 1_000 + len(text or ""))
        for slot, text in changes
    ]


@every_store
def test_many_rows_are_written_read_and_logged_at_once(any_store):
    store = any_store
    store.fill([1, 7], "old")
    log = Log(store)
    changes = [(0, "new"), (1, None), (3, "x"), (7, "newer"), (9, "y"), (10, None)]
    put_rows(store, changes)
    assert texts(store) == {0: "new", 3: "x", 7: "newer", 9: "y"}
    assert log.changes == logged(store, changes)
    assert log.calls == 1
    rows = store.store.get_rows([store.row_key(slot) for slot in (9, 1, 0, 11)])
    before = 8 * store.composition.timestamped + store.composition.keeps_headers
    assert [None if row is None else row[before:] for row in rows] == [b"y", None, b"new", None]
    put_rows(store, [])
    assert len(log.changes) == len(changes)


def test_without_a_function_for_many_each_row_is_logged_by_itself(store):
    changes = []
    store.store.log_changes_to(lambda *change: changes.append(change))
    put_rows(store, [(0, "a"), (8, None)])
    assert changes == logged(store, [(0, "a"), (8, None)])


@compositions(transactional=True)
def test_many_rows_are_staged_over_what_is_staged_and_rolled_back_with_it(store):
    store.fill([1, 8], "old")
    store.store.commit({CHANGELOG: 1})
    store.fill([2, 8], "staged")
    put_rows(store, [(1, None), (2, "again"), (9, "more")])
    assert store.rows() == {2: "again", 8: "staged", 9: "more"}
    staged = store.store.staged_bytes
    put_rows(store, [(2, "again")])
    assert store.store.staged_bytes == staged > 0
    store.store.rollback()
    assert store.rows() == {1: "old", 8: "old"}
    put_rows(store, [(1, "new"), (8, None)])
    store.store.commit({CHANGELOG: 2})
    store.store.rollback()
    assert store.rows() == {1: "new"}


@compositions(transactional=True, persistent=True)
def test_many_rows_beyond_the_memory_bound_spill_and_are_committed_whole(composition, home):
    store = StoreUnderTest(composition, home, uncommitted_max_bytes=8_192)
    put_rows(store, [(slot, f"{slot}" * 20) for slot in range(12)])
    for _ in range(20):
        put_rows(store, [(slot, f"{slot}" * 40) for slot in range(12)])
    expected = {slot: f"{slot}" * 40 for slot in range(12)}
    assert store.rows() == expected
    store.store.commit({CHANGELOG: 1})
    store.reopen()
    assert store.rows() == expected
    store.close()


windowed = pytest.mark.parametrize("composition", gated(one for one in ALL if one.kind != "key-value"), ids=str)


@windowed
def test_of_many_rows_those_that_have_expired_are_dropped_counted_and_not_logged(store):
    put_rows(store, [(FAR, "far")])
    log = Log(store)
    put_rows(store, [(0, "late"), (FAR - 1, "near"), (FAR, "again")])
    assert store.store.expired_records == 1
    assert log.changes == logged(store, [(FAR - 1, "near"), (FAR, "again")])
    assert store.rows() == {FAR - 1: "near", FAR: "again"}


@windowed
def test_many_rows_in_the_order_of_time_do_not_expire_by_each_other(store):
    log = Log(store)
    changes = [(0, "early"), (FAR, "far")]
    put_rows(store, changes)
    assert store.store.expired_records == 0
    assert log.changes == logged(store, changes)
    assert store.rows() == {FAR: "far"}, "what retention hides is not read"


# -- undo ---------------------------------------------------------------------------------------------------------


@every_store
def test_what_a_record_wrote_is_undone_and_the_undoing_is_not_logged(any_store):
    store = any_store
    store.fill([1, 2, 7], "old")
    log = Log(store)
    store.store.begin_record()
    store.put(1, "new")
    store.put(1, "newer")
    store.put(2, None)
    store.put(3, "first")
    put_rows(store, [(3, "second"), (8, "far"), (7, None)])
    changes = len(log.changes)
    store.store.undo_record()
    assert texts(store) == {1: "old", 2: "old", 7: "old"}
    assert len(log.changes) == changes
    store.put(4, "after")
    store.store.undo_record()
    assert texts(store) == {1: "old", 2: "old", 4: "after", 7: "old"}, "nothing is remembered any more"


@every_store
def test_what_a_record_wrote_stays_once_the_record_has_ended(any_store):
    store = any_store
    store.store.begin_record()
    store.put(1, "first")
    store.store.end_record()
    store.store.begin_record()
    store.put(1, "second")
    store.put(9, "second")
    store.store.undo_record()
    assert texts(store) == {1: "first"}


@compositions(transactional=True)
def test_an_undone_record_leaves_the_transaction_as_it_was(store):
    store.fill([1, 8], "committed")
    store.store.commit({CHANGELOG: 1})
    store.put(1, "staged")
    store.store.begin_record()
    store.put(1, None)
    store.put(8, "poison")
    store.store.undo_record()
    store.store.commit({CHANGELOG: 2})
    assert store.rows() == {1: "staged", 8: "committed"}


@compositions(kind="key-value")
@pytest.mark.parametrize("is_logged", [True, False])
def test_deletes_of_every_form_are_undone(store, is_logged):
    store.fill(range(12), "old")
    if is_logged:
        Log(store)
    store.store.begin_record()
    assert store.text(store.store.delete("k01")) == "old"
    store.store.put_if_absent("k01", store.value("back"))
    store.store.delete_range("k03", "k06")
    store.store.put_all([("k04", store.value("new")), ("k09", None)])
    store.store.delete_range("k08", None)
    store.store.undo_record()
    assert store.rows() == dict.fromkeys(range(12), "old")


@windowed
def test_what_a_record_made_expire_is_there_again_after_undoing(store):
    store.fill([0, 1], "old")
    store.store.begin_record()
    store.put(0, "new")
    store.put(FAR, "far")
    store.put(1, "late")
    assert store.store.expired_records == 1
    store.store.undo_record()
    assert store.rows() == {0: "old", 1: "old"}
    assert store.store.expired_records == 0
    assert store.store.inner.stream_time == time_of(1) + (store.composition.kind == "session")


@windowed
def test_a_row_that_retention_hides_is_put_back_as_it_was(store):
    store.put(0, "old")
    hides = (6 * 60 * 60 * 1_000) // SLOT_MS  # the segment of slot 0 is still there
    store.put(hides + 1, "far")
    store.store.begin_record()
    store.put(0, "new")
    store.store.undo_record()
    row = store.store.inner.stored_row(store.row_key(0))
    assert row.endswith(b"old")


@pytest.mark.parametrize("composition", gated(one for one in ALL if one.kind == "window"), ids=str)
@pytest.mark.behaviour("S8")
def test_a_retained_duplicate_is_taken_away_again(composition: Composition, home):
    store = StoreUnderTest(composition, home, supplier=composition.supplier(duplicates=True))
    keys = []
    store.store.log_changes_to(lambda key, *_: keys.append(key))
    store.put(1, "first")
    store.store.begin_record()
    store.put(1, "poison")
    store.store.undo_record()
    store.put(1, "second")
    found = list(store.store.fetch_between("k01", time_of(1), time_of(1)))
    assert [store.text(value) for _, value in found] == ["first", "second"]
    assert len({window_key.decode(key)[2] for key in keys}) == len(keys)
    store.close(clean=False)


@compositions(kind="key-value", format=StoreFormat.TIMESTAMPED, persistent=True)
def test_rows_still_in_the_plain_format_are_written_and_undone(composition, home):
    plain = Composition("key-value", StoreFormat.PLAIN, True, composition.transactional)
    old = StoreUnderTest(plain, home)
    old.fill([1, 2, 3], "old")
    old.store.commit({CHANGELOG: 1})
    old.close()
    store = StoreUnderTest(composition, home)
    put_rows(store, [(1, "new")])
    store.store.begin_record()
    store.put(2, "poison")
    put_rows(store, [(3, None)])
    store.store.undo_record()
    rows = store.store.get_rows([store.row_key(slot) for slot in (1, 2, 3)])
    assert [row[8:] for row in rows] == [b"new", b"old", b"old"]
    assert rows[1][:8] == rows[2][:8] == b"\xff" * 8, "an unknown timestamp stays unknown"
    store.close(clean=False)
