"""Work on an archive that goes on by single requests, in the order that a test chooses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from statestore.objects.store import ObjectStore, StoredObject

T = TypeVar("T")
_WAIT_S = 60
_here = threading.local()


class _Abandoned(BaseException):
    """Ends work that nobody lets go on."""


class Actor:
    """Work in a thread of its own, which waits before each of its requests.

    Attributes
    ----------
    ended
        Whether it has done its work.
    error
        What it ended with.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self.ended = False
        self.error: BaseException | None = None
        self._abandoned = False
        self._may, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        assert self._waits.acquire(timeout=_WAIT_S)

    def step(self) -> None:
        """Let it make one request, and go on to the next."""
        self._may.release()
        assert self._waits.acquire(timeout=_WAIT_S), "an actor neither waits nor ends"

    def abandon(self) -> None:
        """End it where it is."""
        self._abandoned = True
        while not self.ended:
            self.step()
        self._thread.join(_WAIT_S)

    def wait_for_turn(self) -> None:
        """Called by the work itself."""
        self._waits.release()
        self._may.acquire()
        if self._abandoned:
            raise _Abandoned

    def _run(self, work: Callable[[], None]) -> None:
        _here.actor, _here.held = self, False
        try:
            self.wait_for_turn()
            work()
        except _Abandoned:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True
            self._waits.release()


@contextmanager
def one_step() -> Iterator[None]:
    """Have all requests in the block made as one."""
    _wait_for_turn()
    _here.held = True
    try:
        yield
    finally:
        _here.held = False


def _wait_for_turn() -> None:
    actor = getattr(_here, "actor", None)
    if actor is not None and not _here.held:
        actor.wait_for_turn()


class SteppedStore(ObjectStore):
    """An archive each request to which waits for its turn, if it is of an actor."""

    def create(self, name: str, content: bytes) -> bool:
        _wait_for_turn()
        return super().create(name, content)

    def upload(self, name: str, chunks: Iterable[bytes]) -> None:
        _wait_for_turn()
        super().upload(name, chunks)

    def read(self, name: str, limit: int) -> bytes:
        _wait_for_turn()
        return super().read(name, limit)

    def read_chunks(self, name: str, size: int) -> Iterator[Any]:
        _wait_for_turn()
        yield from super().read_chunks(name, size)

    def stat(self, name: str) -> StoredObject | None:
        _wait_for_turn()
        return super().stat(name)

    def entries(self, prefix: str = "") -> Iterator[StoredObject]:
        _wait_for_turn()
        yield from list(super().entries(prefix))

    def delete(self, name: str) -> None:
        _wait_for_turn()
        super().delete(name)


class InOneThread:
    """Stands for a pool of threads, so that an actor's requests are all its own."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> InOneThread:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Work at once."""
        done: Future[T] = Future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    def map(self, work: Callable[..., T], *arguments: Iterable[Any]) -> Iterator[T]:
        """Work in order."""
        return iter([work(*each) for each in zip(*arguments, strict=True)])

    def shutdown(self, **_: bool) -> None:
        """Nothing is left to be ended."""
