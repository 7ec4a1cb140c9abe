"""A request for a run of stream applications."""

from __future__ import annotations

from statestore.requests.request import Names, Request


class ProcessRequest(Request):
    """A request to process applications."""

    applications: Names = ()
    """Name of an application (its application.id). Default: all."""
    resume_from_position: bool = False
    """If the consumer group has lost its input offsets, continue from the input offsets that are recorded in the
    stores."""
