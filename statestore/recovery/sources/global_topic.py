"""All partitions of a global table's topic.

The rows are those that Kafka Streams gives the table when it fills it: of each key the last record, and of a key that
several partitions have that of the last of them. The offsets are the next to read, so Kafka Streams reads on from
there. Records without a key are left out, and records that the application could not read are not, as Kafka Streams
does not look into them either when it fills a table.
"""

from __future__ import annotations

from statestore.partition.facts import Facts
from statestore.partition.plan import Need, Offer, Request
from statestore.recovery.disk_space import require_disk
from statestore.recovery.full import Built, build_full
from statestore.recovery.sources.source import BuildResult, BuildSource, Work
from statestore.statedir.record import StoreRecord


class GlobalTopicSource(BuildSource):
    """Reads all partitions of a global table's topic."""

    name = "global topic"
    order = 50

    def offer(self, facts: Facts, need: Need, request: Request) -> Offer | None:
        """Offer the topic for a rebuild of a global table."""
        return Offer("global topic", "full") if need.kind == "table" else None

    def build(self, work: Work) -> BuildResult:
        """Build the table from all partitions."""
        require_disk(work.spec, "full", work.logs)
        built = build_full(work.spec, work.staging, work.logs, work.progress, work.asked_ms)
        return BuildResult(built, self.checked(work, built))

    def record(self, work: Work, built: Built) -> StoreRecord:
        """Return the record of a table, whose offsets are in its database."""
        assert work.store.changelog is not None, "its topic was read"
        topic_id = work.store.changelog.topic_id
        return StoreRecord(topic_id=topic_id, caught_up_ms=built.since_ms, restored_by=work.spec.label)


SOURCE = GlobalTopicSource()
