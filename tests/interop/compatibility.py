"""What has been proven of which Kafka Streams, and docs/compatibility.md, which says no more than that.

A plugin of pytest (`make interop`): every test of test_kafka_streams_compatibility.py proves one step of a cell, and a
cell is a store, as one version of Kafka Streams writes it under one guarantee. What passed is kept in a file, with a
digest of the code, so that an interrupted run goes on behind it; what was run with other code is run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from demo.kafka_jars import KAFKA_VERSION
from tests.interop.kafka_streams import (
    NEWER_VERSIONS,
    OLDER_VERSIONS,
    TRANSACTIONAL_STORES,
    TRANSACTIONAL_VERSION,
)

_ROOT = Path(__file__).parents[2]
_DOCUMENT = _ROOT / "docs" / "compatibility.md"
_CODE = ("statestore", "tests/interop")
#: A separate column: the version with transactional stores turned on.
TRANSACTIONAL = f"{TRANSACTIONAL_VERSION}-transactional"
VERSIONS = (*OLDER_VERSIONS, KAFKA_VERSION, *NEWER_VERSIONS, TRANSACTIONAL)
Guarantee = Literal["exactly_once_v2", "at_least_once"]
GUARANTEES: tuple[Guarantee, ...] = ("exactly_once_v2", "at_least_once")
#: By test: the step that it proves, in the order of the document.
STEPS = {
    "test_it_is_whole_at_every_depth": "verified",
    "test_what_is_broken_is_found_and_mended": "broken",
    "test_kafka_streams_starts_on_what_we_restored_of_nothing": "restored",
    "test_one_that_lags_is_caught_up_with_its_log": "caught up",
}
#: Further steps of `TRANSACTIONAL` (test_kafka_streams_compatibility_transactional.py).
TRANSACTIONAL_STEPS = {
    "test_one_that_runs_is_left_alone": "running",
    "test_one_that_was_killed_between_transactions_is_caught_up": "killed outside",
    "test_one_that_was_killed_in_a_transaction_has_nothing_of_it": "killed inside",
    "test_one_whose_transactions_were_turned_off_stays_usable": "turned off",
    "test_kafka_streams_starts_on_what_was_warmed": "warmed",
}
#: Stores without these steps. Killed with transactions, Kafka Streams 4.4.0 itself returns versions that end before
#: they begin, so there is nothing to compare with.
NOT_KILLED = frozenset({"versioned"})
ALL_STEPS = {**STEPS, **TRANSACTIONAL_STEPS}
_HEAD = """# Compatibility

This page lists the results of tests with the real Kafka Streams, in each version. `make interop` runs the tests and
writes this page. For each store, the tests run these steps:

- **verified**: Kafka Streams wrote the store and stopped. `verify` finds the store intact at the depths `offsets`,
  `scan`, and `deep`.
- **broken**: in three copies of the store, a row is changed, a row is removed, or a file is truncated. `verify` detects
  the damage, `restore` repairs it, and deep verification finds the store intact.
- **restored**: the store's directory is missing. `restore` rebuilds the store from its changelog, and deep verification
  finds it intact. Kafka Streams starts, restores 0 records, and its interactive queries return the same rows as before.
- **caught up**: the directory is replaced with a copy from before the last run, which is behind the changelog.
  `restore` brings it up to the end of the changelog. The same checks as in *restored* follow.

In the column `4.4.0-transactional`, Kafka Streams 4.4.0 runs with `enable.transactional.statestores=true` (KIP-892).
This column has further steps:

- **running**: while Kafka Streams runs, `verify` finds the stores in use.
- **killed outside**: Kafka Streams is killed between two transactions. `restore` brings the stores up to the end of
  their changelogs, and deep verification finds them intact. Kafka Streams starts, restores 0 records, and returns the
  same rows as if it had restored the stores itself.
- **killed inside**: the same after a kill within a transaction. No row of the transaction is in a store.
- **turned off**: Kafka Streams runs without the setting again, then with it. It restores 0 records each time, returns
  the same rows, and deep verification finds the stores intact in between.
- **warmed**: `warm` fills an empty directory. Kafka Streams starts, restores 0 records, and returns the same rows.

Versioned stores do not have these steps: after a kill, Kafka Streams 4.4.0 with this setting itself returns versions
that end before they begin.

`all` means that all steps of the column passed. The test data includes out-of-order records. It also includes deletes,
except for windows with duplicates, where a null deletes nothing. For windows, sessions, and versioned stores, the data
also includes expired records. Windows and sessions have at least two segments. For stores with headers, the comparison
includes the headers. Versioned stores are compared by the results of queries within their history retention: the
history, the latest value, and values as of given times.

The prefix `ts-` marks stores in the timestamped format, and `headers-` stores in the headers format. `twice` is a
window store that retains duplicates. `closed-` marks stores that the DSL creates for `EmitStrategy.onWindowClose`. The
store for sliding windows has an index. Kafka Streams keeps no headers in `headers-closed-session`.

Stores with names in capitals are those that Kafka Streams creates and names for [joins](stores.md#stores-of-joins).
Queries of `OUTERSHARED` and `SUBSCRIPTION` stores return Kafka Streams' own types, which are compared by their printed
form.
"""


class Column(NamedTuple):
    """A version of Kafka Streams, and how it processes."""

    version: str
    guarantee: Guarantee

    def __str__(self) -> str:
        return f"{self.version}-{self.guarantee}"

    @property
    def release(self) -> str:
        """The release of Kafka Streams."""
        return TRANSACTIONAL_VERSION if self.version == TRANSACTIONAL else self.version

    @property
    def settings(self) -> dict[str, str]:
        """Further settings of Kafka Streams."""
        return dict(TRANSACTIONAL_STORES) if self.version == TRANSACTIONAL else {}


class Cell(NamedTuple):
    """A store as a version of Kafka Streams writes it."""

    column: Column
    store: str


#: Outcomes of the steps of each cell; a step that did not run has none.
Outcomes = Mapping[Cell, Mapping[str, bool]]


def document(rows: Mapping[str, Sequence[str]], outcomes: Outcomes) -> str:
    """Return docs/compatibility.md.

    Parameters
    ----------
    rows
        By store, in order: the versions that have it.
    """
    text = _HEAD
    for guarantee in GUARANTEES:
        text += f"\n## `processing.guarantee={guarantee}`\n\n| store | {' | '.join(VERSIONS)} |\n"
        text += f"|---|{'---|' * len(VERSIONS)}\n"
        for store, versions in rows.items():
            cells = [
                _cell(outcomes.get(Cell(Column(version, guarantee), store), {}), steps_of(version, store))
                if version in versions
                else "-"
                for version in VERSIONS
            ]
            text += f"| {store} | {' | '.join(cells)} |\n"
    return text + "\n`-`: this version has no such store.\n"


def steps_of(version: str, store: str) -> Mapping[str, str]:
    """Return the steps of a cell, by test."""
    return ALL_STEPS if version == TRANSACTIONAL and store not in NOT_KILLED else STEPS


def _cell(steps: Mapping[str, bool], expected: Mapping[str, str]) -> str:
    if not steps:
        return "not run"
    missing = [step for step in expected.values() if step not in steps]
    failed = [step for step, passed in steps.items() if not passed]
    said = [f"{', '.join(failed)} **fails**"] if failed else []
    said += [f"{', '.join(missing)} not run"] if missing else []
    return "; ".join(said) or "all"


# -- the plugin -------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add where outcomes are kept."""
    parser.addoption("--compatibility", type=Path, required=False, help="file of what has been proven so far")


def pytest_configure(config: pytest.Config) -> None:
    """Begin, or go on, with the record."""
    if (file := config.getoption("--compatibility")) is not None:
        config.pluginmanager.register(Recording(file))


class Recording:
    """Keeps outcomes, leaves out what is proven, and writes the document at the end."""

    def __init__(self, file: Path) -> None:
        self._file, self._code = file, code_digest()
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self._passed: dict[str, bool] = kept.get("outcomes", {}) if kept.get("code") == self._code else {}
        self._rows: dict[str, list[str]] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has passed with this code."""
        left, done = [], []
        for item in items:
            if (proof := _proof(item)) is None:
                continue
            cell, step = proof
            versions = self._rows.setdefault(cell.store, [])
            if cell.column.version not in versions:
                versions.append(cell.column.version)
            (done if self._passed.get(_name(cell, step)) else left).append(item)
        config.hook.pytest_deselected(items=done)
        items[:] = left

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Keep the outcome of a step; one whose preparation failed did not run."""
        report = (yield).get_result()  # type: ignore[misc]
        if report.when == "call" and not report.skipped and (proof := _proof(item)) is not None:
            self._passed[_name(*proof)] = report.passed
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({"code": self._code, "outcomes": self._passed}, indent=1))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the document."""
        if session.config.option.collectonly:
            return
        outcomes: dict[Cell, dict[str, bool]] = {}
        for name, passed in self._passed.items():
            version, guarantee, store, step = name.split("/")
            cell = Cell(Column(version, guarantee), store)  # type: ignore[arg-type]
            outcomes.setdefault(cell, {})[step] = passed
        if self._rows:
            _DOCUMENT.write_text(document(self._rows, outcomes), encoding="utf-8")


def _proof(item: pytest.Item) -> tuple[Cell, str] | None:
    step = ALL_STEPS.get(getattr(item, "originalname", ""))
    if step is None:
        return None
    found = item.callspec.params  # type: ignore[attr-defined]
    return Cell(found["filled"], found["store"].name), step


def order(item: pytest.Item) -> tuple[int, ...]:
    """Return by what tests are sorted: column by column, so that each is filled once, and in each step by step."""
    if (proof := _proof(item)) is None:
        return ()
    (column, _), step = proof
    return VERSIONS.index(column.version), GUARANTEES.index(column.guarantee), [*ALL_STEPS.values()].index(step)


def _name(cell: Cell, step: str) -> str:
    return "/".join([*cell.column, cell.store, step])


def code_digest() -> str:
    """Return a digest of all that decides on an outcome."""
    digest = hashlib.sha256()
    for directory in _CODE:
        for path in sorted((_ROOT / directory).rglob("*")):
            if path.suffix in (".py", ".java", ".sha256"):
                digest.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
