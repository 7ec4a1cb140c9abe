"""Dead letters: records that the application's code fails on, with the reason in their headers (KIP-1034)."""

from __future__ import annotations

import traceback

from statestore.tasks.processor import Headers, Record

_PREFIX = "__streams.errors."
_MAX_TRACE = 8_000


def error_headers(record: Record, error: BaseException) -> Headers:
    """Return the record's own headers and Kafka Streams' that say what failed, and where the record was."""
    trace = "".join(traceback.format_exception(error))[-_MAX_TRACE:]
    why = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": str(error),
        "stacktrace": trace,
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
    }
    return [
        *record.headers,
        *((_PREFIX + name, text.encode(errors="backslashreplace")) for name, text in why.items()),
    ]
