"""Suites of expectations: how they are read, bound to a store, run and proposed."""

from statestore.packages import require_extra

require_extra("validate", __name__)
