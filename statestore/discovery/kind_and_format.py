"""Kind and format of a store, by its shape and by what a user says of it. What can be read in two ways is refused.

Whoever asks says how a setting is said there: as an option of the command, or of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from statestore.discovery.shape import StoreShape
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import InputError, UnknownFormatError
from statestore.kinds.key_value import KEY_VALUE
from statestore.kinds.known import BUILT_IN, kind_of
from statestore.model import StoreFormat

#: Tells how a user says a setting that takes one of these values.
Remedy = Callable[[str, Sequence[str]], str]


def refuse_times_in_front(shape: StoreShape, limit_ms: int | None, remedy: Remedy) -> None:
    """Refuse row keys that may have their times in front, whatever is said of them: their rows would be other ones.

    Parameters
    ----------
    limit_ms
        How far behind its segment's start a row's time may lie; None: not known.

    Raises
    ------
    UnknownFormatError
        If the row keys of a window or session store can be read so.
    """
    if not shape.rows:
        return
    directory = shape.directory
    ordered, ordinary = _within(shape.time_ordered_ms, limit_ms), _within(shape.spread_ms, limit_ms)
    times_first = "begin with 00 or 01 and their times, as in stores of EmitStrategy.onWindowClose"
    if shape.indexed or (ordered and not ordinary):
        raise UnknownFormatError(f"{directory} has row keys that {times_first}; these are not known here")
    if ordered:
        said = "" if limit_ms is not None else f". If it is no such store, {remedy('retention_ms', ('MS',))}"
        raise UnknownFormatError(
            f"{directory} has row keys that can be read in two ways: as those of a {' or '.join(ordinary)} store, and "
            f"as such that {times_first}; these are not known here{said}"
        )


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
    """As `discovered_kind`, where no retention tells how long segments are.

    Raises
    ------
    UnknownFormatError
        If the rows are those of no store that we know.
    """
    refuse_times_in_front(shape, shape.likely_limit_ms, remedy)
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
    if shape is None or not shape.families:
        found = said or BUILT_IN[kind].only_format
        if found is None:
            raise InputError(f"no database tells its format; {remedy('format', ('plain', 'timestamped'))}")
        return found
    if said not in (None, shape.format):
        raise InputError(
            f"{shape.directory} has the column families {', '.join(sorted(shape.families))}, which are those of a "
            f"{shape.format} store, not of a {said} one; correct its format"
        )
    return shape.format


def _within(spread_ms: Mapping[str, int], limit_ms: int | None) -> list[str]:
    """Kinds whose reading of row keys puts no row behind the end of its segment, as far as that is known."""
    return [kind for kind, widest in spread_ms.items() if limit_ms is None or widest < limit_ms]
