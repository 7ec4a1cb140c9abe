"""The page where reports and Data Docs lie in object storage: what it shows and asks, also without an answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest
from statestore_dags.suggestions import remember
from statestore_ui import data_docs, recent
from statestore_ui.history import Histories
from statestore_ui.overview import Overviews
from statestore_ui.report_files import list_reports
from statestore_ui.running_work import Running

from demo.processes import wait_until
from statestore.metastore.definition_files import parse_definitions
from statestore.objects import path as object_paths
from statestore.objects.path import ObjectPath, write_whole
from statestore.reports import Status
from tests.archive.counted import CountedStore
from tests.archive.faulty import FaultyStore, status
from tests.archive.s3 import BUCKET, environment, running_s3
from tests.ui.made_reports import Reports, restored, validated, verify_row
from tests.ui.test_overview import DEFINITIONS, answered

_WAIT_S = 120


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with running_s3() as url:
        yield url


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedStore]:
    """A store that counts, and fails as it is told."""
    made = CountedStore(endpoint)
    with made.running() as address:
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        # The page asks anew each time, where a test does not say otherwise.
        monkeypatch.setattr(recent, "_FOR_S", -1.0)
        monkeypatch.setattr(object_paths, "_no_answer", {})
        yield made


@pytest.fixture
def reports(store: CountedStore) -> Reports:
    return Reports(ObjectPath(f"s3://{BUCKET}/{uuid4().hex}/reports"))


@pytest.fixture
def docs(reports: Reports) -> ObjectPath:
    return reports.directory.parent / "data docs"


@pytest.fixture
def overviews() -> Overviews:
    return Overviews()


@pytest.fixture
def show(reports, overviews, docs):
    """The overview as it is answered, with all rows."""
    return lambda: answered(overviews.get(reports.directory.soon(), docs.soon()))


def test_all_that_jobs_have_written_is_shown(reports, show, docs):
    remember(reports.directory, parse_definitions(DEFINITIONS, "here"))
    reports.verify([verify_row(0, Status.CORRUPT), verify_row(1, lag=7), verify_row(store="removed")], 1, history=True)
    reports.process([0, 1], ["orders"], 2)
    reports.restore([restored(0)], 3)
    reports.validate([validated(0, data_docs=str(docs / "validations" / "a b.html"))], 4)
    found = show()
    assert [(row["status"], row["process"]["lag"]) for row in found["rows"]] == [("RESTORED", 7), ("OK", 7)]
    assert found["rows"][0]["validate"]["data_docs"] == "statestore/docs/validations/a%20b.html"
    assert (found["problems"], [run["job"] for run in found["runs"]]) == (
        [],
        ["verify", "restore", "validate", "process"],
    )
    (point,) = Histories().get(reports.directory.soon(), "shop", "orders")["points"]
    assert (point["lag"], point["findings"]) == (7, {"CORRUPT": 1})


def test_an_empty_place_is_no_trouble(reports, show):
    assert (show()["rows"], show()["problems"]) == ([], [])


@pytest.mark.long
def test_ten_thousand_store_partitions_are_read_from_the_newest_report_and_only_once(reports, overviews, docs, store):
    rows = [verify_row(partition) for partition in range(10_000)]
    for minute in range(5):
        reports.verify(rows, minute)
    remember(reports.directory, parse_definitions(DEFINITIONS, "here"))
    store.asked.clear()
    first = overviews.get(reports.directory.soon(), docs)
    assert len(first.pages) == 10_000
    # A head of each, and the rows of one. Nothing is listed but the four jobs and what is known of the metastore.
    assert {name: count for name, count in store.asked.items() if name.startswith("GET verify-")} == {
        **{f"GET verify-{minute:05}.json": 1 for minute in range(4)},
        "GET verify-00004.json": 2,
    }
    assert (store.asked["LIST"], store.asked["GET names.json"]) == (5, 1)

    store.asked.clear()
    assert overviews.get(reports.directory.soon(), docs) is first
    assert store.asked == {"LIST": 5}

    reports.verify([verify_row(0, Status.CORRUPT)], 9, kind="")
    store.asked.clear()
    second = overviews.get(reports.directory.soon(), docs)
    assert json.loads(second.summary)["applications"][0]["statuses"] == {"OK": 9_999, "CORRUPT": 1}
    assert {name for name in store.asked if name.startswith("GET")} == {"GET verify-00009.json"}


def test_a_young_answer_is_given_again_without_any_request(reports, overviews, docs, store, monkeypatch):
    reports.verify([verify_row()], 1)
    monkeypatch.setattr(recent, "_FOR_S", 1e9)
    first, running = overviews.get(reports.directory, docs), Running()
    running.get(reports.directory)
    store.asked.clear()
    assert overviews.get(reports.directory, docs) is first
    assert running.get(reports.directory) == {"work": []}
    assert store.asked == {}


def test_without_an_answer_what_was_known_is_shown_and_nobody_waits_again_and_again(
    reports, overviews, docs, store, monkeypatch
):
    reports.verify([verify_row(0, Status.CORRUPT)], 1, history=True)
    histories, running = Histories(), Running()
    where = reports.directory.soon()
    first = overviews.get(where, docs)
    assert histories.get(where, "shop", None)["problems"] == []

    monkeypatch.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "0.3")
    now = [1_000_000.0]
    monkeypatch.setattr(object_paths.time, "monotonic", lambda: now[0])
    for method in ("GET", "HEAD"):
        store.fail(method, "", lambda handler, _: handler.store.wait_for_the_end())
    store.asked.clear()
    found = answered(overviews.get(where, docs))
    assert [row["status"] for row in found["rows"]] == ["CORRUPT"]
    assert found["problems"][0]["path"] == str(reports.directory / "process")
    assert "could not be reached" in found["problems"][0]["message"]
    asked = sum(store.asked.values())
    for _ in range(3):
        overviews.get(where, docs)
        running.get(where)
        (problem,) = histories.get(where, "shop", None)["problems"]
        assert "It cannot be read now" in problem["message"]
        assert len(histories.get(where, "shop", None)["points"]) == 1
    assert sum(store.asked.values()) == asked

    store.heal()
    monkeypatch.delenv("STATESTORE_ARCHIVE_TIMEOUT_S")
    now[0] += 60
    assert overviews.get(where, docs).tag == first.tag


def test_a_report_that_is_not_given_once_is_asked_for_again(reports, show, store):
    reports.verify([verify_row(0, Status.CORRUPT)], 1)
    store.fail("GET", "verify-00001.json", status(403))
    found = show()
    assert (found["rows"], found["problems"][0]["path"]) == ([], "verify/verify-00001.json")
    assert "access was denied" in found["problems"][0]["message"]
    store.heal()
    assert [row["status"] for row in show()["rows"]] == ["CORRUPT"]


@pytest.mark.parametrize("gone", ["s3://nobody/reports", None])
def test_a_bucket_that_is_gone_or_denied_is_said_and_not_taken_for_an_empty_one(gone, reports, docs, overviews, store):
    if gone is None:
        store.fail("GET", "", status(403))
    place = reports.directory if gone is None else ObjectPath(gone)
    found = json.loads(overviews.get(place.soon(), docs.soon()).summary)
    assert len(found["problems"]) == 6  # one for each job
    expected = "access was denied" if gone is None else "the bucket or container does not exist"
    assert expected in found["problems"][0]["message"]
    assert not any(problem["missing"] for problem in found["problems"])
    listed, problems = list_reports(place)
    assert (listed, len(problems)) == ([], 6)


def test_a_torn_or_foreign_object_is_named_and_hides_nothing(reports, show):
    reports.verify([verify_row()], 1)
    torn = reports.verify([verify_row(0, Status.CORRUPT)], 2, run="torn")
    write_whole(torn, torn.read_bytes()[:300])
    write_whole(reports.directory / "verify" / "empty.json", b"")
    write_whole(reports.directory / "verify" / "mine.txt", b"")
    found = show()
    assert [row["status"] for row in found["rows"]] == ["OK"]
    assert {problem["path"] for problem in found["problems"]} == {"verify/torn.json", "verify/empty.json"}


# -- progress ----------------------------------------------------------------------------------------------------------

_RESTORE = """
import sys
from pathlib import Path
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import TaskId
from statestore.objects.path import location
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore_progress import RestoreProgressWriter
store = StorePartitionSpec(application="shop", task=TaskId(0, 3), store=StoreDefinition(name="orders"), changelog=None,
                           cluster=Cluster(""), state_dir=Path("/nowhere"))
with RestoreProgressWriter(store, location(sys.argv[1])) as progress:
    progress.reading(1_000, 61_000)
    for line in sys.stdin:
        progress.phase(line.strip())
"""


@pytest.mark.long
def test_a_restore_in_another_process_is_seen_until_its_report_is_there(reports, store):
    running, where = Running(), reports.directory.soon()
    directory = reports.directory / "restore" / ".progress-manual__1-abcdef12"

    def phase() -> str | None:
        found = running.get(where)["work"]
        return found[0]["pieces"][0]["phase"] if found and found[0]["pieces"] else None

    command = [sys.executable, "-c", _RESTORE, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as restore:
        wait_until(lambda: phase() == "reading", _WAIT_S, "the restore to say that it reads")
        (found,) = running.get(where)["work"]
        assert (found["run"], found["total"]) == ("manual__1-abcdef12", 60_000)
        store.asked.clear()
        running.get(where)
        assert not [name for name in store.asked if name.startswith("GET")], "what has not changed is not read again"
        assert restore.stdin is not None
        restore.stdin.write("checking\n")
        restore.stdin.flush()
        wait_until(lambda: phase() == "checking", _WAIT_S, "the restore to say that it checks")
        restore.stdin.close()
        assert restore.wait(_WAIT_S) == 0
    (found,) = running.get(where)["work"]
    assert (found["ended"], found["pieces"]) == (1, [])
    write_whole(reports.directory / "restore" / "manual__1-abcdef12.json", "{}")
    assert running.get(where)["work"] == []


# -- Data Docs ---------------------------------------------------------------------------------------------------------


def test_the_index_leads_to_pages_and_plots_and_reads_a_verdict_once(docs, store):
    for run, application in (("run-1", "shop"), ("run-2", "shop"), ("run-2", "bank")):
        page = docs / "validations" / application / f"{run} 1.html"
        told = {"application": application, "store": "orders", "verdict": "passed", "data_docs": str(page)}
        write_whole(docs / "verdicts" / f"{application}.orders" / f"{run}.json", json.dumps(told))
    write_whole(docs / "plots" / "shop.orders" / "lag.svg", "<svg/>")
    evil = {"application": "x", "store": "y", "verdict": "passed", "data_docs": f"{docs}/../../secret.html"}
    write_whole(docs / "verdicts" / "x.y" / "run.json", json.dumps(evil))
    index = data_docs.index(docs) or ""
    assert "<a href='validations/bank/run-2%201.html'>bank/orders</a>" in index
    assert index.count("<a href='plots/shop.orders/lag.svg'>lag</a>") == 1
    assert "secret" not in index
    store.asked.clear()
    assert data_docs.index(docs) == index
    assert store.asked == {"LIST": 2}


def test_counting_counts(store: FaultyStore):
    assert isinstance(store, CountedStore)
    write_whole(ObjectPath(f"s3://{BUCKET}/{uuid4().hex}"), "1")
    assert sum(store.asked.values()) == 1
