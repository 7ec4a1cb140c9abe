"""Keys and values between the text of a command line and the bytes of a store."""

import pytest

from statestore.cli.values import decoded, key_bytes, value_text
from statestore.errors import InputError
from statestore.stores.serdes import Serde

REVERSED = Serde("reversed", lambda text: text[::-1].encode(), lambda raw: {1, len(raw)})


@pytest.mark.parametrize(
    ("text", "serde", "raw"),
    [
        ("00ff", "bytes", b"\x00\xff"),
        ("Zürich", "utf8", "Zürich".encode()),
        ("-2", "int64", b"\xff" * 7 + b"\xfe"),
        ('{"b": 1, "a": [2]}', "json", b'{"a":[2],"b":1}'),
        ("abc", "tests.unit.test_cli_values:REVERSED", b"cba"),
    ],
)
def test_a_key_is_what_its_serde_makes_of_the_text(text, serde, raw):
    assert key_bytes(text, serde) == raw


@pytest.mark.parametrize(
    ("text", "serde", "expected"),
    [
        ("0", "bytes", "hexadecimal digits"),
        ("one", "int64", "a number of 64 bits"),
        (str(1 << 63), "int64", "a number of 64 bits"),
        ("{", "json", "JSON"),
        ("[" * 100_000, "json", "JSON"),
    ],
)
def test_a_key_that_its_serde_cannot_take_is_refused(text, serde, expected):
    with pytest.raises(InputError, match=f"is not {expected}, as --key-serde {serde} requires"):
        key_bytes(text, serde)


@pytest.mark.parametrize(
    ("raw", "serde", "text"),
    [
        (b"\x00\xff", "bytes", "00ff"),
        ("Zürich".encode(), "utf8", "Zürich"),
        (b"\x00" * 7 + b"\x05", "int64", "5"),
        (b'{"a":"\xc3\xa4"}', "json", '{"a": "ä"}'),
        (b"xy", "tests.unit.test_cli_values:REVERSED", "{1, 2}"),
    ],
)
def test_a_value_is_shown_as_its_serde_reads_it(raw, serde, text):
    assert value_text(raw, serde) == text


@pytest.mark.parametrize(
    ("raw", "serde", "value"),
    [
        (b"\x00\xff", "bytes", "00ff"),
        (b"\x00" * 7 + b"\x05", "int64", 5),
        (b'{"a":[1,null]}', "json", {"a": [1, None]}),
        (b'"\\ud800"', "json", "'\\ud800'"),
        (b"xy", "tests.unit.test_cli_values:REVERSED", "{1, 2}"),
    ],
)
def test_programs_get_a_value_as_json(raw, serde, value):
    assert decoded(raw, serde) == value


_NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(("raw", "serde"), [(b"\xff", "utf8"), (b"123", "int64"), (b"{", "json"), (_NESTED, "json")])
def test_a_value_of_another_serde_is_refused(raw, serde):
    with pytest.raises(InputError, match=f"--value-serde {serde} cannot decode a value"):
        value_text(raw, serde)
