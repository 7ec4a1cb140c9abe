"""Suites: JSON files in Great Expectations' own format, read so that nothing in them is lost.

Great Expectations logs and drops an expectation that it does not know, and the suite then passes without it. Here that
is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from great_expectations.core.expectation_suite import ExpectationSuite
from great_expectations.exceptions import GreatExpectationsError
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

from statestore.errors import InputError

SUITES = Path(__file__).resolve().parent / "suites"


def load_suite(name: str, files: Iterable[str], directory: Path = SUITES) -> ExpectationSuite:
    """Put the expectations of several files together, because a DataFrame is validated against one suite.

    Parameters
    ----------
    name
        Name of the suite in the Data Docs.
    files
        File names without `.json`.

    Raises
    ------
    InputError
        If a file is absent or no suite, or has an expectation that Great Expectations does not know or whose arguments
        it does not take; the message names all of them.
    """
    expectations: list[Expectation] = []
    for file in files:
        expectations += _read(file, directory)
    suite = ExpectationSuite(name=name, expectations=expectations)
    if len(suite.expectations) != len(expectations):
        raise InputError(f"suite {name}: {len(expectations)} expectations were read, {len(suite.expectations)} remain")
    return suite


def title(expectation: Expectation | ExpectationConfiguration) -> str:
    """How an expectation is called in reports: its description, otherwise its type."""
    kind = expectation.type if isinstance(expectation, ExpectationConfiguration) else expectation.expectation_type
    return expectation.description or str(kind)


def _read(name: str, directory: Path) -> list[Expectation]:
    path = directory / f"{name}.json"
    known = ", ".join(sorted(found.stem for found in directory.glob("*.json")))
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"no suite {name!r} in expectations/suites; there are: {known}") from error
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
            problems.append(f"{one.get('type')}: {error}")
    if problems:
        raise InputError(f"suite {path.name} has expectations that cannot be used: {'; '.join(problems)}")
    return expectations


def _build(raw: dict[str, Any]) -> Expectation:
    expectation: Expectation = ExpectationConfiguration(**raw).to_domain_obj()
    return expectation
