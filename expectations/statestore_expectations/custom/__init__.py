"""Custom expectations. Great Expectations registers each when its class is created."""

from statestore_expectations.custom.binding import Bindable as Bindable
from statestore_expectations.custom.keys import (
    ExpectStoreKeysToBeInTheirPartition as ExpectStoreKeysToBeInTheirPartition,
)
from statestore_expectations.custom.queries import ExpectQueryToReturnNoRows as ExpectQueryToReturnNoRows
from statestore_expectations.custom.queries import ExpectStoreRowsToBeUnique as ExpectStoreRowsToBeUnique
from statestore_expectations.custom.rows import ExpectStoreRowsToSatisfy as ExpectStoreRowsToSatisfy
from statestore_expectations.custom.values import ExpectStoreValuesToParse as ExpectStoreValuesToParse
