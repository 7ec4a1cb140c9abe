"""The report of a survey."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from statestore.reports import Advice, Int64, JobReport, Text


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SurveyedStore(_Part):
    """A changelog topic, which is a store of an application."""

    name: Text
    topic: Text
    partitions: Int64
    replication: Int64 = Field(description="smallest replication factor of a partition")
    cleanup_policy: Text = Field(description="empty: not read")
    bytes: Int64 | None = Field(description="size of the leaders' logs on disk; None: not read")
    records: Int64 | None = Field(description="offsets of the logs, at least as many as records; None: not read")
    kafka_streams_s: float | None = Field(description="restore by Kafka Streams; None: not known")
    statestore_s: float | None = Field(description="restore by statestore; None: not known")
    snapshots: Int64 | None = Field(default=None, description="partitions with a usable snapshot; None: no archive")
    verified: Int64 | None = Field(default=None, description="partitions ever verified; None: no reports were read")
    evidence: Text = Field(default="", description="why it is this application's")


class SurveyedApplication(_Part):
    """An application with state on the cluster."""

    name: Text = Field(description="application.id; empty for changelogs of no known application")
    kind: Literal["Kafka Streams", "ksqlDB", "statestore", "unknown"]
    group_state: Text = Field(description="as the coordinator names it; empty: there is no group")
    group_type: Text = ""
    members: Int64 | None = Field(default=None, description="None: not read")
    static_members: Int64 = 0
    clients: tuple[Text, ...] = ()
    repartition_topics: Int64 = 0
    kafka_streams_s: float | None = None
    statestore_s: float | None = None
    stores: tuple[SurveyedStore, ...]

    @property
    def partitions(self) -> int:
        """Partitions of all changelogs."""
        return sum(store.partitions for store in self.stores)

    @property
    def bytes(self) -> int | None:
        """Size of all changelogs; None if one was not read."""
        sizes = [store.bytes for store in self.stores]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def records(self) -> int | None:
        """Records of all changelogs, at most; None if one was not read."""
        counts = [store.records for store in self.stores]
        return None if None in counts else sum(count or 0 for count in counts)


class SurveyRisk(_Part):
    """What puts state at risk."""

    application: Text = Field(description="empty: the whole cluster, or a changelog of no known application")
    subject: Text = Field(description="topic, group, or broker")
    why: Text = Field(description="what was found, in figures")
    advice: Advice


class SurveyUnread(_Part):
    """A fact that could not be read."""

    subject: Text
    fact: Text
    why: Text


class SurveyReport(JobReport):
    """Report of a survey of a cluster."""

    job: Literal["survey"] = "survey"
    bootstrap_servers: Text
    cluster_id: Text
    brokers: Int64
    requests: Int64 = Field(description="requests to the brokers")
    assumption: Text = Field(description="what the times of restores assume")
    surveyed: tuple[SurveyedApplication, ...]
    risks: tuple[SurveyRisk, ...]
    unread: tuple[SurveyUnread, ...]

    @property
    def complete(self) -> bool:
        """True if everything was read."""
        return not self.unread
