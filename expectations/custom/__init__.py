"""Expectations of our own: Great Expectations registers each when its class is made."""

from expectations.custom.binding import Bindable as Bindable
from expectations.custom.keys import ExpectStoreKeysToBeInTheirPartition as ExpectStoreKeysToBeInTheirPartition
from expectations.custom.queries import ExpectQueryToReturnNoRows as ExpectQueryToReturnNoRows
from expectations.custom.queries import ExpectStoreRowsToBeUnique as ExpectStoreRowsToBeUnique
from expectations.custom.rows import ExpectStoreRowsToSatisfy as ExpectStoreRowsToSatisfy
from expectations.custom.values import ExpectStoreValuesToParse as ExpectStoreValuesToParse
