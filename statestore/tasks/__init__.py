"""Tasks: the Processor API that applications are written with, and the life of a task around it."""

from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.tasks.processor import ProcessorContext, Record

__all__ = ["ProcessorContext", "Record", "ValueAndTimestamp"]
