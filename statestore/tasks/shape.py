"""What a task's stores were built for: a definition that was changed since would read them wrongly.

The shape is kept in our own directory. Whatever decides on keys and values of a store is in it; what may change at any
time, such as intervals, engines and retention, is not.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.durable import write_durably
from statestore.errors import DefinitionError
from statestore.model import AggregationDefinition, StoreDefinition
from statestore.tasks.spec import TaskSpec


class _Store(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    window_size_ms: int | None
    retain_duplicates: bool
    aggregate: str | None
    group_by: str | None
    windows: str | None

    @classmethod
    def of(cls, store: StoreDefinition, aggregation: AggregationDefinition | None) -> _Store:
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
        )


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    input_topic: str
    stores: dict[str, _Store]


def check_shape(spec: TaskSpec) -> None:
    """Compare the definition with that under which the task's stores were built.

    Raises
    ------
    DefinitionError
        If they contradict each other; stores that were added or removed do not.
    """
    try:
        known = _Shape.model_validate_json(spec.paths.shape.read_bytes())
    except (FileNotFoundError, ValidationError):
        return
    now = _shape(spec)
    changes = [] if now.input_topic == known.input_topic else [f"input_topic {known.input_topic} -> {now.input_topic}"]
    for name, store in now.stores.items():
        before = known.stores.get(name, store)
        changes += [
            f"{name}.{field} {getattr(before, field)} -> {getattr(store, field)}"
            for field in _Store.model_fields
            if getattr(before, field) != getattr(store, field)
        ]
    if changes:
        raise DefinitionError(
            f"the definition of {spec.application.name} was changed since the stores of task {spec.task} were built: "
            f"{'; '.join(changes)}. Go back to the former definition, or give the changed one another application "
            "name or other store names"
        )


def remember_shape(spec: TaskSpec) -> None:
    """Keep the definition's shape; call it once the task has recovered."""
    text = _shape(spec).model_dump_json()
    try:
        if spec.paths.shape.read_text(encoding="utf-8") == text:
            return
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    write_durably(spec.paths.shape, text)


def _shape(spec: TaskSpec) -> _Shape:
    by_store = {item.store: item for item in spec.subtopology.aggregations}
    stores = {store.name: _Store.of(store, by_store.get(store.name)) for store in spec.subtopology.stores}
    return _Shape(input_topic=spec.subtopology.input_topic, stores=stores)
