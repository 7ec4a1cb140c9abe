"""What is asked of a run of stream applications."""

from __future__ import annotations

from statestore.requests.request import Names, Request


class ProcessRequest(Request):
    """Whose input is processed."""

    applications: Names = ()
    """Name of an application (its application.id). Default: all."""
    resume_from_position: bool = False
    """Go on from the stores' position where the consumer group's input offsets are gone."""
