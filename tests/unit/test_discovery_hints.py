"""What a user says of stores on the command line: read, or refused with what was expected."""

import pytest

from statestore.discovery.hints import Hint, parse_hints
from statestore.errors import InputError
from statestore.model import StoreFormat


def test_a_store_that_is_only_named_has_nothing_said_of_it():
    assert parse_hints(["counts"], [], []) == {"counts": Hint()}


def test_settings_of_one_store_may_come_from_several_options():
    found = parse_hints(["w:kind=window,subtopology=1"], ["w=orders"], ["w=3600000"])
    assert found == {"w": Hint(kind="window", subtopology=1, changelog="orders", retention_ms=3_600_000)}


def test_every_setting_is_read():
    found = parse_hints(["s:kind=session,format=plain,retention_ms=5,subtopology=0,engine=in_memory"], [], [])["s"]
    assert found == Hint(
        kind="session", format=StoreFormat.PLAIN, retention_ms=5, subtopology=0, engine="in_memory", changelog=None
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((["../etc"], [], []), "'..' is not a valid name"),
        ((["a/b/c:kind=window"], [], []), "at most an application, a store, and a partition"),
        ((["a/b/0_1:kind=window"], [], []), "expected a store, found a partition of it"),
        (([""], [], []), "is not a valid name"),
        ((["s:window"], [], []), "expected NAME or NAME:setting=value"),
        (
            (["s:kind=map"], [], []),
            "kind: Value error, expected one of key-value, window, session, versioned, time-ordered-window",
        ),
        (
            (["s:colour=red"], [], []),
            "the settings are: kind, format, retention_ms, segment_interval_ms, subtopology, engine",
        ),
        ((["s:subtopology=-1"], [], []), "greater than or equal to 0, found '-1'"),
        ((["s:retention_ms=1 h"], [], []), "retention_ms: Value error, expected a duration such as 90s, 36h"),
        (([], ["s"], []), "expected STORE=TOPIC"),
        (([], ["s=a/../b"], []), "changelog: String should match"),
        (([], ["s="], []), "changelog: String should match"),
        (([], [], ["s=0"]), "retention_ms: Input should be greater than or equal to 1, found 0"),
        (([], [], ["s"]), "expected STORE=DURATION"),
        ((["s:retention_ms=1"], [], ["s=2"]), "retention_ms of store s is set twice"),
    ],
)
def test_what_is_malformed_is_refused_with_what_was_expected(options, expected):
    with pytest.raises(InputError) as caught:
        parse_hints(*options)
    assert expected in str(caught.value)
