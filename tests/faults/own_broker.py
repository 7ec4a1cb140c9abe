"""A broker that a test may stop, kill and start again: nobody else uses it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.kafka import Kafka
from demo.processes import Processes
from tests.integration.broker import wait_for

_ESTABLISHED = "01"
_STOPPED = "T"
#: Log starts are noted once a minute, or never: what a test makes of the log must not depend on when.
_SETTINGS = {"log.initial.task.delay.ms": "3600000"}
#: The controller, which is paused with its broker, would fence it afterwards for its silence, and then it may lead
#: nothing for minutes.
_NEVER_FENCED = {"broker.session.timeout.ms": "3600000"}


class OwnBroker:
    """A broker in a directory of its own.

    Parameters
    ----------
    never_fenced
        True for a broker that is paused for seconds. After `kill`, such a one cannot start again for an hour.
    """

    def __init__(self, processes: Processes, directory: Path, *, never_fenced: bool = False) -> None:
        self._kafka = Kafka(processes, directory, settings=_SETTINGS | (_NEVER_FENCED if never_fenced else {}))
        self.servers = self._kafka.start()

    @property
    def _pid(self) -> int:
        return self._kafka._service.pid

    def pause(self) -> None:
        """Let it answer nothing; its connections stay.

        The signal stops one thread, which stops the others when it gets a processor: until then they answer requests.
        """
        os.kill(self._pid, signal.SIGSTOP)
        wait_for(self.stands_still, "every thread of the broker to stop")

    def stands_still(self) -> bool:
        """True if none of its threads can run."""
        try:
            stats = [stat.read_text() for stat in Path(f"/proc/{self._pid}/task").glob("*/stat")]
        except (FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            return False
        return bool(stats) and all(stat.rpartition(")")[2].split()[0] == _STOPPED for stat in stats)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once: what it had not read from its connections is gone."""
        os.kill(self._pid, signal.SIGKILL)
        self._kafka.stop()

    def stop(self) -> None:
        """End it in an orderly way."""
        self._kafka.stop()

    def start(self) -> None:
        """Start it again, at the same address."""
        assert self._kafka.start() == self.servers

    def segment(self, topic: str, partition: int = 0) -> Path:
        """Return the file of a log that has one segment."""
        (log,) = (self._kafka.directory / "data" / f"{topic}-{partition}").glob("*.log")
        return log

    def cut(self, topic: str, end: int) -> None:
        """Let a log that has one segment end at an offset, with which a batch begins; the broker must not run."""
        log = self.segment(topic)
        log.write_bytes(log.read_bytes()[: batch_at(log, end)])

    def unread_bytes(self) -> int:
        """How much has arrived that a paused broker has not read."""
        port = int(self.servers.rpartition(":")[2])
        unread = 0
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == _ESTABLISHED:
                    unread += int(fields[4].partition(":")[2], 16)
        return unread

    def wait_for_a_request(self, since: int) -> None:
        """Wait until more has arrived than `unread_bytes` told before."""
        wait_for(lambda: self.unread_bytes() > since, "a request to a broker that does not read")


@contextmanager
def own_broker_in(directory: Path, *, never_fenced: bool = False) -> Iterator[OwnBroker]:
    """Run a broker of one's own below a directory."""
    with Processes(directory) as processes:
        yield OwnBroker(processes, directory / "kafka", never_fenced=never_fenced)


def batch_at(log: Path, offset: int) -> int:
    """Return where in a segment the batch is that begins with an offset."""
    data, position = log.read_bytes(), 0
    while int.from_bytes(data[position : position + 8], "big") < offset:
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return position
