"""Definitions of stores without a changelog: refused settings, and the topics of an application."""

from __future__ import annotations

import pytest
from metastore_samples import after, put, simple
from pydantic import ValidationError

from statestore.definitions.application import require_shared_directory
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, InvalidCommandError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.effects import internal_topics
from statestore.metastore.evolution import internal_topic_names, require_compatible

UNLOGGED = {"name": "s", "logged": False}
RETAINED = {"kind": "window", "retention_ms": 60_000, "window_size_ms": 1_000}
pytestmark = pytest.mark.behaviour("U5")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"kind": "versioned", "retention_ms": 60_000}, "kind versioned"),
        ({"kind": "module:kind"}, "kind module:kind"),
        ({"supplier": "module:supplier"}, "supplier"),
        ({"ttl_ms": 5}, "ttl_ms"),
        ({**RETAINED, "retain_duplicates": True}, "retain_duplicates"),
        ({"changelog": "app-s-changelog"}, "changelog"),
    ],
)
def test_settings_that_need_a_changelog_are_refused_by_name(wrong, named):
    with pytest.raises(ValidationError, match=f"logged: false cannot have.* {named}"):
        StoreDefinition(**UNLOGGED, **wrong)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"stores": [{**UNLOGGED, "engine": "rocksDB"}]}, "txn_rocksDB, found rocksDB"),
        ({"stores": [{**UNLOGGED, "engine": "in_memory"}]}, "txn_rocksDB, found in_memory"),
        ({"default_dsl_store": "rocksDB"}, "txn_rocksDB, found rocksDB"),
        ({"processing_guarantee": "at_least_once"}, "exactly_once_v2, found at_least_once"),
    ],
)
def test_what_could_not_be_completed_after_a_crash_is_refused_by_name(fields, named):
    with pytest.raises(ValidationError, match=named):
        simple("app", UNLOGGED, **fields)


@pytest.mark.parametrize("kind", [{}, RETAINED, {"kind": "session", "retention_ms": 60_000}])
def test_such_a_store_has_no_changelog_topic(kind):
    definition = simple("app", {**UNLOGGED, **kind}, "t")
    assert set(internal_topic_names(definition)) == {"app-t-changelog", "app-input-offsets"}
    assert {topic.name for topic in internal_topics(definition, {"in": 4})} == set(internal_topic_names(definition))
    assert definition.store("s").model_dump()["logged"] is False
    assert "logged" not in definition.store("t").model_dump()


@pytest.mark.parametrize("logged", [True, False])
def test_logged_cannot_change_while_the_store_exists(logged):
    before = after(Catalogue(), put(simple("app", {"name": "s", "logged": logged}))).entry("app")
    with pytest.raises(InvalidCommandError, match=r"stores\.s\.logged"):
        require_compatible(before, put(simple("app", {"name": "s", "logged": not logged})))


def test_nodes_with_their_own_disks_are_refused_by_name():
    definition = simple("app", UNLOGGED)
    require_shared_directory(definition, node_local=False)
    require_shared_directory(simple(), node_local=True)
    with pytest.raises(InputError, match="app: s: logged: false needs one state directory"):
        require_shared_directory(definition, node_local=True)
