"""Suites: JSON files in Great Expectations' own format, read so that nothing in them is lost.

Great Expectations logs and drops an expectation that it does not know, and the suite then passes without it. Here that
is an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from great_expectations.compatibility.pydantic import ValidationError
from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.exceptions import GreatExpectationsError
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.packages import files_of
from statestore.schemas.serdes import REGISTRY_SERDES
from statestore_expectations.custom import Bindable, ExpectStoreValuesToParse
from statestore_expectations.parameters import PARAMETERS, named

SUITES = files_of("statestore_expectations", inside="suites", beside="suites")

#: What marks a suite as a file of the user's own.
_FILE = ".json"


def suite_of(application: str, store: StoreDefinition) -> ExpectationSuite:
    """Return the suite that a store is validated against: that of its kind, and its own if it has one.

    Raises
    ------
    InputError
        As `load_suite`.
    """
    own = [store.expectations] if store.expectations else []
    return load_suite(f"{application}.{store.name}", [store.store_kind.suite, *own])


def load_suite(name: str, files: Iterable[str], directory: Path = SUITES) -> ExpectationSuite:
    """Put the expectations of several files together, because a DataFrame is validated against one suite.

    Parameters
    ----------
    name
        Name of the suite in the Data Docs.
    files
        Names of suites in `directory`, or paths of users' own files, which end in `.json`.

    Raises
    ------
    InputError
        If a file is absent or no suite, or has an expectation that is not known or whose arguments are not those that
        it takes; the message names all of them.
    """
    expectations: list[Expectation] = []
    for file in files:
        expectations += _read(Path(file) if file.endswith(_FILE) else directory / f"{file}{_FILE}", directory)
    suite = ExpectationSuite(name=name, expectations=expectations)
    if len(suite.expectations) != len(expectations):
        raise InputError(f"suite {name}: {len(expectations)} expectations were read, {len(suite.expectations)} remain")
    if len(schemas := _value_schemas(suite)) > 1:
        raise InputError(f"suite {name}: a store's values have one value_schema, found {' and '.join(sorted(schemas))}")
    if len(serdes := _registry_serdes(suite)) > 1:
        raise InputError(f"suite {name}: a store's values have one serde, found {' and '.join(sorted(serdes))}")
    return suite


def title(expectation: Expectation | ExpectationConfiguration) -> str:
    """How an expectation is called in reports: its description, otherwise its type."""
    kind = expectation.type if isinstance(expectation, ExpectationConfiguration) else expectation.expectation_type
    return expectation.description or str(kind)


def suite_sha256(suite: ExpectationSuite) -> str:
    """Return a SHA-256 of the expectations, as JSON: it shows whether two validations had the same rules."""
    rules = [expectation.configuration.to_json_dict() for expectation in suite.expectations]
    content = [{name: value for name, value in rule.items() if name != "id"} for rule in rules]
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def value_schema_of(suite: ExpectationSuite) -> str | None:
    """Return the fields of JSON values that a suite knows (DDL), if it does."""
    return next(iter(_value_schemas(suite)), None)


def registry_serde_of(suite: ExpectationSuite) -> str | None:
    """Return the serde of a Schema Registry by which a suite reads values, if it does."""
    return next(iter(_registry_serdes(suite)), None)


def bound(suite: ExpectationSuite, parameters: Mapping[str, int]) -> tuple[ExpectationSuite, str]:
    """Fill parameters into the SQL of a suite; a text says which expectations cannot be evaluated, and why.

    There must be a Spark session: it reads schemas.
    """
    expectations, problems = [], []
    for expectation in suite.expectations:
        missing = [name for name in _named_in(expectation) if name not in parameters]
        if missing:
            problems.append(f"{title(expectation)}: needs {', '.join(missing)}, which this store does not have")
        elif isinstance(expectation, Bindable):
            expectation = expectation.bound(parameters)
            problems += [f"{title(expectation)}: {problem}" for problem in expectation.problems()]
        expectations.append(expectation)
    return ExpectationSuite(name=suite.name, expectations=expectations), "; ".join(problems)


def _value_schemas(suite: ExpectationSuite) -> set[str]:
    return {one.value_schema for one in _parsed(suite) if one.value_schema is not None}


def _registry_serdes(suite: ExpectationSuite) -> set[str]:
    return {one.serde for one in _parsed(suite) if one.serde in REGISTRY_SERDES}


def _parsed(suite: ExpectationSuite) -> Iterator[ExpectStoreValuesToParse]:
    return (one for one in suite.expectations if isinstance(one, ExpectStoreValuesToParse))


def _named_in(expectation: Expectation) -> Iterator[str]:
    """Parameters that an expectation names; Great Expectations itself reads what is more than a name."""
    for argument in expectation.configuration.kwargs.values():
        yield from (name for name in named(argument) if name.isidentifier())
    if isinstance(expectation, Bindable):
        yield from expectation.parameters()


def _read(path: Path, directory: Path) -> list[Expectation]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        known = ", ".join(sorted(found.stem for found in directory.glob(f"*{_FILE}")))
        raise InputError(
            f"no suite {path.stem!r} at {path}; there are: {known}. A suite of your own is named by its file's path"
        ) from error
    except OSError as error:
        raise InputError(f"suite {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"suite {path.name} is not JSON: {error}") from error
    raw = content.get("expectations") if isinstance(content, dict) else None
    if not isinstance(raw, list) or not raw or not all(isinstance(one, dict) for one in raw):
        raise InputError(f'suite {path.name}: expected {{"name": ..., "expectations": [{{"type", "kwargs"}}, ...]}}')
    expectations, problems = [], []
    for one in raw:
        try:
            expectations.append(_build(one))
        except (GreatExpectationsError, ValueError, TypeError) as error:
            problems.append(f"{one.get('type') or one.get('expectation_type') or one}: {_reason(error)}")
    if problems:
        raise InputError(f"suite {path.name} has expectations that cannot be used: {'; '.join(problems)}")
    return expectations


def _reason(error: Exception) -> str:
    """Return why an expectation cannot be used; of invalid arguments, each with its name."""
    if not isinstance(error, ValidationError):
        return str(error)
    return ", ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())


def _build(raw: dict[str, Any]) -> Expectation:
    if "expectation_type" in raw and "type" not in raw:
        raise ValueError("it is in the format of Great Expectations 0.18; replace the field expectation_type by type")
    if not isinstance(raw.get("type"), str):
        raise ValueError('expected the field "type" with the name of an expectation')
    # Great Expectations writes ids into the suites that it saves, and an expectation with an id belongs to one suite.
    fields = {name: value for name, value in raw.items() if name != "id"}
    expectation: Expectation = ExpectationConfiguration(**fields).to_domain_obj()
    if unknown := [name for name in _named_in(expectation) if name not in PARAMETERS]:
        raise ValueError(f"unknown parameters {unknown}; there are {list(PARAMETERS)}")
    return expectation
