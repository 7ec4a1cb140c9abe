"""The oracle after every fault: O1 to O4, O6 and O7, from a plain consumer and the plain model of the application.

O1 contents = fold of the changelog below the committed offset. O2 nothing is behind the committed offset. O3 contents
and changelog are what the input gives. O4 outputs too, each key's in their order. O6 metastore = fold of the command
topic. O7 nothing is stuck or left over, and another run does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from statestore.definitions.store import StoreDefinition
from statestore.metastore.command_topic import topic_name
from statestore.model import StoreFormat, TaskId, changelog_topic
from statestore.tasks import stream_task
from statestore.tasks.spec import TaskSpec
from statestore.tasks.stream_task import StreamTask
from tests.faults import command_log, model
from tests.faults.model import Expected
from tests.faults.subject import Contents, Subject, contents
from tests.integration.broker import Logged
from tests.oracle.rows import fold, time_of, unexpired

Read = Mapping[tuple[str, int], tuple[list[Logged], int]]


def check(subject: Subject) -> None:
    """Check an application that has processed all of its input."""
    before = subject.logged(subject.definition.input_topic, *subject.written)
    expected = _expected(subject, before)
    memory = _run_again(subject)
    after = subject.logged(subject.definition.input_topic, *subject.written)
    assert {where: end for where, (_, end) in after.items()} == {where: end for where, (_, end) in before.items()}, (
        "O7: a second run wrote something"
    )
    for task in subject.tasks:
        for store in subject.definition.subtopologies[task.subtopology].stores:
            log, end = before[changelog_topic(subject.name, store.name), task.partition]
            if store.engine == "in_memory":
                found, committed = memory[task][store.name], end - 1
            else:
                found, committed = subject.stored(task, store.name)
            _check_store(subject, task, store, found, committed, log, end)
        _check_left_over(subject, task)
    _check_contents(subject, before, expected, memory)
    _check_outputs(subject, expected, before)
    _check_metastore(subject)


# -- O1, O2 -------------------------------------------------------------------------------------------------------


def _check_store(
    subject: Subject,
    task: TaskId,
    store: StoreDefinition,
    found: Contents,
    committed: int | None,
    log: Sequence[Logged],
    end: int,
) -> None:
    name = f"{store.name} of {task}"
    assert committed is None or committed < end, f"O2: {name} has {committed}, its log ends at {end}"
    below = [record for record in log if committed is not None and record.offset <= committed]
    assert len(below) == len(log), f"O2: {len(log) - len(below)} records are behind {name}, which has {committed}"
    folded, stream_time = folded_log(store, below)
    assert_same(subject, store, unexpired(store, found, stream_time), folded, f"O1: {name} is not its changelog's fold")


def folded_log(store: StoreDefinition, log: Sequence[Logged]) -> tuple[Contents, int]:
    """Last write of each key that retention still shows, and the store's stream time."""
    stream_time = max((time_of(store, record.key or b"") for record in log), default=-1)
    return unexpired(store, fold(log), stream_time), stream_time  # type: ignore[return-value]


def assert_same(subject: Subject, store: StoreDefinition, found: Contents, expected: Contents, what: str) -> None:
    """Compare a store's rows with those that it must have."""
    values = {key: value for key, (value, _) in expected.items()}
    differing = [key for key in {**found, **values} if found.get(key, (None,))[0] != values.get(key)]
    assert not differing, f"{what}: {[(key, found.get(key), expected.get(key)) for key in differing[:5]]}"
    if store.format is StoreFormat.PLAIN:
        return
    # A row that is older than its store's upgrade has no timestamp until it is written again.
    unknown = {-1} if store.name in subject.upgraded else set()
    differing = [key for key, (_, at) in expected.items() if found[key][1] not in {at, *unknown}]
    assert not differing, f"{what}, timestamps: {[(key, found[key], expected[key]) for key in differing[:5]]}"


# -- O3, O4 -------------------------------------------------------------------------------------------------------


def _expected(subject: Subject, read: Read) -> dict[int, Expected]:
    compute = model.aggregated if subject.definition.processor is None else model.processed
    inputs = (read[subject.definition.input_topic, number][0] for number in range(subject.partitions))
    return {number: compute(records) for number, records in enumerate(inputs)}


def _check_contents(
    subject: Subject, read: Read, expected: Mapping[int, Expected], memory: Mapping[TaskId, Mapping[str, Contents]]
) -> None:
    exactly = subject.definition.processing_guarantee == "exactly_once_v2"

    def rows_of(task: TaskId, store: StoreDefinition) -> Contents:
        return memory[task][store.name] if store.engine == "in_memory" else subject.stored(task, store.name)[0]

    for task in subject.tasks:
        if task.subtopology:
            continue
        for store in subject.definition.subtopologies[0].stores:
            rows, stream_time = expected[task.partition].stores[store.name]
            what = f"O3: {store.name} of {task} is not what the input gives"
            found = unexpired(store, rows_of(task, store), stream_time)
            _compare(subject, store, found, unexpired(store, rows, stream_time), what, exactly)
    if len(subject.definition.subtopologies) > 1:
        store = subject.definition.store("grouped")
        found = {}
        for task in subject.tasks:
            found.update(rows_of(task, store) if task.subtopology else {})
        records = [
            record for number in range(subject.partitions) for record in read[subject.definition.input_topic, number][0]
        ]
        _compare(subject, store, found, model.grouped(records), "O3: grouped is not what the input gives", exactly)


def _compare(
    subject: Subject, store: StoreDefinition, found: Contents, expected: Contents, what: str, exactly: bool
) -> None:
    if exactly or store.name == "latest":
        assert_same(subject, store, found, expected, what)
    elif store.kind == "key-value":  # at least once: records may be counted again, none may be missing
        number = int if subject.definition.processor else lambda value: int.from_bytes(value, "big")
        assert found.keys() == expected.keys(), what
        lost = [key for key, (value, _) in expected.items() if number(found[key][0]) < number(value)]
        assert not lost, f"{what}: {[(key, found[key], expected[key]) for key in lost]}"


def _check_outputs(subject: Subject, expected: Mapping[int, Expected], read: Read) -> None:
    exactly = subject.definition.processing_guarantee == "exactly_once_v2"
    sent = {key: values for part in expected.values() for key, values in part.sent.items()}
    found: dict[bytes, list[bytes | None]] = {}
    for record in read[f"{subject.name}-out", 0][0]:
        assert record.key is not None
        found.setdefault(record.key, []).append(record.value)
    assert found.keys() == sent.keys(), f"O4: outputs of other keys: {found.keys() ^ sent.keys()}"
    for key, values in found.items():
        if subject.definition.processor is None:  # one result for each key and commit
            numbers = [int.from_bytes(value or b"", "big") for value in values]
            last = int.from_bytes(sent[key][-1] or b"", "big")
            assert numbers[-1] == last or not exactly, f"O4: the last output of {key!r} is {numbers[-1]}, not {last}"
            assert numbers[-1] >= last, f"O4: the last output of {key!r} is {numbers[-1]}, below {last}"
            assert numbers == sorted(set(numbers)) or not exactly, f"O4: outputs of {key!r} are {numbers}"
        elif exactly:
            assert values == sent[key], f"O4: outputs of {key!r} are {values}, expected {sent[key]}"


# -- O6 -----------------------------------------------------------------------------------------------------------


def _check_metastore(subject: Subject) -> None:
    topic = topic_name(subject.service_id)
    expected = command_log.folded(subject.logged(topic)[topic, 0][0])
    view = subject.metastore.require_running()
    assert view.catalogue.digest() == command_log.digest(expected), "O6: the metastore is not its log's fold"
    assert set(expected[subject.name]["topics"]) >= set(subject.written) - {f"{subject.name}-out"}, "O6: topics"
    assert view.catalogue.entry(subject.name).definition == subject.definition, "O6: not the subject's definition"


# -- O7 -----------------------------------------------------------------------------------------------------------


def _run_again(subject: Subject) -> dict[TaskId, dict[str, Contents]]:
    """Run once more, which must do nothing; return what in-memory stores have."""
    rows = subject.run(hooks=[tell_memory])
    for row in rows:
        done = (row.records_in, row.records_out, row.changelog_records, row.commits)
        assert done == (0, 0, 0, 0), f"O7: a second run of {row.task} did {done}"
        restored = {figures.store for figures in row.stores if figures.restored}
        memory = {store.name for store in subject.definition.stores if store.engine == "in_memory"}
        assert restored <= memory, f"O7: a second run of {row.task} restored {restored - memory}"
    found: dict[TaskId, dict[str, Contents]] = {}
    for task in subject.tasks:
        path = subject.directory / "run" / f"memory-{task}.json"
        if path.exists():
            found[task] = {
                store: {bytes.fromhex(key): (bytes.fromhex(value), at) for key, value, at in entries}
                for store, entries in json.loads(path.read_text()).items()
            }
    return found


def tell_memory(specs: Sequence[TaskSpec], directory: Path) -> None:
    """In a child: have tasks write down what their in-memory stores have once they have recovered."""

    class Telling(StreamTask):
        def recover(self) -> None:
            super().recover()
            task = self._spec.task
            entries = {
                name: [(key.hex(), value.hex(), at) for key, (value, at) in contents(store, _kind(self, name)).items()]
                for name, store in self._stores.by_name.items()
                if not store.persistent
            }
            (directory / f"memory-{task}.json").write_text(json.dumps(entries))

    def _kind(task: StreamTask, name: str) -> str:
        return task._spec.application.store(name).kind

    stream_task.StreamTask = Telling  # type: ignore[misc]


def _check_left_over(subject: Subject, task: TaskId) -> None:
    own = subject.paths(task).own_dir
    left = [
        str(path.relative_to(own))
        for pattern in (
            "swap-*",
            "rebuilding/*",
            "staging/*",
            "segments/*/expired/*",
            "**/spill-*/*",
            "commits/*/*",
            "**/*.partial",
        )
        for path in own.glob(pattern)
    ]
    assert not left, f"O7: {left} is left of {task}"
