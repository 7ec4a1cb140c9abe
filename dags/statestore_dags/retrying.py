"""Which failures of a step are tried again, and when."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowFailException

from statestore.environments import Environment, environment_of_dag
from statestore.errors import GiveUpError, InputError, RebuildError, RetryError, StateStoreError, of_os_error
from statestore.objects.path import is_url

if TYPE_CHECKING:
    from airflow.sdk import Context

_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR})


@contextmanager
def bad_input_fails() -> Iterator[None]:
    """Turn bad input into a failure that Airflow does not retry: the same input would fail again.

    A directory that may not be written, or is full, is bad input, too.
    """
    try:
        yield
    except InputError as error:
        raise AirflowFailException(str(error)) from error
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        raise AirflowFailException(str(of_os_error(error))) from error


@contextmanager
def in_environment(dag_id: str) -> Iterator[Environment]:
    """Do a step of a DAG with the settings of its environment; bad input fails, as above."""
    with bad_input_fails():
        environment = environment_of_dag(dag_id)
        with environment.active():
            yield environment


class RetryWhatMayPass(RetryPolicy):
    """Retry what says that it may pass, Kafka being away above all, and anything unforeseen once.

    A job or step that was fenced, that found a store corrupt or its input bad would end the same way again.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """See `RetryPolicy.evaluate`."""
        code = _exit_code(exception, context)
        if code == RetryError.exit_code:
            return RetryDecision.default()
        if code in _DECIDED:
            return RetryDecision.fail(reason=f"it ended with exit code {code}: a retry would end the same way")
        if try_number > 1:
            return RetryDecision.fail(reason="it failed again, and the error is not known to be temporary")
        return RetryDecision.default()


_DECIDED = frozenset({RebuildError.exit_code, InputError.exit_code, GiveUpError.exit_code})

#: Of steps that ask Kafka or object storage. The pauses are 20 s, 40 s, 80 s; a failed form is not retried.
RETRIED: dict[str, Any] = {
    "retries": 3,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=10),
    "retry_policy": RetryWhatMayPass(),
}


def retried_reads() -> dict[str, Any]:
    """Return what is said of a step that reads a report: it is retried where the report lies in object storage."""
    return RETRIED if is_url(os.environ.get("STATESTORE_REPORTS_DIR", "").strip()) else {}


def _exit_code(exception: BaseException, context: Context | None) -> int | None:
    if isinstance(exception, StateStoreError):
        return exception.exit_code
    # The operator keeps the ended process; its exception has the exit code only within a sentence.
    hook = getattr(context["task"], "_hook", None) if context else None
    return getattr(getattr(hook, "_submit_sp", None), "returncode", None)
