"""A cluster is written with its brokers and deadline alone, however its clients were used."""

from __future__ import annotations

import pickle

from pydantic import TypeAdapter

from statestore.kafka.cluster import Cluster


def test_a_cluster_with_clients_is_written_and_copied_without_them() -> None:
    used = Cluster("127.0.0.1:1", 5.0)
    assert used.pool is used.pool
    adapter = TypeAdapter(Cluster)
    assert adapter.dump_python(used, mode="json") == {"servers": "127.0.0.1:1", "timeout_s": 5.0}
    for copied in (adapter.validate_json(adapter.dump_json(used)), pickle.loads(pickle.dumps(used))):
        assert copied == used
        assert copied.pool is not used.pool
