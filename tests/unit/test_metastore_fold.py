"""The fold of commands: what each of them does, what is refused, and that nothing else is done on the way."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from metastore_samples import WHO, after, orders, put, simple

from statestore.errors import InvalidCommandError, UnknownApplicationError
from statestore.metastore.catalogue import Catalogue, Rebuild
from statestore.metastore.commands import (
    AdoptChangelogs,
    CatalogueContent,
    DropApplication,
    DropStore,
    NewChangelog,
    RecordTopics,
    Snapshot,
    canonical,
    decode,
    digest_of,
    encode,
    stamped,
)
from statestore.metastore.evolution import with_known_changelogs
from statestore.model import StoreFormat

EMPTY = Catalogue()
BOTH = after(EMPTY, put(simple("b")), put(simple("a", "s", "t")))
COMMANDS = (
    put(orders()),
    put(simple("app", "s", "t")),
    RecordTopics(application="app", topics={"app-s-changelog": "id-s", "app-t-changelog": "id-t"}),
    AdoptChangelogs(
        application="app",
        changelogs={
            "s": NewChangelog(
                topic="app-s-changelog-2", topic_id="id-2", before="app-s-changelog", format=StoreFormat.HEADERS
            )
        },
    ),
    DropStore(application="app", store="t"),
    put(simple("app", {"name": "s", "changelog": "app-s-changelog-2", "format": "headers"}, "u")),
    DropApplication(name="orders"),
    put(orders(), 8),
)


def refused(catalogue, command, match):
    """The command is refused, and has changed nothing."""
    before, rebuild = catalogue.content(), Rebuild(catalogue)
    command = command if command.id else stamped(command, catalogue.next_id, 1, WHO)
    with pytest.raises(InvalidCommandError, match=match):
        rebuild.apply(command)
    with pytest.raises(InvalidCommandError, match=match):
        catalogue.apply(command)
    assert catalogue.content() == before
    assert rebuild.catalogue() == catalogue


def adopted(**changes):
    given = {
        "topic": "a-s-changelog-2",
        "topic_id": "3",
        "before": "a-s-changelog",
        "format": StoreFormat.TIMESTAMPED,
        **changes,
    }
    store = given.pop("store", "s")
    application = given.pop("application", "a")
    return AdoptChangelogs(application=application, changelogs={store: NewChangelog(**given)})


# -- what commands do


def test_nothing_was_ever_defined():
    assert (EMPTY.applications, EMPTY.definitions(), EMPTY.next_id) == ({}, {}, 1)


def test_applications_are_in_order_of_names_with_who_put_them_when():
    assert list(BOTH.applications) == ["a", "b"]
    assert BOTH.definitions() == {"a": simple("a", "s", "t"), "b": simple("b")}
    entry = BOTH.entry("a")
    assert (entry.partitions, entry.topics) == ({"in": 4}, None)
    assert (entry.created_id, entry.changed_id, entry.changed_ms, entry.changed_by) == (2, 2, 2_000, WHO)
    assert BOTH.next_id == 3


def test_a_change_keeps_when_the_application_was_created():
    entry = after(BOTH, put(simple("b", "s", "more"))).entry("b")
    assert (entry.definition, entry.created_id, entry.changed_id) == (simple("b", "s", "more"), 1, 3)


def test_a_store_goes_on_with_another_changelog_and_a_definition_cannot_change_that():
    known = after(BOTH, RecordTopics(application="a", topics={"a-s-changelog": "1", "a-t-changelog": "2"}))
    entry = after(known, adopted()).entry("a")
    assert entry.topics == {"a-s-changelog-2": "3", "a-t-changelog": "2"}
    assert [store.changelog_of("a") for store in entry.definition.stores] == ["a-s-changelog-2", "a-t-changelog"]
    assert (entry.created_id, entry.changed_id) == (2, 4)
    again = with_known_changelogs(simple("a", "s", "t"), entry)
    assert after(after(known, adopted()), put(again)).entry("a").topics == entry.topics
    refused(after(known, adopted()), put(simple("a", "s", "t")), "changelog: a-s-changelog-2 -> a-s-changelog")


def test_a_dropped_application_is_gone_and_comes_back_as_a_new_one():
    dropped = after(BOTH, DropApplication(name="b"))
    assert list(dropped.applications) == ["a"]
    again = after(dropped, put(simple("b", {"name": "s", "format": "plain"}), 9)).entry("b")
    assert (again.partitions, again.topics, again.created_id, again.changed_id) == ({"in": 9}, None, 4, 4)


def test_a_dropped_store_is_gone_and_may_come_back_as_another_kind():
    dropped = after(BOTH, DropStore(application="a", store="t"))
    assert (dropped.entry("a").definition, dropped.entry("a").changed_id) == (simple("a", "s"), 3)
    assert after(dropped, put(simple("a", "s", {"name": "t", "format": "plain"}))).next_id == 5


def test_recorded_topics_are_added_to_those_that_are_known():
    catalogue = after(BOTH, RecordTopics(application="a", topics={"a-t-changelog": "2"}))
    catalogue = after(catalogue, RecordTopics(application="a", topics={"a-s-changelog": "1"}))
    assert list(catalogue.entry("a").topics.items()) == [("a-s-changelog", "1"), ("a-t-changelog", "2")]
    catalogue = after(catalogue, RecordTopics(application="a", topics={"a-s-changelog": "3"}))
    assert catalogue.entry("a").topics == {"a-s-changelog": "3", "a-t-changelog": "2"}
    assert catalogue.entry("a").changed_id == 2


def test_a_store_that_goes_takes_its_topic_along_and_a_new_one_has_none_recorded():
    known = after(BOTH, RecordTopics(application="a", topics={"a-s-changelog": "1", "a-t-changelog": "2"}))
    assert after(known, DropStore(application="a", store="t")).entry("a").topics == {"a-s-changelog": "1"}
    assert after(known, put(simple("a", "t", "u"))).entry("a").topics == {"a-t-changelog": "2"}


def test_a_catalogue_is_not_changed_by_what_comes_after_it():
    digest, applications = BOTH.digest(), dict(BOTH.applications)
    later = after(BOTH, DropApplication(name="a"), put(simple("b", "s", "more")))
    assert (BOTH.digest(), BOTH.applications, BOTH.next_id) == (digest, applications, 3)
    assert later.digest() != digest


def test_a_catalogue_taken_from_a_rebuild_is_not_changed_by_what_the_rebuild_does_next():
    rebuild = Rebuild()
    rebuild.apply(stamped(put(simple("b")), 1, 1, WHO))
    first = rebuild.catalogue()
    rebuild.apply(stamped(put(simple("a")), 2, 1, WHO))
    assert list(first.applications) == ["b"]
    assert list(rebuild.catalogue().applications) == ["a", "b"]


def test_an_unknown_application_is_named_with_those_that_there_are():
    with pytest.raises(UnknownApplicationError, match="'c' is in the catalogue; the applications are: a, b"):
        BOTH.entry("c")


# -- what is refused


@pytest.mark.parametrize("number", [0, 1, 2, 4, 400])
@pytest.mark.parametrize(
    "command", [put(simple("c")), DropApplication(name="a"), DropStore(application="a", store="t")]
)
def test_a_command_that_is_not_the_next_one_is_refused(command, number):
    with pytest.raises(InvalidCommandError, match=f"has id {number}; expected 3, the next one"):
        BOTH.apply(stamped(command, number, 1, WHO))


@pytest.mark.parametrize(
    ("command", "match"),
    [
        (DropApplication(name="c"), "no application 'c' is in the catalogue; the applications are: a, b"),
        (DropStore(application="c", store="s"), "no application 'c'"),
        (adopted(store="x"), "a no longer has a store 'x'"),
        (adopted(before="a-s-changelog-3"), "is a-s-changelog, expected a-s-changelog-3"),
        (adopted(topic="b-s-changelog"), "is not a valid changelog name for a/s"),
        (adopted(format="timestamped-in-default"), "format timestamped-in-default is only for time-ordered windows"),
        (DropStore(application="a", store="x"), "a has no store 'x'; its stores are: s, t"),
        (DropStore(application="b", store="s"), "only store of its application"),
        (RecordTopics(application="c", topics={"c-s-changelog": "1"}), "no application 'c'"),
        (RecordTopics(application="a", topics={"a-x-changelog": "1"}), "has no internal topics a-x-changelog"),
        (put(simple("b", {"name": "s", "format": "plain"})), r"stores\.s\.format"),
        (put(simple("b"), 5), r"stores\.s\.partitions"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(command, match):
    refused(BOTH, command, match)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (simple("a", "b-c"), simple("a-b", "c")),
        (simple("a-b-c", "d"), simple("a", "s", "b-c-d")),
        (simple("a-b", "c", aggregations=[{"store": "d-e", "group_by": "m:f"}]), simple("a-b-d", "e")),
    ],
)
def test_two_applications_must_not_share_a_changelog_topic(first, second):
    for one, other in ((first, second), (second, first)):
        refused(after(EMPTY, put(one)), put(other), "would share the changelog topic .*-changelog; rename one")


def test_a_changelog_topic_is_free_again_when_its_store_was_dropped():
    catalogue = after(EMPTY, put(simple("a", "b-c", "s")), DropStore(application="a", store="b-c"))
    assert "a-b" in after(catalogue, put(simple("a-b", "c"))).applications


def test_names_with_dashes_that_only_look_alike_are_accepted():
    assert (
        len(after(EMPTY, put(simple("a", "b-c")), put(simple("a-b", "d")), put(simple("a-b-c", "c"))).applications) == 3
    )


# -- digests


def test_the_digest_is_that_of_the_applications_and_not_of_the_way_to_them():
    one = after(EMPTY, put(simple("a")), put(simple("b")))
    assert one.digest() == after(EMPTY, put(simple("a")), put(simple("b"))).digest()
    assert after(one, put(simple("c")), DropApplication(name="c")).digest() == one.digest()
    assert one.digest() == digest_of(one.content()) == digest_of(one.content().model_dump(mode="json"))


def test_whatever_is_in_an_entry_changes_the_digest():
    digests = {
        BOTH.digest(),
        after(BOTH, put(simple("a", "s", {"name": "t", "owner": "me"}))).digest(),
        after(BOTH, put(simple("a", "s", "t", commit_interval_ms=999))).digest(),
        after(BOTH, put(simple("a", "s", "t"))).digest(),  # changed later
        after(BOTH, DropApplication(name="a")).digest(),
        after(BOTH, RecordTopics(application="a", topics={"a-s-changelog": "1"})).digest(),
    }
    assert len(digests) == 6


# -- snapshots


def test_a_snapshot_at_the_start_of_a_log_is_the_catalogue_that_it_was_made_of():
    whole = after(EMPTY, *COMMANDS)
    snapshot = stamped(whole.snapshot(), whole.next_id, 1, WHO)
    read = EMPTY.apply(decode(encode(snapshot)))
    assert read == whole.apply(snapshot)
    assert (read.applications, read.digest(), read.next_id) == (whole.applications, whole.digest(), whole.next_id + 1)
    assert list(read.applications) == sorted(whole.applications)


@pytest.mark.behaviour("C12")
def test_c12_ids_go_on_behind_a_snapshot_that_stands_for_commands_that_were_deleted():
    whole = after(EMPTY, *COMMANDS)
    snapshot = stamped(whole.snapshot(), whole.next_id, 1, WHO)
    for start in (EMPTY.apply(snapshot), whole.apply(snapshot)):
        assert start.next_id == len(COMMANDS) + 2
        for number in (1, len(COMMANDS), len(COMMANDS) + 1, len(COMMANDS) + 3):
            with pytest.raises(InvalidCommandError, match=f"has id {number}; expected {len(COMMANDS) + 2}"):
                start.apply(stamped(put(simple("c")), number, 1, WHO))
        later = after(start, put(simple("c")))
        assert (later.entry("c").created_id, later.next_id) == (len(COMMANDS) + 2, len(COMMANDS) + 3)
        assert later.entry("app").created_id == 2


def test_a_snapshot_of_an_empty_catalogue_keeps_the_ids_too():
    empty = after(BOTH, DropApplication(name="a"), DropApplication(name="b"))
    assert EMPTY.apply(stamped(empty.snapshot(), 5, 1, WHO)) == Catalogue({}, 6, empty.former)


@pytest.mark.parametrize("other", [EMPTY, after(BOTH, put(simple("a", "s", "t"))), after(BOTH, put(simple("c")))])
def test_a_snapshot_that_is_not_what_was_before_it_is_refused(other):
    refused(BOTH, stamped(other.snapshot(), BOTH.next_id, 1, WHO), "not match the catalogue of the commands before it")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_snapshot_never_moves_ids_back(number):
    snapshot = BOTH.snapshot().model_copy(update={"id": number})
    with pytest.raises(InvalidCommandError, match=f"the snapshot has id {number}; expected at least 3"):
        BOTH.apply(snapshot)


@pytest.mark.parametrize(
    "change",
    [
        {"definition": simple("b")},
        {"changed_id": 1},
        {"changed_id": 9},
        {"partitions": {}},
        {"definition": simple("a", "s", "t", {"name": "x", "partitions": 9})},
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused(change):
    entry = BOTH.entry("a").model_copy(update=change)
    content = CatalogueContent(applications={**BOTH.applications, "a": entry})
    refused(EMPTY, Snapshot(id=3, catalogue=content, digest=digest_of(content)), "contradicts itself|partitions")


def test_a_snapshot_with_one_changelog_topic_for_two_stores_is_refused():
    entries = {name: after(EMPTY, put(simple(name, store))).entry(name) for name, store in (("a", "b-c"), ("a-b", "c"))}
    content = CatalogueContent(applications=entries)
    refused(EMPTY, Snapshot(id=3, catalogue=content, digest=digest_of(content)), "share the changelog topic")


# -- topics that applications have left


def left_by(catalogue):
    """Ids and stores of the definitions of all topics that were left."""
    return {
        name: (topic.topic_id, [store.name for store in topic.definition.stores])
        for name, topic in catalogue.former.items()
    }


KNOWN = after(BOTH, RecordTopics(application="a", topics={"a-s-changelog": "1", "a-t-changelog": "2"}))


@pytest.mark.behaviour("C19")
@pytest.mark.parametrize("command", [DropStore(application="a", store="t"), put(simple("a", "s"))])
def test_c19_a_dropped_store_leaves_its_topic_with_its_last_definition(command):
    assert KNOWN.former == {}
    dropped = after(KNOWN, command)
    assert left_by(dropped) == {"a-t-changelog": ("2", ["s", "t"])}
    gone = after(dropped, DropApplication(name="a"))
    assert left_by(gone) == {
        "a-t-changelog": ("2", ["s", "t"]),
        "a-s-changelog": ("1", ["s"]),
        "a-input-offsets": (None, ["s"]),
    }


@pytest.mark.behaviour("C19")
def test_c19_a_store_that_goes_on_with_another_changelog_leaves_the_one_before():
    assert left_by(after(KNOWN, adopted())) == {"a-s-changelog": ("1", ["s", "t"])}


@pytest.mark.behaviour("C19")
def test_c19_a_regrouped_aggregation_that_is_taken_out_leaves_its_topics():
    group = {"store": "g", "group_by": "m:f"}
    dropped = after(EMPTY, put(simple("a", "s", aggregations=[group])), put(simple("a", "s")))
    assert set(dropped.former) == {"a-g-changelog", "a-g-repartition", "a-g-repartition-offsets"}


@pytest.mark.behaviour("C19")
def test_c19_a_topic_that_was_written_again_is_known_by_its_last_definition():
    plain = put(simple("a", "s", {"name": "t", "format": "plain"}))
    again = after(KNOWN, DropStore(application="a", store="t"), plain)
    never_recorded = after(again, DropStore(application="a", store="t"))
    assert never_recorded.former == again.former, "nothing has written it since"
    recorded = after(again, RecordTopics(application="a", topics={"a-t-changelog": "3"}))
    topic = after(recorded, DropStore(application="a", store="t")).former["a-t-changelog"]
    assert (topic.topic_id, topic.definition) == ("3", plain.definition)


@pytest.mark.behaviour("C19")
def test_c19_a_snapshot_keeps_the_topics_that_were_left_and_their_ids():
    whole = after(KNOWN, DropStore(application="a", store="t"), DropApplication(name="b"), DropApplication(name="a"))
    snapshot = stamped(whole.snapshot(), whole.next_id, 1, WHO)
    assert len(snapshot.former) == 3  # one for each definition
    read = EMPTY.apply(decode(encode(snapshot)))
    assert read == whole.apply(snapshot)
    assert (read.former, len(read.former)) == (whole.former, 5)
    assert read.digest() == EMPTY.digest()
    refused(whole, snapshot.model_copy(update={"former": snapshot.former[1:]}), "does not have the topics")


@pytest.mark.behaviour("C19")
def test_c19_a_snapshot_of_version_1_is_read_as_it_was_written():
    whole = after(KNOWN, DropStore(application="a", store="t"))
    fields = json.loads(encode(stamped(whole.snapshot(), whole.next_id, 1, WHO)))
    del fields["former"]
    snapshot = decode(canonical({**fields, "version": 1}))
    assert whole.apply(snapshot).former == whole.former
    assert EMPTY.apply(snapshot) == Catalogue(whole.applications, whole.next_id + 1)


# -- C11


_WATCHED: list[str] | None = None
_THREAD: int | None = None
_HARMLESS = ("builtins.id", "compile", "exec", "import", "object.", "sys._getframe")


def _watch(event: str, _: object) -> None:
    if _WATCHED is not None and threading.get_ident() == _THREAD and not event.startswith(_HARMLESS):
        _WATCHED.append(event)


sys.addaudithook(_watch)


@pytest.mark.behaviour("C11")
def test_c11_a_rebuild_takes_commands_in_their_order_alone_and_does_nothing_else(monkeypatch):
    """No file, socket, process or clock is touched, so there is nothing that a replay could repeat."""
    global _WATCHED, _THREAD
    values = [encode(stamped(command, number, number, WHO)) for number, command in enumerate(COMMANDS, start=1)]

    def rebuilt(values):
        rebuild = Rebuild()
        for value in values:
            rebuild.apply(decode(value))
        return rebuild.catalogue()

    expected = rebuilt(values)
    _WATCHED, _THREAD = [], threading.get_ident()
    Path(os.devnull).read_bytes()
    assert _WATCHED == ["open"], "nothing is watched"
    try:
        gc.disable()  # else what other tests have left may be finalized meanwhile
        for clock in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter"):
            monkeypatch.setattr(f"time.{clock}", None)
        _WATCHED.clear()
        again = rebuilt(values)
        digest, seen = again.digest(), _WATCHED
    finally:
        _WATCHED = None
        monkeypatch.undo()
        gc.enable()
    assert (again, digest, seen) == (expected, expected.digest(), [])
    for at in range(1, len(values)):
        turned = [*values[: at - 1], values[at], values[at - 1], *values[at + 1 :]]
        with pytest.raises(InvalidCommandError, match="the next one"):
            rebuilt(turned)
