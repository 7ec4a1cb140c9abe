"""The Processor API and the aggregations for writing applications, and the life of a task."""

from statestore.formats.headers_value import AggregationWithHeaders, ValueTimestampHeaders
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.stores.serdes import BYTES, INT64, JSON, UTF8, Serde
from statestore.tasks.aggregates import aggregate, count, latest, reduce_by, sum_of
from statestore.tasks.input_records import InputRecords
from statestore.tasks.processor import Record
from statestore.tasks.processor_context import ProcessorContext

__all__ = [
    "BYTES",
    "INT64",
    "JSON",
    "UTF8",
    "AggregationWithHeaders",
    "InputRecords",
    "ProcessorContext",
    "Record",
    "Serde",
    "ValueAndTimestamp",
    "ValueTimestampHeaders",
    "aggregate",
    "count",
    "latest",
    "reduce_by",
    "sum_of",
]
