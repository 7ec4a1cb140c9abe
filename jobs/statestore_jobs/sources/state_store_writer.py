"""Writing a store as a DataFrame: rows are staged in Spark tasks, and the driver's commit gives them to the store.

A Spark task writes files of its own attempt alone, so a task that is repeated, or done twice at once, writes nothing
twice: the driver takes those of the attempts that Spark names to it (`statestore.rewrite.row_stage`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from statestore import clock, kill_switch
from statestore.archive.archive import archive_of
from statestore.config import Settings, load_settings
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.discovery.partitions import store_partition_specs
from statestore.errors import InputError, StateStoreError
from statestore.metastore.adoption import adoption_hooks
from statestore.metastore.claims import require_own
from statestore.metastore.metastore import Metastore
from statestore.objects.path import location
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import WriteReport, WriteRow, write_report
from statestore.rewrite.examination import require_rewritable
from statestore.rewrite.overwrite import OverwriteSpec, overwrite
from statestore.rewrite.row_stage import AttemptWriter, RowStage, StagedAttempt, writes_of
from statestore.rewrite.staged_stores import Rewritten
from statestore.rewrite.staged_validation import require_valid
from statestore.rewrite.upsert import TRANSACTION_BYTES, UpsertSpec, require_upsertable, upsert
from statestore_jobs.sources.importers import forget_importers
from statestore_jobs.sources.options import number, refuse_unknown, required
from statestore_jobs.sources.row_encoding import EncodedRows, RowEncoder

_log = logging.getLogger(__name__)

#: Settings of the driver's environment that options may say instead.
_SETTINGS = ("state_dir", "bootstrap_servers", "service_id", "reports_dir", "data_docs_dir")
#: Options of a write. All but the first two have the driver's settings as their defaults.
WRITE_OPTIONS = ("application", "store", *_SETTINGS, "run_bytes", "transaction_bytes")


class Planned(NamedTuple):
    """What is written to: a store of the catalogue, and all of its partitions."""

    settings: Settings
    metastore: Metastore
    definition: ApplicationDefinition
    stores: Sequence[StorePartitionSpec]


def plan_write(options: Mapping[str, str]) -> Planned:
    """Find the store that options name, in the catalogue.

    Raises
    ------
    InputError
        If it is not there, or its rows are not the whole state.
    """
    refuse_unknown(options, WRITE_OPTIONS, "writing to state_store")
    application, name = required(options, "application"), required(options, "store")
    given: dict[str, Any] = {key: required(options, key) for key in _SETTINGS if key in options}
    settings = load_settings(**given)
    if settings.node_local_state:
        raise InputError("each node has a state directory of its own: a store is written where all of them share one")
    metastore = Metastore.of(settings)
    definition = metastore.require_running().catalogue.entry(application).definition
    store = definition.store(name)
    topics = settings.cluster.topics
    require_own(topics, [application], settings.service_id)
    archive = archive_of(settings, topics)
    stores = [
        found.model_copy(update={"archive": archive})
        for found in store_partition_specs(settings, topics, [definition], [name])
    ]
    if not stores:
        raise InputError(f"{application}/{name} is not on disk: its engine is {store.engine}, or it has no task yet")
    require_rewritable(stores, versions=True)
    numbers = sorted(found.task.partition for found in stores)
    if numbers != list(range(len(numbers))):  # their number is the partitioner's
        raise InputError(f"{application}/{name}: expected all partitions of the store, found {numbers}")
    return Planned(settings, metastore, definition, stores)


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a Spark task has written."""

    attempt: StagedAttempt


class StateStoreWriter(DataSourceArrowWriter):
    """Gives the rows of a DataFrame to a store.

    Parameters
    ----------
    schema
        Of the DataFrame.
    overwrite
        The store has these rows afterwards, and no others. If not, rows are put, and deleted where they have no value.
    """

    def __init__(self, options: dict[str, str], schema: StructType, *, overwrite: bool) -> None:
        planned = plan_write(options)
        if not overwrite:
            require_upsertable(planned.stores)
        first = planned.stores[0]
        # Asked again when all rows are there; here, before any work is done for nothing.
        first.cluster.topics.require_no_members(first.application)
        self._options, self._schema, self._overwrites = options, to_arrow_schema(schema), overwrite
        self._store: StoreDefinition = first.store
        self._partitions = len(planned.stores)
        self._encoder()  # refuses columns before any task begins
        self._id = f"{clock.now_ms()}-{uuid4().hex[:8]}"
        self._stage: Path = writes_of(first.state_dir, first.application, first.store.name) / self._id

    def _encoder(self) -> RowEncoder:
        return RowEncoder(self._store, self._schema, deletes=not self._overwrites)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one Spark partition."""
        forget_importers()
        encoder = self._encoder()
        with AttemptWriter(self._stage, self._partitions) as attempt:
            for batch in iterator:
                if batch.num_rows:
                    encoded = encoder.encode(batch)
                    _require_places(encoded, attempt.add(encoded.users_keys, encoded.rows))
                    kill_switch.reached("write, batch staged")
        return StagedMessage(attempt.staged)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give the staged rows to the store, and write the report of it."""
        forget_importers()
        stage = RowStage(self._stage, [found.attempt for found in messages if isinstance(found, StagedMessage)])
        kill_switch.reached("write, all staged")
        planned, started, rows = plan_write(self._options), clock.now_ms(), list[WriteRow]()
        try:
            if self._overwrites:
                rows += map(_overwritten, self._overwrite(planned, stage))
            else:
                self._upsert(planned, stage, rows.append)
        finally:
            stage.clear()
            if rows:
                self._report(planned, started, rows)

    def _report(self, planned: Planned, started_ms: int, rows: Sequence[WriteRow]) -> None:
        """Write the report; the rows are written by now, so an error only says where it is not."""
        application, name = planned.definition.name, planned.stores[0].store.name
        entry = planned.metastore.require_running().catalogue.entry(application)
        report = WriteReport(
            run_id=self._id,
            applications=(application,),
            started_ms=started_ms,
            finished_ms=clock.now_ms(),
            mode="overwrite" if self._overwrites else "append",
            changelog=entry.definition.store(name).changelog_of(application),
            rows=tuple(rows),
        )
        path = location(planned.settings.reports_dir) / "write" / f"{self._id}.json"
        try:
            write_report(path, report)
        except (StateStoreError, OSError) as error:
            _log.warning("the rows are written; their report is not at %s: %s; it was %s", path, error, report)
        for row in rows:
            if row.caught_up is not None and row.caught_up.failure is not None:
                why = row.caught_up.failure.message
                _log.warning("%s: its changelog has the rows, and the store does not yet: %s", row.label, why)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget the staged rows."""
        RowStage(self._stage, []).clear()

    def _overwrite(self, planned: Planned, rows: RowStage) -> Sequence[Rewritten]:
        settings, definition = planned.settings, planned.definition

        def judge(stores: Sequence[StorePartitionSpec]) -> None:
            require_valid(definition, stores, settings, f"overwrite-{self._id}", self._stage)

        spec = OverwriteSpec(planned.stores, rows, self._run_bytes(settings), clock.now_ms())
        with overwrite(spec, adoption_hooks(planned.metastore, definition.name, judge)) as work:
            return work.carry_out()

    def _upsert(self, planned: Planned, rows: RowStage, report: Callable[[WriteRow], None]) -> None:
        settings, largest = planned.settings, number(self._options, "transaction_bytes", 1) or TRANSACTION_BYTES
        kept_s = settings.quarantine_days * 86_400
        spec = UpsertSpec(planned.stores, rows, self._run_bytes(settings), largest, clock.now_ms(), kept_s)
        upsert(spec, report)

    def _run_bytes(self, settings: Settings) -> int:
        return number(self._options, "run_bytes", 1) or settings.restore_run_bytes


def _overwritten(row: Rewritten) -> WriteRow:
    store = row.store
    return WriteRow(
        application=store.application,
        store=store.store.name,
        task=str(store.task),
        puts=row.rows,
        last=row.committed,
        quarantine=None if row.quarantine is None else str(row.quarantine),
        published=row.published,
    )


def _require_places(encoded: EncodedRows, places: pa.Array) -> None:
    """Refuse rows that the DataFrame has in another partition than Kafka's partitioner puts them into."""
    if encoded.partitions is None:
        return
    wrong = pc.fill_null(pc.not_equal(encoded.partitions.cast(pa.int32()), places), False)
    if pc.any(wrong).as_py():
        at = pc.index(wrong, True).as_py()
        raise InputError(
            f"the row with key {encoded.users_keys[at].as_py()!r:.120} has partition {encoded.partitions[at]}; Kafka's "
            f"partitioner puts it into {places[at]}. If the application has a partitioner of its own, its stores "
            "cannot be written. Otherwise leave the column out. Nothing was changed"
        )
