"""What the page says of each store partition, from the reports that lie there."""

from __future__ import annotations

import json
import os

import pytest
from statestore_dags.metastore_health import health_told
from statestore_dags.suggestions import remember
from statestore_ui import report_rows
from statestore_ui.overview import Overviews
from statestore_ui.partition_health import NEVER_RUN, RESTORED, UNVERIFIED
from statestore_ui.partition_pages import Question
from statestore_ui.report_rows import Run

from statestore.advice import Situation, Target, advice
from statestore.errors import MetastoreDegradedError
from statestore.metastore.definition_files import parse_definitions
from statestore.reports import Contents, Failure, RestorePlanReport, RestorePlanRow, RestorePoint, Status, write_report
from tests.ui.made_reports import T0, names, restored, validated, verify_row

DEFINITIONS = """\
name: shop
input_topic: orders
processor: demo.flight_delays:FlightDelays
stores:
  - name: orders
"""
FULL_DISK = Failure(kind="DiskSpaceError", message="12 GB are needed, 3 are free")


@pytest.fixture
def overviews():
    return Overviews()


@pytest.fixture
def show(reports, overviews, tmp_path):
    """The overview as it is answered, with all rows."""
    return lambda: answered(overviews.get(reports.directory, tmp_path / "docs"))


def answered(overview, **question):
    return {**json.loads(overview.summary), **json.loads(overview.pages.get(Question(**{"by": "name", **question})))}


def reported(overview):
    """Return the rows without applications that never ran."""
    return [row for row in overview["rows"] if row["word"] != NEVER_RUN]


def only_row(overview):
    (row,) = overview["rows"]
    return row


# -- what a store partition is said to be ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", Status)
def test_a_verified_store_is_good_exactly_where_nothing_is_to_be_done(reports, show, status):
    reports.verify([verify_row(status=status)], 1)
    said = only_row(show())
    assert (said["status"], said["word"]) == (status, status)
    assert (said["level"] in ("good", "notice")) == status.healthy
    assert ("No action is needed" in said["action"]) == (
        status.healthy or status in (Status.LOCKED, Status.UNCONFIRMED)
    )


def test_an_expensive_kill_is_a_warning_of_a_store_in_use(reports, show):
    reports.verify([verify_row(status=Status.PROVEN, live=True, kill_risk="a kill now would lose data")], 1)
    said = only_row(show())
    assert (said["status"], said["level"], said["word"]) == (Status.PROVEN, "warn", "KILL RISK")
    assert (said["detail"], said["action"][:15]) == ("a kill now would lose data", "Do not kill the")


@pytest.mark.parametrize(
    ("row", "status", "level"),
    [
        (restored(), RESTORED, "good"),
        (restored(outcome="skipped"), "CORRUPT", "bad"),
        (restored(outcome="failed", failure=FULL_DISK), "CORRUPT", "bad"),
    ],
)
def test_a_restore_tells_how_the_store_is_until_the_next_verification(reports, show, row, status, level):
    reports.verify([verify_row(status=Status.CORRUPT)], 1)
    reports.restore([row], 2)
    found = only_row(show())
    assert (found["status"], found["level"]) == (status, level)
    reports.verify([verify_row()], 3)
    assert (only_row(show())["status"], only_row(show())["level"]) == ("OK", "good")


def test_the_last_restore_point_is_told_also_after_a_restore(reports, show):
    point = RestorePoint(snapshot="s", usable=True, committed=7, written_ms=T0, until_ms=T0 + 9, fetched=3, offsets=2)
    reports.verify(
        [verify_row(0, restore_point=point), verify_row(1, restore_point=RestorePoint(detail="none yet"))], 1
    )
    reports.restore([restored(0)], 2)
    first, second = show()["rows"]
    assert first["restore_point"] == point.model_dump(exclude={"detail", "adopted", "needed_from"})
    assert (second["restore_point"]["usable"], second["restore_point"]["detail"]) == (False, "none yet")


def test_a_failed_restore_says_why(reports, show):
    reports.restore([restored(outcome="failed", failure=FULL_DISK)], 2)
    assert "12 GB are needed" in only_row(show())["restore"]["message"]


def test_a_store_as_of_a_point_says_nothing_of_the_live_one(reports, show):
    reports.verify([verify_row(status=Status.CORRUPT)], 1)
    reports.restore([restored(directory="/elsewhere").model_copy(update={"mode": "as-of"})], 2)
    assert only_row(show())["status"] == "CORRUPT"
    assert "restore" not in only_row(show())


def test_the_plan_of_a_restore_is_no_restore(reports, show):
    reports.verify([verify_row(status=Status.CORRUPT)], 1)
    plan = RestorePlanReport(
        run_id="plan",
        applications=("shop",),
        started_ms=T0,
        finished_ms=T0 + 10**9,
        records_per_s=1,
        rows=(RestorePlanRow(**names(0), mode="full"),),
    )
    write_report(reports.directory / "restore" / "plan.json", plan)
    assert "restore" not in only_row(show())
    assert show()["problems"] == []


def test_a_store_that_failed_its_validation_is_bad_until_it_is_restored_again(reports, show):
    reports.verify([verify_row()], 1)
    reports.validate([validated(verdict="failed", failed_expectations=("expect_a",), rollback="put it back")], 2)
    reports.verify([verify_row()], 3)
    found = only_row(show())
    assert (found["level"], found["word"], found["validate"]["failed"]) == ("bad", "VALIDATION FAILED", ["expect_a"])
    assert show()["applications"][0]["statuses"] == {"validation failed": 1}
    assert found["validate"]["rollback"] == "put it back"
    reports.restore([restored()], 4)
    assert only_row(show())["level"] == "good"


def test_a_store_is_shown_after_its_first_run_before_any_verification(reports, show):
    reports.process([0, 1], ["orders"], 1)
    assert [(row["task"], row["status"]) for row in show()["rows"]] == [("0_0", UNVERIFIED), ("0_1", UNVERIFIED)]


def test_a_task_that_failed_makes_its_stores_need_action(reports, show):
    reports.verify([verify_row(0), verify_row(1, Status.MISSING)], 1)
    reports.process([0, 1], ["orders"], 2, failure=FULL_DISK)
    found, worse = show()["rows"]
    assert (found["status"], found["level"], found["word"]) == ("OK", "bad", "TASK FAILED")
    assert (worse["level"], worse["word"]) == ("bad", "MISSING")
    assert "Read why the task failed" in found["action"]
    assert "DiskSpaceError" in found["process"]["message"]


# -- one story ---------------------------------------------------------------------------------------------------------


def test_a_failed_validation_is_never_without_an_action(reports, show):
    reports.verify([verify_row()], 1)
    reports.validate([validated(verdict="failed", failed_expectations=("expect_a",))], 2)
    assert "Read which expectation failed" in only_row(show())["action"]
    reports.validate([validated(verdict="error")], 3)
    found = only_row(show())
    assert (found["level"], found["word"]) == ("warn", "VALIDATION ERROR")
    assert "could not be completed" in found["action"]


@pytest.mark.behaviour("G3")
def test_g3_a_store_that_was_not_judged_is_no_pass(reports, show):
    reports.verify([verify_row()], 1)
    reports.validate([validated(verdict="not judged")], 2)
    found = only_row(show())
    assert (found["level"], found["word"]) == ("warn", "NOT JUDGED")
    assert (found["validate"]["verdict"], found["validate"]["current"]) == ("not judged", True)
    assert "depth deep" in found["action"]


@pytest.mark.parametrize("status", [Status.MISSING, Status.CORRUPT, Status.DIVERGED, Status.AHEAD])
@pytest.mark.parametrize("minute", [1, 3])
def test_a_damaged_store_has_no_verdict_of_before(reports, show, status, minute):
    reports.validate([validated()], minute)
    reports.verify([verify_row(status=status)], 2)
    assert only_row(show())["validate"]["current"] is False


def test_a_verdict_counts_until_the_store_is_replaced(reports, show):
    reports.verify([verify_row()], 1)
    reports.validate([validated()], 2)
    assert only_row(show())["validate"]["current"] is True
    reports.restore([restored()], 3)
    assert only_row(show())["validate"]["current"] is False
    reports.validate([validated()], 4)
    assert only_row(show())["validate"]["current"] is True


def test_an_empty_store_that_process_has_written_to_since_is_not_empty_any_more(reports, show):
    reports.verify([verify_row(status=Status.EMPTY)], 1)
    reports.process([0], ["orders"], 2, figures={"commits": 0})
    assert only_row(show())["status"] == "EMPTY"
    reports.process([0], ["orders"], 3, figures={"committed": 7})
    reports.process([0], ["orders"], 4, figures={"commits": 0})  # it had nothing to do
    found = only_row(show())
    assert (found["status"], found["level"]) == (UNVERIFIED, "busy")
    assert ("EMPTY when it was last verified" in found["detail"], "lag" in found) == (True, False)
    assert "Verify the store" in found["action"]
    reports.verify([verify_row()], 5)
    assert only_row(show())["status"] == "OK"


def test_a_store_that_process_has_rebuilt_is_restored(reports, show):
    reports.validate([validated()], 0)
    reports.verify([verify_row(status=Status.UNCLEAN)], 1)
    reports.process([0], ["orders"], 2, figures={"rebuilt": "it was left open", "restored": 9})
    reports.process([0], ["orders"], 3, figures={"commits": 0})
    found = only_row(show())
    assert (found["status"], found["level"], found["validate"]["current"]) == (RESTORED, "good", False)
    assert "it was left open" in found["detail"]


def test_a_store_that_was_behind_is_not_any_more_after_a_run_of_process_that_reached_its_end(reports, show):
    reports.verify([verify_row(status=Status.LAGGING, lag=5), verify_row(1, Status.CORRUPT)], 1)
    reports.process([0, 1], ["orders"], 2, failure=FULL_DISK)
    assert [row["status"] for row in show()["rows"]] == ["LAGGING", "CORRUPT"]
    reports.process([0, 1], ["orders"], 3)
    assert [row["status"] for row in show()["rows"]] == [UNVERIFIED, "CORRUPT"]
    assert show()["applications"][0]["lag"] == 0


def test_a_failed_restore_is_what_is_to_be_looked_at(reports, show):
    reports.verify([verify_row(0, Status.LAGGING), verify_row(1, Status.MISSING)], 1)
    reports.restore([restored(number, outcome="failed", failure=FULL_DISK) for number in (0, 1)], 2)
    behind, missing = show()["rows"]
    assert [(row["word"], row["level"]) for row in (behind, missing)] == [("RESTORE FAILED", "bad"), ("MISSING", "bad")]
    for row in (behind, missing):
        assert "start the restore again" in row["action"]
        assert "12 GB are needed" in row["detail"]


def test_a_store_that_is_the_last_copy_says_so(reports, show):
    reports.verify([verify_row(loss="likely", loss_detail="the topic is another one")], 1)
    found = only_row(show())
    assert (found["level"], found["loss"]) == ("good", "likely")
    assert "Do not delete this store" in found["action"]
    assert "the topic is another one" in found["detail"]


def test_the_advice_of_a_verification_is_the_action_with_its_command_and_button(reports, show):
    step = advice(Situation.CHANGELOG_RECREATED, Target("shop", "orders", "0_0"))
    reports.verify([verify_row(status=Status.REPLACED, advice=step)], 1)
    found = only_row(show())
    assert (found["action"], found["command"], found["button"]) == (step.sentence, step.command, "reseed")
    reports.restore([restored(outcome="failed", failure=FULL_DISK)], 2)
    found = only_row(show())
    assert "start the restore again" in found["action"]
    assert ("command" not in found, found["button"]) == (True, "restore")


# -- which reports say so ----------------------------------------------------------------------------------------------


def test_the_newest_verification_counts_whatever_the_files_are_called_or_dated(reports, show):
    newer = reports.verify([verify_row(status=Status.CORRUPT)], 2, run="a")
    reports.verify([verify_row()], 1, run="b")
    os.utime(newer, (1, 1))
    assert only_row(show())["status"] == "CORRUPT"


def test_a_command_that_looked_at_some_stores_leaves_the_others_as_they_were(reports, show):
    reports.verify([verify_row(0), verify_row(1)], 1)
    reports.verify([verify_row(1, Status.MISSING)], 2, kind="")
    assert [row["status"] for row in show()["rows"]] == ["OK", "MISSING"]


def test_a_store_that_was_removed_is_not_shown_any_more(reports, show):
    reports.verify([verify_row(store="old"), verify_row()], 1)
    reports.process([0], ["old", "orders"], 1)
    reports.restore([restored().model_copy(update={"store": "old"})], 1)
    reports.verify([verify_row()], 2)
    assert [row["store"] for row in show()["rows"]] == ["orders"]


def test_what_is_no_longer_in_the_catalogue_is_not_shown(reports, show):
    reports.verify([verify_row(application="gone"), verify_row(store="old"), verify_row()], 1)
    assert len(show()["rows"]) == 3
    remember(reports.directory, parse_definitions(DEFINITIONS, "here"))
    assert [(row["application"], row["store"]) for row in show()["rows"]] == [("shop", "orders")]


def test_what_a_command_has_looked_at_is_shown_without_a_definition(reports, show):
    remember(reports.directory, parse_definitions(DEFINITIONS, "here"))
    reports.verify([verify_row(application="of-kafka-streams")], 1, kind="")
    assert [row["application"] for row in reported(show())] == ["of-kafka-streams"]


def test_an_application_whose_job_failed_keeps_what_was_known_of_it(reports, show):
    reports.verify([verify_row(application="other", status=Status.MISSING), verify_row()], 1)
    reports.verify([verify_row()], 2)
    assert [(row["application"], row["status"]) for row in show()["rows"]] == [("other", "MISSING"), ("shop", "OK")]


def test_rows_stand_by_application_store_and_number_of_the_task(reports, show):
    reports.verify([verify_row(partition) for partition in (10, 2, 1)], 1)
    assert [row["task"] for row in show()["rows"]] == ["0_1", "0_2", "0_10"]


def test_an_application_is_summed_up(reports, show):
    reports.verify([verify_row(0), verify_row(1, Status.LAGGING, lag=40), verify_row(2, Status.MISSING, lag=2)], 1)
    (found,) = show()["applications"]
    assert (found["partitions"], found["lag"], found["verified_ms"]) == (3, 42, T0 + 60_000)
    assert found["levels"] == {"good": 1, "warn": 1, "bad": 1}
    assert found["statuses"] == {"OK": 1, "LAGGING": 1, "MISSING": 1}


def test_rows_lead_to_their_run_their_report_and_their_data_docs(reports, show, tmp_path):
    reports.verify([verify_row()], 1, run="a b+c")
    reports.validate([validated(data_docs=str(tmp_path / "docs" / "validations" / "a b.html"))], 2)
    found, runs = only_row(show()), show()["runs"]
    run = runs[found["verify"]["run"]]
    assert (run["dag_id"], run["dag_run_id"]) == ("verify", "scheduled__a b+c")
    assert run["report"] == "statestore/reports/verify/a%20b%2Bc.json"
    assert found["validate"]["data_docs"] == "statestore/docs/validations/a%20b.html"


def test_a_page_outside_the_data_docs_has_no_link(reports, show):
    reports.validate([validated(data_docs="/etc/passwd")], 2)
    assert "data_docs" not in only_row(show())["validate"]


def test_a_degraded_metastore_is_told_until_a_run_finds_it_running(reports, show):
    reports.verify([verify_row()], 1)
    with pytest.raises(MetastoreDegradedError), health_told(reports.directory):
        raise MetastoreDegradedError("the metastore is DEGRADED: its topic was emptied")
    assert "its topic was emptied" in show()["degraded"]["reason"]
    (reports.directory / "metastore" / "degraded.json").write_text("[1")
    assert show()["degraded"] is None
    with pytest.raises(MetastoreDegradedError), health_told(reports.directory):
        raise MetastoreDegradedError("again")
    with health_told(reports.directory):
        pass
    assert (show()["degraded"], list((reports.directory / "metastore").iterdir())) == (None, [])


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 10, 300, -40])
def test_a_half_written_report_is_named_and_the_one_before_it_counts(reports, show, cut):
    reports.verify([verify_row()], 1)
    newer = reports.verify([verify_row(status=Status.CORRUPT)], 2, run="torn")
    newer.write_bytes(newer.read_bytes()[:cut])
    assert only_row(show())["status"] == "OK"
    (problem,) = show()["problems"]
    assert problem["path"] == "verify/torn.json"
    assert "If a job is still writing it, wait. Otherwise, delete it" in problem["message"]


@pytest.mark.parametrize("content", ["[]", "null", '"text"', "\x00\xff", '{"job": "verify"}', "{" * 5_000])
def test_what_is_no_report_is_named(reports, show, content):
    (reports.directory / "verify").mkdir()
    (reports.directory / "verify" / "foreign.json").write_text(content, encoding="latin-1")
    assert [problem["path"] for problem in show()["problems"]] == ["verify/foreign.json"]


def test_only_the_first_of_many_broken_files_are_told(reports, show):
    (reports.directory / "verify").mkdir()
    for number in range(30):
        (reports.directory / "verify" / f"{number}.json").write_text("{")
    assert (len(show()["problems"]), show()["more_problems"]) == (20, 10)


def test_a_directory_that_is_missing_or_no_directory_is_explained(overviews, tmp_path):
    def problem(directory):
        (found,) = json.loads(overviews.get(directory, tmp_path).summary)["problems"]
        return found["message"]

    assert "correct STATESTORE_REPORTS_DIR" in problem(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    assert "It cannot be read: Not a directory" in problem(tmp_path / "file")


def test_a_directory_that_may_not_be_read_is_explained(overviews, reports, tmp_path, monkeypatch):
    # The tests may run as root, whom no permission stops: so the refusal itself is made up.
    reports.verify([verify_row()], 1)
    iterdir = type(tmp_path).iterdir

    def refused(path):
        if path.name == "verify":
            raise PermissionError(13, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(type(tmp_path), "iterdir", refused)
    (problem,) = json.loads(overviews.get(reports.directory, tmp_path).summary)["problems"]
    assert problem["path"].endswith("reports/verify")
    assert "Permission denied. Let the API server's user" in problem["message"]


def test_a_report_that_may_be_read_at_last_is_read(reports, show, monkeypatch):
    path = reports.verify([verify_row()], 1)
    with monkeypatch.context() as refusing:  # made up, for the same reason
        refusing.setattr(type(path), "open", _refuse)
        assert "Permission denied" in show()["problems"][0]["message"]
    changed_ns = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == changed_ns:  # the clock of file systems has ticks of milliseconds
        path.chmod(0o644)
    assert (only_row(show())["status"], show()["problems"]) == ("OK", [])


def _refuse(*_):
    raise PermissionError(13, "Permission denied")


# -- how reports are read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 1, 2])
def test_a_report_is_read_in_pieces_or_as_a_whole(reports, monkeypatch, indent):
    monkeypatch.setattr(report_rows, "_PIECE_BYTES", 700)
    rows = [verify_row(number, detail="a\n  },\n]", lag=number) for number in range(20)]
    path = reports.verify(rows, 1)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=indent))
    run = Run("verify", 1, 2, None, None, "")
    found = report_rows.read_rows("verify", path, run)
    assert [(key[2], row.lag, row.detail) for key, row in found.items()] == [
        (row.task, row.lag, row.detail) for row in rows
    ]


def test_partitions_are_filtered_sorted_and_given_so_many_at_a_time(reports, overviews, tmp_path):
    rows = [verify_row(number, lag=number) for number in range(12)]
    reports.verify([*rows, verify_row(0, Status.MISSING, application="other", lag=99)], 1)
    pages = overviews.get(reports.directory, tmp_path).pages

    def tasks(offset=0, limit=1_000, **question):
        found = json.loads(pages.get(Question(**question), offset, limit))
        return [row["task"] for row in found["rows"]], found["total"], found["of"]

    assert tasks(application="shop", by="name", offset=3, limit=2) == (["0_3", "0_4"], 12, 12)
    assert tasks(by="lag", limit=2) == (["0_0", "0_11"], 13, 13)
    assert tasks(by="name", down=True, application="shop", offset=10) == (["0_1", "0_0"], 12, 12)
    assert tasks(level="bad") == (["0_0"], 1, 13)
    assert tasks(words=("shop", "0_1")) == (["0_1", "0_10", "0_11"], 3, 13)
    assert tasks(words=("missing",)) == (["0_0"], 1, 13)
    assert tasks(application="shop", store="orders", task="0_7") == (["0_7"], 1, 12)


def test_verdicts_of_old_runs_are_not_read_once_all_are_known(reports, show, overviews):
    reports.verify([verify_row(0), verify_row(1)], 1)
    for minute in range(9):
        reports.validate([validated(0), validated(1)], minute)
    show()
    assert overviews.files.parsed == 2


# -- what it costs -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_ten_thousand_store_partitions_are_read_from_the_newest_report_and_only_once(reports, overviews, tmp_path):
    rows = [verify_row(partition) for partition in range(10_000)]
    for minute in range(5):
        reports.verify(rows, minute)
    first = overviews.get(reports.directory, tmp_path)
    assert overviews.files.parsed == 1
    assert answered(first, level="good")["total"] == 10_000
    assert len(first.summary) < 1_000

    assert overviews.get(reports.directory, tmp_path) is first
    assert overviews.files.parsed == 1

    reports.verify([verify_row(0, Status.CORRUPT)], 9, kind="")
    second = overviews.get(reports.directory, tmp_path)
    assert second.tag != first.tag
    assert overviews.files.parsed == 2
    assert json.loads(second.summary)["applications"][0]["statuses"] == {"OK": 9_999, "CORRUPT": 1}


# -- what no JSON has ------------------------------------------------------------------------------------------------


def test_file_names_that_are_no_utf8_are_shown_and_hide_nothing(reports, show):
    whole = reports.verify([verify_row()])
    odd = os.fsencode(whole.parent) + b"/caf\xe9"
    os.link(whole, odd + b"-2.json")
    with open(odd + b".json", "wb") as broken:
        broken.write(b"{")
    whole.unlink()
    overview = show()
    assert only_row(overview)["status"] == "OK"
    assert overview["runs"][0]["report"] == "statestore/reports/verify/caf%E9-2.json"
    assert [problem["path"] for problem in overview["problems"]] == [r"verify/caf\udce9.json"]


@pytest.mark.parametrize("number", ["NaN", "1e400", "1" * 400, "1" * 5000])
@pytest.mark.parametrize("field", ["seconds", "lag", "finished_ms"])
def test_a_report_with_a_number_that_is_none_is_left_out_and_named(reports, show, field, number):
    reports.verify([verify_row()], minute=1)
    broken = reports.verify([verify_row(status=Status.CORRUPT, lag=4711)], minute=2)
    head, name, rest = broken.read_text("utf-8").partition(f'"{field}": ')
    broken.write_text(f"{head}{name}{number}{rest[rest.index(next(end for end in rest if end in ',}')) :]}", "utf-8")
    overview = show()
    assert only_row(overview)["status"] == "OK"
    assert f"verify/{broken.name}" in [problem["path"] for problem in overview["problems"]]


def test_a_task_id_that_nobody_has_made_is_shown(reports, show):
    reports.verify([verify_row(), verify_row(store="totals").model_copy(update={"task": "0_" + "1" * 5000})])
    assert len(show()["rows"]) == 2


# -- Kafka Streams applications without a definition -------------------------------------------------------------------


LISTED = """\
streams:
  kafka_streams:
    shop: {state_dir: /var/lib/kafka-streams, verified_within_hours: %s}
    orders: {}
"""
#: So many hours that the reports of these tests are young.
EVER = 1_000_000


@pytest.fixture
def listed(tmp_path, monkeypatch, reports):
    """List applications, in a reports directory whose catalogue has none of them."""
    remember(reports.directory, parse_definitions(DEFINITIONS.replace("shop", "another"), "definitions"))

    def write(hours: float = EVER) -> None:
        (tmp_path / "environments.yaml").write_text(LISTED % hours)
        monkeypatch.setenv("STATESTORE_ENVIRONMENTS", str(tmp_path / "environments.yaml"))

    write()
    return write


def test_an_application_that_was_not_looked_at_is_never_healthy(show, listed):
    orders, shop = reported(show())
    assert [(row["application"], row["store"], row["task"]) for row in (orders, shop)] == [
        ("orders", "-", "-"),
        ("shop", "-", "-"),
    ]
    assert {(row["word"], row["level"]) for row in (orders, shop)} == {("NOT VERIFIED", "warn")}
    assert "sidecar" in orders["action"]
    assert "the DAG verify" in shop["action"]
    assert (orders["starts"], shop["starts"]) == ([], ["verify"])
    assert show()["dags"]["environments"] == {"orders": "streams", "shop": "streams"}


def test_a_row_that_is_too_old_is_not_healthy(reports, show, listed):
    reports.verify([verify_row(status=Status.PROVEN, live=True)], 1)
    before = show()
    assert [row["word"] for row in before["rows"] if row["application"] == "shop"] == ["PROVEN"]
    listed(1)
    after = show()
    (row,) = [row for row in after["rows"] if row["application"] == "shop"]
    assert (row["word"], row["level"], row["status"]) == ("NOT VERIFIED", "warn", "PROVEN")
    assert "It was PROVEN when it was last verified, more than 1h ago." in row["detail"]
    assert after["tag"] != before["tag"]


def test_a_row_becomes_too_old_without_another_report(reports, show, listed, monkeypatch):
    reports.verify([verify_row(status=Status.PROVEN, live=True)], 1)
    listed(1)
    now = T0
    monkeypatch.setattr("statestore.clock.now_ms", lambda: now)
    assert [row["word"] for row in show()["rows"] if row["application"] == "shop"] == ["PROVEN"]
    now = T0 + 2 * 3_600_000
    assert [row["word"] for row in show()["rows"] if row["application"] == "shop"] == ["NOT VERIFIED"]


@pytest.mark.parametrize("kind", ["scheduled", ""])
def test_reports_of_the_dag_and_of_a_sidecar_need_no_definition(reports, show, listed, kind):
    reports.verify([verify_row(0, Status.PROVEN, live=True), verify_row(1, Status.DIVERGED, live=True)], 1, kind=kind)
    first, second = (row for row in show()["rows"] if row["application"] == "shop")
    assert (first["word"], first["level"], first["starts"]) == ("PROVEN", "good", ["verify"])
    assert (second["word"], second["level"], second["starts"]) == ("DIVERGED", "bad", ["verify"])


def test_a_stopped_application_can_be_restored_and_one_of_a_sidecar_cannot(reports, show, listed):
    step = advice(Situation.DAMAGED, Target("shop", "orders", "0_0"))
    damaged = [verify_row(0, Status.CORRUPT, advice=step, application=name) for name in ("orders", "shop")]
    reports.verify(damaged, 1)
    orders, shop = reported(show())
    assert (shop["button"], shop["starts"]) == ("restore", ["restore", "verify"])
    assert ("button" in orders, orders["starts"]) == (False, [])
    assert {each["application"]: each["starts"] for each in show()["applications"]} == {
        "another": ["process"],
        "orders": [],
        "shop": ["restore", "verify"],
    }


def test_the_last_proof_is_named_until_the_next_one(reports, show, listed):
    proof = {"contents": Contents(store_rows=1, offsets=((5, 5),)), "live": True}
    reports.verify([verify_row(0, Status.PROVEN, **proof)], 1, kind="")
    reports.verify([verify_row(0, Status.IN_USE, live=True), verify_row(1, Status.IN_USE, live=True)], 2)
    first, second = (row for row in show()["rows"] if row["application"] == "shop")
    assert first["proven_ms"] == T0 + 60_000
    assert "proven_ms" not in second


def test_what_an_environment_no_longer_lists_is_gone(reports, show, listed, monkeypatch):
    reports.verify([verify_row(status=Status.PROVEN, live=True)], 1)
    monkeypatch.delenv("STATESTORE_ENVIRONMENTS")
    assert reported(show()) == []
