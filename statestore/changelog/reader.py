"""The reader of changelogs: also reads positions in the headers of records, and lays values out as stores keep them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from confluent_kafka import Message

from statestore.changelog.foreign_headers import ForeignHeaders
from statestore.changelog.header_positions import HeaderPositions
from statestore.changelog.stored_values import stored_batch, stored_columns
from statestore.formats.value_format import ValueFormat
from statestore.kafka.cluster import Cluster
from statestore.kafka.reader import LogReader
from statestore.kafka.record_columns import DecodedRecords
from statestore.model import TopicPartition


class ChangelogReader(LogReader):
    """Reads ranges of one partition of a changelog.

    Parameters
    ----------
    cluster, partition, read_committed
        As of `LogReader`.
    watch_headers
        Tell whether records have other headers than those of positions.
    """

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        *,
        read_committed: bool = True,
        watch_headers: bool = False,
    ) -> None:
        super().__init__(cluster, partition, read_committed=read_committed)
        self._positions = HeaderPositions()
        self._keeps_headers = False
        self._foreign = ForeignHeaders() if watch_headers else None

    @property
    def position(self) -> dict[TopicPartition, int]:
        """The merged positions in the headers of the records that `read` has delivered.

        Empty if the last record has no position: the rows are then ahead of the merged position. Also empty for values
        with headers: a program may have copied an old position with the headers of another row.
        """
        return {} if self._keeps_headers else self._positions.of_last

    @property
    def has_positions(self) -> bool:
        """True if any record that `read` has delivered has a position in its headers."""
        return bool(self._positions.merged)

    @property
    def foreign_header(self) -> str | None:
        """Name of the first header, in what `read` has delivered, that is none of a position; None if none was seen."""
        return None if self._foreign is None else self._foreign.found

    def read(self, start: int, end: int, values: ValueFormat | None = None) -> Iterator[pa.RecordBatch]:
        """Yield records as `LogReader.read` does.

        Parameters
        ----------
        values
            If it is a format that keeps headers, values come as a store of this format keeps them: with the headers
            and the timestamp of their records. Otherwise, they come as they are in the log.

        Raises
        ------
        StoreBehindLogStartError
            If records from `start` on are no longer in the log.
        """
        if values is None or not values.keeps_headers:
            yield from super().read(start, end)
            return
        self._keeps_headers = True
        timestamped = values.timestamped
        yield from self._read(
            start,
            end,
            lambda decoded: stored_columns(decoded, self.partition, timestamped=timestamped),
            lambda messages: stored_batch(messages, values),
        )

    def read_with_aborted(
        self, start: int, end: int, values: ValueFormat | None = None
    ) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield all records as `read` does, each batch with False if its records' transaction was aborted.

        Under `read_committed`, and where the brokers can be asked for record batches (`can_fetch`). Otherwise aborted
        records are left out as in `read`.
        """
        if not self._cluster.can_fetch:
            yield from ((batch, True) for batch in self.read(start, end, values))
            return

        def columns(decoded: DecodedRecords) -> Iterable[tuple[pa.RecordBatch, bool]]:
            batches: Iterable[pa.RecordBatch] = (decoded.columns,)
            if values is not None and values.keeps_headers:
                batches = stored_columns(decoded, self.partition, timestamped=values.timestamped)
            return ((batch, decoded.committed) for batch in batches)

        yield from self._fetch(
            start, end, columns, lambda messages: (stored_batch(messages, values), True), aborted=True
        )

    def _note_decoded(self, decoded: DecodedRecords) -> None:
        self._positions.add_columns(decoded.data, decoded.headers, decoded.columns.num_rows)
        if self._foreign is not None:
            self._foreign.add_columns(decoded.data, decoded.headers)

    def _note_messages(self, messages: list[Message]) -> None:
        self._positions.add_messages(messages)
        if self._foreign is not None:
            self._foreign.add_messages(messages)
