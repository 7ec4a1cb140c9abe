"""The plain model of the metastore: what a service's command topic says, folded without any code of the library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from tests.integration.broker import Logged


def folded(records: Iterable[Logged]) -> dict[str, Any]:
    """Applications by name, after the commands of a log that begins with the first one; drops there are none."""
    applications: dict[str, Any] = {}
    for number, record in enumerate(records, 1):
        command = json.loads(record.value or b"")
        assert command["id"] == number, f"O6: command {number} has id {command['id']}"
        if command["kind"] == "put-application":
            definition = command["definition"]
            name = definition["name"]
            old = applications.get(name, {"created_id": number, "topics": None})
            applications[name] = {
                "definition": definition,
                "partitions": command["partitions"],
                "topics": old["topics"]
                and {topic: known for topic, known in old["topics"].items() if topic in _internal(definition)},
                "created_id": old["created_id"],
                "changed_id": number,
                "changed_ms": command["written_ms"],
                "changed_by": command["written_by"],
            }
        else:
            assert command["kind"] == "record-topics", f"O6: {command['kind']} is no command of a campaign"
            entry = applications[command["application"]]
            entry["topics"] = {**(entry["topics"] or {}), **command["topics"]}
    return applications


def digest(applications: dict[str, Any]) -> str:
    """SHA-256 of the one JSON text of the applications."""
    content = {"applications": applications}
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _internal(definition: dict[str, Any]) -> set[str]:
    name = definition["name"]
    changelogs = {f"{name}-{store['name']}-changelog" for store in definition["stores"]}
    regrouped = {item["store"] for item in definition["aggregations"] if item["group_by"]}
    repartitions = {f"{name}-{store}-repartition" for store in regrouped}
    return changelogs | repartitions | {f"{name}-input-offsets"} | {f"{topic}-offsets" for topic in repartitions}
