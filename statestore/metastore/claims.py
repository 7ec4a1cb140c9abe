"""Claims: the catalogue that an application belongs to, where all catalogues of a cluster can see it.

Two catalogues (service ids) do not read each other's command topics. If both defined one application, their runs would
write different aggregates into the same changelogs. So the topic of input offsets has the application's claim: a record
in partition 0 whose key is `catalogue` and whose value is JSON, `{"version": 1, "service_id": "default"}`. `apply`
writes it, or the first run of an application without one. Dropping the application deletes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from statestore.changelog import brokers_clock
from statestore.changelog.input_offsets import last_record
from statestore.errors import LogCorruptedError, OtherCatalogueError
from statestore.formats.input_offset import CLAIM_KEY
from statestore.kafka.topics import Topics
from statestore.kafka.writer import RecordWriter
from statestore.model import TopicPartition, input_offsets_topic

#: A claim that is further from the end of its topic is written again, so that it is found quickly.
_NEAR = 1024


class Claim(BaseModel):
    """Value of the record."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    service_id: str


class FoundClaim(NamedTuple):
    """An application's claim.

    Attributes
    ----------
    service_id
        Its catalogue; None: the topic has no claim.
    is_near
        Whether it is near the end of the topic.
    """

    service_id: str | None
    is_near: bool


def claims_of(topics: Topics, applications: Iterable[str]) -> dict[str, FoundClaim]:
    """Return the claims of those applications whose topic of input offsets exists.

    Raises
    ------
    LogCorruptedError
        If a claim cannot be read.
    """
    names = {input_offsets_topic(name): name for name in applications}
    places = {TopicPartition(topic, 0): names[topic] for topic in topics.describe(names)}
    found = dict[str, FoundClaim]()
    for where, log in topics.log_ranges(places).items():
        # Claims are written without a transaction. An open transaction of a task must not hide one.
        whole = log._replace(last_stable=log.high_watermark)
        last = last_record(topics.cluster, where, whole, CLAIM_KEY, read_committed=False)
        found[places[where]] = FoundClaim(None, False)
        if last is not None and last.value is not None:
            near = log.high_watermark - last.offset <= _NEAR
            found[places[where]] = FoundClaim(_service_id(where, last.offset, last.value), near)
    return found


def _service_id(where: TopicPartition, offset: int, value: bytes) -> str:
    try:
        return Claim.model_validate_json(value).service_id
    except ValueError as error:
        raise LogCorruptedError(
            f"the record at offset {offset} of {where} is no claim that this version can read: {error}. A later "
            "version has written it: use that version"
        ) from error


def require_own(
    topics: Topics,
    applications: Collection[str],
    service_id: str,
    taken_from: str | None = None,
    *,
    claims: Mapping[str, FoundClaim] | None = None,
) -> list[str]:
    """Refuse applications of other catalogues, and return those whose claim must be written.

    Parameters
    ----------
    taken_from
        A service id whose applications may be taken over.
    claims
        Claims that are already known. If None, they are read now.

    Raises
    ------
    OtherCatalogueError
        Naming all of them, with their catalogues.
    """
    found = claims_of(topics, applications) if claims is None else claims
    others = {
        name: claim.service_id
        for name, claim in found.items()
        if name in applications and claim.service_id not in (None, service_id, taken_from)
    }
    if others:
        said = ", ".join(f"{name} belongs to catalogue {other}" for name, other in others.items())
        raise OtherCatalogueError(
            f"{said}, this is catalogue {service_id} (service id). Two catalogues must not define one application: "
            "their runs would write into the same changelogs. Use --service-id or STATESTORE_SERVICE_ID of its "
            "catalogue, or another name for the application. To move it, stop it, and apply the definition that "
            "`statestore get` shows there with --take-from and that service id"
        )
    return [name for name in applications if found.get(name) != FoundClaim(service_id, True)]


def write_claims(topics: Topics, applications: Collection[str], service_id: str) -> None:
    """Claim applications, whose topics of input offsets exist, for a catalogue."""
    _write(topics, applications, Claim(service_id=service_id).model_dump_json().encode())


def release(topics: Topics, application: str, service_id: str) -> None:
    """Delete the claim of a dropped application, so that another catalogue can have it; that of another one stays."""
    claim = claims_of(topics, [application]).get(application)
    if claim is not None and claim.service_id == service_id:
        _write(topics, [application], None)


def _write(topics: Topics, applications: Collection[str], value: bytes | None) -> None:
    if not applications:
        return
    with closing(RecordWriter(topics.cluster, "the catalogue", None)) as writer:
        for name in applications:
            writer.produce(input_offsets_topic(name), CLAIM_KEY, value, brokers_clock.now_ms(topics.cluster), 0)
        writer.flush()
