"""Fetching the files of snapshots, beside obstore alone: the same objects to disk, neither hashed nor looked at.

Both read four partitions one after the other, several files at a time, and sync each file.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import obstore
from obstore.store import from_url

from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.restore_log import Log
from benchmarks.restore_ours import order_of
from benchmarks.restore_program import specs_of
from benchmarks.restore_run import RestoringRun
from benchmarks.snapshot_restore import CORES, Archives
from statestore.archive.archive import ArchiveSpec
from statestore.archive.fetch import fetch
from statestore.archive.layout import blob
from statestore.archive.manifest import Manifest
from statestore.archive.snapshots import history, read_manifest
from statestore.partition.generations import snapshot_directory

ROUNDS = 3 if SMALL else 5
_FILES_AT_ONCE = 4
_CHUNK = 1 << 20
_MEGABYTE = 1_000_000


def case_of(name: str) -> str:
    """Name of the case of an archive."""
    return "fetch from " + ("a directory" if "directory" in name else "s3proxy")


def measure_fetching(log: Log, scratch: Path, archives: Archives, part: str, rounds: int) -> list[Result]:
    """Measure MB/s of both from each archive."""
    cases = []
    for name, archive in archives.items():
        if part in case_of(name):
            manifests = _manifests(log, archive, scratch)
            ways = {"ours": _ours(archive), "obstore": _obstore(archive)}
            rates = {way: partial(_rate, how, manifests, scratch) for way, how in ways.items()}
            cases.append(Case(case_of(name), "MB/s", rates))
    return measure(cases, rounds)


def _manifests(log: Log, archive: ArchiveSpec, scratch: Path) -> list[Manifest]:
    objects = archive.open()
    found = []
    for spec in specs_of(order_of("snapshot", RestoringRun(log, CORES, scratch), archive=archive)):
        directory = snapshot_directory(spec)
        found.append(read_manifest(objects, directory, history(objects, directory).usable[0].name))
    return found


def _rate(how: Callable[[Manifest, Path], None], manifests: Sequence[Manifest], scratch: Path) -> float:
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        os.sync()  # what was written before is not this one's to wait for
        started = time.perf_counter()
        for number, manifest in enumerate(manifests):
            how(manifest, Path(directory) / str(number))
        seconds = time.perf_counter() - started
    return sum(manifest.bytes for manifest in manifests) / _MEGABYTE / seconds


def _ours(archive: ArchiveSpec) -> Callable[[Manifest, Path], None]:
    objects = archive.open()

    def all_of(manifest: Manifest, target: Path) -> None:
        fetch(objects, manifest, target, {})

    return all_of


def _obstore(archive: ArchiveSpec) -> Callable[[Manifest, Path], None]:
    remote = not archive.url.startswith("file:")
    store = from_url(archive.url, client_options={"allow_http": True}) if remote else from_url(archive.url)

    def one(source: str, target: Path) -> None:
        with target.open("xb", buffering=0) as out:
            if remote:
                for chunk in obstore.get(store, source).stream(min_chunk_size=_CHUNK):
                    out.write(chunk)
            else:  # which it reads much faster in one piece
                out.write(obstore.get(store, source).bytes())
            os.fsync(out.fileno())

    def all_of(manifest: Manifest, target: Path) -> None:
        target.mkdir()
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            for _ in pool.map(lambda file: one(blob(file.sha256), target / file.path), manifest.files):
                pass

    return all_of
