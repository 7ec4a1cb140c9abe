"""Other versions take the place of a versioned store's, in a changelog from which a restore builds the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.changelog.topic_settings import changelog_config
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.model import StoreFormat
from statestore.reports import Status
from statestore.rewrite.version_rows import as_records, version_records
from statestore.stores.scan import ScannedDatabase
from statestore.stores.versioned import versions_in
from tests.integration import dying
from tests.integration.broker import consume, unique
from tests.integration.overwriting import Overwriting
from tests.integration.support import Application, register
from tests.integration.test_versioned_jobs import (
    BEGIN,
    KEYS,
    MINUTE,
    RETENTION_MS,
    VERSIONED,
    answers,
    versions,
)

Version = tuple[bytes, int, int | None, bytes | None]
NOW = BEGIN + 30 * MINUTE
#: Of keys of which one begins as the other does; deletes between and behind versions, and one that was valid long ago.
GIVEN: list[Version] = [
    (b"a", NOW - 9 * MINUTE, NOW - 7 * MINUTE, b"1"),
    (b"a", NOW - 7 * MINUTE, NOW - 5 * MINUTE, b"2"),
    (b"a", NOW - 2 * MINUTE, None, b""),
    (b"a\0", NOW - 8 * MINUTE, NOW, b"3"),
    (b"", NOW - MINUTE, None, b"4"),
    (b"key-00", BEGIN - 60 * MINUTE, None, b"5"),
]


def processed(servers: str, directory: Path) -> Application:
    """An application that keeps versions of its input, deletes and late ones among them."""
    made = Application(servers, directory, stores=[VERSIONED], changelog_config=changelog_config(VERSIONED))
    made.defined(processor="tests.integration.test_versioned_jobs:keep").process(versions(1_000, 1))
    return made


class Versions:
    """Such an application in a catalogue."""

    def __init__(self, servers: str, directory: Path) -> None:
        self.app = processed(servers, directory)
        self.write = Overwriting(
            servers, unique("service"), self.app.name, VERSIONED.name, self.app.state_dir, {}, versions=GIVEN
        )
        register(servers, self.app.definition, service_id=self.write.service_id)

    def now(self) -> str:
        """Take the definition of the catalogue, and return the changelog that it names."""
        self.app.definition = self.write.metastore.view().catalogue.entry(self.app.name).definition
        return self.app.changelog

    def found(self) -> list[Version]:
        """Versions of the store, whatever changelog it goes with."""
        database = ScannedDatabase(self.app.live, StoreFormat.PLAIN)
        try:
            return [
                (key, found.valid_from, found.valid_to, found.value)
                for key, versions in versions_in(database.family("default"))
                for found in versions
                if found.value is not None
            ]
        finally:
            database.close()

    def assert_written(self, changelog: str) -> None:
        assert self.now() == changelog
        assert sorted(self.found(), key=str) == sorted(GIVEN, key=str)
        assert self.app.verify("deep").status is Status.OK
        config = Cluster(self.app.servers, 60).topics.topic_configs([changelog])[changelog]
        assert {key: config[key] for key in changelog_config(VERSIONED)} == changelog_config(VERSIONED)


@pytest.fixture
def store(bootstrap_servers: str, tmp_path: Path) -> Versions:
    return Versions(bootstrap_servers, tmp_path)


def test_versions_take_the_place_of_others_in_the_order_of_their_times_and_processing_goes_on(store: Versions) -> None:
    before = store.now()
    (done,) = store.write.carry_out()
    assert done.rows == len(GIVEN)
    store.assert_written(f"{before}-2")
    records, _ = consume(store.app.servers, f"{before}-2", 0)
    times = [record.timestamp for record in records]
    assert times == sorted(times)
    assert [record.key for record in records if record.value is None] == [b"a", b"a\0"]
    asked = list(answers(store.app, NOW))
    store.app.restore("full", force=True, check="deep")
    store.assert_written(f"{before}-2")
    assert list(answers(store.app, NOW)) == asked
    store.app.process(versions(200, 2, BEGIN + 40 * MINUTE))
    assert store.app.verify("deep").status is Status.OK


@pytest.mark.long
def test_versions_of_many_runs_are_sorted_alike(store: Versions) -> None:
    before = store.now()
    given = [
        (b"key-%04d" % (number % 400), NOW - 9 * MINUTE + number, NOW - 9 * MINUTE + number + 400, b"%d" % number)
        for number in range(4_000)
    ]
    rows = store.write._replace(versions=given[::-1])
    stage = rows.staged()
    ordered = as_records(stage, rows.specs(), 1 << 16, whole=True)
    found = [version_records(batch) for batch in ordered.batches(0)]
    times = [time for _, _, some in found for time in some.tolist()]
    assert times == sorted(times)
    assert len(times) == 4_000 + 400
    assert sorted(value for _, values, _ in found for value in values.to_pylist() if value) == sorted(
        value for _, _, _, value in given
    )
    stage.clear()
    assert store.now() == before


@pytest.mark.long
def test_versions_that_a_store_cannot_have_are_named_and_nothing_is_changed(store: Versions) -> None:
    before, found = store.now(), store.found()

    def refused(reason: str, *more: Version) -> None:
        with pytest.raises(InputError, match=reason):
            store.write._replace(versions=[*GIVEN, *more]).carry_out()
        assert (store.now(), store.found(), store.app.verify("deep").status) == (before, found, Status.OK)

    refused("1 versions more than once, such as of b'a' with valid_from", (b"a", NOW - 7 * MINUTE, None, b"6"))
    refused("key b'a' has a version with valid_from .* that do not overlap", (b"a", NOW - 8 * MINUTE, NOW, b"6"))
    refused("valid_to null, the latest, and another", (b"key-00", NOW, None, b"6"))
    refused("1 versions ended before the history", (b"old", NOW - 90 * MINUTE, NOW - 2 * RETENTION_MS, b"6"))


BEFORE = ["rewrite, versions sorted", "rewrite, batch sent", "rewrite, store built", "rewrite, judged"]
BEHIND = ["rewrite, adopted", "swap, old store in quarantine", "rewrite, store replaced", "rewrite, settings made"]


@pytest.mark.long
@pytest.mark.parametrize("point", [*BEFORE, *BEHIND])
def test_a_kill_leaves_old_or_new_versions_and_it_is_run_again(store: Versions, point: str) -> None:
    before, found = store.now(), store.found()
    dying.die_in(store.write, point)
    if point in BEFORE:
        assert (store.now(), store.found(), store.app.verify("deep").status) == (before, found, Status.OK)
    else:
        assert store.now() == f"{before}-2"
        failure = store.app.run().failure  # a swap that has begun is completed
        assert sorted(store.found(), key=str) in (sorted(found, key=str), sorted(GIVEN, key=str))
        assert (failure is None) == (sorted(store.found(), key=str) == sorted(GIVEN, key=str))
    store.write.carry_out()
    store.assert_written(f"{before}-2" if point in BEFORE else f"{before}-3")
    store.app.process([(KEYS[4], b"%013d" % (NOW + MINUTE) + b"last")])
    assert store.app.verify("deep").status is Status.OK
