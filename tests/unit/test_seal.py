"""The seal of a closed store: whatever happened to its files since is seen before RocksDB opens it."""

from __future__ import annotations

import shutil

import pytest

from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.statedir.seal import break_seal, check_seal, seal
from statestore.stores.open import open_key_value_store
from tests.unit.samples import CHANGELOG, TIMESTAMPED


@pytest.fixture
def sealed(paths):
    """Directory of a store with rows in two SST files, closed cleanly and sealed."""
    for first in (0, 500):
        store = open_key_value_store(TIMESTAMPED, paths.store("s"))
        for number in range(first, first + 500):
            store.put(b"%d" % number, ValueAndTimestamp(b"value", number))
        store.commit({CHANGELOG: first + 499})
        store.close()
    paths.own_dir.mkdir(parents=True)
    seal(paths, "s")
    return paths.store("s")


def manifest(directory):
    return directory / (directory / "CURRENT").read_text().strip()


def test_an_untouched_store_matches_its_seal_also_after_it_was_read(paths, sealed):
    assert check_seal(paths, "s")
    store = open_key_value_store(TIMESTAMPED, sealed, read_only=True)
    assert sum(1 for _ in store.range()) == 1_000
    store.close(clean=False)
    assert check_seal(paths, "s")


def test_a_changed_bit_anywhere_in_an_sst_file_is_found_where_contents_are_asked_for(paths, sealed):
    victim = min(sealed.glob("*.sst"))
    whole = victim.read_bytes()
    for at in range(0, len(whole), 101):
        victim.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert check_seal(paths, "s")
        with pytest.raises(StoreCorruptedError, match=victim.name):
            check_seal(paths, "s", contents=True)
    victim.write_bytes(whole)
    assert check_seal(paths, "s", contents=True)


def test_sealing_anew_does_not_bless_a_file_that_was_changed_in_between(paths, sealed):
    victim = min(sealed.glob("*.sst"))
    whole = victim.read_bytes()
    break_seal(paths, "s")
    with victim.open("r+b") as file:
        file.write(bytes([whole[0] ^ 1]))
    seal(paths, "s")
    with pytest.raises(StoreCorruptedError, match=victim.name):
        check_seal(paths, "s", contents=True)


def test_every_truncation_of_the_manifest_is_found_though_rocksdb_may_open_it(paths, sealed):
    whole = manifest(sealed).read_bytes()
    for length in range(0, len(whole), 7):
        manifest(sealed).write_bytes(whole[:length])
        with pytest.raises(StoreCorruptedError, match="MANIFEST"):
            check_seal(paths, "s")


def test_every_flipped_bit_of_the_manifest_is_found(paths, sealed):
    whole = manifest(sealed).read_bytes()
    for at in range(0, len(whole), 11):
        manifest(sealed).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StoreCorruptedError, match="MANIFEST"):
            check_seal(paths, "s")


def test_a_deleted_or_shortened_sst_file_is_named(paths, sealed):
    victim = min(sealed.glob("*.sst"))
    content = victim.read_bytes()
    victim.write_bytes(content[:-1])
    with pytest.raises(StoreCorruptedError, match=victim.name):
        check_seal(paths, "s")
    victim.unlink()
    with pytest.raises(StoreCorruptedError, match=victim.name):
        check_seal(paths, "s")


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"\xff\xfe", b"MANIFEST-999999\n"])
def test_a_damaged_current_file_is_found(paths, sealed, content):
    (sealed / "CURRENT").unlink()
    if content is not None:
        (sealed / "CURRENT").write_bytes(content)
    if content == b"MANIFEST-999999\n":  # a newer MANIFEST: somebody else's opening looks like this; RocksDB decides
        assert not check_seal(paths, "s")
    else:
        with pytest.raises(StoreCorruptedError, match="CURRENT"):
            check_seal(paths, "s")


def test_an_older_copy_of_the_directory_put_back_is_found(paths, sealed, tmp_path):
    shutil.copytree(sealed, tmp_path / "older")
    break_seal(paths, "s")
    store = open_key_value_store(TIMESTAMPED, sealed)
    store.put(b"later", ValueAndTimestamp(b"value", 1))
    store.commit({CHANGELOG: 2_000})
    store.close()
    seal(paths, "s")
    shutil.rmtree(sealed)
    shutil.copytree(tmp_path / "older", sealed)
    with pytest.raises(StoreCorruptedError, match="CURRENT"):
        check_seal(paths, "s")


def test_a_store_that_another_program_opened_since_is_unsealed_and_not_damaged(paths, sealed):
    store = open_key_value_store(TIMESTAMPED, sealed)
    store.close()
    assert not check_seal(paths, "s")


def test_a_store_without_a_seal_or_with_a_torn_one_is_unsealed(paths, sealed):
    paths.seal("s").write_text(paths.seal("s").read_text()[:20])
    assert not check_seal(paths, "s")
    break_seal(paths, "s")
    assert not check_seal(paths, "s")
