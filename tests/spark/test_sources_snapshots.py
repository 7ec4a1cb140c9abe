"""`state_store` and `state_store_metadata` read snapshots straight from the archive, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from statestore_jobs.sources.columns import layout_of
from statestore_jobs.sources.ranges import RANGE_OPTIONS
from statestore_jobs.sources.snapshots import definition_in, snapshots_of
from statestore_jobs.sources.state_store import StateStoreReader
from statestore_jobs.sources.state_store_metadata import StateStoreMetadataReader

from statestore.archive.archive import open_archive
from statestore.archive.layout import blob
from statestore.archive.manifest import Manifest
from statestore.archive.pins import SnapshotSet, write_set
from statestore.archive.snapshots import mark_suspect
from statestore.definitions.store import StoreDefinition
from statestore.errors import ArchiveAccessError, InputError, SnapshotError
from statestore.model import TopicPartition
from statestore.objects.store import ObjectStore
from tests.archive.snapshots import CLUSTER, published
from tests.spark.store_files import ALL_STORES, HOUR_MS, MINUTE_MS, StoreFiles, batches_of, defined, text_of


class Archive:
    """Snapshots of one store, of which no directory is left."""

    def __init__(self, tmp_path: Path, definition: StoreDefinition) -> None:
        self.url = f"file://{tmp_path}/archive"
        self.objects: ObjectStore = open_archive(self.url)
        self.files = StoreFiles(tmp_path / "state", definition)

    def publish(self, partition: int, rows: int, **changes: Any) -> Manifest:
        """Fill a store partition and publish it at an offset of so many rows."""
        self.files.fill(partition, rows)
        return self.publish_files(partition, committed=rows, **changes)

    def publish_files(self, partition: int = 0, **changes: Any) -> Manifest:
        """Publish what a store partition has."""
        of = {"definition": self.files.definition, "task": f"0_{partition}"}
        return published(self.objects, self.files.live(partition), **{**of, **changes})

    def options(self, snapshot: object, **more: object) -> dict[str, str]:
        """Options of the source."""
        store = {"application": "app", "store": self.files.definition.name}
        return text_of({"archive": self.url, "snapshot": snapshot, **store, **more})

    def read(self, snapshot: object, **more: object) -> list[tuple[Any, ...]]:
        """Read in this process; rows without the sequence."""
        return rows_of(self.options(snapshot, **more))


def rows_of(options: dict[str, str]) -> list[tuple[Any, ...]]:
    definition = definition_in(snapshots_of(options, RANGE_OPTIONS), options)
    schema = layout_of(options, definition, with_offset=False).schema
    reader = StateStoreReader(options, from_arrow_schema(schema))
    rows = [row for batch in batches_of(reader) for row in batch.to_pylist()]
    return sorted((tuple(row[name] for name in row if name != "sequence") for row in rows), key=repr)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path, defined("counts"))


@pytest.mark.short_for(every=4)
@pytest.mark.parametrize("definition", ALL_STORES, ids=lambda definition: definition.name)
def test_rows_are_those_of_the_store_when_it_was_published(tmp_path: Path, definition: StoreDefinition) -> None:
    archive = Archive(tmp_path, definition)
    for partition in (0, 1):
        archive.publish(partition, 100)
    expected = sorted(archive.files.rows(0) + archive.files.rows(1), key=repr)
    shutil.rmtree(archive.files.state_dir)

    assert archive.read("latest") == expected
    assert archive.read("latest", partitions="1") == [row for row in expected if row[0] == 1]


def test_spark_reads_it_without_a_state_directory_and_leaves_nothing(spark: SparkSession, archive: Archive) -> None:
    archive.publish(0, 50)
    archive.publish(1, 60)
    expected = len(archive.files.rows(0)) + len(archive.files.rows(1))
    shutil.rmtree(archive.files.state_dir)

    frame = spark.read.format("state_store").options(**archive.options("latest")).load()

    assert (frame.count(), frame.rdd.getNumPartitions()) == (expected, 2)
    assert frame.limit(1).count() == 1  # which stops reading half way
    local = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ["SPARK_LOCAL_DIRS"]).first()
    assert [
        *Path(local).rglob("statestore-snapshot-*"),
        *Path(tempfile.gettempdir()).glob("statestore-snapshot-*"),
    ] == []


def test_the_newest_usable_snapshot_at_or_below_an_offset_is_read(archive: Archive) -> None:
    old = archive.publish(0, 50)
    first = archive.files.rows(0)
    new = archive.publish(0, 100)
    second = archive.files.rows(0)

    assert archive.read("latest") == archive.read(100) == archive.read(new.name) == second
    assert archive.read(99) == archive.read(50) == archive.read(old.name) == first
    with pytest.raises(SnapshotError, match=r"no usable snapshot of app/counts/0_0 at or below offset 49: the oldest"):
        archive.read(49)
    mark_suspect(archive.objects, new.directory, new.name, "DIVERGED")
    assert archive.read("latest") == first
    assert archive.read(new.name) == second  # named, it is read
    archive.objects.create(new.directory.generation(1), b"{}")
    with pytest.raises(SnapshotError, match="its 2 snapshots are suspect or of an older generation; name one"):
        archive.read("latest")
    by_name = {"archive": archive.url, "snapshot": str(old.name)}
    assert rows_of(by_name) == first  # which needs no application


def test_a_partition_without_a_snapshot_is_not_left_out_in_silence(archive: Archive) -> None:
    archive.publish(0, 10)
    other = StoreFiles(archive.files.state_dir, defined("other"))
    other.fill(1)
    published(archive.objects, other.live(1), definition=other.definition, task="0_1")

    with pytest.raises(SnapshotError, match="no snapshot of app/counts/0_1, only of other partitions"):
        archive.read("latest")
    assert archive.read("latest", partitions=0) == archive.files.rows(0)


def test_a_set_gives_one_cut(archive: Archive) -> None:
    old = [archive.publish(partition, 50) for partition in (0, 1)]
    expected = sorted(archive.files.rows(0) + archive.files.rows(1), key=repr)
    made = SnapshotSet(
        cluster=CLUSTER,
        application="app",
        uuid="0" * 32,
        snapshots=tuple(one.directory.snapshot(one.name) for one in old),
        input_offsets=((TopicPartition("in", 0), 5),),
        written_ms=1,
    )
    write_set(archive.objects, made)
    archive.publish(1, 100)

    assert archive.read(made.uuid) == expected
    assert rows_of({"archive": archive.url, "snapshot": made.uuid}) == expected
    with pytest.raises(SnapshotError, match=r"no snapshot of store other of application app; .*stores counts"):
        archive.read(made.uuid, store="other")
    with pytest.raises(SnapshotError, match="has no set 1111"):
        archive.read("1" * 32)
    mark_suspect(archive.objects, old[0].directory, old[0].name, "DIVERGED")
    with pytest.raises(SnapshotError, match=rf"{old[0].name} of app/counts/0_0, which belongs to set .* is suspect"):
        archive.read(made.uuid)


def test_segments_outside_the_time_range_are_not_fetched(tmp_path: Path) -> None:
    archive = Archive(tmp_path, defined("window", "window"))
    with archive.files.opened() as store:  # three segments of half an hour
        for minute in range(80):
            archive.files.put(store, b"%02d" % minute, b"v", minute * MINUTE_MS)
        store.commit({archive.files.changelog(): 80})
    made = archive.publish_files(committed=80)
    for file in made.files:
        if file.path.startswith("window.0/") and file.path.endswith(".sst"):
            archive.objects.delete(blob(file.sha256))

    assert [row[1] for row in archive.read("latest", time_from=75 * MINUTE_MS)] == [b"75", b"76", b"77", b"78", b"79"]
    with pytest.raises(SnapshotError, match=r"does not exist; it has the content of .*; read an older one"):
        archive.read("latest", time_to=HOUR_MS)


def test_damage_names_the_object(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    made = archive.publish(0, 50)
    largest = max(made.files, key=lambda file: file.bytes)
    archive.objects.upload(blob(largest.sha256), [b"x" * largest.bytes])

    with pytest.raises(
        SnapshotError, match=rf"snapshot {made.name} of app/counts/0_0: .*{largest.sha256} does not have the SHA-256"
    ):
        archive.read("latest")
    assert list(scratch.iterdir()) == []


def test_what_is_asked_for_must_be_clear(archive: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive.publish(0, 10)
    archive.publish(0, 20, cluster="another")
    with pytest.raises(InputError, match=r"application app of the Kafka clusters 5L6g.*, another: name one"):
        archive.read("latest")
    assert archive.read("latest", cluster=CLUSTER)
    for wrong, options, message in (
        (SnapshotError, {"snapshot": "0" * 8 + "-" + "0" * 20 + "-" + "0" * 32}, "has no snapshot 0000"),
        (SnapshotError, {"cluster": CLUSTER, "store": "none"}, "no snapshots of store none of .*its stores counts"),
        (SnapshotError, {"cluster": "none"}, "has no snapshots of store counts of application app of cluster none;"),
        (InputError, {"snapshot": "newest"}, "expected latest, a changelog offset, the name"),
        (InputError, {"path": "/x"}, "option path does not go with snapshot"),
        (InputError, {"archive": "/x"}, "expected the URL of an archive"),
        (ArchiveAccessError, {"archive": f"file://{tmp_path}/none"}, "format.json does not exist"),
        (InputError, {"archive_timeout_s": "0"}, "option archive_timeout_s: expected a duration"),
        (InputError, {"kind": "window"}, "is of kind key-value, found option kind window"),
    ):
        with pytest.raises(wrong, match=message):
            rows_of({**archive.options("latest", cluster=CLUSTER), **options})
    options = archive.options("latest", cluster=CLUSTER)
    monkeypatch.setenv("STATESTORE_ARCHIVE", options.pop("archive"))
    assert rows_of(options)
    monkeypatch.delenv("STATESTORE_ARCHIVE")
    with pytest.raises(InputError, match=r"option archive is missing: add .*, or set STATESTORE_ARCHIVE"):
        rows_of({"snapshot": "latest", "application": "app"})
    with pytest.raises(InputError, match="option archive goes with option snapshot"):
        StateStoreReader({"archive": archive.url, "path": "/x"}, None)


def test_a_store_that_was_defined_anew_in_between_and_code_that_nobody_named_are_refused(archive: Archive) -> None:
    archive.publish(0, 10)
    archive.publish(1, 10, definition=StoreDefinition(name="counts", format="plain"))
    with pytest.raises(InputError, match=r"has format .*the store was redefined in between"):
        archive.read("latest")
    archive.publish(0, 20, definition=StoreDefinition(name="counts", kind="nowhere:KIND"))
    with pytest.raises(InputError, match=r"kind nowhere:KIND, whose code is not loaded because an archive names it"):
        archive.read("latest", partitions=0)
    kind = "statestore.kinds.key_value:KEY_VALUE"
    archive.publish(0, 30, definition=StoreDefinition(name="counts", kind=kind))
    assert archive.read("latest", partitions=0, kind=kind) == archive.files.rows(0)


def test_metadata_tells_which_snapshots_would_be_read_without_fetching_them(archive: Archive) -> None:
    made = [archive.publish(partition, 50) for partition in (0, 1)]
    for file in made[0].files:
        archive.objects.delete(blob(file.sha256))
    options = archive.options("latest")
    rows = [row for batch in batches_of(StateStoreMetadataReader(options)) for row in batch.to_pylist()]

    assert [(row["task"], row["snapshot"]) for row in rows] == [("0_0", str(made[0].name)), ("0_1", str(made[1].name))]
    files = [file for file in made[0].files if file.path.endswith(".sst")]
    assert {name: value for name, value in rows[0].items() if value is not None} == {
        "application": "app",
        "store": "counts",
        "task": "0_0",
        "partition": 0,
        "kind": "key-value",
        "format": "timestamped",
        "committed": [("app-totals-changelog-3", 50)],
        "bytes": sum(file.bytes for file in files),
        "files": len(files),
        "snapshot": str(made[0].name),
    }
    with pytest.raises(InputError, match="option archive goes with option snapshot"):
        StateStoreMetadataReader({"archive": archive.url, "path": "/x"})
