"""A row that a function of the user returns is one that its store can have, or is refused with its key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError, InputError
from statestore.formats import session_key
from statestore.formats.timestamped_value import encode
from statestore.rewrite.user_rows import Row, RowFunction

STORE = StoreDefinition(name="s", key_serde="utf8", value_serde="int64")
SESSIONS = StoreDefinition(name="s", kind="session", retention_ms=60_000)
RESULTS: list[Any] = []


def returned(row: Row) -> Any:
    """What the test has put there, called with the row if it can be called."""
    return RESULTS[-1](row) if callable(RESULTS[-1]) else RESULTS[-1]


def called(result: Any, store: StoreDefinition = STORE, *, key: bytes = b"ada", as_bytes: bool = False) -> Any:
    RESULTS.append(result)
    stored = encode(b"\0" * 7 + b"\x05", 77) if store.values.timestamped else b"v"
    return RowFunction(f"{__name__}:returned", store, store, as_bytes=as_bytes)(key, stored)


def test_a_row_has_what_the_serdes_read_and_several_or_none_may_come_back() -> None:
    assert called(lambda row: [row, Row("bob", row.value + 1, row.timestamp)]) == [
        (b"ada", b"ada", encode(b"\0" * 7 + b"\x05", 77)),
        (b"bob", b"bob", encode(b"\0" * 7 + b"\x06", 77)),
    ]
    assert called(None) == []
    assert called(lambda row: replace(row, timestamp=None))[0].value == encode(b"\0" * 7 + b"\x05", -1)


def test_times_of_a_row_are_its_numbers() -> None:
    key = session_key.encode(b"ada", 10, 20)
    (row,) = called(lambda row: replace(row, numbers={**row.numbers, "session_end": 30}), SESSIONS, key=key)
    assert (row.users_key, row.key) == (b"ada", session_key.encode(b"ada", 10, 30))


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda row: replace(row, value="much"), "key b'ada': TypeError: expected int"),
        (lambda row: replace(row, timestamp=0), "the timestamp 0; expected ms"),
        (lambda row: replace(row, numbers={"window_start": 1}), "the numbers window_start; expected none"),
        (lambda row: [row, 7], "it returned a int; expected a Row"),
        (lambda row: exit(3), "SystemExit: 3"),
    ],
)
def test_a_row_that_the_store_cannot_have_is_refused_with_its_key(result: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        called(result)


def test_a_value_that_its_serde_cannot_read_is_refused_or_given_as_bytes() -> None:
    store = STORE.model_copy(update={"value_serde": "json"})
    with pytest.raises(InputError, match=r"cannot be read by the serde json .*--bytes"):
        called(lambda row: row, store)
    assert called(lambda row: replace(row, value=b"5"), store, as_bytes=True)[0].value == encode(b"5", 77)
    with pytest.raises(InputError, match="cannot be read by the serde json"):
        called(lambda row: row, store, as_bytes=True)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(DefinitionError, match="is a list, expected a function"):
        RowFunction(f"{__name__}:RESULTS", STORE, STORE, as_bytes=False)
