"""Expectations whose SQL names parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from great_expectations.expectations.expectation import BatchExpectation

from statestore_expectations.parameters import filled_in, placeholders


class Bindable(BatchExpectation):
    """An expectation of ours."""

    #: Arguments in SQL, which may name parameters.
    sql: ClassVar[tuple[str, ...]] = ()
    #: Other names that stand for something in the SQL.
    names: ClassVar[dict[str, str]] = {}

    def parameters(self) -> list[str]:
        """Return the parameters that its SQL names.

        Raises
        ------
        ValueError
            If a name in braces is none.
        """
        found = [name for text in self._texts().values() for name in placeholders(text, *self.names)]
        return [name for name in found if name not in self.names]

    def bound(self, parameters: Mapping[str, int]) -> Bindable:
        """Return the expectation with the parameters filled in."""
        texts = self._texts()
        return self.copy(update={name: filled_in(text, parameters, **self.names) for name, text in texts.items()})

    def problems(self) -> Iterator[str]:
        """Yield what keeps the expectation from being evaluated, as far as it can be known without the rows."""
        yield from ()

    def _texts(self) -> dict[str, str]:
        found = {name: getattr(self, name) for name in self.sql}
        return {name: text for name, text in found.items() if text is not None}
