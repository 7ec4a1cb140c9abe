"""Commands as bytes: one text for each, and clear refusals of what is no command or a later one's."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from metastore_samples import WHO, after, orders, put, simple

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, InvalidCommandError, NewerCommandError, UnreadableCommandError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import (
    AdoptChangelogs,
    CatalogueContent,
    DropApplication,
    DropStore,
    EvidenceRecord,
    NewChangelog,
    RecordEvidence,
    RecordTopics,
    Snapshot,
    application_of,
    canonical,
    check_round_trip,
    decode,
    digest_of,
    encode,
    key_of,
    stamped,
    this_writer,
)
from statestore.model import StoreFormat

CATALOGUE = after(
    Catalogue(), put(orders()), put(simple()), RecordTopics(application="app", topics={"app-s-changelog": "x"})
)
COMMANDS = {
    "put": put(orders()),
    "drop an application": DropApplication(name="app"),
    "drop a store": DropStore(application="app", store="s"),
    "adopt changelogs": AdoptChangelogs(
        application="app",
        changelogs={
            "s": NewChangelog(
                topic="app-s-changelog-2", topic_id="Zq", before="app-s-changelog", format=StoreFormat.PLAIN
            )
        },
    ),
    "record topics": RecordTopics(application="app", topics={"app-s-changelog": "Zq-1_w", "app-b-changelog": "a"}),
    "record evidence": RecordEvidence(application="app", head=EvidenceRecord(length=3, sha256="a" * 64)),
    "snapshot": CATALOGUE.snapshot(),
    "snapshot of nothing": Catalogue().snapshot(),
}
every_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


def written(command):
    return stamped(command, 7, 1_792_000_000_000, WHO)


def fields_of(command):
    return json.loads(encode(written(command)))


@every_command
def test_a_command_is_read_as_it_was_written(command):
    command = written(command)
    value = check_round_trip(command)
    assert decode(value) == command
    version = 3 if command.kind in ("snapshot", "record-evidence") else 1
    assert (command.version, command.id, command.written_by) == (version, 7, WHO)


@every_command
def test_the_text_is_canonical(command):
    value = encode(written(command))
    assert value == json.dumps(json.loads(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_the_text_of_a_command_is_settled():
    # Written by version 1: what is in somebody's topic must be read for ever.
    value = (
        b'{"id":3,"kind":"drop-store","store":"s","version":1,"application":"app","written_by":"\xc3\xa9@h",'
        b'"written_ms":5}'
    )
    assert decode(value) == stamped(DropStore(application="app", store="s"), 3, 5, "é@h")
    assert encode(decode(value)) == (
        b'{"application":"app","id":3,"kind":"drop-store","store":"s","version":1,"written_by":"\xc3\xa9@h",'
        b'"written_ms":5}'
    )


def test_a_definition_is_written_with_every_default():
    (store, *_), definition = (
        fields_of(put(simple()))["definition"][name] for name in ("stores", "commit_interval_ms")
    )
    assert definition == 1_000
    assert store == {
        "name": "s",
        "kind": "key-value",
        "format": "timestamped",
        "engine": "txn_rocksDB",
        "retention_ms": None,
        "window_size_ms": None,
        "segment_interval_ms": None,
        "retain_duplicates": False,
        "key_serde": "bytes",
        "value_serde": "bytes",
        "expectations": None,
        "owner": None,
        "partitions": None,
        "changelog": None,
    }


def test_how_a_definition_was_made_does_not_change_its_text():
    listed = simple("app", {"name": "s", "engine": "txn_rocksDB", "owner": None, "format": "timestamped"})
    copied = simple().model_copy()
    assert encode(put(listed)) == encode(put(simple())) == encode(put(copied))


def test_partitions_and_topics_are_in_order_of_names():
    one = RecordTopics(application="app", topics={"a": "1", "b": "2"})
    other = RecordTopics(application="app", topics={"b": "2", "a": "1"})
    assert encode(one) == encode(other)


@pytest.mark.parametrize(
    ("command", "key", "application"),
    [
        (put(orders()), b"application/orders", "orders"),
        (DropApplication(name="app"), b"application/app", "app"),
        (DropStore(application="app", store="s"), b"store/app/s", "app"),
        (RecordTopics(application="app", topics={"t": "1"}), b"application/app", "app"),
        (COMMANDS["record evidence"], b"evidence/app", "app"),
        (Catalogue().snapshot(), b"snapshot", None),
    ],
)
def test_a_record_s_key_says_what_it_is_about(command, key, application):
    assert key_of(command) == key
    assert application_of(command) == application


def test_a_writer_has_a_name_that_a_record_takes():
    assert "@" in this_writer()
    check_round_trip(stamped(COMMANDS["put"], 1, 1, this_writer()))


# -- what is no command


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"7",
        b'"put-application"',
        b"{}",
        b'{"kind":"put-application"}',
        b'{"kind":"alter-application","version":1}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_command_is_unreadable(value):
    with pytest.raises(UnreadableCommandError, match="the record "):
        decode(value)


@given(st.binary(max_size=300))
@example(b'{"version":1e999}')
@example(b'{"version":true,"kind":"snapshot"}')
def test_any_bytes_are_a_command_or_an_input_error(value):
    with pytest.raises(InputError):
        decode(value)


@pytest.mark.parametrize("field", ["version", "id", "kind", "written_ms", "written_by", "definition", "partitions"])
def test_a_command_without_one_of_its_fields_is_unreadable_and_the_field_named(field):
    fields = fields_of(put(simple()))
    del fields[field]
    with pytest.raises(UnreadableCommandError, match=field):
        decode(json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 0),
        ("id", -1),
        ("id", "7"),
        ("id", 7.5),
        ("id", True),
        ("version", 0),
        ("version", "1"),
        ("written_ms", None),
        ("written_by", ""),
        ("written_by", "a\nb"),
        ("partitions", {"in": 0}),
        ("partitions", {"in": "4"}),
        ("colour", "red"),
        ("definition", {}),
        ("definition", None),
    ],
)
def test_a_command_with_a_field_that_is_wrong_is_unreadable_and_the_field_named(field, value):
    with pytest.raises(UnreadableCommandError, match=field):
        decode(json.dumps({**fields_of(put(simple())), field: value}).encode())


@pytest.mark.parametrize(
    ("path", "value"), [("name", "../app"), ("colour", "red"), ("stores", []), ("commit_interval_ms", 1)]
)
def test_the_definition_in_a_command_is_checked_in_full(path, value):
    fields = fields_of(put(simple()))
    fields["definition"][path] = value
    with pytest.raises(UnreadableCommandError, match="definition"):
        decode(json.dumps(fields).encode())


@pytest.mark.parametrize("fields", [{}, {"kind": "merge"}, {"definition": 7}, {"colour": "red"}])
@pytest.mark.parametrize("version", [4, 10**30])
def test_a_command_of_a_later_version_says_so_whatever_else_is_in_it(fields, version):
    fields = {**fields_of(put(simple())), **fields, "version": version}
    with pytest.raises(NewerCommandError, match=f"has version {version}; this installation reads up to 3. Upgrade"):
        decode(json.dumps(fields).encode())


def test_an_altered_snapshot_is_unreadable():
    fields = fields_of(COMMANDS["snapshot"])
    fields["catalogue"]["applications"]["app"]["partitions"]["in"] += 1
    with pytest.raises(UnreadableCommandError, match="snapshot 7 was altered"):
        decode(json.dumps(fields).encode())


def test_a_snapshot_from_before_a_field_was_added_is_read():
    # Its digest is that of the record, not of the models that this version makes of it.
    fields = fields_of(COMMANDS["snapshot"])
    for entry in fields["catalogue"]["applications"].values():
        for store in entry["definition"]["stores"]:
            del store["owner"]
    fields["digest"] = digest_of(fields["catalogue"])
    read = decode(json.dumps(fields).encode())
    assert read.catalogue.applications["app"] == CATALOGUE.applications["app"]


# -- C6


def unchecked(**fields):
    """A command with a definition that no model has looked at."""
    definition = fields.pop("definition", simple()).model_copy(update=fields)
    return put(simple()).model_copy(update={"definition": definition})


NOT_ROUND = {
    "a name that no path takes": unchecked(name="a/b"),
    "no stores": unchecked(stores=()),
    "a store that is not one": unchecked(stores=(simple().stores[0].model_copy(update={"engine": "fast"}),)),
    "no store for an aggregation": unchecked(
        definition=orders(), stores=tuple(store for store in orders().stores if store.name != "spent")
    ),
    "a definition of another type": put(simple()).model_copy(update={"definition": 7}),
    "a number that is a text": put(simple()).model_copy(update={"partitions": {"in": "4"}}),
    "half of a character": DropApplication(name="app").model_copy(update={"written_by": "\ud800"}),
    "a digest of something else": Snapshot(catalogue=CatalogueContent(), digest="0" * 64),
    "a later version": DropApplication(name="app").model_copy(update={"version": 2}),
}


@pytest.mark.parametrize("command", NOT_ROUND.values(), ids=NOT_ROUND)
def test_c6_a_command_that_does_not_read_back_as_itself_is_refused(command):
    command = command if command.id else command.model_copy(update={"id": 7})
    with pytest.raises(
        InvalidCommandError, match=r"the [a-z-]+ command (cannot be written|reads back|does not read back)"
    ):
        check_round_trip(command)


@every_command
def test_a_command_without_its_id_is_not_ready_to_be_sent(command):
    with pytest.raises(InvalidCommandError, match=r"does not read back: .* its id is 0"):
        check_round_trip(command)


def test_a_definition_that_does_not_use_fields_that_came_later_has_the_text_that_it_had_before_them():
    definition = ApplicationDefinition(
        name="app", input_topic="in", processor="shop:process", stores=(StoreDefinition(name="s"),)
    )
    text = canonical(definition).decode()
    assert "supplier" not in text
    assert "rocksdb_config_setter" not in text
    assert '"owner":null' in text
    assert ApplicationDefinition.model_validate_json(text) == definition
    uses = definition.model_copy(
        update={"stores": (StoreDefinition(name="s", supplier="a:b"),), "rocksdb_config_setter": "a:c"}
    )
    assert ApplicationDefinition.model_validate_json(canonical(uses)) == uses
