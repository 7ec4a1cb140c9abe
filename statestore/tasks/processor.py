"""The Processor API: what an application's own code sees.

A processor is a function `process(record, context)`, or a class with such a method, of which each task makes one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from statestore.errors import DefinitionError, InputError, UnknownStoreError


class Record(NamedTuple):
    """An input record; key and value are bytes or None, the timestamp is in ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class _Forward(Protocol):
    def __call__(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int) -> None: ...


class ProcessorContext:
    """What a processor may do besides looking at its record.

    Attributes
    ----------
    application
        Name of the application.
    task
        Task id, such as `0_3`.
    """

    def __init__(
        self, application: str, task: str, stores: Mapping[str, Any], outputs: tuple[str, ...], forward: _Forward
    ) -> None:
        self.application = application
        self.task = task
        self._stores = stores
        self._outputs = outputs
        self._forward = forward
        self.timestamp = -1

    def state_store(self, name: str) -> Any:
        """Return one of the application's stores.

        Raises
        ------
        UnknownStoreError
            If the definition has no such store.
        """
        try:
            return self._stores[name]
        except KeyError:
            raise UnknownStoreError(
                f"application {self.application} has no store {name!r}; its stores are: {', '.join(self._stores)}"
            ) from None

    def forward(
        self, key: bytes | None, value: bytes | None, *, topic: str | None = None, timestamp: int | None = None
    ) -> None:
        """Send a record to an output topic, in the same transaction as everything else of this input record.

        Parameters
        ----------
        topic
            One of the definition's output topics; may be left out if there is only one.
        timestamp
            Record timestamp in ms; that of the input record if left out.

        Raises
        ------
        InputError
            If the topic is not an output topic of the definition.
        """
        if topic is None and len(self._outputs) == 1:
            topic = self._outputs[0]
        if topic is None or topic not in self._outputs:
            raise InputError(
                f"application {self.application} cannot forward to {topic!r}; its output topics are: "
                f"{', '.join(self._outputs) or 'none'}"
            )
        self._forward(topic, key, value, self.timestamp if timestamp is None else timestamp)


Process = Callable[[Record, ProcessorContext], None]


def load_processor(reference: str) -> Process:
    """Import `module:attribute` and return the function that processes a record.

    Raises
    ------
    DefinitionError
        If it cannot be imported or called.
    """
    module_name, _, attribute = reference.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
        process = found().process if isinstance(found, type) else found
    except Exception as error:  # importing runs the application's own code, which may raise anything
        raise DefinitionError(
            f"processor {reference} cannot be used: {type(error).__name__}: {error}; expected module:attribute, a "
            "function or a class with a method `process`, with the module on the Python path of the Spark workers"
        ) from error
    if not callable(process):
        raise DefinitionError(f"processor {reference} is a {type(found).__name__}, expected a function or a class")
    return process  # type: ignore[no-any-return]  # what was imported is known only now
