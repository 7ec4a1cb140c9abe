"""From a DAG's form to the arguments of its job: functions that change nothing, and one for the form of `metastore`.

They promise that what leaves them names only applications and stores of the catalogue and reports that exist, and
that everything else ends in one `InputError` which says what was expected. Which partitions a store has is Kafka's
knowledge, so the job checks that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InputError, UnknownApplicationError
from statestore.reports import RestoreReport, ValidateReport, VerifyReport, read_report

Applications = Mapping[str, ApplicationDefinition]
Params = Mapping[str, Any]

MODES = ("auto", "tail", "full", "as-of")
DEPTHS = ("offsets", "scan", "deep")


def chosen_applications(
    params: Params, applications: Applications, without: Sequence[str] = (), only: Collection[str] | None = None
) -> list[str]:
    """Return the applications that `process` or `verify` works on: the one named, or all but those left out.

    Parameters
    ----------
    only
        No others than these, if none is named; None: all.
    """
    name = _text(params, "application")
    if name is not None:
        return [_application(name, applications).name]
    return [known for known in sorted(applications) if known not in without and (only is None or known in only)]


def verify_options(params: Params) -> list[str]:
    """How thoroughly `jobs/verify.py` is to look.

    Raises
    ------
    InputError
        If a sample is asked for that does not fit the depth.
    """
    depth, sample = _text(params, "depth"), params.get("sample")
    if depth is not None and depth not in DEPTHS:
        raise InputError(f"depth: expected one of {', '.join(DEPTHS)}, found {depth!r}")
    chosen = [] if depth is None else ["--depth", depth]
    if sample is None:
        return chosen
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 < sample <= 1:
        raise InputError(f"sample: expected a number above 0 and at most 1, found {sample!r}")
    if depth != "deep":
        raise InputError(f"sample: only depth deep compares a sample, found depth {depth or 'scan'}")
    return [*chosen, "--sample", str(sample)]


def restore_arguments(params: Params, applications: Applications, reports_dir: Path, target: Path) -> list[str]:
    """Arguments of `jobs/restore.py`: what a report of `verify` found, or what the form asks for.

    Parameters
    ----------
    target
        Directory that a store as of a point is built in.

    Raises
    ------
    InputError
        If the form asks for both or for neither, contradicts itself, or names something that does not exist.
    """
    name, stores = _text(params, "application"), _stores(params)
    partitions, mode, force = _partitions(params), _text(params, "mode") or "auto", _flag(params, "force")
    if mode not in MODES:
        raise InputError(f"mode: expected one of {', '.join(MODES)}, found {mode!r}")
    how = [
        *_as_of(params, mode, target),
        *(["--check", "deep"] if _flag(params, "deep_check") else []),
        *(["--accept-loss"] if _flag(params, "accept_loss") else []),
        *(["--dry-run"] if _flag(params, "dry_run") else []),
    ]
    report = _text(params, "verify_report")
    if report is not None:
        if name or stores or partitions or force or mode != "auto":
            raise InputError(
                "verify_report: it already says what is to be restored, and how; leave the other fields as they were"
            )
        return ["--verify-report", str(_report(report, VerifyReport, reports_dir)), *how]
    if name is None:
        raise InputError(f"application: choose one to restore; defined are {_known(applications)}")
    arguments = ["--application", name]
    for store in _known_stores(stores, _application(name, applications)):
        arguments += ["--store", store]
    for partition in partitions:
        arguments += ["--partition", str(partition)]
    return [*arguments, "--mode", mode, *(["--force"] if force else []), *how]


def _as_of(params: Params, mode: str, target: Path) -> list[str]:
    point, best_effort = _text(params, "as_of"), _flag(params, "best_effort")
    if mode != "as-of":
        if point or best_effort:
            raise InputError(f"as_of, best_effort: they are for mode as-of, found mode {mode}")
        return []
    if point is None:
        raise InputError("as_of: mode as-of needs a point, expected an offset, or a time in ISO 8601; found nothing")
    if point.isascii() and point.isdigit():
        chosen = ["--as-of-offset", point]
    else:
        try:
            datetime.fromisoformat(point)
        except ValueError as error:
            raise InputError(
                "as_of: expected an offset such as 1200, or a time in ISO 8601 such as 2026-01-31T12:00:00+00:00, "
                f"found {point!r}"
            ) from error
        chosen = ["--as-of-timestamp", point]
    return [*chosen, "--target", str(target), *(["--best-effort"] if best_effort else [])]


def may_rebuild(params: Params) -> bool:
    """True where a restore with this form may rebuild a live store from the whole of its changelog."""
    return not _flag(params, "dry_run") and _text(params, "mode") not in ("tail", "as-of")


def wants_approval(params: Params) -> bool:
    """True where the form asks for a person's approval."""
    return _flag(params, "approval")


def maintenance_arguments(params: Params, reports_days: str, as_of_dir: Path) -> list[str]:
    """Arguments of `jobs/maintenance.py`.

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
    days = []
    if text := reports_days.strip():
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
            raise InputError(f"STATESTORE_REPORTS_DAYS: expected a number of days, found {text!r}")
        days = ["--reports-days", text]
    return [*days, "--as-of-dir", str(as_of_dir), *(["--dry-run"] if _flag(params, "dry_run") else [])]


def validate_arguments(
    params: Params, applications: Applications, reports_dir: Path, *, by_time: bool = False
) -> list[str]:
    """Arguments of `jobs/validate.py`: what a report of `restore` or `verify` names, or what the form asks for.

    Parameters
    ----------
    by_time
        Nobody has filled in the form: all applications are meant.

    Raises
    ------
    InputError
        If the form asks for several of them or for none, or names something that does not exist.
    """
    name, stores = _text(params, "application"), _stores(params)
    kinds: dict[str, type[VerifyReport | RestoreReport]]
    kinds = {"restore_report": RestoreReport, "verify_report": VerifyReport}
    given = {field: report for field in kinds if (report := _text(params, field)) is not None}
    for field, report in given.items():
        if name or stores or len(given) > 1:
            raise InputError(f"{field}: it already says what is to be validated; leave the other fields blank")
        return [f"--{field.replace('_', '-')}", str(_report(report, kinds[field], reports_dir))]
    if name is None and by_time:
        return [argument for known in sorted(applications) for argument in ("--application", known)]
    if name is None:
        raise InputError(f"application: choose one to validate; defined are {_known(applications)}")
    arguments = ["--application", name]
    for store in _known_stores(stores, _application(name, applications)):
        arguments += ["--store", store]
    return arguments


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


def _text(params: Params, field: str) -> str | None:
    value = params.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(f"{field}: expected a text, found {value!r}")
    return value.strip() or None


def _list(params: Params, field: str) -> Sequence[Any]:
    value = params.get(field)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise InputError(f"{field}: expected a list, found {value!r}")
    return value


def _stores(params: Params) -> list[str]:
    stores = _list(params, "stores")
    if odd := [store for store in stores if not isinstance(store, str)]:
        raise InputError(f"stores: expected names, found {odd}")
    return list(dict.fromkeys(store.strip() for store in stores if store.strip()))


def _partitions(params: Params) -> list[int]:
    partitions = _list(params, "partitions")
    # A bool is an int to Python, but not to the person who filled in the form.
    if odd := [p for p in partitions if not isinstance(p, int) or isinstance(p, bool) or p < 0]:
        raise InputError(f"partitions: expected whole numbers from 0, found {odd}")
    return sorted(set(partitions))


def _flag(params: Params, field: str) -> bool:
    value = params.get(field, False)
    if not isinstance(value, bool):
        raise InputError(f"{field}: expected true or false, found {value!r}")
    return value


# -- what exists -------------------------------------------------------------------------------------------------------


def _known(applications: Applications) -> str:
    return ", ".join(sorted(applications)) or "none"


def _application(name: str, applications: Applications) -> ApplicationDefinition:
    if name not in applications:
        raise UnknownApplicationError(f"application: no {name!r} is defined; defined are: {_known(applications)}")
    return applications[name]


def _known_stores(stores: Sequence[str], application: ApplicationDefinition) -> list[str]:
    return [application.store(store).name for store in stores]


def _report(path: str, kind: type[VerifyReport | RestoreReport | ValidateReport], reports_dir: Path) -> Path:
    report = Path(path).resolve()
    if not report.is_relative_to(reports_dir.resolve()):
        raise InputError(f"expected a report below {reports_dir}, found {path}")
    read_report(report, kind)
    return report
