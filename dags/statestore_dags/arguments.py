"""Pure functions that convert a DAG's form into the request of its job, and one for the form of `metastore`.

They promise that what leaves them names only applications and stores of the catalogue and reports that exist, and
that everything else ends in one `InputError` which says what was expected. Which partitions a store has is Kafka's
knowledge, so the job checks that.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from statestore.config import STATE_DIR
from statestore.definitions.application import ApplicationDefinition
from statestore.environments import FILE, KafkaStreamsApplication, active_environment
from statestore.errors import InputError, UnknownApplicationError
from statestore.objects.path import Location, below
from statestore.reports import RestoreReport, VerifyReport, read_report
from statestore.requests.drill import DrillRequest
from statestore.requests.maintenance import MaintenanceRequest
from statestore.requests.request import Request
from statestore.requests.restore import RestoreRequest
from statestore.requests.snapshot import SnapshotRequest
from statestore.requests.validate import ValidateRequest
from statestore.requests.verify import VerifyRequest

Applications = Mapping[str, ApplicationDefinition]
Params = Mapping[str, Any]
R = TypeVar("R", bound=Request)
S = TypeVar("S", DrillRequest, RestoreRequest, SnapshotRequest, ValidateRequest)
#: What a form calls fields of a request by another name.
_CALLED = {"applications": "application", "as_of_offset": "as_of", "as_of_timestamp": "as_of"}


def require_known_fields(given: Params | None, form: Params) -> None:
    """Refuse fields that the form does not have: a misspelled application would start a run of all.

    Parameters
    ----------
    given
        What the run was started with: the form, or `conf` of the REST API.
    form
        The DAG's fields.

    Raises
    ------
    InputError
        If there are others.
    """
    if unknown := sorted(set(given or {}) - set(form)):
        raise InputError(f"{', '.join(unknown)}: expected fields of the form, which are {', '.join(form)}")


def with_state_dir() -> dict[str, KafkaStreamsApplication]:
    """Return the Kafka Streams applications of the active environment that its jobs can verify, restore, and drill."""
    return {name: found for name, found in active_environment().kafka_streams.items() if found.state_dir is not None}


def state_dir_without_definition(params: Params) -> dict[str, Path]:
    """Return the setting `state_dir` of a run on a listed Kafka Streams application, if the environment has none.

    If all applications of the environment are listed, and the form names none, no directory is used.
    """
    environment = active_environment()
    name = str(_filled(params, "application") or "")
    if os.environ.get(STATE_DIR) or (environment.has_definitions and name not in environment.kafka_streams):
        return {}
    found = with_state_dir().get(name)
    return {"state_dir": Path(os.devnull) if found is None or found.state_dir is None else found.state_dir}


def require_work_without_definition(params: Params, job: str) -> None:
    """Refuse a Kafka Streams application without a definition if the job cannot work on it.

    Raises
    ------
    InputError
        If the form names one.
    """
    name = str(_filled(params, "application") or "")
    found = active_environment().kafka_streams.get(name)
    if found is None:
        return
    if job not in ("verify", "restore", "drill"):
        raise InputError(
            f"application: {name} has no definition: only verify, restore, and drill work on it, found {job}"
        )
    if found.state_dir is None:
        raise InputError(
            f"application: the file of {FILE} has no state_dir for {name}, so no job sees its stores. Add it, or run "
            f"statestore {job} where the stores are"
        )


def chosen_applications(
    params: Params, applications: Mapping[str, Any], without: Sequence[str] = (), only: Collection[str] | None = None
) -> list[str]:
    """Return the applications that `process` or `verify` works on: the one named, or all but those left out.

    Parameters
    ----------
    only
        No others than these, if none is named; None: all.
    """
    if (name := _filled(params, "application")) is not None:
        _require_application(str(name), applications)
        return [str(name)]
    return [known for known in sorted(applications) if known not in without and (only is None or known in only)]


def verify_request(params: Params, application: str, *, by_time: bool = False) -> VerifyRequest:
    """How thoroughly the job is to look at an application. All rows of stores that are probably in use are compared.

    A Kafka Streams application fails to start while a job holds the lock of one of its tasks. So a schedule takes none.

    Raises
    ------
    InputError
        If a sample is asked for that does not fit the depth.
    """
    if application in active_environment().kafka_streams:
        params = {**params, "sample": None, "live": by_time or _flag(params, "live")}
    return _read(VerifyRequest, params, applications=[application])


def restore_request(params: Params, applications: Applications, reports_dir: Location, target: Path) -> RestoreRequest:
    """What a report of `verify` found, or what the form asks for.

    Parameters
    ----------
    target
        Directory that a store as of a point is built in.

    Raises
    ------
    InputError
        If the form asks for both or for neither, contradicts itself, or names something that does not exist.
    """
    point = _filled(params, "as_of")
    is_offset = isinstance(point, str) and point.isascii() and point.isdigit()
    request = _read(
        RestoreRequest,
        params,
        check="deep" if _flag(params, "deep_check") else None,
        as_of_offset=int(point) if is_offset else None,
        as_of_timestamp=None if is_offset else point,
        target=target if _filled(params, "mode") == "as-of" else None,
    )
    if request.verify_report is None:
        if not request.applications:
            raise InputError(f"application: choose one to restore; the applications are: {_names(applications)}")
        return _with_known_stores(request, applications)
    how = {"verify_report", "check", "accept_loss", "dry_run"}
    if request.model_dump(exclude=how, exclude_defaults=True):
        raise InputError(
            "verify_report: it already says what is to be restored, and how; leave the other fields as they were"
        )
    report = _report(request.verify_report, VerifyReport, reports_dir)
    return request.model_copy(update={"verify_report": report})


def changes_stores(params: Params) -> bool:
    """True if a restore with this form may change live stores."""
    return not _flag(params, "dry_run") and _filled(params, "mode") != "as-of"


def may_rebuild(params: Params) -> bool:
    """True if a restore with this form may rebuild a live store."""
    return changes_stores(params) and _filled(params, "mode") != "tail"


def wants_approval(params: Params) -> bool:
    """True where the form asks for a person's approval."""
    return _flag(params, "approval")


def maintenance_request(params: Params, reports_days: str, as_of_dir: Path) -> MaintenanceRequest:
    """What is removed.

    Parameters
    ----------
    reports_days
        Value of STATESTORE_REPORTS_DAYS; blank: the job's default.
    as_of_dir
        Directory of the state directories of mode `as-of`.

    Raises
    ------
    InputError
        If the number of days is none.
    """
    said = {"reports_days": reports_days.strip() or None, "as_of_dir": as_of_dir, "dry_run": _flag(params, "dry_run")}
    return MaintenanceRequest.read(said, {"reports_days": "STATESTORE_REPORTS_DAYS"})


def snapshot_requests(params: Params, applications: Applications) -> dict[str, SnapshotRequest]:
    """Of what each application's job makes snapshots, by application: of the one named, or those that need it.

    Raises
    ------
    InputError
        If the form names something that does not exist, or no application to what it names.
    """
    request = _read(SnapshotRequest, params)
    if request.applications:
        return {request.applications[0]: _with_known_stores(request, applications)}
    names = sorted(name for name, found in applications.items() if not found.publishes_snapshots)
    return {name: SnapshotRequest(applications=(name,)) for name in names}


def drill_requests(
    params: Params, applications: Applications, objectives: Collection[str] = (), *, by_time: bool
) -> dict[str, DrillRequest]:
    """Return the request of each application's job: the named application, or all with objectives.

    Parameters
    ----------
    objectives
        Applications that the file of STATESTORE_OBJECTIVES has. Those without a definition must be listed.
    by_time
        A schedule has started the run: without objectives, nothing is drilled.

    Raises
    ------
    InputError
        If the form names something that does not exist, or stores without their application.
    """
    request = _read(DrillRequest, params)
    listed = with_state_dir()
    if request.applications:
        return {request.applications[0]: _with_known_stores(request, applications)}
    if request.stores or request.partitions:
        every = {**applications, **listed}
        raise InputError(f"application: choose the one that the stores are of; there are: {_names(every)}")
    names = sorted(name for name, found in applications.items() if found.objectives is not None)
    names += sorted(listed.keys() & set(objectives))
    if not names and not by_time:
        names = sorted({**applications, **listed})
    return {name: request.model_copy(update={"applications": (name,)}) for name in names}


def validate_request(
    params: Params, applications: Applications, reports_dir: Location, *, by_time: bool = False
) -> ValidateRequest | None:
    """What a report of `restore` or `verify` names, or what the form asks for; None: there is nothing.

    Parameters
    ----------
    by_time
        Nobody has filled in the form: all applications are meant.

    Raises
    ------
    InputError
        If the form asks for several of them or for none, or names something that does not exist.
    """
    reports: dict[str, type[VerifyReport | RestoreReport]]
    reports = {"verify_report": VerifyReport, "restore_report": RestoreReport}
    if not any(_filled(params, field) for field in ("application", *reports)):
        if not by_time:
            raise InputError(f"application: choose one to validate; the applications are: {_names(applications)}")
        return ValidateRequest(applications=tuple(sorted(applications))) if applications else None
    request = _read(ValidateRequest, params)
    for field, kind in reports.items():
        if (path := getattr(request, field)) is not None:
            return request.model_copy(update={field: _report(path, kind, reports_dir)})
    return _with_known_stores(request, applications)


def definitions_form(params: Params) -> tuple[str, bool]:
    """Return the YAML of the form of `metastore`, and whether only its plan is to be shown.

    Raises
    ------
    InputError
        If there is no YAML.
    """
    text = params.get("definitions")
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"definitions: expected the YAML of at least one application, found {text!r}")
    return text, _flag(params, "dry_run")


# -- fields: forms send blank strings and nulls for what was left empty ------------------------------------------------


def _read(kind: type[R], params: Params, **given: Any) -> R:
    """Read the fields of a form that a request has, and others; `application` is the one of several."""
    filled = {name: value for name in kind.model_fields if (value := _filled(params, name)) is not None}
    if (application := _filled(params, "application")) is not None:
        filled["applications"] = [application]
    return kind.read(filled | given, _CALLED, strict=True)


def _filled(params: Params, field: str) -> Any:
    value = params.get(field)
    return value.strip() or None if isinstance(value, str) else value


def _flag(params: Params, field: str) -> bool:
    value = params.get(field, False)
    if not isinstance(value, bool):
        raise InputError(f"{field}: expected true or false, found {value!r}")
    return value


# -- what exists -------------------------------------------------------------------------------------------------------


def _names(applications: Collection[str]) -> str:
    return ", ".join(sorted(applications)) or "none"


def _require_application(name: str, applications: Collection[str]) -> None:
    if name not in applications:
        known = _names(applications)
        raise UnknownApplicationError(f"application: no {name!r} is defined; the applications are: {known}")


def _with_known_stores(request: S, applications: Applications) -> S:
    if request.applications[0] in active_environment().kafka_streams:
        return request  # only its directories and topics show them
    _require_application(request.applications[0], applications)
    application = applications[request.applications[0]]
    return request.model_copy(update={"stores": tuple(application.store(store).name for store in request.stores)})


def _report(path: Location, kind: type[VerifyReport] | type[RestoreReport], reports_dir: Location) -> Location:
    report = path.resolve()
    if below(report, reports_dir.resolve()) is None:
        raise InputError(f"expected a report below {reports_dir}, found {path}")
    active_environment().require(read_report(report, kind).applications)
    return report
