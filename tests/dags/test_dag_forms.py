"""From a form to the arguments of a job: what is accepted, and the one clear message for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from statestore_dags.arguments import (
    chosen_applications,
    definitions_form,
    maintenance_request,
    may_rebuild,
    restore_request,
    snapshot_requests,
    validate_request,
    verify_request,
)
from statestore_dags.report_parts import part_path, report_path
from statestore_dags.rewriting import is_done, rewrite_arguments

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.reports import ProcessReport, RestoreReport, VerifyReport, write_report
from statestore.requests.maintenance import MaintenanceRequest
from statestore.requests.restore import RestoreRequest
from statestore.requests.snapshot import SnapshotRequest
from statestore.requests.validate import ValidateRequest
from statestore.requests.verify import VerifyRequest

APPLICATIONS = {
    "flight-delays": ApplicationDefinition(
        name="flight-delays",
        input_topic="flights",
        processor="demo.flight_delays:FlightDelays",
        stores=(StoreDefinition(name="aircraft"), StoreDefinition(name="airports")),
    )
}
TARGET = Path("/state-as-of/run")
# As Airflow's form sends them when nothing was filled in.
BLANK = {
    "application": None,
    "stores": [],
    "partitions": [],
    "mode": "auto",
    "as_of": None,
    "dry_run": False,
    "deep_check": False,
    "force": False,
    "best_effort": False,
    "approval": False,
    "verify_report": None,
    "restore_report": None,
}


@pytest.fixture
def reports_dir(tmp_path):
    head = {"run_id": "r", "applications": (), "started_ms": 0, "finished_ms": 0, "rows": ()}
    write_report(tmp_path / "process" / "a.json", ProcessReport(**head))
    write_report(tmp_path / "verify" / "a.json", VerifyReport(**head))
    write_report(tmp_path / "restore" / "a.json", RestoreReport(**head))
    return tmp_path


@pytest.mark.parametrize("blank", [{}, {"application": None}, {"application": ""}, {"application": "  "}])
def test_a_blank_application_means_all_but_those_left_out(blank):
    assert chosen_applications(blank, APPLICATIONS) == ["flight-delays"]
    assert chosen_applications(blank, APPLICATIONS, ["flight-delays"]) == []


def test_after_process_only_its_applications_are_verified():
    assert chosen_applications({}, APPLICATIONS, only={"flight-delays", "dropped-since"}) == ["flight-delays"]
    assert chosen_applications({}, APPLICATIONS, only={"another"}) == []


def test_one_application_also_if_it_is_left_out_otherwise():
    assert chosen_applications({"application": " flight-delays "}, APPLICATIONS, ["flight-delays"]) == ["flight-delays"]


def test_an_unknown_application_is_named_together_with_the_known_ones():
    with pytest.raises(InputError, match=r"no 'flights' is defined; the applications are: flight-delays"):
        chosen_applications({"application": "flights"}, APPLICATIONS)


def test_depth_and_sample_of_verify():
    form = {"application": None, "depth": "deep", "sample": 0.25}
    shop = VerifyRequest(applications=("shop",))
    assert verify_request(form, "shop") == shop.model_copy(update={"depth": "deep", "sample": 0.25})
    assert verify_request({"depth": "offsets", "sample": None}, "shop") == shop.model_copy(update={"depth": "offsets"})
    assert verify_request({"depth": "deep", "live": True}, "shop").live
    assert verify_request({}, "shop") == shop


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"depth": "deeper"}, "depth: expected one of offsets, scan, deep, found 'deeper'"),
        ({"depth": 3}, "depth: expected one of offsets, scan, deep, found 3"),
        ({"sample": 0.5}, "sample: only depth deep compares a sample, found depth scan"),
        ({"depth": "offsets", "sample": 0.5}, "sample: only depth deep .* found depth offsets"),
        ({"depth": "deep", "sample": 0}, "sample: expected a number above 0 and at most 1, found 0"),
        ({"depth": "deep", "sample": 1.5}, "sample: expected a number above 0 and at most 1, found 1.5"),
        ({"depth": "deep", "sample": "half"}, "sample: expected a number above 0 and at most 1, found 'half'"),
        ({"depth": "deep", "sample": True}, "sample: expected a number above 0 and at most 1, found True"),
    ],
)
def test_verify_refuses(form, message):
    with pytest.raises(InputError, match=message):
        verify_request(form, "shop")


def test_restore_of_everything_in_an_application(reports_dir):
    form = BLANK | {"application": "flight-delays"}
    assert restore_request(form, APPLICATIONS, reports_dir, TARGET) == RestoreRequest(applications=("flight-delays",))


def test_restore_of_chosen_partitions_by_force(reports_dir):
    form = BLANK | {
        "application": "flight-delays",
        "stores": ["aircraft", " ", "aircraft", "airports"],
        "partitions": [3, 0, 3],
        "mode": "full",
        "force": True,
    }
    assert restore_request(form, APPLICATIONS, reports_dir, TARGET) == RestoreRequest(
        applications=("flight-delays",),
        stores=("aircraft", "airports"),
        partitions=(0, 3),
        mode="full",
        force=True,
    )


def test_restore_of_what_verify_found(reports_dir):
    report = reports_dir / "verify" / "a.json"
    form = BLANK | {"verify_report": str(report)}
    assert restore_request(form, APPLICATIONS, reports_dir, TARGET) == RestoreRequest(verify_report=report)
    form |= {"dry_run": True, "deep_check": True, "approval": True}
    assert restore_request(form, APPLICATIONS, reports_dir, TARGET) == RestoreRequest(
        verify_report=report, check="deep", dry_run=True
    )


@pytest.mark.parametrize(
    ("point", "chosen"),
    [
        (" 1200 ", {"as_of_offset": 1200}),
        ("2026-01-31T12:00:00+00:00", {"as_of_timestamp": "2026-01-31T12:00:00+00:00"}),
        ("2026-01-31", {"as_of_timestamp": "2026-01-31"}),
    ],
)
def test_a_restore_as_of_a_point_goes_elsewhere(reports_dir, point, chosen):
    form = BLANK | {"application": "flight-delays", "mode": "as-of", "as_of": point}
    assert restore_request(form, APPLICATIONS, reports_dir, TARGET) == RestoreRequest(
        applications=("flight-delays",), mode="as-of", target=TARGET, **chosen
    )


@pytest.mark.parametrize(
    ("form", "rebuilds"),
    [
        ({"mode": "full"}, True),
        ({"mode": "auto"}, True),
        ({"verify_report": "x"}, True),
        ({"mode": "tail"}, False),
        ({"mode": "as-of"}, False),
        ({"mode": "full", "dry_run": True}, False),
    ],
)
def test_whether_a_restore_may_replace_live_stores(form, rebuilds):
    assert may_rebuild(BLANK | form) is rebuilds


def test_maintenance_takes_its_age_from_the_settings():
    there = TARGET.parent
    assert maintenance_request({}, "", there) == MaintenanceRequest(as_of_dir=there)
    assert maintenance_request({"dry_run": True}, " 1.5", there) == MaintenanceRequest(
        reports_days=1.5, as_of_dir=there, dry_run=True
    )
    for days in ("soon", "-1", "nan", "inf"):
        with pytest.raises(InputError, match=f"STATESTORE_REPORTS_DAYS: expected a number from 0, found '?{days}"):
            maintenance_request({}, days, there)


def test_snapshots_of_one_application_or_of_those_that_process_publishes_none_of():
    flights = APPLICATIONS["flight-delays"]
    twice = flights.model_copy(update={"name": "twice", "processing_guarantee": "at_least_once"})
    applications = {**APPLICATIONS, "twice": twice}
    assert snapshot_requests(BLANK, APPLICATIONS) == {}
    assert snapshot_requests(BLANK, applications) == {"twice": SnapshotRequest(applications=("twice",))}
    form = BLANK | {"application": "flight-delays", "stores": ["airports"], "partitions": [3]}
    named = SnapshotRequest(applications=("flight-delays",), stores=("airports",), partitions=(3,))
    assert snapshot_requests(form, applications) == {"flight-delays": named}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"application": "nope"}, "no 'nope' is defined"),
        ({"application": "flight-delays", "stores": ["x"]}, "no store 'x'"),
        ({"partitions": [0]}, "^partitions: expected application, too"),
    ],
)
def test_snapshot_refuses(form, message):
    with pytest.raises(InputError, match=message):
        snapshot_requests(BLANK | form, APPLICATIONS)


def test_validation_of_what_a_report_names_or_of_chosen_stores(reports_dir):
    for field, report in (
        ("restore_report", reports_dir / "restore" / "a.json"),
        ("verify_report", reports_dir / "verify" / "a.json"),
    ):
        form = BLANK | {field: str(report)}
        assert validate_request(form, APPLICATIONS, reports_dir) == ValidateRequest(**{field: report})
    form = BLANK | {"application": "flight-delays", "stores": ["airports"]}
    assert validate_request(form, APPLICATIONS, reports_dir) == ValidateRequest(
        applications=("flight-delays",), stores=("airports",)
    )


def test_validation_by_time_is_of_all_applications(reports_dir):
    everything = ValidateRequest(applications=("flight-delays",))
    assert validate_request(BLANK, APPLICATIONS, reports_dir, by_time=True) == everything
    assert validate_request(BLANK, {}, reports_dir, by_time=True) is None


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({}, "application: choose one"),
        ({"application": ""}, "application: choose one"),
        ({"application": 7}, "application: expected a text, found 7"),
        ({"application": "nope"}, "no 'nope' is defined"),
        ({"application": "flight-delays", "stores": ["aircarft"]}, "no store 'aircarft'; its stores are: aircraft"),
        ({"application": "flight-delays", "stores": "aircraft"}, "stores: expected a list"),
        ({"application": "flight-delays", "stores": [1]}, "stores: expected a text, found 1"),
        ({"application": "flight-delays", "partitions": [-1]}, "partitions: expected a whole number from 0, found -1"),
        (
            {"application": "flight-delays", "partitions": ["1"]},
            "partitions: expected a whole number from 0, found '1'",
        ),
        (
            {"application": "flight-delays", "partitions": [True]},
            "partitions: expected a whole number from 0, found True",
        ),
        ({"application": "flight-delays", "partitions": 3}, "partitions: expected a list"),
        (
            {"application": "flight-delays", "mode": "fast"},
            "mode: expected one of auto, tail, snapshot, full, as-of, found 'fast'",
        ),
        ({"application": "flight-delays", "mode": "as-of"}, "mode as-of: expected as_of or snapshot$"),
        (
            {"application": "flight-delays", "mode": "as-of", "as_of": "yesterday"},
            "as_of: expected a number, or a time in ISO 8601 such as",
        ),
        (
            {"application": "flight-delays", "mode": "as-of", "as_of": "-1"},
            "as_of: expected a number, or a time in ISO 8601 such as",
        ),
        (
            {"application": "flight-delays", "as_of": "3"},
            "^as_of: expected mode as-of, found mode auto$",
        ),
        ({"application": "flight-delays", "best_effort": True}, "^best_effort: expected mode as-of, found mode auto$"),
        ({"application": "flight-delays", "dry_run": "yes"}, "dry_run: expected true or false"),
        ({"application": "flight-delays", "deep_check": 1}, "deep_check: expected true or false"),
        ({"application": "flight-delays", "force": "yes"}, "force: expected true or false"),
        ({"application": "flight-delays", "verify_report": "verify/a.json"}, "verify_report: it already says"),
        ({"force": True, "verify_report": "verify/a.json"}, "verify_report: it already says"),
        ({"verify_report": "verify/b.json"}, "no report at"),
        ({"verify_report": "process/a.json"}, "is not a VerifyReport"),
        ({"verify_report": "../secret.json"}, "expected a report below"),
        ({"verify_report": "/etc/passwd"}, "expected a report below"),
    ],
)
def test_restore_refuses(form, message, reports_dir):
    if report := form.get("verify_report"):
        form = form | {"verify_report": str(reports_dir / report)}
    with pytest.raises(InputError, match=message):
        restore_request(BLANK | form, APPLICATIONS, reports_dir, TARGET)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({}, "application: choose one"),
        ({"application": "nope"}, "no 'nope' is defined"),
        ({"application": "flight-delays", "stores": ["x"]}, "no store 'x'"),
        (
            {"application": "flight-delays", "restore_report": "restore/a.json"},
            r"expected one of application \(with or without stores\), restore_report, or verify_report",
        ),
        ({"restore_report": "verify/a.json"}, "is not a RestoreReport"),
        ({"verify_report": "restore/a.json"}, "is not a VerifyReport"),
        ({"verify_report": "verify/a.json", "stores": ["aircraft"]}, r"expected one of application \(with or"),
        (
            {"restore_report": "restore/a.json", "verify_report": "verify/a.json"},
            r"expected one of application \(with or without stores\), restore_report, or verify_report",
        ),
    ],
)
def test_validate_refuses(form, message, reports_dir):
    form = {name: str(reports_dir / value) if name.endswith("_report") else value for name, value in form.items()}
    with pytest.raises(InputError, match=message):
        validate_request(BLANK | form, APPLICATIONS, reports_dir)


@pytest.mark.parametrize("dry_run", [False, True])
def test_definitions_are_taken_as_they_are(dry_run):
    text = "  name: a\n  input_topic: b\n"
    assert definitions_form({"definitions": text, "dry_run": dry_run}) == (text, dry_run)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({}, "definitions: expected the YAML of at least one application, found None"),
        ({"definitions": " \n"}, "definitions: expected the YAML"),
        ({"definitions": {"name": "a"}}, "definitions: expected the YAML"),
        ({"definitions": "name: a", "dry_run": 1}, "dry_run: expected true or false, found 1"),
    ],
)
def test_metastore_refuses(form, message):
    with pytest.raises(InputError, match=message):
        definitions_form(form)


REWRITES = {
    "transform": (
        {"stores": ["aircraft", "airports"], "function": "m:f", "format": "headers", "as_bytes": True},
        "--store aircraft --store airports --function m:f --format headers --bytes",
    ),
    "reseed": ({"stores": ["aircraft"], "any_partitioner": True}, "--store aircraft --partitioner=any"),
    "repartition": ({"to": "new", "reads_from": "end"}, "--to new --reads-from end"),
    "clone": (
        {"to": "new", "snapshot_set": None, "from_cluster": "abc", "reads_from": "set-offsets"},
        "--to new --from-cluster abc --reads-from set-offsets",
    ),
    "point": ({"point": "2026-11-27T10:00:00Z"}, "--to 2026-11-27T10:00:00Z"),
    "undo": ({"stores": ["aircraft"], "accept_loss": True}, "--store aircraft --accept-loss"),
}


@pytest.mark.parametrize("what", REWRITES)
def test_a_rewrite_is_the_command_of_its_kind(what):
    form, options = REWRITES[what]
    found = rewrite_arguments({"what": what, "application": "flight-delays", "stores": None, **form}, APPLICATIONS)
    assert " ".join(found) == f"{what} --application flight-delays {options}"


def test_what_is_cloned_from_another_cluster_is_not_defined_here():
    form = {"what": "clone", "application": "elsewhere", "to": "new", "from_cluster": "abc"}
    assert rewrite_arguments(form, APPLICATIONS)[:3] == ["clone", "--application", "elsewhere"]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"what": None}, "what: expected reseed, transform, repartition, clone, point, undo, found 'None'"),
        ({"what": "clone", "application": "x"}, "application: no 'x' is defined"),
        ({"what": "clone"}, "to: clone needs it"),
        ({"what": "clone", "application": "", "from_cluster": "abc", "to": "x"}, "application: no '' is defined"),
        ({"what": "transform", "function": "m:f", "from_cluster": "x"}, "from_cluster: not used by transform"),
        ({"what": "transform", "function": "m:f", "to": "x"}, "to: not used by transform, leave blank"),
        ({"what": "reseed"}, "stores: reseed needs it"),
        ({"what": "point", "to": "x", "point": "1"}, "to: not used by point, leave blank"),
        ({"what": "point"}, "point: point needs it"),
    ],
)
def test_rewrite_refuses(form, message):
    with pytest.raises(InputError, match=message):
        rewrite_arguments({"application": "flight-delays", **form}, APPLICATIONS)


@pytest.mark.parametrize(
    ("finishes", "changelog_now", "begun_now", "done"),
    [
        (False, "a-s-changelog", False, False),  # as it was planned
        (False, "a-s-changelog-2", False, True),  # an earlier attempt has done it
        (False, "a-s-changelog-2", True, False),  # an earlier attempt was interrupted
        (True, "a-s-changelog-2", True, False),
        (True, "a-s-changelog-2", False, True),  # what had been interrupted before was finished since
    ],
)
def test_what_a_rewrite_has_replaced_is_not_replaced_once_more(finishes, changelog_now, begun_now, done):
    then = "a-s-changelog-2" if finishes else "a-s-changelog"
    planned = {"arguments": ["undo"], "changelogs": {"s": then}, "finishes": finishes}
    assert is_done(planned, {"s": changelog_now}, begun=begun_now) is done


def test_report_names_are_safe_short_and_distinct(tmp_path):
    runs = ["manual__2026-11-21T10:45:00+00:00", "manual__2026-11-21T10_45_00_00_00", "../../x", "r" * 250, "r" * 249]
    paths = [report_path(tmp_path, "verify", run) for run in runs]
    assert len(set(paths)) == len(runs)
    for path in paths:
        assert path.parent == tmp_path / "verify"
        assert len(path.name) < 140
        assert not set(path.name) & set("/:+ ")


def test_reports_of_an_applications_own_dag_lie_with_those_of_its_job(tmp_path):
    whole, own = report_path(tmp_path, "process", "run"), report_path(tmp_path, "process.shop", "run")
    assert whole.parent == own.parent == tmp_path / "process"
    parts = {part_path(report, name) for report in (whole, own) for name in ("shop", "bank")}
    assert len({whole, own, *parts}) == 6
    assert len({path.stem for path in parts}) == 4  # the history of verifications names its files by them
