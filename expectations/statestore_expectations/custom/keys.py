"""Keys are where Kafka's own partitioner puts them."""

from __future__ import annotations

from typing import Any, ClassVar

from great_expectations.compatibility import pydantic
from great_expectations.core.suite_parameters import SuiteParameterDict

from statestore_expectations.custom.rows import RowsExpectation, Rule


class ExpectStoreKeysToBeInTheirPartition(RowsExpectation):
    """Expect each key in the partition that Kafka's default partitioner chooses: murmur2 of its bytes.

    For stores with the keys of their input; not where a processor makes keys of its own, or where the input's producer
    has another partitioner, such as librdkafka's default.

    Parameters
    ----------
    partitions
        How many partitions the store has: `{"$PARAMETER": "partitions"}`.
    mostly
        Share of the rows that has to pass: 1 if not said.
    """

    success_keys: ClassVar[tuple[str, ...]] = ("partitions", "mostly")
    partitions: pydantic.PositiveInt | SuiteParameterDict[str, Any]

    def rule(self) -> Rule:
        """Return the rule; `statestore_expectations.partitioner` has its function."""
        return Rule(f"kafka_partition(key, {self.partitions}) = partition")
