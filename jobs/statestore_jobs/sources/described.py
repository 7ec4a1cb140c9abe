"""What a store is that is to be read: as options, a file of definitions or the catalogue say, or as its files tell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, StoreCorruptedError, UnknownFormatError
from statestore.kinds.known import BUILT_IN
from statestore.model import StoreFormat, check_name
from statestore.verification.look import Look, store_format
from statestore_jobs.sources.opening import families_of, look_into
from statestore_jobs.sources.options import defined_store, store_settings
from statestore_jobs.sources.where import Place

#: Options that say where a definition is (see `definition_of`).
DEFINITION_OPTIONS = ("definitions", "bootstrap_servers", "service_id")

#: Where the end of the last segment is not known: how much farther off times are that were made of other bytes.
_FAR = 1_000
_SHORTEST_SEGMENT_MS = 60_000


def definition_of(options: Mapping[str, str], places: Sequence[Place]) -> StoreDefinition:
    """Say what the store in these places is.

    What options say goes first. The rest is from its definition, if an option says where that is, or else from its
    files. They do not tell a retention, which reading does not need.

    Raises
    ------
    InputError
        If something is not told, naming the option that says it, or if the store is of another kind.
    """
    place = places[0]
    said = store_settings(options)
    defined = _defined(options, place)
    if defined is not None and defined.get("supplier") is not None:
        raise InputError(
            f"{place.directory} is a store of supplier {defined['supplier']}: nothing is known of its files. Read its "
            "changelog instead"
        )
    settings: dict[str, Any] = {"name": _name(place), **(defined or {}), **said}
    if not place.segmented:
        settings.setdefault("kind", "key-value")
    if "kind" in settings and (settings["kind"] == "key-value") is place.segmented:
        raise InputError(f"{place.directory} is not that of a {settings['kind']} store; correct option kind")
    if place.segmented and defined is None:
        _complete(settings, place, _telling(places))
    elif "format" not in settings:
        settings["format"] = _format(places)
    if settings["kind"] != "key-value":
        settings.setdefault("retention_ms", settings.get("window_size_ms", 0))
    return defined_store(settings)


def kind_of(look: Look) -> str | None:
    """Kind of a store with segments; None if it has no rows, or rows of neither kind."""
    # The wrong reading makes times of other bytes, which are far off if they fit at all.
    return min(look.spread_ms, key=lambda kind: look.spread_ms[kind]) if look.rows and look.spread_ms else None


def _defined(options: Mapping[str, str], place: Place) -> dict[str, Any] | None:
    """Fields of the store's definition; None if no option says where there is one."""
    if not {"definitions", "bootstrap_servers"} & set(options):
        return None
    if place.application is None:
        raise InputError(f"{place.directory} does not tell its application, and with it its definition: say its kind")
    # Only here: Kafka's clients come with them, and each Spark worker would load them.
    from statestore.metastore.definition_files import load_definitions, select
    from statestore.metastore.metastore import Metastore

    if "definitions" in options:
        known = load_definitions(Path(options["definitions"]))
    else:
        service_id = options.get("service_id") or os.environ.get("STATESTORE_SERVICE_ID") or "default"
        known = Metastore(options["bootstrap_servers"], service_id).require_running().catalogue.definitions()
    [application] = select(known, [place.application], [place.store])
    return application.store(place.store).model_dump()


def _complete(settings: dict[str, Any], place: Place, look: Look) -> None:
    """Add what its segments tell."""
    kind = settings.get("kind")
    if kind is not None and kind not in BUILT_IN:  # a kind of the user's, whose row keys only its code can tell
        return
    _require_ordinary(look, place)
    if kind is None:
        kind = kind_of(look)
        if kind is None and look.rows:
            raise InputError(f"{place.directory}: its row keys are neither those of windows nor those of sessions")
        if kind is None:
            raise InputError(f"{place.directory}: no row tells its kind; add .option('kind', 'window') or 'session'")
    elif look.spread_ms and kind not in look.spread_ms:  # keys that are of neither kind may be damaged
        raise InputError(f"{place.directory}: its row keys are not those of a {kind} store; correct option kind")
    settings["kind"] = kind
    if look.families:
        settings.setdefault("format", store_format(look))
    if kind == "window":
        settings.setdefault("retain_duplicates", look.duplicates)
        if "window_size_ms" not in settings:
            raise InputError(
                f"{place.directory}: no file tells how long windows are; add .option('window_size_ms', ...), or say "
                f"with one of the options {', '.join(DEFINITION_OPTIONS[:2])} where the store's definition is"
            )


def _require_ordinary(look: Look, place: Place) -> None:
    """Refuse row keys that may have their times in front, whatever options say: their rows would be other ones."""
    ordinary, ordered = min(look.spread_ms.values(), default=None), min(look.time_ordered_ms.values(), default=None)
    near = ordinary is None or (ordered is not None and ordered <= _FAR * max(ordinary, _SHORTEST_SEGMENT_MS))
    if look.indexed or (ordered is not None and near):
        raise UnknownFormatError(
            f"{place.directory} has row keys that begin with 00 or 01 and their times, as in stores of "
            "EmitStrategy.onWindowClose; these are not known here"
        )


def _telling(places: Sequence[Place]) -> Look:
    """Look into the store's partitions until one has rows."""
    looks: list[Look] = []
    damaged: StoreCorruptedError | None = None
    for place in places:
        try:
            look = look_into(place)
        except StoreCorruptedError as error:
            damaged = error  # another partition tells as much
            continue
        if look.rows:
            return look
        looks.append(look)
    if not looks and damaged is not None:
        raise damaged
    return max(looks, key=lambda look: len(look.families))


def _format(places: Sequence[Place]) -> StoreFormat:
    """Format of a store: the newer one if any partition has it."""
    damaged: StoreCorruptedError | None = None
    found = None
    for place in places:
        try:
            found = store_format(Look(families_of(place), frozenset()))
        except StoreCorruptedError as error:
            damaged = error
            continue
        if found is StoreFormat.TIMESTAMPED:
            break
    if found is None:
        assert damaged is not None
        raise damaged
    return found


def _name(place: Place) -> str:
    try:
        return check_name(place.store)
    except ValueError:
        return "store"  # a directory may be named as it likes
