"""What is asked for is the same whether a form, a job's arguments or the command's options say it."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import InputError
from statestore.requests.arguments import add_arguments, argv, from_namespace
from statestore.requests.maintenance import MaintenanceRequest
from statestore.requests.process import ProcessRequest
from statestore.requests.request import option, schemas
from statestore.requests.restore import AsOf, RestoreRequest
from statestore.requests.snapshot import SnapshotRequest
from statestore.requests.validate import ValidateRequest
from statestore.requests.verify import VerifyRequest

KINDS = (MaintenanceRequest, ProcessRequest, RestoreRequest, SnapshotRequest, ValidateRequest, VerifyRequest)


def parse(kind, arguments):
    """Read a request as its job does."""
    parser = argparse.ArgumentParser()
    add_arguments(parser, kind)
    return from_namespace(kind, parser.parse_args(arguments))


names = st.lists(st.text(min_size=1), max_size=3)
paths = st.text(min_size=1).filter(lambda text: "\0" not in text).map(Path)
flags = st.booleans()


def fields(**values):
    """Fields of which any may be left out."""
    return st.fixed_dictionaries({}, optional=values)


#: A slash stands between the names of a store partition.
stores = names.map(lambda found: [name.replace("/", "") for name in found])
selected = {"applications": names, "stores": stores, "partitions": st.lists(st.integers(0, 10**9), max_size=3)}
restores = st.builds(
    lambda how, point: RestoreRequest.read(how | point),
    fields(
        **selected,
        verify_report=paths,
        dry_run=flags,
        force=flags,
        check=st.sampled_from(["files", "deep"]),
        ranges=st.integers(1, 10**9),
        accept_loss=flags,
    ),
    st.one_of(
        fields(mode=st.sampled_from(["auto", "tail", "full"])),
        st.fixed_dictionaries(
            {"mode": st.just("as-of"), "as_of_offset": st.integers(0, 2**63), "target": paths, "best_effort": flags}
        ),
        st.fixed_dictionaries({"mode": st.just("as-of"), "as_of_timestamp": st.datetimes().map(str), "target": paths}),
    ),
)
verifications = st.builds(
    lambda how, sample: VerifyRequest.read(how | sample),
    fields(**selected, seed=st.integers(), hide_keys=flags),
    st.one_of(
        fields(depth=st.sampled_from(["offsets", "scan", "deep"])),
        st.fixed_dictionaries({"depth": st.just("deep"), "sample": st.floats(0, 1, exclude_min=True, allow_nan=False)}),
    ),
)
applications = st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=3)
requests = st.one_of(
    restores,
    verifications,
    st.builds(ProcessRequest.read, fields(applications=names, resume_from_position=flags)),
    st.builds(
        SnapshotRequest.read,
        st.fixed_dictionaries(
            {"applications": applications},
            optional={"stores": stores, "partitions": selected["partitions"], "accept_loss": flags},
        ),
    ),
    st.builds(
        ValidateRequest.read,
        st.one_of(
            st.fixed_dictionaries({"applications": applications}, optional={"stores": stores}),
            st.fixed_dictionaries({"restore_report": paths}),
            st.fixed_dictionaries({"verify_report": paths}),
        ),
    ),
    st.builds(
        MaintenanceRequest.read,
        fields(reports_days=st.floats(0, allow_nan=False, allow_infinity=False), as_of_dir=paths, dry_run=flags),
    ),
)


@given(requests)
def test_a_request_comes_back_from_the_arguments_of_its_job(request):
    assert parse(type(request), argv(request)) == request


@given(requests)
def test_a_request_comes_back_from_a_form(request):
    form = json.loads(request.model_dump_json())
    assert type(request).read(form, {}, strict=True) == request


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_has_a_title_and_a_text_which_is_the_help_of_its_argument(kind):
    parser = argparse.ArgumentParser()
    add_arguments(parser, kind)
    said = {action.dest: action.help for action in parser._actions}
    for name, schema in schemas(kind).items():
        assert schema["title"]
        assert said[name].startswith(schema["description"].replace("%", "%%"))
    assert parser.format_help()


def test_a_field_of_several_is_an_option_in_the_singular_and_only_that():
    found = [option(RestoreRequest, name) for name in ("applications", "stores", "partitions", "ranges")]
    assert found == ["--application", "--store", "--partition", "--ranges"]
    assert option(MaintenanceRequest, "reports_days") == "--reports-days"


def test_a_store_partition_is_named_as_it_is_printed():
    said = VerifyRequest.read({"stores": ["weather/sectors/1_3", "weather/sectors/1_0"]})
    assert (said.applications, said.stores, said.partitions) == (("weather",), ("sectors",), (0, 3))
    assert ValidateRequest.read({"stores": ["weather/sectors"]}).applications == ("weather",)
    with pytest.raises(InputError, match="--store: expected whole stores, found partition 1_0 of sectors"):
        ValidateRequest.read({"stores": ["weather/sectors/1_0"]})
    with pytest.raises(InputError, match="expected partitions of one store only, found a/b/0_1, a/c"):
        RestoreRequest.read({"stores": ["a/b/0_1", "a/c"]})
    with pytest.raises(InputError, match="expected stores of other, found one of a"):
        RestoreRequest.read({"applications": ["other"], "stores": ["a/c"]})


def test_names_are_taken_once_and_partitions_in_order():
    said = ["--application", " shop ", "--store", "b", "--store", " ", "--store", "a", "--store", "b"]
    found = parse(RestoreRequest, [*said, "--partition", "3", "--partition", "0", "--partition", "3"])
    assert found == RestoreRequest(applications=("shop",), stores=("b", "a"), partitions=(0, 3))


@pytest.mark.parametrize(
    ("kind", "said", "message"),
    [
        (RestoreRequest, {"ranges": "0"}, "--ranges: expected a whole number from 1, found '0'"),
        (RestoreRequest, {"partitions": ["x"]}, "--partition: expected a whole number from 0, found 'x'"),
        (RestoreRequest, {"mode": "fast"}, "--mode: expected one of auto, tail, snapshot, full, as-of, found 'fast'"),
        (RestoreRequest, {"as_of_offset": -1}, "--as-of-offset: expected a whole number from 0, found -1"),
        (MaintenanceRequest, {"reports_days": "nan"}, "--reports-days: expected a number from 0, found 'nan'"),
        (VerifyRequest, {"depth": "deeper"}, "--depth: expected one of offsets, scan, deep, found 'deeper'"),
        (
            VerifyRequest,
            {"depth": "deep", "sample": 0},
            "--sample: expected a number above 0 and at most 1, found 0",
        ),
        (VerifyRequest, {"depth": "deep", "sample": 1.5}, "and at most 1, found 1.5"),
        (VerifyRequest, {"depth": "deep", "sample": float("nan")}, "found nan"),
        (VerifyRequest, {"sample": 0.5}, "--sample: only depth deep compares a sample, found depth scan"),
        (SnapshotRequest, {"stores": ["a"], "partitions": [0]}, "--store, --partition: expected --application, too"),
        (
            ValidateRequest,
            {},
            r"expected one of --application \(with or without --store\), --restore-report, or --verify",
        ),
        (ValidateRequest, {"stores": ["a"]}, "expected one of --application"),
        (ValidateRequest, {"applications": ["a"], "verify_report": "r"}, "expected one of --application"),
        (ValidateRequest, {"restore_report": "r", "verify_report": "r"}, "expected one of --application"),
    ],
)
def test_what_is_malformed_is_named_as_its_option(kind, said, message):
    with pytest.raises(InputError, match=f"^{message}|{message}$"):
        kind.read(said)


def test_a_form_names_its_own_fields_and_takes_no_value_of_another_type():
    called = {"as_of_timestamp": "as_of", "partitions": "numbers"}
    with pytest.raises(
        InputError, match=r"^numbers: expected a whole .*'1'; force: expected true or false, found 'yes'$"
    ):
        RestoreRequest.read({"partitions": ["1"], "force": "yes"}, called, strict=True)
    with pytest.raises(InputError, match=r"^as_of: expected a number, or a time in ISO 8601 such as .*, found 'soon'$"):
        RestoreRequest.read({"mode": "as-of", "as_of_timestamp": "soon", "target": "t"}, called, strict=True)


# -- as of a point ----------------------------------------------------------------------------------------------------


def as_of(tmp_path, **point):
    return RestoreRequest.read({"mode": "as-of", "target": tmp_path, **point}).as_of


@pytest.mark.parametrize(
    ("offset", "timestamp", "found"),
    [
        (0, None, AsOf(offset=0)),
        (None, "1769860800000", AsOf(timestamp_ms=1769860800000)),
        (None, "2026-01-31T12:00:00", AsOf(timestamp_ms=1769860800000)),
        (None, "2026-01-31T13:00:00+01:00", AsOf(timestamp_ms=1769860800000)),
    ],
)
def test_a_point_is_an_offset_or_a_time(tmp_path, offset, timestamp, found):
    assert as_of(tmp_path, as_of_offset=offset, as_of_timestamp=timestamp) == found
    assert RestoreRequest().as_of is None


def test_a_point_says_which_it_is():
    assert str(AsOf(offset=7)) == "offset 7"
    assert str(AsOf(offset=0)) == "offset 0"
    assert str(AsOf(timestamp_ms=0)) == "time 0 ms"


def test_a_time_that_names_no_offset_from_utc_is_in_utc_wherever_it_is_asked_for(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        assert as_of(tmp_path, as_of_timestamp="2026-01-31T12:00:00") == AsOf(timestamp_ms=1769860800000)
    time.tzset()


@pytest.mark.parametrize("text", ["soon", "²", "٣", "-5", "1e3", ""])
def test_only_plain_digits_are_ms_since_the_epoch(tmp_path, text):
    with pytest.raises(InputError, match=f"^--as-of-timestamp: expected a number, or a time in ISO 8601 .* '{text}'$"):
        as_of(tmp_path, as_of_timestamp=text)


def test_a_point_and_a_target_are_for_mode_as_of_which_needs_both():
    points, target = "--as-of-offset or --as-of-timestamp or --snapshot", {"target": "t"}
    assert RestoreRequest.read({"mode": "as-of", "as_of_offset": 0, "best_effort": True} | target).best_effort
    for said, missing in (
        ({}, f"{points}, and --target"),
        ({"as_of_offset": 0}, "--target"),
        ({"as_of_timestamp": "0"}, "--target"),
        (target, points),
    ):
        with pytest.raises(InputError, match=f"^mode as-of: expected {missing}$"):
            RestoreRequest.read({"mode": "as-of"} | said)
    for said, names in (
        ({"as_of_offset": 0}, "--as-of-offset"),
        ({"as_of_timestamp": "0"} | target, "--as-of-timestamp, --target"),
        ({"best_effort": True}, "--best-effort"),
    ):
        with pytest.raises(InputError, match=f"^{names}: expected mode as-of, found mode tail$"):
            RestoreRequest.read({"mode": "tail"} | said)
    with pytest.raises(InputError, match=r"^--as-of-offset and --as-of-timestamp: expected one of them, found both$"):
        RestoreRequest.read({"mode": "as-of", "as_of_offset": 1, "as_of_timestamp": "2026-01-31"} | target)
