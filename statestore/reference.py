"""References to the user's own code, as `package.module:attribute`."""

from __future__ import annotations

import importlib
from typing import Any

from statestore.errors import DefinitionError


def load(reference: str, what: str, expected: str) -> Any:
    """Import what a reference names.

    Parameters
    ----------
    what
        What it is for, such as `processor`; for the error.
    expected
        What the attribute should be; for the error.

    Raises
    ------
    DefinitionError
        If it cannot be imported.
    """
    module_name, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # importing runs the user's own code, which may raise anything
        raise DefinitionError(
            f"{what} {reference} cannot be used: {type(error).__name__}: {error}; expected module:attribute, "
            f"{expected}, with the module on the Python path of the Spark workers"
        ) from error
