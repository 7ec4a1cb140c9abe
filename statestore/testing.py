"""Test applications without a broker, as with Kafka Streams' TopologyTestDriver.

    with TopologyTestDriver(Path("orders.yaml"), key_serde=UTF8, value_serde=JSON) as driver:
        driver.pipe("anna", {"cents": 5}, timestamp=1_000)
        assert driver.read("totals") == [("anna", {"cents": 5}, 1_000, ())]

Processors, aggregations, and stores run on the same code as in a task (`tasks/driver.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.fields import Engine
from statestore.errors import DefinitionError, InputError
from statestore.metastore.definition_files import load_definitions
from statestore.model import TaskId, TopicPartition
from statestore.stores.serdes import BYTES, Serde
from statestore.tasks.driver import DriverTask, added
from statestore.tasks.driver_logs import LoggedRecord, Logs
from statestore.tasks.processor import Headers
from statestore.tasks.topology import Counts

__all__ = ["Counts", "LoggedRecord", "TopologyTestDriver"]


class TopologyTestDriver:
    """An application with stores in a temporary directory and topics in memory. Use it as a context manager.

    Parameters
    ----------
    definition
        The application, as an object, a mapping, or the path of a YAML file.
    key_serde, value_serde
        Serdes of keys and values for `pipe` and `read`.
    commit_every
        Number of piped records after which to commit. None: only when `commit` is called.
    partitions
        Number of partitions of the input topic.
    engine
        Engine of every store that has a changelog, such as `in_memory`. The default is that of the definition.

    Raises
    ------
    DefinitionError
        If the definition is wrong, or the code that it names cannot be imported.
    """

    def __init__(
        self,
        definition: ApplicationDefinition | Mapping[str, Any] | Path | str,
        *,
        key_serde: Serde[Any] = BYTES,
        value_serde: Serde[Any] = BYTES,
        commit_every: int | None = 1,
        partitions: int = 1,
        engine: Engine | None = None,
    ) -> None:
        if partitions < 1 or (commit_every is not None and commit_every < 1):
            raise InputError(
                f"partitions and commit_every are at least 1, found {partitions} and {commit_every}; commit_every=None "
                "leaves commits to you"
            )
        self.application = _application(definition, engine)
        self._parts = self.application.subtopologies
        self._serdes = key_serde, value_serde
        self._commit_every = commit_every
        self._piped = 0
        self._logs = Logs(self.application, partitions)
        self._seen: dict[TopicPartition, int] = {}
        self._tasks: dict[TaskId, DriverTask] = {}
        self._resources = ExitStack()
        directory = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="statestore-driver-"))
        self._state_dir = Path(directory)
        try:
            for part in self._parts:
                self._task(TaskId(part.index, 0))
        except BaseException:
            self.close(crash=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.close(crash=error_type is not None)

    def close(self, *, crash: bool = False) -> None:
        """Close the processors, unless the run crashed, and remove all files."""
        with self._resources as resources:
            for task in self._tasks.values():
                resources.callback(task.close, crash=crash)

    # -- in and out -----------------------------------------------------------------------------------------------

    def pipe(
        self,
        key: Any,
        value: Any,
        *,
        timestamp: int,
        headers: Headers = (),
        topic: str | None = None,
        partition: int = 0,
    ) -> None:
        """Process a record.

        Parameters
        ----------
        timestamp
            Timestamp of the record, in ms since the epoch.
        topic
            A topic that the application reads. The default is its input topic.

        Raises
        ------
        ProcessingError
            If the application's code failed on the record and there is no dead-letter topic. Then call `restart`.
        InputError
            If the application does not read the topic, the topic has no such partition, or `restart` must be called
            first.
        """
        reader = self._reader(topic, partition)
        task = self._task(reader)
        task.check_running()
        key_serde, value_serde = self._serdes
        record = LoggedRecord(
            None if key is None else key_serde.serialize(key),
            None if value is None else value_serde.serialize(value),
            timestamp,
            tuple(headers),
        )
        self._logs.append(self._parts[reader.subtopology].input_topic, record, partition)
        task.process()
        self._piped += 1
        if self._commit_every is not None and self._piped % self._commit_every == 0:
            self.commit()

    def read(
        self, topic: str, *, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
    ) -> list[LoggedRecord]:
        """Return the records of a topic since it was last read, including changelogs and dead letters.

        With exactly-once processing, records arrive with a commit.

        Parameters
        ----------
        key_serde, value_serde
            Serdes for this topic, instead of the driver's.

        Raises
        ------
        InputError
            If the application has no such topic.
        """
        key_of, value_of = key_serde or self._serdes[0], value_serde or self._serdes[1]
        found = []
        for partition in self._logs.partitions(topic):
            records = self._logs.read(partition, self._seen.get(partition, 0))
            self._seen[partition] = self._seen.get(partition, 0) + len(records)
            found += [
                record._replace(
                    key=None if record.key is None else key_of.deserialize(record.key),
                    value=None if record.value is None else value_of.deserialize(record.value),
                )
                for record in records
            ]
        return found

    # -- the tasks ------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit as tasks do: write aggregations to their stores, and deliver records to their topics and readers."""
        for part in self._parts:
            for name in self._logs.partitions(part.input_topic):
                task = TaskId(part.index, name.partition)
                if task in self._tasks or self._logs.read(name):
                    self._task(task).process()
                    self._task(task).commit()

    def restart(self, *, crash: bool = False) -> None:
        """End the run and begin the next one on the same stores and topics, as each micro-batch does.

        Processors are created again, and stream time continues. After a failure, the next run begins at the last
        commit.

        Parameters
        ----------
        crash
            Do not commit first: the next run processes the records since the last commit again.
        """
        crash = crash or any(not task.running for task in self._tasks.values())
        if not crash:
            self.commit()
        for task in self._tasks.values():
            task.close(crash=crash)
            task.reopen()

    def store(self, name: str, *, partition: int = 0) -> Any:
        """Return a store as a processor gets it, with the types of its definition.

        It includes writes since the last commit. A test can also write to it between records.

        Raises
        ------
        UnknownStoreError
            If the application has no such store.
        """
        topic = self.application.subtopology_of(name).input_topic
        return self._task(self._reader(topic, partition)).store(name)

    def stream_time(self, *, topic: str | None = None, partition: int = 0) -> int:
        """Largest timestamp (ms) of the records from a partition of the input or of a repartition topic; -1: none."""
        return self._task(self._reader(topic, partition)).stream_time

    @property
    def counts(self) -> Counts:
        """Committed counts of all tasks. Records that pass through a repartition topic are counted as input twice."""
        return reduce(added, (task.counts for task in self._tasks.values()), Counts())

    def _task(self, task: TaskId) -> DriverTask:
        if task not in self._tasks:
            self._tasks[task] = DriverTask(self.application, task, self._state_dir, self._logs)
        return self._tasks[task]

    def _reader(self, topic: str | None, partition: int) -> TaskId:
        inputs = [part.input_topic for part in self._parts]
        if topic is None:
            topic = self.application.input_topic
        if topic not in inputs:
            raise InputError(f"{self.application.name} does not read topic {topic!r}; it reads: {', '.join(inputs)}")
        count = len(self._logs.partitions(topic))
        if not 0 <= partition < count:
            raise InputError(
                f"{topic} has partitions 0 to {count - 1}, found {partition}; make the driver with more partitions"
            )
        return TaskId(inputs.index(topic), partition)


def _application(
    definition: ApplicationDefinition | Mapping[str, Any] | Path | str, engine: Engine | None
) -> ApplicationDefinition:
    if isinstance(definition, str | Path):
        found = load_definitions(Path(definition))
        if len(found) != 1:
            raise DefinitionError(
                f"{definition} defines {', '.join(found) or 'nothing'}; expected one application, in one file"
            )
        (definition,) = found.values()
    if isinstance(definition, Mapping):
        try:
            definition = ApplicationDefinition.model_validate(definition)
        except ValidationError as error:
            raise DefinitionError(f"this does not define an application: {error}") from error
    if engine is None:
        return definition
    changed = {"engine": engine}
    stores = tuple(store.model_copy(update=changed) if store.logged else store for store in definition.stores)
    return definition.model_copy(update={"stores": stores})
