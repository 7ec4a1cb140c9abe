"""Where stores are damaged: places in each part of each file, drawn from a seed.

Layouts. SST: data blocks, blocks about them (filter, index, properties; at least a KiB), and a footer of 53 bytes.
MANIFEST: records of u32 checksum, u16 length, u8 type and payload. All else is taken as one part.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from statestore.statedir.paths import TaskPaths
from tests.faults.damage.stores import TASK, Copy, Original

_FOOTER_BYTES = 53
_HEADER_BYTES = 64
_META_BYTES = 1_024
_RECORD_HEADER_BYTES = 7
Fault = Literal["flip", "cut", "gone"]
#: What must be found in a sealed store, wherever it is damaged.
SEALED_KINDS = ("SST", "MANIFEST", "CURRENT")


class Place(NamedTuple):
    """One fault at one place.

    Attributes
    ----------
    file
        Below the state directory.
    kind, part
        Which file it is of a store, and which part of it.
    fault
        A bit flipped, all cut off from here on, or the file gone.
    at
        Byte in the file.
    """

    store: str
    sealed: bool
    file: str
    kind: str
    part: str
    fault: Fault
    at: int
    bit: int

    def __str__(self) -> str:
        state = "sealed" if self.sealed else "unsealed"
        return f"{state} {self.store}, {self.file}, {self.part}: {self.fault} at byte {self.at}, bit {self.bit}"

    @property
    def must_be_found(self) -> bool:
        """Whether the store may not be called whole, harmless as the fault may be to its rows."""
        return self.sealed and self.kind in SEALED_KINDS

    def inflict(self, copy: Copy) -> None:
        """Damage a copy."""
        file = copy.state_dir / self.file
        if self.fault == "gone":
            file.unlink()
            return
        content = bytearray(file.read_bytes())
        if self.fault == "cut":
            del content[self.at :]
        else:
            content[self.at] ^= 1 << self.bit
        file.write_bytes(content)


def draw(original: Original, store: str, *, sealed: bool, seed: str, each: int) -> list[Place]:
    """Draw places in all files of a store: for each kind of file and part, `each` bits and cuts, and one loss."""
    chance = random.Random(f"{seed} {store} {sealed}")
    state_dir = original.subject.state_dir
    parts: dict[tuple[str, str], list[tuple[Path, Sequence[int]]]] = {}
    for kind, file in _files(original, store, sealed=sealed):
        for part, where in _parts(kind, file):
            parts.setdefault((kind, part), []).append((file, where))
    places: dict[Place, None] = {}
    for (kind, part), found in parts.items():
        faults: list[Fault] = [*["flip"] * each, *["cut"] * ((each + 1) // 2), "gone"]
        for fault in faults:
            file, where = chance.choice(found)
            if not where and fault != "gone":  # an empty file
                continue
            at = 0 if fault == "gone" else chance.choice(where)
            bit = chance.randrange(8) if fault == "flip" else 0
            name = str(file.relative_to(state_dir))
            places[Place(store, sealed, name, kind, "all" if fault == "gone" else part, fault, at, bit)] = None
    return list(places)


def sample(places: list[Place], number: int, seed: str) -> list[Place]:
    """Take some of the places, of each kind of file and fault as many as go."""
    chance = random.Random(seed)
    groups: dict[tuple[str, Fault], list[Place]] = {}
    for place in chance.sample(places, len(places)):
        groups.setdefault((place.kind, place.fault), []).append(place)
    taken: list[Place] = []
    while len(taken) < min(number, len(places)):
        for group in groups.values():
            if group and len(taken) < number:
                taken.append(group.pop())
    return taken


def _files(original: Original, store: str, *, sealed: bool) -> Iterator[tuple[str, Path]]:
    """Files that a store consists of, ours included."""
    paths = original.subject.paths(TASK)
    live = paths.live(original.store(store))
    kinds = {".sst": "SST", ".log": "WAL"}
    for file in sorted(path for path in live.rglob("*") if path.is_file()):
        name = file.name
        if name.startswith("LO"):
            continue
        yield kinds.get(file.suffix) or name.partition("-")[0], file
    for kind, file in _own_files(paths, store):
        if file.exists() and (sealed or kind not in ("seal", "digests")):
            yield kind, file


def _own_files(paths: TaskPaths, store: str) -> Iterator[tuple[str, Path]]:
    yield "seal", paths.seal(store)
    yield "digests", paths.digests(store)
    yield "record", paths.record(store)
    yield "interval", paths.segments(store) / "interval"


def _parts(kind: str, file: Path) -> Iterator[tuple[str, Sequence[int]]]:
    content = file.read_bytes()
    size = len(content)
    if kind == "SST":
        end = size - _FOOTER_BYTES
        yield "header", range(_HEADER_BYTES)
        yield "body", range(_HEADER_BYTES, end)
        yield "end of the body", range(max(end - _META_BYTES, _HEADER_BYTES), end)
        yield "filter", filter_block(content)
        yield "footer", range(end, size)
    elif kind == "MANIFEST":
        headers = _manifest_records(content)
        last = headers[-1]
        yield "headers of records", [at + byte for at in headers for byte in range(_RECORD_HEADER_BYTES)]
        yield "first records", range(headers[len(headers) // 2])
        yield "last records", range(headers[len(headers) // 2], last)
        yield "last record", range(last, size)
    else:
        yield "all", range(size)


def filter_block(content: bytes) -> range:
    """Return the filter block, which RocksDB can do without and does not check; nothing if there is none.

    The block that lists the others has its name: u8 length of the name, u8 length of the handle, name, and the handle's
    two varints, offset and size.
    """
    at = content.rfind(b"fullfilter.")
    if at < 0:
        return range(0)
    numbers, number, shift = [], 0, 0
    for byte in content[at + content[at - 2] :][: content[at - 1]]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    offset, size = numbers
    return range(offset, offset + size)


def _manifest_records(content: bytes) -> list[int]:
    at, found = 0, []
    while at + _RECORD_HEADER_BYTES <= len(content):
        found.append(at)
        at += _RECORD_HEADER_BYTES + int.from_bytes(content[at + 4 : at + 6], "little")
    return found
