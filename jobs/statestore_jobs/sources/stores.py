"""The store that options name: where it lies, and what it is. `statestore.discovery` finds both out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from statestore.definitions.store import StoreDefinition
from statestore.discovery.directories import stores_at, stores_named
from statestore.discovery.kind_and_format import discovered_kind, format_of, kind_without_retention
from statestore.discovery.shape import StoreShape, shape_of, telling_shape
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kinds.known import is_built_in, kind_of
from statestore.model import StoreFormat, check_name
from statestore_jobs.sources.options import defined_store, partition_list, required, store_settings

#: Options that say where stores are (see `directories_of`).
DIRECTORY_OPTIONS = ("path", "application", "state_dir", "store", "partitions")
#: Options that say where a definition is (see `definition_of`).
DEFINITION_OPTIONS = ("definitions", "bootstrap_servers", "service_id")
_STATE_DIR_VARIABLE = "STATESTORE_STATE_DIR"


def directories_of(options: Mapping[str, str]) -> Sequence[StoreDirectory]:
    """Find the partitions of the store that the options name, in order; of all stores if they name none.

    Raises
    ------
    InputError
        If the options contradict each other, or name what is not there; the message tells what is.
    """
    if ("path" in options) == ("application" in options):
        raise InputError("expected exactly one of the options path and application")
    name = required(options, "store") if "store" in options else None
    partitions = partition_list(options)
    if "application" in options:
        return stores_named(_state_dir(options), required(options, "application"), name, partitions)
    if "state_dir" in options:
        raise InputError("option state_dir goes with application; a path needs none")
    return stores_at(Path(required(options, "path")).absolute(), name, partitions)


def definition_of(options: Mapping[str, str], stores: Sequence[StoreDirectory]) -> StoreDefinition:
    """Say what the store in these directories is.

    What options say goes first. The rest is from its definition, if an option says where that is, or else from its
    files. They do not tell a retention, which reading does not need.

    Raises
    ------
    InputError
        If something is not told, naming the option that says it, or if the store is of another kind.
    """
    store = stores[0]
    said = store_settings(options)
    defined = _defined(options, store)
    if defined is not None and defined.get("supplier") is not None:
        raise InputError(
            f"{store.directory} is a store of supplier {defined['supplier']}: nothing is known of its files. Read its "
            "changelog instead"
        )
    settings: dict[str, Any] = {"name": _name(store), **(defined or {}), **said}
    kind = settings.get("kind")
    if defined is not None or not (kind is None or is_built_in(kind)):
        discovered_kind(store, None, kind, None, _remedy)
    else:  # of a kind of the user's, only its code could tell
        settings |= _discovered(stores, said)
    times = kind_of(settings["kind"]).times
    if "window_size_ms" in times and "window_size_ms" not in settings:
        raise InputError(
            f"{store.directory}: no file tells how long windows are; add .option('window_size_ms', ...), or say "
            f"with one of the options {', '.join(DEFINITION_OPTIONS[:2])} where the store's definition is"
        )
    if "retention_ms" in times:
        settings.setdefault("retention_ms", settings.get("window_size_ms", 0))
    return defined_store(settings)


def _discovered(stores: Sequence[StoreDirectory], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the files of a store tell of it."""
    segmented = stores[0].segmented

    def tells(shape: StoreShape) -> bool:
        return shape.rows > 0 if segmented else shape.format is StoreFormat.HEADERS

    shape = telling_shape(stores, shape_of, tells)
    settings: dict[str, Any] = {"kind": kind_without_retention(stores[0], shape, said.get("kind"), _remedy)}
    in_default = kind_of(settings["kind"]).only_format is StoreFormat.TIMESTAMPED_IN_DEFAULT
    said_format = said.get("format")
    older_first = list(StoreFormat)
    newer = said_format is not None and older_first.index(said_format) > older_first.index(shape.format)
    # A newer format reads rows of the older ones, too.
    if in_default or (shape.families and not newer):
        settings["format"] = format_of(settings["kind"], shape, said.get("format"), _remedy)
    if kind_of(settings["kind"]).may_retain_duplicates:
        settings["retain_duplicates"] = said.get("retain_duplicates", shape.duplicates)
    return settings


def _remedy(setting: str, values: Sequence[str]) -> str:
    """Say which option tells a setting."""
    first, *others = values
    return f"add .option({setting!r}, {first!r})" + "".join(f" or {value!r}" for value in others)


def _state_dir(options: Mapping[str, str]) -> Path:
    given = options.get("state_dir", "").strip() or os.environ.get(_STATE_DIR_VARIABLE, "").strip()
    if not given:
        raise InputError(
            f"option state_dir is missing: add .option('state_dir', ...), or set {_STATE_DIR_VARIABLE} for the driver"
        )
    return Path(given).absolute()


def _defined(options: Mapping[str, str], store: StoreDirectory) -> dict[str, Any] | None:
    """Fields of the store's definition; None if no option says where there is one."""
    if not {"definitions", "bootstrap_servers"} & set(options):
        return None
    if store.application is None:
        raise InputError(f"{store.directory} does not tell its application, and with it its definition: say its kind")
    # Only here: Kafka's clients come with them, and each Spark worker would load them.
    from statestore.metastore.definition_files import load_definitions, select
    from statestore.metastore.metastore import Metastore

    if "definitions" in options:
        known = load_definitions(Path(options["definitions"]))
    else:
        service_id = options.get("service_id") or os.environ.get("STATESTORE_SERVICE_ID") or "default"
        known = Metastore(Cluster(options["bootstrap_servers"]), service_id).require_running().catalogue.definitions()
    [application] = select(known, [store.application], [store.name])
    return application.store(store.name).model_dump()


def _name(store: StoreDirectory) -> str:
    try:
        return check_name(store.name)
    except ValueError:
        return "store"  # a directory may be named as it likes
