"""The seal of a closed store: whatever happened to its files since is seen before RocksDB opens it."""

from __future__ import annotations

import errno
import re
import shutil
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
import samples
from samples import CHANGELOG, TIMESTAMPED

from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.kinds.known import BUILT_IN
from statestore.statedir import seal as seal_module
from statestore.statedir.context import store_context
from statestore.statedir.record import StoreRecord, write_record
from statestore.statedir.seal import break_seal, check_seal, forget_digests, install_digests, known_files, seal
from statestore.stores.open import build_store, open_key_value_store
from tests.records import recorded

KEY_VALUE = BUILT_IN["key-value"]
WINDOW = BUILT_IN["window"]


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
    seal(paths, "s", KEY_VALUE)
    return paths.store("s")


def manifest(directory):
    return directory / (directory / "CURRENT").read_text().strip()


def test_an_untouched_store_matches_its_seal_also_after_it_was_read(paths, sealed):
    assert check_seal(paths, "s", KEY_VALUE)
    store = open_key_value_store(TIMESTAMPED, sealed, read_only=True)
    assert sum(1 for _ in store.range()) == 1_000
    store.close(clean=False)
    assert check_seal(paths, "s", KEY_VALUE)


def test_the_files_that_were_read_are_known_by_their_digests(paths, sealed):
    assert known_files(paths, "s") == {
        path.name: sha256(path.read_bytes()).hexdigest() for path in sealed.glob("*.sst")
    }
    assert known_files(paths, "another") == {}


def test_a_changed_bit_anywhere_in_an_sst_file_is_found_where_contents_are_asked_for(paths, sealed):
    victim = min(sealed.glob("*.sst"))
    whole = victim.read_bytes()
    for at in range(0, len(whole), 101):
        victim.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert check_seal(paths, "s", KEY_VALUE)
        with pytest.raises(StoreCorruptedError, match=victim.name):
            check_seal(paths, "s", KEY_VALUE, contents=True)
    victim.write_bytes(whole)
    assert check_seal(paths, "s", KEY_VALUE, contents=True)


def test_sealing_anew_does_not_bless_a_file_that_was_changed_in_between(paths, sealed):
    victim = min(sealed.glob("*.sst"))
    whole = victim.read_bytes()
    break_seal(paths, "s")
    with victim.open("r+b") as file:
        file.write(bytes([whole[0] ^ 1]))
    seal(paths, "s", KEY_VALUE)
    with pytest.raises(StoreCorruptedError, match=victim.name):
        check_seal(paths, "s", KEY_VALUE, contents=True)


def test_every_truncation_of_the_manifest_is_found_though_rocksdb_may_open_it(paths, sealed):
    whole = manifest(sealed).read_bytes()
    for length in range(0, len(whole), 7):
        manifest(sealed).write_bytes(whole[:length])
        with pytest.raises(StoreCorruptedError, match="MANIFEST"):
            check_seal(paths, "s", KEY_VALUE)


def test_every_flipped_bit_of_the_manifest_is_found(paths, sealed):
    whole = manifest(sealed).read_bytes()
    for at in range(0, len(whole), 11):
        manifest(sealed).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StoreCorruptedError, match="MANIFEST"):
            check_seal(paths, "s", KEY_VALUE)


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"\xff\xfe", b"MANIFEST-999999\n", b"MANIFEST-\n"])
def test_a_damaged_current_file_is_found(paths, sealed, content):
    (sealed / "CURRENT").unlink()
    if content is not None:
        (sealed / "CURRENT").write_bytes(content)
    if content == b"MANIFEST-999999\n":  # a newer MANIFEST: somebody else's opening looks like this; RocksDB decides
        assert not check_seal(paths, "s", KEY_VALUE)
    else:
        with pytest.raises(StoreCorruptedError, match="CURRENT"):
            check_seal(paths, "s", KEY_VALUE)


@pytest.mark.parametrize("end", [b"", b"\x0b", b"\r", b" \n", b"\n\n"])
def test_a_current_file_with_another_end_is_found_though_it_names_the_manifest(paths, sealed, end):
    current = sealed / "CURRENT"
    current.write_bytes(current.read_bytes()[:-1] + end)
    with pytest.raises(StoreCorruptedError, match="CURRENT"):
        check_seal(paths, "s", KEY_VALUE)


def test_an_older_copy_of_the_directory_put_back_is_found(paths, sealed, tmp_path):
    shutil.copytree(sealed, tmp_path / "older")
    break_seal(paths, "s")
    store = open_key_value_store(TIMESTAMPED, sealed)
    store.put(b"later", ValueAndTimestamp(b"value", 1))
    store.commit({CHANGELOG: 2_000})
    store.close()
    seal(paths, "s", KEY_VALUE)
    shutil.rmtree(sealed)
    shutil.copytree(tmp_path / "older", sealed)
    with pytest.raises(StoreCorruptedError, match="CURRENT"):
        check_seal(paths, "s", KEY_VALUE)


def test_a_store_that_another_program_opened_since_is_unsealed_and_not_damaged(paths, sealed):
    store = open_key_value_store(TIMESTAMPED, sealed)
    store.close()
    assert not check_seal(paths, "s", KEY_VALUE)


def test_a_store_that_another_program_made_anew_is_unsealed_and_not_damaged(paths, sealed):
    sealed_manifest = manifest(sealed).name
    shutil.rmtree(sealed)
    open_key_value_store(TIMESTAMPED, sealed).close()
    assert manifest(sealed).name <= sealed_manifest  # MANIFESTs are counted from the start again
    assert check_seal(paths, "s", KEY_VALUE, contents=True) is None


@pytest.mark.parametrize("content", [None, b"", b"another"])
def test_a_damaged_identity_costs_the_seal_at_most(paths, sealed, content):
    (sealed / "IDENTITY").unlink()
    if content is not None:
        (sealed / "IDENTITY").write_bytes(content)
    assert (check_seal(paths, "s", KEY_VALUE) is None) == (content == b"another")
    manifest(sealed).write_bytes(b"")
    if content != b"another":
        with pytest.raises(StoreCorruptedError, match="MANIFEST"):
            check_seal(paths, "s", KEY_VALUE)


def test_a_store_without_a_seal_or_with_a_torn_one_is_unsealed(paths, sealed):
    paths.seal("s").write_text(paths.seal("s").read_text()[:20])
    assert not check_seal(paths, "s", KEY_VALUE)
    break_seal(paths, "s")
    assert not check_seal(paths, "s", KEY_VALUE)


@pytest.mark.parametrize("name", ["LANIFEST-000005", "MANIFEST-0000r5", "MANIFEST-"])
def test_a_seal_that_names_no_manifest_speaks_of_nothing(paths, sealed, name):
    text = paths.seal("s").read_text()
    damaged = re.sub(r"MANIFEST-\d+", name, text)
    assert damaged != text
    paths.seal("s").write_text(damaged)
    assert not check_seal(paths, "s", KEY_VALUE)


# -- window and session stores: one seal over all segments ------------------------------------------------------------

INTERVAL_MS = 90_000


def write_windows(paths, starts, offset):
    """Open the window store, write a window at each of the times, and close it cleanly."""
    store = build_store(samples.WINDOW)
    store.init(store_context(paths))
    for start in starts:
        store.put(b"k%d" % start, ValueAndTimestamp(b"value", start), start)
    store.commit({CHANGELOG: offset})
    store.close()
    write_record(paths, "s", recorded("id", offset))


@pytest.fixture
def segments(paths):
    """Directory of a window store with three segments, closed cleanly and sealed."""
    write_windows(paths, [0, INTERVAL_MS, 2 * INTERVAL_MS], 2)
    seal(paths, "s", WINDOW)
    return paths.task_dir / "s"


def test_untouched_segments_match_their_seal_which_knows_how_far_the_store_was(paths, segments):
    found = check_seal(paths, "s", WINDOW, contents=True)
    assert set(found.databases) == {f"s.{start * INTERVAL_MS}" for start in range(3)}
    assert found.committed == 2


def test_a_damaged_file_in_any_segment_is_found(paths, segments):
    for segment in sorted(segments.iterdir()):
        victim = min(segment.glob("*.sst"))
        whole = victim.read_bytes()
        victim.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        assert check_seal(paths, "s", WINDOW)
        with pytest.raises(StoreCorruptedError, match=f"{segment.name}/{victim.name}"):
            check_seal(paths, "s", WINDOW, contents=True)
        victim.write_bytes(whole)
        whole = manifest(segment).read_bytes()
        manifest(segment).write_bytes(whole[:-1])
        with pytest.raises(StoreCorruptedError, match=f"{segment.name}/MANIFEST"):
            check_seal(paths, "s", WINDOW)
        manifest(segment).write_bytes(whole)
    assert check_seal(paths, "s", WINDOW, contents=True)


@pytest.mark.parametrize("start", range(3))
def test_a_segment_that_is_gone_while_nobody_opened_the_others_is_damage(paths, segments, start):
    shutil.rmtree(segments / f"s.{start * INTERVAL_MS}")
    with pytest.raises(StoreCorruptedError, match=f"s.{start * INTERVAL_MS} does not exist"):
        check_seal(paths, "s", WINDOW)


def test_segments_that_another_program_opened_dropped_and_made_are_unsealed_and_not_damaged(paths, segments):
    write_windows(paths, [4 * INTERVAL_MS], 3)  # two segments expire, one is made
    assert not (segments / "s.0").exists()
    assert check_seal(paths, "s", WINDOW, contents=True) is None


def test_a_segment_that_another_program_made_leaves_the_damage_in_an_old_one_in_sight(paths, segments):
    shutil.copytree(segments / "s.0", segments / f"s.{3 * INTERVAL_MS}")
    assert check_seal(paths, "s", WINDOW) is None
    min((segments / "s.0").glob("*.sst")).unlink()
    with pytest.raises(StoreCorruptedError, match=r"s\.0"):
        check_seal(paths, "s", WINDOW)


def test_segments_in_each_others_places_are_damage(paths, segments):
    (segments / "s.0").rename(paths.state_dir / "aside")
    (segments / f"s.{INTERVAL_MS}").rename(segments / "s.0")
    (paths.state_dir / "aside").rename(segments / f"s.{INTERVAL_MS}")
    with pytest.raises(StoreCorruptedError, match=f"s.0 holds the segment that was sealed as s.{INTERVAL_MS}"):
        check_seal(paths, "s", WINDOW)


def test_a_segment_made_anew_in_the_place_of_another_is_not_taken_for_it(paths, segments, monkeypatch):
    # File numbers start anew with each database, and a file system may give the same inode again.
    real = seal_module._digest
    monkeypatch.setattr(seal_module, "_digest", lambda path, known: known or real(path, known))
    shutil.rmtree(segments)
    break_seal(paths, "s")
    write_windows(paths, [1_000, INTERVAL_MS, 2 * INTERVAL_MS], 5)
    seal(paths, "s", WINDOW)
    assert check_seal(paths, "s", WINDOW, contents=True)


def test_a_seal_speaks_of_the_offset_that_was_recorded_when_it_was_made(paths, sealed):
    assert check_seal(paths, "s", KEY_VALUE).committed is None
    write_record(paths, "s", recorded("id", 999))
    seal(paths, "s", KEY_VALUE)
    write_record(paths, "s", recorded("id", 2_000))
    assert check_seal(paths, "s", KEY_VALUE).committed == 999


# -- what is written down, and what is said ---------------------------------------------------------------------------


def test_a_seal_has_the_facts_of_every_database_and_file(paths, segments):
    found = check_seal(paths, "s", WINDOW)
    assert found.store_partition == "app/s/0_0"
    for name, database in found.databases.items():
        directory = segments / name
        assert database.manifest == manifest(directory).name
        assert database.manifest_sha256 == sha256(manifest(directory).read_bytes()).hexdigest()
        assert bytes.fromhex(database.identity) == (directory / "IDENTITY").read_bytes()
        assert database.column_families == ("default", "keyValueWithTimestamp", "offsets")
    files = {str(path.relative_to(segments)): path for path in segments.glob("*/*.sst")}
    assert set(found.sst) == set(files)
    for name, path in files.items():
        facts = found.sst[name]
        assert (facts.bytes, facts.inode) == (path.stat().st_size, path.stat().st_ino)
        assert facts.sha256 == sha256(path.read_bytes()).hexdigest()


def test_the_only_database_of_a_key_value_store_has_no_name(paths, sealed):
    found = check_seal(paths, "s", KEY_VALUE)
    assert list(found.databases) == [""]
    assert set(found.sst) == {path.name for path in sealed.glob("*.sst")}


def test_a_seal_of_another_store_partition_does_not_speak_of_this_one(paths, sealed):
    assert check_seal(paths, "s", KEY_VALUE)
    for other in ("other/s/0_0", "app/t/0_0", "app/s/0_1"):
        text = paths.seal("s").read_text().replace("app/s/0_0", other)
        paths.seal("t").write_text(text)
        paths.seal("s").rename(paths.own_dir / "kept")
        paths.seal("t").rename(paths.seal("s"))
        assert check_seal(paths, "s", KEY_VALUE) is None
        (paths.own_dir / "kept").rename(paths.seal("s"))


def test_a_file_that_was_read_for_its_digest_is_not_read_again(paths, sealed, monkeypatch):
    read = []
    real = seal_module._sha256
    monkeypatch.setattr(seal_module, "_sha256", lambda path: read.append(path.suffix) or real(path))
    seal(paths, "s", KEY_VALUE)
    assert read == [""]  # the MANIFEST alone
    forget_digests(paths, "s")
    seal(paths, "s", KEY_VALUE)
    assert sorted(read[1:]) == ["", *[".sst"] * len(list(sealed.glob("*.sst")))]


@pytest.mark.parametrize("text", ["", "{", '{"identities": {}}'])
def test_digests_that_cannot_be_read_are_made_again(paths, sealed, text):
    before = check_seal(paths, "s", KEY_VALUE)
    paths.digests("s").write_text(text)
    seal(paths, "s", KEY_VALUE)
    assert check_seal(paths, "s", KEY_VALUE, contents=True) == before


def test_digests_of_a_database_without_identity_are_not_used_again(paths, sealed, monkeypatch):
    (sealed / "IDENTITY").unlink()
    seal(paths, "s", KEY_VALUE)
    read = []
    real = seal_module._sha256
    monkeypatch.setattr(seal_module, "_sha256", lambda path: read.append(path) or real(path))
    seal(paths, "s", KEY_VALUE)
    assert set(sealed.glob("*.sst")) <= set(read)
    assert check_seal(paths, "s", KEY_VALUE, contents=True)


def test_a_file_of_the_same_length_in_the_place_of_another_is_read_for_its_own_digest(paths, sealed):
    victim = min(sealed.glob("*.sst"))
    other = victim.with_name("copy")
    other.write_bytes(victim.read_bytes()[::-1])
    other.rename(victim)
    seal(paths, "s", KEY_VALUE)
    assert check_seal(paths, "s", KEY_VALUE).sst[victim.name].sha256 == sha256(victim.read_bytes()).hexdigest()


def test_damage_is_told_with_the_file_what_was_expected_and_what_was_found(paths, sealed):
    victim, current = min(sealed.glob("*.sst")), sealed / "CURRENT"
    whole, size = victim.read_bytes(), victim.stat().st_size

    def said(**how):
        with pytest.raises(StoreCorruptedError) as caught:
            check_seal(paths, "s", KEY_VALUE, **how)
        return str(caught.value)

    victim.write_bytes(whole[::-1])
    assert said(contents=True) == f"{victim} has changed since the store was closed; restore the store"
    victim.write_bytes(whole[:-1])
    assert said() == f"{victim}: expected {size} bytes, found {size - 1}; restore the store"
    victim.unlink()
    assert said() == f"{victim}: expected {size} bytes, found no such file; restore the store"
    victim.write_bytes(whole)
    named = current.read_bytes()
    current.write_bytes(b"MANIFEST-000001\n")
    sealed_as = named.decode().strip()
    assert said() == f"{current} names MANIFEST-000001, expected {sealed_as} as of its seal. Restore the store"
    current.write_bytes(b"x" * 61)
    expected = "expected MANIFEST-<number> and a newline; restore the store"
    assert said() == f"{current} holds {b'x' * 60!r}, {expected}"
    current.unlink()
    assert said().startswith(f"{current} cannot be read; restore the store: ")
    current.write_bytes(named)
    text = manifest(sealed).read_bytes()
    manifest(sealed).write_bytes(text[:-1])
    assert said() == f"{manifest(sealed)} has changed since the store was closed; restore the store"
    gone = manifest(sealed)
    gone.unlink()
    assert said() == f"{gone} does not exist; restore the store"


def test_a_segment_in_the_place_of_another_or_gone_is_named_with_its_place(paths, segments):
    gone = segments / f"s.{INTERVAL_MS}"
    gone.rename(paths.state_dir / "aside")
    said = f"{gone} does not exist, but did when the store was closed. Restore the store"
    with pytest.raises(StoreCorruptedError, match=f"^{re.escape(said)}$"):
        check_seal(paths, "s", WINDOW)
    shutil.rmtree(segments / "s.0")
    shutil.copytree(paths.state_dir / "aside", segments / "s.0")
    said = f"{segments / 's.0'} holds the segment that was sealed as s.{INTERVAL_MS}; restore the store"
    with pytest.raises(StoreCorruptedError, match=f"^{re.escape(said)}$"):
        check_seal(paths, "s", WINDOW)


def test_a_store_whose_segments_are_all_gone_is_damage_and_one_that_never_had_any_is_sealed(paths, segments):
    shutil.rmtree(segments)
    with pytest.raises(StoreCorruptedError, match=r"s\.0 does not exist"):
        check_seal(paths, "s", WINDOW)
    seal(paths, "s", WINDOW)
    assert check_seal(paths, "s", WINDOW).databases == {}


def test_what_is_known_of_one_store_goes_without_that_of_another(paths, sealed):
    for path in (paths.seal("t"), paths.digests("t")):
        path.write_text("of another")
    break_seal(paths, "s")
    assert (paths.seal("s").exists(), paths.digests("s").exists()) == (False, True)
    forget_digests(paths, "s")
    assert not paths.digests("s").exists()
    assert (paths.seal("t").read_text(), paths.digests("t").read_text()) == ("of another", "of another")


@pytest.mark.parametrize("name", ["seal", "IDENTITY", "CURRENT", "MANIFEST"])
def test_given_a_file_that_the_disk_cannot_read_then_the_error_names_it(paths, sealed, monkeypatch, name):
    victim = {"seal": paths.seal("s"), "MANIFEST": manifest(sealed)}.get(name, sealed / name)
    read_bytes = Path.read_bytes

    def read(path):
        if path == victim:
            raise OSError(errno.EIO, "Input/output error")  # as reading raises it: without a name
        return read_bytes(path)

    def digest(file, _):
        return sha256(read(Path(file.name)))

    monkeypatch.setattr(Path, "read_bytes", read)
    monkeypatch.setattr(seal_module, "hashlib", SimpleNamespace(file_digest=digest, sha256=sha256))
    with pytest.raises(OSError, match="Input/output error") as raised:
        check_seal(paths, "s", KEY_VALUE)
    assert raised.value.filename == str(victim)


# -- a supplier's store -----------------------------------------------------------------------------------------------

_SUPPLIED = {"rows.json": b"rows", "index/one": b"one"}


@pytest.fixture(params=[False, True], ids=["key-value", "segmented"])
def supplied(paths, request):
    """A supplier's store, sealed; and what tells where it lies."""
    where = BUILT_IN["window" if request.param else "key-value"]
    directory = paths.task_dir / "s" if request.param else paths.store("s")
    for name, content in _SUPPLIED.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    write_record(paths, "s", StoreRecord(topic_id="t", caught_up_ms=1, committed=7))
    seal(paths, "s", where, supplied=True)
    return directory, where


def test_a_suppliers_store_is_sealed_with_all_its_files(paths, supplied):
    _, where = supplied
    found = check_seal(paths, "s", where, contents=True)
    assert (found.committed, found.databases) == (7, {})
    assert {name: (file.bytes, file.sha256) for name, file in found.sst.items()} == {
        name: (len(content), sha256(content).hexdigest()) for name, content in _SUPPLIED.items()
    }


@pytest.mark.parametrize("name", list(_SUPPLIED))
def test_a_file_of_a_suppliers_store_that_changed_is_found(paths, supplied, name):
    directory, where = supplied
    file = directory / name
    file.write_bytes(file.read_bytes()[::-1])
    assert check_seal(paths, "s", where)
    looked = []
    with pytest.raises(StoreCorruptedError, match=f"{file} has changed since the store was closed"):
        check_seal(paths, "s", where, contents=True, between=lambda: looked.append(name))
    assert looked
    file.write_bytes(b"longer than before")
    with pytest.raises(StoreCorruptedError, match=f"{file}: expected {len(_SUPPLIED[name])} bytes, found 18"):
        check_seal(paths, "s", where)
    file.unlink()
    with pytest.raises(StoreCorruptedError, match=f"{file}: .*found no such file"):
        check_seal(paths, "s", where)


def test_a_seal_does_not_speak_of_a_suppliers_store_with_more_files(paths, supplied):
    directory, where = supplied
    (directory / "index" / "two").touch()
    assert check_seal(paths, "s", where) is None
    seal(paths, "s", where, supplied=True)
    assert sorted(check_seal(paths, "s", where).sst) == ["index/one", "index/two", "rows.json"]


def test_a_file_that_was_changed_where_it_is_gets_a_new_digest(paths, supplied):
    directory, where = supplied
    (directory / "rows.json").write_bytes(b"ROWS")
    seal(paths, "s", where, supplied=True)
    assert check_seal(paths, "s", where, contents=True)


def test_a_suppliers_store_without_files_has_no_seal_that_speaks_of_it(paths):
    paths.store("s").mkdir(parents=True)
    seal(paths, "s", KEY_VALUE, supplied=True)
    assert check_seal(paths, "s", KEY_VALUE) is None


def test_digests_that_were_installed_are_those_of_the_next_seal_which_does_not_read_the_files(paths, sealed):
    break_seal(paths, "s")
    forget_digests(paths, "s")
    told = {path.name: sha256(b"told").hexdigest() for path in sealed.glob("*.sst")}
    install_digests(paths, "s", KEY_VALUE, {**told, "999999.sst": sha256(b"gone").hexdigest()})
    assert known_files(paths, "s") == told
    seal(paths, "s", KEY_VALUE)
    assert known_files(paths, "s") == told
    with pytest.raises(StoreCorruptedError, match="has changed since"):
        check_seal(paths, "s", KEY_VALUE, contents=True)


def test_digests_of_segments_are_installed_for_the_databases_that_they_are_of(paths, segments):
    told = {str(path.relative_to(segments)): sha256(b"told").hexdigest() for path in segments.glob("*/*.sst")}
    install_digests(paths, "s", WINDOW, told)
    seal(paths, "s", WINDOW)
    assert known_files(paths, "s") == told


def test_digests_that_were_installed_say_nothing_of_a_database_that_was_made_since(paths, sealed):
    told = {path.name: sha256(b"told").hexdigest() for path in sealed.glob("*.sst")}
    install_digests(paths, "s", KEY_VALUE, told)
    (sealed / "IDENTITY").write_text("another")
    seal(paths, "s", KEY_VALUE)
    assert known_files(paths, "s") == {
        path.name: sha256(path.read_bytes()).hexdigest() for path in sealed.glob("*.sst")
    }
