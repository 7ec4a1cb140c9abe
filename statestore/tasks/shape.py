"""The definition that a task's stores were built for: a changed definition would read them incorrectly.

The shape is kept in our own directory. Whatever decides on keys and values of a store is in it; what may change at any
time, such as intervals, engines and retention, is not. A store that leaves the definition stays in the shape: its
directory and its changelog stay, too, and a later store of its name would take them over.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.definitions.aggregation import AggregationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.durable import write_durably
from statestore.errors import DefinitionError
from statestore.tasks.spec import TaskSpec


class _Store(BaseModel):
    """The settings that determine the rows of a store.

    Attributes
    ----------
    key_serde, value_serde
        Of a store that a processor writes; None: an aggregation writes it, or they were not recorded.
    topic_id
        Changelog that the store was built for; None: not recorded.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    window_size_ms: int | None
    retain_duplicates: bool
    aggregate: str | None
    group_by: str | None
    windows: str | None
    key_serde: str | None = None
    value_serde: str | None = None
    topic_id: str | None = None

    @classmethod
    def of(cls, store: StoreDefinition, aggregation: AggregationDefinition | None, topic_id: str | None) -> _Store:
        steps = None
        if aggregation is not None and aggregation.windows is not None:
            steps = f"{aggregation.windows.size_ms} ms every {aggregation.windows.step_ms} ms"
        elif aggregation is not None and aggregation.sessions is not None:
            steps = f"sessions with a gap of {aggregation.sessions.gap_ms} ms"
        return cls(
            kind=store.kind,
            window_size_ms=store.window_size_ms,
            retain_duplicates=store.retain_duplicates,
            aggregate=aggregation.aggregate if aggregation else None,
            group_by=aggregation.group_by if aggregation else None,
            windows=steps,
            key_serde=None if aggregation else store.key_serde,
            value_serde=None if aggregation else store.value_serde,
            topic_id=topic_id,
        )

    def changes(self, now: _Store) -> list[str]:
        """Name what another definition of the store contradicts."""
        fields = [field for field in _Store.model_fields if field != "topic_id"]
        return [
            f"{field} {before} -> {after}"
            for field in fields
            for before, after in [(getattr(self, field), getattr(now, field))]
            if before != after and not (field.endswith("_serde") and None in (before, after))
        ]


class _Shape(BaseModel):
    """The settings that determine the rows of a task's stores.

    Attributes
    ----------
    input_id
        Topic that the positions of the stores are of; None: not recorded.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    input_topic: str
    input_id: str | None = None
    stores: dict[str, _Store]


def check_shape(spec: TaskSpec) -> None:
    """Compare the definition with that under which the task's stores were built.

    Raises
    ------
    DefinitionError
        If they contradict each other; stores that were added or removed do not. Nor does a store that is added again
        after both its directory and its changelog were deleted: it has nothing to take over.
    """
    known, now = _known(spec), _shape(spec)
    if known is None:
        return
    changes = [] if now.input_topic == known.input_topic else [f"input_topic {known.input_topic} -> {now.input_topic}"]
    for name, store in now.stores.items():
        before = known.stores.get(name, store)
        if not _is_gone(spec, name, before):
            changes += [f"{name}.{change}" for change in before.changes(store)]
    if changes:
        raise DefinitionError(
            f"the definition of {spec.application.name} was changed since the stores of task {spec.task} were built: "
            f"{'; '.join(changes)}. Go back to the former definition, or give the changed one another application "
            "name or other store names"
        )


def remember_shape(spec: TaskSpec) -> None:
    """Keep the definition's shape; call it once the task has recovered."""
    if not is_remembered(spec):
        write_durably(spec.paths.shape, _text(spec))


def former_input(spec: TaskSpec) -> str | None:
    """Return the id of the topic that the task has read before, if its input is another one now; None: it is not."""
    known = _known(spec)
    before = None if known is None else known.input_id
    return None if spec.input_id is None or before == spec.input_id else before


def is_remembered(spec: TaskSpec) -> bool:
    """True if the definition's shape is the one that was kept last."""
    try:
        return spec.paths.shape.read_text(encoding="utf-8") == _text(spec)
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _text(spec: TaskSpec) -> str:
    now, known = _shape(spec), _known(spec)
    former = known.stores if known is not None else {}
    return now.model_copy(update={"stores": {**former, **now.stores}}).model_dump_json()


def _shape(spec: TaskSpec) -> _Shape:
    by_store = {item.store: item for item in spec.subtopology.aggregations}
    topics = {name: changelog.topic_id for name, changelog in spec.changelogs.items()}
    stores = {
        store.name: _Store.of(store, by_store.get(store.name), topics.get(store.name))
        for store in spec.subtopology.stores
    }
    return _Shape(input_topic=spec.subtopology.input_topic, input_id=spec.input_id, stores=stores)


def _known(spec: TaskSpec) -> _Shape | None:
    """Return the shape that is kept; None if there is none, or it cannot be read."""
    try:
        return _Shape.model_validate_json(spec.paths.shape.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _is_gone(spec: TaskSpec, name: str, before: _Store) -> bool:
    """True if neither the directory nor the changelog of the store that was is there."""
    now = spec.changelogs.get(name)
    if now is None or before.topic_id in (None, now.topic_id):
        return False
    return not any(path.exists() for path in (spec.paths.store(name), spec.paths.task_dir / name))
