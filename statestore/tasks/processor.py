"""The Processor API: the interface of an application's own code.

A processor is a function `process(record, context)`, or a class with this method. Each task creates one instance of the
class. Instead of `process`, the class can have `process_batch(batch, context)`, which gets many records at once
(`input_records.py`). It can also have `init(context)`, which is called before the first record, and `close()`. The
context is in `processor_context.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from statestore.errors import DefinitionError
from statestore.reference import load

if TYPE_CHECKING:  # they import this module
    from statestore.tasks.input_records import InputRecords
    from statestore.tasks.processor_context import ProcessorContext

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """An input record. Key and value are bytes or None; the timestamp is in ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Processor:
    """The functions that a task calls.

    Attributes
    ----------
    process
        Called with each record and the context. None: the processor takes batches.
    process_batch
        Called with many records at once and the context. None: the processor takes records one by one.
    """

    def __init__(
        self,
        process: Callable[[Record, ProcessorContext], None] | None,
        process_batch: Callable[[InputRecords, ProcessorContext], None] | None = None,
        init: Callable[[ProcessorContext], None] | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.process = process
        self.process_batch = process_batch
        self._init = init
        self._close = close

    def init(self, context: ProcessorContext) -> None:
        """Prepare the processor, and schedule punctuations."""
        if self._init is not None:
            self._init(context)

    def close(self) -> None:
        """Release the resources that `init` acquired."""
        if self._close is not None:
            self._close()


def load_processor(reference: str) -> Processor:
    """Import `module:attribute` and create a processor from it.

    Raises
    ------
    DefinitionError
        If it cannot be imported or called.
    """
    expected = "a function or a class with a method `process` or `process_batch`"
    found = load(reference, "processor", expected)
    if not callable(found):
        raise DefinitionError(f"processor {reference} is a {type(found).__name__}, expected {expected}")
    if not isinstance(found, type):
        return Processor(found)
    try:
        made = found()
    except Exception as error:  # the application's own code may raise anything
        raise DefinitionError(
            f"processor {reference} cannot be created: {type(error).__name__}: {error}; its class takes no arguments"
        ) from error
    process, process_batch = (getattr(made, name, None) for name in ("process", "process_batch"))
    if not callable(process) and not callable(process_batch):
        raise DefinitionError(
            f"processor {reference} is a class without a method `process` or `process_batch`, expected {expected}"
        )
    if callable(process) and callable(process_batch):
        raise DefinitionError(f"processor {reference} has both `process` and `process_batch`, expected one of them")
    return Processor(process, process_batch, getattr(made, "init", None), getattr(made, "close", None))


#: What `group_by` names: the key by which a record is grouped; None leaves it out.
KeyOf = Callable[[Record], bytes | None]


def load_key(reference: str) -> KeyOf:
    """Import the function that a regrouped aggregation's `group_by` names.

    Raises
    ------
    DefinitionError
        If it cannot be imported or called.
    """
    expected = "a function of the record that returns the new key as bytes"
    found = load(reference, "group_by", expected)
    if not callable(found):
        raise DefinitionError(f"group_by {reference} is a {type(found).__name__}, expected {expected}")
    return found  # type: ignore[no-any-return]  # what was imported is known only now
