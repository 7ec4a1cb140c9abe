"""Where rows are, told without the code under test: in a store's files, whatever state they are in, or in a log."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from rocksdict import AccessType, Options, Rdict, ReadOptions

from statestore.model import TopicPartition
from tests.faults.meeting.counting import Rows
from tests.integration.broker import Logged, PlainConsumer

#: The column families that rows may be in.
_TIMESTAMPED = "keyValueWithTimestamp"


class Salvage:
    """Reads the rows of stores on disk, also of those that nobody else can open; what has not changed is read once."""

    def __init__(self) -> None:
        self._read: dict[frozenset[tuple[str, int, int, int]], Rows | None] = {}

    def rows(self, store: Path) -> Rows | None:
        """Rows of a store's database, or of all its segments'; None if one of them cannot be read by any means."""
        if not store.exists():
            return {}
        segments = [path for path in store.iterdir() if path.is_dir()]
        found: Rows = {}
        for database in segments or [store]:
            rows = self._rows_of(database)
            if rows is None:
                return None
            found.update(rows)
        return found

    def _rows_of(self, database: Path) -> Rows | None:
        files = [path for path in database.iterdir() if path.is_file() and not path.name.startswith("LOG")]
        looks = [(path.name, path.stat()) for path in files]
        key = frozenset((name, look.st_ino, look.st_size, look.st_mtime_ns) for name, look in looks)
        if key not in self._read:
            self._read[key] = _salvaged(files)
        return self._read[key]


def _salvaged(files: list[Path]) -> Rows | None:
    manifests = sorted(path.name for path in files if path.name.startswith("MANIFEST-"))
    if not manifests:
        return {}
    with tempfile.TemporaryDirectory(prefix="salvage-") as name:
        for path in files:
            shutil.copy2(path, name)
        (Path(name) / "CURRENT").write_text(f"{manifests[-1]}\n")
        try:
            return _rows_in(name)
        except Exception:  # of rocksdict, which has no class of its own for what RocksDB says
            return None


def _rows_in(directory: str) -> Rows:
    options = Options(raw_mode=True)
    families = {family: Options(raw_mode=True) for family in Rdict.list_cf(directory, options)}
    database = Rdict(directory, options, column_families=families, access_type=AccessType.read_only())
    try:
        if _TIMESTAMPED not in families:
            return {}
        anyway = ReadOptions()
        anyway.set_verify_checksums(False)
        found: Rows = {}
        at = database.get_column_family(_TIMESTAMPED).iter(anyway)
        at.seek_to_first()
        while at.valid():
            key, value = bytes(at.key()), bytes(at.value())
            found[key] = value[8:], int.from_bytes(value[:8], "big", signed=True)
            at.next()
        at.status()  # raises what ended it before its end
        return found
    finally:
        database.close()


class Log:
    """Committed records of a changelog's only partition, as a plain consumer gets them.

    Attributes
    ----------
    records
        Of the topic as it is now, without those that were deleted.
    start
        Offset before which its records were deleted.
    end
        The last stable offset when it was read.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self.topic = topic
        self.begin_anew()

    def begin_anew(self) -> None:
        """The topic was made anew, and nothing of it was read."""
        self.records: list[Logged] = []
        self.start = self.end = 0
        self._consumer: PlainConsumer | None = None

    def read(self) -> list[Logged]:
        """Read on to the last stable offset; return what was new."""
        if self._consumer is None:
            self._consumer = PlainConsumer(self._servers, reset="error")
        partition = TopicPartition(self.topic, 0)
        new, self.end = self._consumer.read({partition: self.end})[partition]
        self.records += new
        return new

    def cut(self, before: int) -> None:
        """Records were deleted."""
        self.records = [record for record in self.records if record.offset >= before]
        self.start, self.end = before, max(self.end, before)

    def close(self) -> None:
        """Let go of the consumer."""
        if self._consumer is not None:
            self._consumer.close()
