"""The command `snapshot diff`: what differs between two snapshots, or a snapshot and the live store."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statestore.cli import options, output
from statestore.errors import InputError

if TYPE_CHECKING:
    from statestore.archive.manifest import Manifest
    from statestore.definitions.store import StoreDefinition
    from statestore.discovery.store_directory import LiveStore
    from statestore.verification.snapshot_difference import ChangedRow


def diff(
    archive: options.Archive,
    snapshot: Annotated[str, typer.Argument(help="Name of a snapshot, as `snapshot list` prints it.")],
    other: Annotated[
        str | None,
        typer.Argument(
            help="Name of a later snapshot of the same store partition. Default: the live store in --state-dir.",
            show_default=False,
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="STATESTORE_STATE_DIR",
            help="State directory of the live store (Kafka Streams' state.dir). Required if OTHER is not given.",
            show_default=False,
        ),
    ] = None,
    keys: Annotated[bool, typer.Option("--keys", help="Print the keys of the rows that differ.")] = False,
    key_serde: Annotated[
        str | None,
        typer.Option(
            help="bytes (in hex), utf8, int64, json, or module:attribute. Default: the definition's, if it is one of "
            "the first four.",
            show_default=False,
        ),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Directory with space for both snapshots. Default: the system's temporary directory.",
            show_default=False,
        ),
    ] = None,
    archive_timeout_s: options.ArchiveTimeout = 60.0,
    json: options.Json = None,
) -> None:
    """Compare two snapshots of a store partition, or one with the live store. Exit code 1 if rows differ."""
    from statestore.archive.archive import open_archive
    from statestore.archive.selection import SnapshotChoice, named_snapshot
    from statestore.verification import snapshot_difference as difference

    options.require_writable(json=json)
    objects = open_archive(archive, archive_timeout_s, create=False)
    before = named_snapshot(objects, SnapshotChoice(snapshot))
    difference.require_readable(before)
    later: Manifest | LiveStore
    if other is not None:
        later = named_snapshot(objects, SnapshotChoice(other))
        difference.require_comparable(before, later)
    elif state_dir is not None:
        later = difference.live_store(before, state_dir.absolute())
    else:
        raise InputError("expected the name of another snapshot, or --state-dir with the live store")
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    counts = difference.RowCounts()
    say = output.console(json)
    # There may be more rows than memory holds: those for JSON wait in a file.
    with TemporaryFile("w+", encoding="utf-8", dir=scratch) as told:
        for row in difference.differing_from_snapshot(objects, before, later, scratch, counts):
            if keys:
                shown = shown_row(row, before.definition, key_serde)
                told.write(json_format.dumps(shown, ensure_ascii=False) + "\n")
                if json != output.STANDARD_OUTPUT:
                    output.say(say, _line(shown))
        names = {"store_partition": str(before.store_partition), "before": snapshot, "after": other or "live"}
        output.say(
            say,
            f"{before.store_partition}: {counts.added} keys added, {counts.changed} changed, {counts.removed} removed, "
            f"{counts.equal} equal",
        )
        head = {"archive": archive, **names, **asdict(counts)}
        if keys:
            output.write_lines(json, head, told)
        else:
            output.write_content(json, head)
    raise typer.Exit(1 if counts.differing else 0)


def _line(shown: dict[str, Any]) -> str:
    """Return a row as people see it: `changed a window_start=60000`."""
    change, key, *others = shown.items()
    said = [f"{name}={value}" for name, value in others]
    return " ".join([change[1], *([] if key[1] is None else [key[1]]), *said])


def shown_row(row: ChangedRow, store: StoreDefinition, key_serde: str | None) -> dict[str, Any]:
    """Return a row that differs as it is printed: the change, the key, and the times in its row key.

    A key that is not of its serde is null, with its bytes in `key_bytes`. Of a kind of the user's own, whose code is
    not loaded, the key is the whole row key. A Schema Registry is asked only if `key_serde` names its serde.
    """
    from statestore.cli.values import value_text
    from statestore.kinds.known import built_in
    from statestore.schemas.serdes import REGISTRY_SERDES

    key, numbers = row.row_key, {}
    if (kind := built_in(store.kind)) is not None and kind.suffix_bytes:
        at = len(key) - kind.suffix_bytes
        for number in kind.numbers:
            if number.name != "sequence" or store.retain_duplicates:
                numbers[number.name] = int.from_bytes(row.row_key[at : at + number.bytes], "big", signed=True)
            at += number.bytes
        key = key[: -kind.suffix_bytes]
    needs_more = kind is None or ":" in store.key_serde or store.key_serde in REGISTRY_SERDES
    serde = key_serde or ("bytes" if needs_more else store.key_serde)
    try:
        text: dict[str, str | None] = {"key": value_text(key, serde)}
    except InputError:
        text = {"key": None, "key_bytes": key.hex()}
    return {"change": row.change, **text, **numbers}
