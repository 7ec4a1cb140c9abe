"""`statestore snapshot diff`: what differs between two snapshots, or one and the live store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from statestore.archive.archive import open_archive
from statestore.archive.manifest import Manifest
from statestore.cli.app import app
from statestore.definitions.store import StoreDefinition
from statestore.objects.store import ObjectStore
from tests.archive.snapshots import published
from tests.spark.store_files import ALL_STORES, MINUTE_MS, StoreFiles, defined


def _publish(objects: ObjectStore, files: StoreFiles, committed: int, **changes: Any) -> Manifest:
    of = {"definition": files.definition, "task": "0_0", "committed": committed}
    return published(objects, files.live(), **{**of, **changes})


def _put(files: StoreFiles, *rows: tuple[bytes, bytes]) -> None:
    with files.opened() as store:
        for key, value in rows:
            files.put(store, key, value, MINUTE_MS, MINUTE_MS + 5)
        store.commit({files.changelog(): 1})


class Diff:
    """Runs the command."""

    def __init__(self, tmp_path: Path) -> None:
        self.url = f"file://{tmp_path}/archive"
        self.objects = open_archive(self.url)

    def __call__(self, *arguments: object, code: int = 0) -> dict[str, Any]:
        said = ["snapshot", "diff", "--archive", self.url, *map(str, arguments), "--json", "-"]
        ran = CliRunner().invoke(app, said, catch_exceptions=False)
        assert ran.exit_code == code, ran.output
        return json.loads(ran.stdout)  # type: ignore[no-any-return]


@pytest.fixture
def diff(tmp_path: Path) -> Diff:
    return Diff(tmp_path)


@pytest.mark.short_for("plain")
@pytest.mark.parametrize("definition", ALL_STORES, ids=lambda definition: definition.name)
def test_rows_that_differ_are_counted_and_their_keys_are_told(
    tmp_path: Path, diff: Diff, definition: StoreDefinition
) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    files = StoreFiles(tmp_path / "state", definition.model_copy(update={"key_serde": "utf8"}))
    _put(files, (b"a", b"1"), (b"b", b"1"))
    first = _publish(diff.objects, files, 1)
    assert diff(first.name, "--state-dir", files.state_dir, "--keys")["rows"] == []
    _put(files, (b"b", b"2"), (b"c", b"1"), (b"\xff", b"1"))
    second = _publish(diff.objects, files, 2)

    found = diff(first.name, second.name, "--keys", "--scratch", scratch, code=1)

    # Where duplicates are retained, a put adds a row.
    b = ["added"] if definition.retain_duplicates else ["changed"]
    assert [(row["change"], row["key"]) for row in found["rows"]] == [(b[0], "b"), ("added", "c"), ("added", None)]
    assert found["rows"][-1]["key_bytes"] == "ff"
    for name in definition.store_kind.numbers:
        if name.name != "sequence":
            assert found["rows"][0][name.name] == MINUTE_MS + (5 if name.name == "session_end" else 0)
    counts = {name: found[name] for name in ("added", "changed", "removed", "equal")}
    assert counts == {"added": 2 + len(b) * definition.retain_duplicates, "changed": 1 - definition.retain_duplicates,
                      "removed": 0, "equal": 1 + definition.retain_duplicates}  # fmt: skip
    assert diff(second.name, first.name, code=1)["removed"] == found["added"]
    assert diff(first.name, "--state-dir", files.state_dir, code=1)["added"] == found["added"]
    assert diff(second.name, "--state-dir", files.state_dir)["after"] == "live"
    assert list(scratch.iterdir()) == []


@pytest.mark.long
def test_files_that_both_have_are_fetched_once(tmp_path: Path, diff: Diff, monkeypatch: pytest.MonkeyPatch) -> None:
    files = StoreFiles(tmp_path / "state", defined("counts"))
    _put(files, *((b"%04d" % number, bytes(100)) for number in range(1000)))
    first = _publish(diff.objects, files, 1)
    _put(files, (b"b", b"2"))
    second = _publish(diff.objects, files, 2)
    shared = {file.sha256 for file in first.files if file.path.endswith(".sst")} & {one.sha256 for one in second.files}
    assert shared
    read: list[str] = []
    original = ObjectStore.read_chunks
    monkeypatch.setattr(ObjectStore, "read_chunks", lambda *given: read.append(given[1]) or original(*given))

    assert diff(first.name, second.name, code=1)["added"] == 1
    assert [sum(name.endswith(sha256) for name in read) for sha256 in shared] == [1] * len(shared)


def test_what_cannot_be_compared_is_refused(tmp_path: Path, diff: Diff) -> None:
    files = StoreFiles(tmp_path / "state", defined("counts"))
    _put(files, (b"a", b"1"))
    first = _publish(diff.objects, files, 1)
    other = _publish(diff.objects, files, 1, task="0_1")
    plain = _publish(diff.objects, files, 2, definition=defined("counts", format="plain"))
    supplied = _publish(diff.objects, files, 3, definition=defined("counts", supplier="a:b"))
    for names, message in (
        ((first.name, other.name), "name two of the same store partition"),
        ((first.name, plain.name), "redefined in between: format was timestamped, then plain"),
        ((supplied.name, first.name), "supplier a:b: its file format is unknown"),
        ((first.name, "none"), "has no snapshot none"),
        ((first.name,), "expected the name of another snapshot, or --state-dir"),
        ((first.name, "--state-dir", tmp_path / "none"), "app/counts/0_0 has no store in"),
    ):
        said = ["snapshot", "diff", "--archive", diff.url, *map(str, names)]
        error = CliRunner().invoke(app, said).exception
        assert message in str(error)


def test_people_and_files_are_told_the_same(tmp_path: Path, diff: Diff) -> None:
    files = StoreFiles(tmp_path / "state", defined("window", "window", key_serde="utf8"))
    _put(files, (b"a", b"1"))
    first = _publish(diff.objects, files, 1)
    _put(files, (b"a", b"2"), (b"b c", b"1"))
    second = _publish(diff.objects, files, 2)
    said = ["snapshot", "diff", "--archive", diff.url, str(first.name), str(second.name), "--keys"]

    ran = CliRunner().invoke(app, [*said, "--json", str(tmp_path / "found.json")])

    assert ran.stdout == (
        "changed a window_start=60000\n"
        "added b c window_start=60000\n"
        "app/window/0_0: 1 keys added, 1 changed, 0 removed, 0 equal\n"
    )
    assert json.loads((tmp_path / "found.json").read_text()) == diff(first.name, second.name, "--keys", code=1)
    assert [path.name for path in tmp_path.glob(".*")] == []
