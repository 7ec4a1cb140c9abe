"""Eight writers of one catalogue contradict each other, are killed anywhere, and lose their broker once."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from statestore import kill_switch
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import CommitOutcomeUnknownError, InvalidCommandError, RetryError
from statestore.kafka.cluster import Cluster
from statestore.metastore.backup import BackupFile
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import Command, DropApplication, PutApplication
from statestore.metastore.metastore import Health, Metastore
from tests.faults.own_broker import OwnBroker
from tests.integration.commands import Service, put
from tests.integration.dying import start_process

SEED = int(os.environ.get("FAULTS_SEED", "1"))
WRITERS, COMMANDS = 8, 500
NAMES = ("airports", "flights", "planes", "weather")
KINDS = ("put", "put", "put", "put window", "put if absent", "drop")
#: Where a writer is killed, besides at any time.
POINTS = (
    "command made, nobody fenced",
    "command writer has its turn",
    "command writer initialized",
    "command writer caught up",
    "before produce",
    "command sent, not committed",
    "commit sent, answer unseen",
    "outcome of a commit unknown",
    "command committed, not in the backup",
)
_KILLS_PER_WRITER = 5
_ALL_S = 600.0
#: After 60 s the broker itself ends a transaction that nobody does.
_TIMEOUT_S = 45.0


class Operation(NamedTuple):
    """A command that somebody wants; its number is in all that it puts."""

    number: int
    kind: str
    name: str

    def make(self, catalogue: Catalogue) -> Command | None:
        """Make the command."""
        if self.kind == "drop":
            return DropApplication(name=self.name)
        if self.kind == "put if absent" and self.name in catalogue.applications:
            return None
        window: dict[str, Any] = {"kind": "window", "window_size_ms": 1_000, "retention_ms": 1_000}
        store = StoreDefinition(name="counts", owner=str(self.number), **(window if "window" in self.kind else {}))
        definition = ApplicationDefinition(name=self.name, input_topic="input", processor="a:b", stores=(store,))
        return PutApplication(definition=definition, partitions={"input": 1})

    @property
    def signature(self) -> tuple[str, str]:
        """What tells its command from others in the log, as far as anything does."""
        return self.name, "" if self.kind == "drop" else str(self.number)


def _signature(command: Command) -> tuple[str, str]:
    if isinstance(command, PutApplication):
        return command.definition.name, command.definition.stores[0].owner or ""
    assert isinstance(command, DropApplication)
    return command.name, ""


class Writer:
    """One writer: a process that submits its operations, and after a kill another one that goes on."""

    def __init__(self, service: Service, number: int, operations: Sequence[Operation], draw: random.Random) -> None:
        self.kills = 0
        self.journal = service.backup.parent.with_name(f"writer-{number}.jsonl")
        self._service = service
        self._operations = operations
        self._draw = draw
        self._process: Any = None
        self._kill_at = 0.0

    def tend(self) -> bool:
        """Start the process, or kill it where its time has come; False when all is done."""
        if self._process is None:
            return self._start()
        if time.monotonic() > self._kill_at:
            self._process.kill()
        if self._process.is_alive():
            return True
        code, self._process = self._process.exitcode, None
        assert code in (0, -signal.SIGKILL), f"exit code {code}: {self.journal.read_text()[-2_000:]}"
        self.kills += code != 0
        return True

    def end(self) -> None:
        """Kill what is left."""
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def entries(self) -> list[dict[str, Any]]:
        """What the writer has noted, but for a line that a kill has torn."""
        if not self.journal.exists():
            return []
        return [json.loads(line) for line in self.journal.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def _start(self) -> bool:
        begun = {entry["number"] for entry in self.entries()}
        left = [operation for operation in self._operations if operation.number not in begun]
        if not left:
            return False
        environment, self._kill_at = {}, float("inf")
        if self.kills < _KILLS_PER_WRITER:
            if self._draw.random() < 0.3:
                self._kill_at = time.monotonic() + self._draw.uniform(0.3, 4)
            else:
                point = f"{self._draw.choice(POINTS)}:{self._draw.randint(1, 6)}"
                delay_ms = str(self._draw.uniform(0, 5))
                environment = {"STATESTORE_KILL_AT": point, "STATESTORE_KILL_DELAY_MS": delay_ms}
        self._process = start_process(_write, self._service, left, self.journal, environment)
        return True


def _write(service: Service, operations: Sequence[Operation], journal: Path, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    importlib.reload(kill_switch)
    metastore = service.metastore(_TIMEOUT_S)
    with journal.open("ab", buffering=0) as file:

        def note(operation: Operation, what: str, **more: object) -> None:
            file.write(json.dumps({"number": operation.number, "what": what, **more}).encode() + b"\n")

        for operation in operations:
            note(operation, "begun")
            try:
                done = metastore.submit(operation.make)
            except InvalidCommandError:
                note(operation, "refused")
            except CommitOutcomeUnknownError as error:
                note(operation, "unknown", error=str(error))
            except RetryError as error:
                note(operation, "failed", error=f"{error.kind}: {error}")
            except BaseException as error:
                note(operation, "bug", error=repr(error))
                raise
            else:
                command_id = done.command and done.command.id
                note(operation, "done", id=command_id, offset=done.offset, attempts=done.attempts)


def _plan(draw: random.Random) -> list[Operation]:
    return [Operation(number, draw.choice(KINDS), draw.choice(NAMES)) for number in range(COMMANDS)]


@pytest.mark.share_for(why="the only case")
@pytest.mark.timeout(900)
def test_writers_that_contradict_each_other_and_are_killed_agree_on_one_log(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    draw = random.Random(SEED)
    service = Service(own_broker.servers, tmp_path)
    operations = _plan(draw)
    writers = [
        Writer(service, number, operations[number::WRITERS], random.Random(draw.random())) for number in range(WRITERS)
    ]
    try:
        _run(writers, own_broker)
    except BaseException as error:
        error.add_note(f"FAULTS_SEED={SEED}")
        raise
    finally:
        for writer in writers:
            writer.end()
    noted = {entry["number"]: entry for writer in writers for entry in writer.entries()}  # the last word on each
    assert len(noted) == COMMANDS
    # Together: a writer whose first point is never reached runs to its end.
    kills = [writer.kills for writer in writers]
    assert sum(kills) >= WRITERS * _KILLS_PER_WRITER // 2, f"O8: {kills}"
    service.submit(put("last"))  # ends what a kill has left open
    _check_log(service, operations, noted)
    _check_readers(service)


def _run(writers: Sequence[Writer], own_broker: OwnBroker) -> None:
    deadline, restarted = time.monotonic() + _ALL_S, False
    while any([writer.tend() for writer in writers]):
        assert time.monotonic() < deadline, [writer.entries()[-1:] for writer in writers]
        if not restarted and sum(len(writer.entries()) for writer in writers) > COMMANDS:
            own_broker.kill()
            own_broker.start()
            restarted = True
        time.sleep(0.05)
    assert restarted, "O8"


def _check_log(service: Service, operations: Sequence[Operation], noted: Mapping[int, dict[str, Any]]) -> None:
    log = dict(zip((record.offset for record in service.logged()), service.commands(), strict=True))
    assert [command.id for command in log.values()] == list(range(1, len(log) + 1))
    log.popitem()  # the test's own
    acknowledged = {number: entry for number, entry in noted.items() if entry["what"] == "done" and entry["id"]}
    for number, entry in acknowledged.items():
        command = log.pop(entry["offset"], None)
        assert command is not None, f"{operations[number]} was acknowledged and is not in the log, or twice: {entry}"
        assert (command.id, _signature(command)) == (entry["id"], operations[number].signature)
    # What is left was sent by writers that died, or were told that nobody knows: each of these once at most.
    doubtful = Counter(
        operations[number].signature for number, entry in noted.items() if entry["what"] in ("begun", "unknown")
    )
    left = Counter(_signature(command) for command in log.values())
    assert left <= doubtful, f"visible, and never acknowledged: {left - doubtful}"
    kinds = Counter(entry["what"] for entry in noted.values())
    assert kinds["refused"] > 20, kinds
    # Writers take turns, so whether one is fenced is a matter of luck; tests/integration/test_metastore_protocol.py
    # makes sure of it (C7).
    assert len(acknowledged) > COMMANDS // 3, kinds


def _check_readers(service: Service) -> None:
    folded = Catalogue()
    for command in service.commands():
        folded = folded.apply(command)
    views = [service.metastore().view(), service.metastore(backup=False).view()]
    views.append(Metastore(Cluster(service.servers), service.service_id, service.backup.with_name("another")).view())
    assert {view.health for view in views} == {Health.RUNNING}, views[0].reason
    assert {view.pin for view in views} == {(service.logged()[-1].offset + 1, folded.digest())}
    records = BackupFile(service.backup, service.service_id).read_whole().records
    assert [record.value for record in records] == [record.value for record in service.logged()]
