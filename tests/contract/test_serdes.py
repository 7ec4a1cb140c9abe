"""Serdes and builders: between the types of a program and the bytes of a store."""

from __future__ import annotations

import pytest

from statestore.model import StoreFormat
from statestore.stores import builders, suppliers
from statestore.stores.serdes import BYTES, INT64, JSON, UTF8, Serde
from tests.compositions import STORE, Composition


def test_logging_is_on_unless_switched_off():
    builder = builders.key_value_store_builder(suppliers.persistent_key_value_store(STORE), UTF8, UTF8)
    assert builder.logged
    assert builder.with_logging_disabled() is builder
    assert not builder.logged
    assert builder.build() is not builder.build()


@pytest.mark.parametrize(
    ("serde", "value", "raw"),
    [
        (BYTES, b"\0\xff", b"\0\xff"),
        (UTF8, "é", b"\xc3\xa9"),
        (INT64, -2, b"\xff" * 7 + b"\xfe"),
        (JSON, {"b": [1, None], "a": "é"}, '{"a":"é","b":[1,null]}'.encode()),
    ],
)
def test_serdes_round_trip_and_refuse_none(serde, value, raw):
    assert serde.serialize(value) == raw
    assert serde.deserialize(raw) == value
    with pytest.raises(TypeError):
        serde.serialize(None)


@pytest.mark.parametrize(
    ("serde", "value"), [(INT64, 1 << 63), (INT64, "1"), (BYTES, "a"), (BYTES, bytearray(b"a")), (UTF8, b"a")]
)
def test_serdes_refuse_what_they_cannot_write(serde, value):
    with pytest.raises((TypeError, ValueError)):
        serde.serialize(value)


def test_a_serde_of_your_own_is_a_pair_of_functions(home):
    upper = Serde("upper", lambda text: text.upper().encode(), lambda raw: raw.decode().lower())
    store = Composition("key-value", StoreFormat.PLAIN, False, True).build(None, upper, INT64)
    store.init(home.context())
    store.put("a", 7)
    assert list(store.range("a", "b")) == [("a", 7)]
    assert store.inner.get(b"A") == bytes(7) + b"\7"
