"""Deadlines for calls that may never return: each call runs in its own thread.

librdkafka does not keep to its deadlines while no broker is there, and it can lock itself up while a consumer is closed
(its issue 4514). kafka-python's deadlines hold for each request alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from confluent_kafka import Consumer

T = TypeVar("T")
_log = logging.getLogger(__name__)


def call_within(timeout_s: float, call: Callable[[], T], name: str) -> T:
    """Return what a call returns, or raise what it raises; if it takes longer, leave it to its thread.

    Parameters
    ----------
    timeout_s
        How long to wait for it.
    call
        Takes nothing. If it is left, it goes on, until the process ends without waiting for it.
    name
        Of its thread.

    Raises
    ------
    TimeoutError
        If the call has not ended in time.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return outcome.result(timeout_s)


def close_consumer(consumer: Consumer, timeout_s: float = 60.0) -> None:
    """Close a consumer; one that does not close in time keeps its connections until the process ends.

    Nothing is lost by that: no consumer of the library is a member of its group, or commits when it is closed.
    """
    try:
        call_within(timeout_s, consumer.close, "close consumer")
    except TimeoutError:
        _log.warning(
            "a Kafka consumer did not close in %g s; it keeps its connections until this process ends. "
            "If this repeats, restart the process",
            timeout_s,
        )
