"""Kind and format of a store, from its shape and the user's description. Ambiguous stores are refused.

Whoever asks says how a setting is said there: as an option of the command, or of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from statestore.discovery.shape import StoreShape
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import InputError, UnknownFormatError
from statestore.formats.value_format import COLUMN_FAMILIES, DEFAULT_COLUMN_FAMILY
from statestore.kinds.key_value import KEY_VALUE
from statestore.kinds.kind import StoreKind
from statestore.kinds.known import BUILT_IN, OF_THE_DSL, kind_of
from statestore.kinds.session import SESSION
from statestore.kinds.time_ordered import (
    INDEXED_TIME_ORDERED_WINDOW,
    TIME_ORDERED_BUFFER,
    TIME_ORDERED_SESSION,
    TIME_ORDERED_WINDOW,
)
from statestore.kinds.versioned import VERSIONED
from statestore.kinds.window import WINDOW
from statestore.model import StoreFormat

_OF_THE_DSL = frozenset(kind.name for kind in OF_THE_DSL)
_ORDINARY = (StoreFormat.PLAIN, StoreFormat.TIMESTAMPED, StoreFormat.HEADERS)
#: Tells how a user says a setting that takes one of these values.
Remedy = Callable[[str, Sequence[str]], str]


def says(said: str | None, kind: StoreKind) -> bool:
    """Return whether a user says that a store is of this kind."""
    return said == kind.name


def says_otherwise(said: str | None, kind: StoreKind) -> bool:
    """Return whether a user says that a store is of another kind."""
    return said not in (None, kind.name)


def kind_with_times_in_front(shape: StoreShape, said: str | None, limit_ms: int | None, remedy: Remedy) -> str | None:
    """Return the kind of a store whose row keys have their times in front; None if they do not.

    Parameters
    ----------
    said
        The kind that a user says.
    limit_ms
        How far behind its segment's start a row's time may lie; None: not known.

    Raises
    ------
    UnknownFormatError
        If the row keys of a window or session store can be read so, and as ordinary ones, too; or if they are none that
        the DSL makes. What is said of the ordinary kinds does not decide it: their rows would be other ones.
    InputError
        If the kind that is said is not the store's.
    """
    directory = shape.directory
    if not shape.rows:
        return said if said in _OF_THE_DSL else None
    if shape.buffered or says(said, TIME_ORDERED_BUFFER):
        if not (shape.buffered or shape.starts == (0,)):
            raise InputError(f"{directory} is not that of a {said} store, which has one segment; correct its kind")
        return _not_otherwise(shape, said, TIME_ORDERED_BUFFER.name)
    ordered, ordinary = _within(shape.time_ordered_ms, limit_ms), _within(shape.spread_ms, limit_ms)
    found = _made_by_the_dsl(shape, ordered)
    times_first = "begin with 00 or 01 and their times, as in stores of EmitStrategy.onWindowClose"
    if shape.indexed or (ordered and not ordinary):
        if len(found) != 1:
            raise UnknownFormatError(
                f"{directory} has row keys that {times_first}, and rows that are not as there: each session and each "
                "sliding window has an index row, no other window has, and a window's value begins with a timestamp"
            )
        return _not_otherwise(shape, said, found[0])
    if ordered and said in found:
        return said
    if ordered:
        unsaid = "" if limit_ms is not None else f". If it is no such store, {remedy('retention_ms', ('MS',))}"
        if found:
            unsaid = f". If it is one of these, {remedy('kind', found)}{unsaid}"
        raise UnknownFormatError(
            f"{directory} has row keys that can be read in two ways: as those of a {' or '.join(ordinary)} store, and "
            f"as such that {times_first}{unsaid}"
        )
    if said in _OF_THE_DSL:
        raise InputError(f"{directory} has no row keys of a {said} store; correct its kind")
    return None


def _made_by_the_dsl(shape: StoreShape, ordered: Sequence[str]) -> list[str]:
    """Return the kinds with times in front that rows which can be read so may be of."""
    found = []
    if SESSION.name in ordered and SESSION.name in shape.indexed:
        found.append(TIME_ORDERED_SESSION.name)
    if WINDOW.name in ordered and shape.closed_windows:
        if WINDOW.name in shape.indexed:
            found.append(INDEXED_TIME_ORDERED_WINDOW.name)
        elif not shape.index_rows and not shape.indexed:
            found.append(TIME_ORDERED_WINDOW.name)
    return found


def _not_otherwise(shape: StoreShape, said: str | None, found: str) -> str:
    if said not in (None, found):
        raise InputError(f"{shape.directory} has row keys of a {found} store, not of a {said} store; correct its kind")
    return found


def refuse_other_row_keys(shape: StoreShape) -> None:
    """Refuse row keys that are of no kind, with an UnknownFormatError."""
    if shape.rows and not shape.spread_ms:
        raise UnknownFormatError(
            f"{shape.directory} has row keys that are neither those of windows nor those of sessions"
        )


def discovered_kind(
    store: StoreDirectory, shape: StoreShape | None, said: str | None, limit_ms: int | None, remedy: Remedy
) -> str:
    """Return the kind of a store that has a directory.

    Raises
    ------
    InputError
        If the kind that is said is not the store's; or if none is said, and its rows do not tell it.
    """
    directory = store.directory if shape is None else shape.directory
    if said is not None and kind_of(said).segmented is not store.segmented:
        raise InputError(f"{directory} is not that of a {said} store; correct its kind")
    if not store.segmented:
        return said or KEY_VALUE.name
    spread_ms = shape.spread_ms if shape is not None and shape.rows else {}
    # If no segment is as long, the retention is not the store's: the nearest reading is told with that.
    kinds = _within(spread_ms, limit_ms) or sorted(spread_ms, key=lambda kind: spread_ms[kind])[:1]
    if said is None and len(kinds) != 1:
        if not kinds:
            raise InputError(f"{directory} has no row that tells its kind; {remedy('kind', ('window', 'session'))}")
        needed = ("retention_ms", ("MS",)) if limit_ms is None else ("kind", ("window", "session"))
        either = " and of ".join(kinds)
        raise InputError(f"{directory} has row keys that can be those of {either} stores; {remedy(*needed)}")
    if said is not None and kinds and said not in kinds:
        raise InputError(
            f"{directory} has row keys of a {' or '.join(kinds)} store, not of a {said} store; correct its kind"
        )
    return kinds[0] if said is None else said


def kind_without_retention(store: StoreDirectory, shape: StoreShape, said: str | None, remedy: Remedy) -> str:
    """As `discovered_kind`, where no retention tells how long segments are, and no topic tells a versioned store.

    Raises
    ------
    UnknownFormatError
        If the rows are those of no store that we know.
    """
    if shape.versioned:
        if says_otherwise(said, VERSIONED):
            raise UnknownFormatError(
                f"{shape.directory} has row keys that begin with segment ids, as those of versioned stores, and is not "
                f"that of a {said} store; correct its kind"
            )
        return VERSIONED.name
    if says(said, VERSIONED) and not store.segmented and shape.versions is None:
        raise UnknownFormatError(f"{shape.directory} has rows that are not those of a {said} store; correct its kind")
    if said is None and not store.segmented and shape.versions is not None and shape.versions.rows:
        raise InputError(
            f"{shape.directory} has rows that can be those of a versioned store, damaged or without a latest value; "
            f"{remedy('kind', (VERSIONED.name, KEY_VALUE.name))}"
        )
    if store.segmented and (found := kind_with_times_in_front(shape, said, shape.likely_limit_ms, remedy)) is not None:
        return found
    if said is not None:  # rows of neither kind may be damaged ones, of which whoever reads them is told
        return discovered_kind(store, shape, said, None, remedy)
    if store.segmented:
        refuse_other_row_keys(shape)
    return discovered_kind(store, shape, None, shape.likely_limit_ms, remedy)


def format_of(kind: str, shape: StoreShape | None, said: StoreFormat | None, remedy: Remedy) -> StoreFormat:
    """Return the format of a store of one of our kinds.

    Raises
    ------
    InputError
        If the format that is said is not the store's; or if none is said, and no database tells it.
    """
    known = BUILT_IN[kind]
    if said == StoreFormat.TIMESTAMPED and known.only_format is StoreFormat.TIMESTAMPED_IN_DEFAULT:
        said = known.only_format
    formats = known.formats or _ORDINARY
    if said not in (None, *formats):
        raise InputError(f"a {kind} store has the format {' or '.join(formats)}, not {said}; correct its format")
    if shape is None or not shape.families:
        if (unseen := said or known.only_format) is None:
            raise InputError(f"no database tells its format; {remedy('format', formats)}")
        return unseen
    families = {name: known.value_format(name).column_families[0] for name in formats}
    found = [name for name, family in families.items() if family in shape.families][-1]
    here = f"{shape.directory} has the column families {', '.join(sorted(shape.families))}"
    if other := shape.families & {*COLUMN_FAMILIES} - {DEFAULT_COLUMN_FAMILY, *families.values()}:
        raise UnknownFormatError(f"{here}, and no {kind} store has {', '.join(sorted(other))}")
    if said not in (None, found):
        raise InputError(f"{here}, which are those of a {found} store, not of a {said} one; correct its format")
    return found


def _within(spread_ms: Mapping[str, int], limit_ms: int | None) -> list[str]:
    """Kinds whose reading of row keys puts no row behind the end of its segment, as far as that is known."""
    return [kind for kind, widest in spread_ms.items() if limit_ms is None or widest < limit_ms]
