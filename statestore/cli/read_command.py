"""The command read: rows of a store of any kind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from statestore import clock
from statestore.cli import completion, options, output
from statestore.config import is_node_local
from statestore.errors import InputError
from statestore.model import StoreSelector

if TYPE_CHECKING:
    from statestore.cli.selection import PartitionSelection
    from statestore.cli.store_rows import Row
    from statestore.discovery.row_range import RowRange
    from statestore.kinds.kind import StoreKind
    from statestore.partition.spec import StorePartitionSpec

#: Rows in the table if the JSON has all of them.
_ROWS_WITH_JSON = 100


@options.with_target
def read(
    asked: PartitionSelection,
    name: Annotated[
        str,
        typer.Argument(
            metavar="STORE",
            help="A store of any kind, or a partition of it: STORE, APPLICATION/STORE, APPLICATION/STORE/0_3.",
            autocompletion=completion.stores,
        ),
    ],
    key: Annotated[
        str | None,
        typer.Argument(metavar="KEY", help="Read only this key, in the form of --key-serde. Default: all keys."),
    ] = None,
    key_from: Annotated[
        str | None, typer.Option(metavar="KEY", help="Read keys from this one on, in the order of their bytes.")
    ] = None,
    key_to: Annotated[str | None, typer.Option(metavar="KEY", help="Read keys before this one.")] = None,
    time_from: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Read windows that start, sessions that are active, or versions that are valid at this time (ISO "
            "8601, or ms) or later.",
        ),
    ] = None,
    time_to: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Read windows that start, sessions that are active, or versions that are valid before this time.",
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Versioned stores: read the values as of this time (ISO 8601, or ms)."),
    ] = None,
    history: Annotated[
        bool,
        typer.Option(
            "--history",
            help="Versioned stores: read all retained versions, oldest first. Default: only "
            "the latest version of each key.",
        ),
    ] = False,
    expired: Annotated[
        bool,
        typer.Option(
            "--expired",
            help="Window and session stores: also read segments that have expired, or that are left over from another "
            "retention. Kafka Streams does not read them.",
        ),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Read no more rows than this.")] = 100,
    key_serde: Annotated[
        str | None,
        typer.Option(
            help="bytes (in hex), utf8, int32, int64, double, json, delimited, avro, protobuf, json-schema, or "
            "module:attribute. Default: the definition's, or utf8.",
            show_default=False,
        ),
    ] = None,
    value_serde: Annotated[
        str | None,
        typer.Option(
            help="One of the same values as --key-serde. Default: the definition's, or bytes (in hex).",
            show_default=False,
        ),
    ] = None,
    json: options.Json = None,
) -> None:
    """Read rows of a store of any kind: one key, a range of keys or times, or all. Exit code 1 if no row is found."""
    from statestore.cli.selection import choose
    from statestore.cli.store_rows import Serdes, history_from, read_rows
    from statestore.cli.tables import table
    from statestore.schemas.serdes import REGISTRY_SERDES, load_decoder
    from statestore.statedir.lock import locked

    options.require_writable(json=json)
    times = _Times.of(time_from, time_to, as_of, history=history)
    if key is not None and (key_from is not None or key_to is not None):
        raise InputError("KEY, --key-from, --key-to: expected a key or a range of keys, found both")
    topics = asked.where.cluster.topics
    chosen = choose(asked.naming([name]), topics)
    wanted = StoreSelector.parse(name)
    chosen.require_free()
    chosen.require_known()
    specs = [spec for spec in chosen.specs if wanted.selects(spec.store_partition)]
    if not specs:
        problems = [store.problem for store in chosen.discovered if store.name == wanted.store]
        raise InputError(f"store {wanted} cannot be read: {'; '.join(problems) or 'it is kept in memory'}")
    if is_node_local() and any(spec.owned for spec in specs):
        print(
            f"statestore: the rows are those of the state directory {asked.where.state_dir}. "
            "STATESTORE_NODE_LOCAL_STATE is true, so the archive may have newer ones",
            file=sys.stderr,
        )
    found: list[Row] = []
    too_early = []
    for spec in specs:
        times.require_of(spec)
        # Of a found store no serde is known; keys are text more often than not.
        serdes = Serdes(
            key_serde or (spec.store.key_serde if spec.owned else "utf8"),
            value_serde or (spec.store.value_serde if spec.owned else "bytes"),
        )
        for serde in {*serdes} & {*REGISTRY_SERDES}:
            load_decoder(serde)  # without a registry, every row would be undecodable
        rows = row_range(spec.store.store_kind, (key, key_from, key_to), (times.first, times.end), serdes.key)
        with locked(spec.paths, spec.lock_wait_s, reading=True):
            if times.as_of is not None and times.as_of < (oldest_ms := history_from(spec)):
                too_early.append(
                    f"{spec.store_partition} has history only from {max(oldest_ms, 0)} ms on (retention_ms "
                    f"{spec.store.retention_ms}), found --as-of {times.as_of}"
                )
                continue
            with closing(read_rows(spec, rows, serdes, latest=times.latest, expired=expired)) as reading:
                found += islice(reading, limit + 1 - len(found))
        if len(found) > limit:
            break
    if too_early and not found:
        raise InputError(f"{'; '.join(too_early)}. Older values may be in a snapshot, or in the changelog")
    for why in too_early:
        print(f"statestore: {why}: it was not read", file=sys.stderr)
    more = len(found) > limit
    found = found[:limit]
    if found:
        title = name if key is None else f"{name}: {key}"
        # A program that reads the JSON needs no table, and a long one takes longer than reading the store.
        shown = found if json is None else [] if json == output.STANDARD_OUTPUT else found[:_ROWS_WITH_JSON]
        if shown:
            output.console(json).print(table(printable(title), *_cells(shown)))
        if json is not None and 0 < len(shown) < len(found):
            print(
                f"statestore: the table has the first {len(shown)} of {len(found)} rows; {json} has all",
                file=sys.stderr,
            )
    else:
        what = "a row in this range" if key is None else f"the key {key!r}"
        when = "" if times.as_of is None else f" at {times.as_of} ms"
        print(f"statestore: no partition of {wanted} has {what}{when}", file=sys.stderr)
    if more:
        print(f"statestore: these are the first {limit} rows; add --limit to read more", file=sys.stderr)
    undecoded = [row for row in found if row.key_bytes is not None or row.value_bytes is not None]
    if undecoded:
        print(
            f"statestore: {len(undecoded)} rows have a key or a value that its serde cannot decode: its bytes are "
            f"shown in hexadecimal. The first: {undecoded[0].reason}. {serdes.advice}",
            file=sys.stderr,
        )
    output.write_content(json, {"key": key, "more": more, "rows": [row.content() for row in found]})
    raise typer.Exit(0 if found else 1)


class _Times(NamedTuple):
    """Which times are read, ms since the epoch; `end` is exclusive, None is an open end."""

    first: int | None
    end: int | None
    as_of: int | None
    history: bool

    @classmethod
    def of(cls, time_from: str | None, time_to: str | None, as_of: str | None, *, history: bool) -> _Times:
        """Read the options.

        Raises
        ------
        InputError
            If one is malformed, or they do not fit together.
        """
        said = {"--time-from or --time-to": time_from or time_to, "--as-of": as_of, "--history": history or None}
        if len(names := [name for name, value in said.items() if value is not None]) > 1:
            raise InputError(f"{' and '.join(names)}: expected one of them, found both")
        if as_of is not None:
            at = _time_ms(as_of, "--as-of")
            return cls(at, at + 1, at, history)
        first = None if time_from is None else _time_ms(time_from, "--time-from")
        end = None if time_to is None else _time_ms(time_to, "--time-to")
        if first is not None and end is not None and end <= first:
            raise InputError(f"--time-to: expected a time after --time-from {time_from}, found {time_to}")
        return cls(first, end, None, history)

    @property
    def latest(self) -> bool:
        """True if only the latest version of a key is asked for."""
        return not self.history and self.first is None and self.end is None

    def require_of(self, spec: StorePartitionSpec) -> None:
        """Refuse a store that has no such times.

        Raises
        ------
        InputError
            Naming the option.
        """
        if (self.as_of is not None or self.history) and not spec.store.store_kind.has_history:
            raise InputError(
                f"{spec.store_partition} is a {spec.store.kind} store. Only versioned stores have the history that "
                f"{'--history' if self.history else '--as-of'} needs. To read another store as it was, build it with "
                "`statestore restore --mode as-of`"
            )
        if (self.first is not None or self.end is not None) and not spec.store.store_kind.has_times:
            raise InputError(
                f"{spec.store_partition} is a {spec.store.kind} store, whose keys have no times: leave --time-from and "
                "--time-to out"
            )


def row_range(
    kind: StoreKind,
    keys: tuple[str | None, str | None, str | None],
    times: tuple[int | None, int | None],
    key_serde: str,
) -> RowRange:
    """Return which rows of a store of a kind are read.

    Parameters
    ----------
    keys
        The only key; and the first key and the one before which the range ends.
    times
        The first time (ms), and the one before which the range ends.

    Raises
    ------
    InputError
        If a key is not of its serde, or no key can be in the range.
    """
    from statestore.cli.values import key_bytes
    from statestore.discovery.row_range import RowRange

    key, first, end = (None if text is None else key_bytes(text, key_serde) for text in keys)
    if first is not None and end is not None and end <= first:
        raise InputError(
            f"--key-to: expected a key after --key-from {keys[1]!r} in the order of the bytes, found {keys[2]!r}"
        )
    return RowRange(kind, key, first, end, *times)


def _time_ms(text: str, option: str) -> int:
    try:
        return clock.ms_of(text)
    except ValueError as error:
        raise InputError(
            f"{option}: expected ms since the epoch, or ISO 8601 such as 2026-01-31T12:00:00+00:00, found {text!r}"
        ) from error


def _cells(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str | None, ...]]]:
    """Columns of rows, and their cells. Times have no separators of thousands: they are to be copied."""
    columns: dict[str, list[str | None]] = {"store partition": [row.label for row in rows]}
    columns["key"] = [_shown(row.key, row.key_bytes) for row in rows]
    for name in dict.fromkeys(name for row in rows for name in row.numbers):
        column = f"{name.replace('_', ' ')}{'' if name == 'sequence' else ' ms'}>"
        columns[column] = [_text(row.numbers.get(name)) for row in rows]
    columns["value"] = [_shown(row.value, row.value_bytes) for row in rows]
    if "valid_from" not in rows[0].numbers:
        columns["timestamp ms>"] = [_text(row.timestamp) for row in rows]
    if any(row.headers is not None for row in rows):
        columns["headers"] = [printable(_headers_text(row.headers or ())) for row in rows]
    return tuple(columns), list(zip(*columns.values(), strict=True))


def printable(text: str) -> str:
    """Return a text of a user's as a terminal may show it: what would move the cursor is escaped."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _shown(value: object, raw: str | None) -> str:
    from statestore.cli.values import text_of

    return printable(text_of(value)) if raw is None else f"0x{raw}"


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _headers_text(headers: Sequence[tuple[str, str | None]]) -> str:
    """Show headers as name=value, null as a name alone."""
    return ", ".join(name if value is None else f"{name}={value}" for name, value in headers)
